"""Figures of TruthRL: what the policy knows, Figures 2 and 6, and Table 8."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure

from factkit.answers.short_form import RATES
from factkit.report import figures, published
from factkit.report.figures import arm_panels, run_panels, tables
from factkit.run.statistics import t_interval

if TYPE_CHECKING:
    from factkit.answers.sampling import Probe
    from factkit.data.examples import Example

Results = Sequence[Mapping[str, Any]]
BACKBONES = {  # variant → the model of Table 8; "" is the main variant
    "small": "",
    "": "",
    "large": "",
    "llama3.2-3b": "Llama3.2-3B-Inst",
    "qwen2.5-3b": "Qwen2.5-3B-Inst",
    "qwen2.5-7b": "Qwen2.5-7B-Inst",
    "qwen2.5-32b": "Qwen2.5-32B-Inst",
    "retrieval": "Llama3.1-8B-Inst",
}
TITLES = {  # of arms whose names are abbreviations
    "sft": "SFT",
    "rft": "RFT",
    "r_tuning": "R-Tuning",
    "rlhf": "RLHF",
    "rlkf": "RLKF",
    "dpo": "DPO",
    "iterative_dpo": "iterative DPO",
    "rlcr": "RLCR",
}


def arm_title(arm: str) -> str:
    """An arm's name in figures: "R-Tuning (reference)" of "r_tuning (reference)"."""
    name, *reference = arm.split(" ")
    return " ".join([TITLES.get(name, figures.format_name(name)), *reference])


def by_title(results: Results) -> dict[str, Results]:
    """Results by arm, as `tables.by_arm`, under the arms' names in figures."""
    return {arm_title(arm): runs for arm, runs in tables.by_arm(results).items()}


def knowledge_boundary(
    examples: "Sequence[Example]", probes: "Sequence[Probe]", known_share: float
) -> Figure:
    """The share of correct samples of each question, by relation (§3.1).

    One point per question, a bar at the relation's mean; left of the dashed line a
    question is out of knowledge.
    """
    shares: dict[str, list[float]] = {}
    for example, probe in zip(examples, probes, strict=True):
        shares.setdefault(example.relation, []).append(probe.accuracy)
    relations = sorted(shares, key=lambda r: sum(shares[r]) / len(shares[r]))
    figure, ax = figures.new_figure(height=0.26 * len(relations) + 1.2)
    for y, relation in enumerate(relations):
        values = shares[relation]
        spread = [y + 0.3 * (((7 * i) % 11) / 11 - 0.5) for i in range(len(values))]
        ax.plot(values, spread, ".", color=figures.CORRECT, alpha=0.4, ms=6, mew=0)
        ax.plot(sum(values) / len(values), y, "|", color="black", ms=14, mew=2)
    step = 1 / len(probes[0].samples)
    edge = max(known_share, step) - step / 2  # between last unknown and first known
    ax.axvline(edge, color=figures.WRONG, lw=1.2, ls="--")
    ax.set_yticks(range(len(relations)), map(figures.format_name, relations))
    figures.percent_axis(
        ax, "correct samples of a question; bar: mean of the relation", "x"
    )
    ax.set_title("Left of the dashed line: out of knowledge", fontsize=10, loc="left")
    return figure


def majority(results: Results) -> Figure:
    """Fig 2: outcomes of the majority of k samples by arm; bands are the range of the
    seeds."""
    figure, axes = figures.new_figure(9.5, 3.0, columns=3)
    for ax, metric in zip(
        axes, ("accuracy", "abstention", "hallucination"), strict=True
    ):
        for i, (arm, runs) in enumerate(by_title(results).items()):
            colour, line, _ = figures.arm_style(i)
            shares = _numbered(runs, "majority", metric)
            ks, name = [int(k) for k in shares], figures.name_arm(arm, runs)
            style = {"ls": line, "marker": "o", "ms": 3, "color": colour, "label": name}
            ax.plot(ks, shares.mean(), **style)
            ax.fill_between(ks, shares.min(), shares.max(), color=colour, alpha=0.2)
            ax.set_xscale("log", base=2)
            ax.set_xticks(ks, list(shares))
        ax.set_xlabel("samples k")
        ax.set_title(metric, fontsize=10)
        figures.percent_axis(ax, "held-out questions")
    figures.legend_below(figure)
    return figure


def confidence(results: Results) -> Figure:
    """Fig 6: outcomes by confidence, one panel per arm; above a bar, the share of the
    answers that are in its bin."""
    groups = by_title(results)
    figure, _ = figures.new_figure(3.4 * len(groups), 3.2, columns=len(groups))
    for ax, (arm, runs) in zip(figure.axes, groups.items(), strict=True):
        bottom = 0.0
        for metric, label, colour in arm_panels.OUTCOMES:
            means = _numbered(runs, "confidence", metric).mean()
            style = {"color": colour, "ec": "black", "lw": 0.6, "label": label}
            ax.bar(range(len(means)), means, 0.8, bottom, **style)
            bottom += means
        sizes = _numbered(runs, "confidence", "n")
        for x, share in enumerate(sizes.sum() / len(runs)):
            ax.text(x, 1.02, f"{100 * share:.0f} %", ha="center", fontsize=8)
        spans = [f"{float(edge):.1f}–{float(edge) + 0.2:.1f}" for edge in sizes]
        ax.set_xticks(range(len(spans)), spans, fontsize=8)
        ax.set_xlabel(f"confidence · {figures.name_arm(arm, runs)}")
        figures.percent_axis(ax, "answers in the bin")
        ax.set_ylim(0, 1.1)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False)
    return figure


def risk_coverage(results: Results) -> Figure:
    """The risk–coverage curve by arm: the share of wrong answers among the most
    confident ones, which cover so many of all questions. Bands are the range of the
    seeds; a curve ends where an arm abstains from the rest."""
    figure, ax = figures.new_figure()
    for i, (arm, runs) in enumerate(by_title(results).items()):
        colour, line, _ = figures.arm_style(i)
        risks = _numbered(runs, "coverage", "risk")
        coverage, name = [float(c) for c in risks], figures.name_arm(arm, runs)
        style = {"ls": line, "marker": "o", "ms": 3, "color": colour, "label": name}
        ax.plot(coverage, risks.mean(), **style)
        ax.fill_between(coverage, risks.min(), risks.max(), color=colour, alpha=0.2)
    figures.percent_axis(ax, "coverage: held-out questions", "x")
    figures.percent_axis(ax, "risk: wrong among these")
    ax.set_xlim(0, 1.02)
    figures.legend_below(figure)
    return figure


def _numbered(runs: Results, kind: str, metric: str) -> pd.DataFrame:
    return run_panels.numbered([r["metrics"] for r in runs], kind, metric)


def policy_sizes(sizes: Mapping[str, Results]) -> Figure:
    """Table 8: truthfulness and hallucination by size of the policy, before training
    and after TruthRL; grey: the paper's. sizes: variant of `BACKBONES` → results."""
    printed = published.read_table(8, "truthrl").set_index(["arm", "model"])
    arms = ("prompting", "ternary")
    figure, axes = figures.new_figure(max(6.0, 1.6 * len(sizes) + 3), 3.4, columns=2)
    panels = {"truthfulness": "T", "hallucination": "H"}
    for ax, (metric, column) in zip(axes, panels.items(), strict=True):
        by_size = {
            arm: [
                {"metrics": {size: r["metrics"][metric]}}
                for size, results in sizes.items()
                for r in results
                if r["arm"] == arm
            ]
            for arm in arms
        }
        paper = {
            size: {
                arm: printed.at[(arm, BACKBONES[size]), column] / 100 for arm in arms
            }
            for size in sizes
            if BACKBONES[size]
        }
        names = {size: size or "main" for size in sizes}
        arm_panels.grouped(ax, by_size, names, paper)
        ax.axhline(0, color="black", lw=0.8)
        figures.percent_axis(ax, f"{metric}, held-out questions")
    figures.legend_below(figure)
    return figure


def rank_rewards(results: Results, questions: int) -> pd.DataFrame:
    """A table of runs with own rewards, the most truthful first, in per cent.

    `T ±` is the half-width of the 95 % t interval over the questions, of which a right
    answer scores 1, abstention 0 and a wrong answer -1. questions: their number.
    """
    rows = {}
    for result in results:
        rates = {name: result["metrics"][name] for name in RATES}
        right = round(questions * rates["accuracy"])
        wrong = round(questions * rates["hallucination"])
        scores = [1] * right + [-1] * wrong + [0] * (questions - right - wrong)
        rates["T ±"] = t_interval(scores)[1]
        row = {name: 100 * value for name, value in rates.items()}
        row["reward"] = result["inputs"]["reward"]
        rows[result["arm"], result["seed"]] = row
    table = pd.DataFrame.from_dict(rows, "index").rename_axis(["name", "seed"])
    return table.sort_values("truthfulness", ascending=False).round(1)
