"""Veri-R1's figures beside the published numbers, and views of trajectories."""

import re
from collections.abc import Mapping
from html import escape

import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from factkit.papers.veri import rewards
from factkit.papers.veri.evaluate import HIGH, LOW, SHORT, Verified, evidence_score
from factkit.report import figures, published
from factkit.report.figures import arm_panels
from factkit.report.figures.run_panels import BLUE, GREY, RED
from factkit.run import runs
from factkit.verify.trajectory import (
    INFORMATION,
    LABELS,
    OTHER,
    is_forced,
    is_well_formed,
    parse_steps,
)

AnswersByArm = Mapping[str, pd.DataFrame]  # see `answers_of`
MAIN = ("instruct", "sft", "offline_rl", "online_rl")  # Table 1
SCALES = ("instruct", "online_rl", "larger")  # Fig 5e–f
ABLATED = ("online_rl", "without_evidence", "without_validity")  # Fig 4
METRICS = {
    "joint_accuracy": "joint accuracy",
    "verification_accuracy": "verification\naccuracy",
    "label_accuracy": "label accuracy",
    "evidence_score": "evidence score",
    "checkable_evidence_score": "evidence score\n(not of NEI)",
    "evidence_cover": "evidence cover",
}
REWARDED = {  # without NEI, which has no gold evidence
    "checkable_evidence_score": "evidence score (not of NEI) of rollouts",
    "verification_accuracy": "verification accuracy of rollouts",
    "evidence_cover": "evidence cover of rollouts",
}
ROLLOUTS = {  # panels of a run's learning curve
    "mean reward": {"reward": "reward"},
    "evidence (%)": {
        "checkable_evidence_score": "evidence score (not of NEI)",
        "evidence_cover": "evidence cover",
    },
    "claims (%)": {
        "label_accuracy": "label right",
        "verification_accuracy": "… and all evidence cited",
        "format_share": "well formed",
        "frac_reward_zero_std": "groups of equal rewards",
    },
    "searches a claim": {"searches": "searches"},
}
LABEL_NAMES = {
    short: label.replace(" INFO", "\nINFO") for label, short in SHORT.items()
}
PAPER = "paper (Qwen2.5)"
ENTRY = re.compile(r"^\[\[(.+?)\]\]", re.MULTILINE)  # the id of an entry found
STEP = "border: 1px solid #bbb; margin: 3px 0; background-color: white; color: black"
TEXT = "white-space: pre-wrap; text-align: left; line-height: 1.5; padding: 3px 10px"
CELL = "vertical-align: top; padding: 4px 8px; text-align: left"
RIGHT, WRONG, MISSED = ("✓", BLUE), ("✗", RED), ("○", GREY)


def main_arms(groups: arm_panels.Groups) -> Figure:
    """Tables 1 and 3: the metrics after training, one bar per arm.

    Bars are means over seeds, error bars 95 % t intervals. Dotted: before training.
    Grey lines: the paper's (Qwen2.5), means over its five sets; it has no cover.
    """
    figure, ax = figures.new_figure(9.5, 3.8)
    paper = {name: _means(1, f"_{name}") for name in METRICS}
    paper["evidence_score"] = _means(3, "")
    arm_panels.grouped(ax, groups, METRICS, paper, PAPER)
    figures.percent_axis(ax, "test claims")
    ax.set_ylim(0, 1)
    figures.legend_below(figure, 6)
    return figure


def by_label(groups: arm_panels.Groups) -> Figure:
    """Tables 2, 7 and 8: joint, verification and label accuracy of each gold label.

    As `main_arms`. Grey lines: Table 2's means over the paper's sets of three labels;
    Tables 7 and 8 have misprints (tests/test_veri_published.py) and are not drawn.
    """
    three = {label: _means(2, f"_{label}", without="hover_") for label in LABEL_NAMES}
    paper = {f"{label}_joint_accuracy": values for label, values in three.items()}
    names = {name: METRICS[name].replace("\n", " ") for name in list(METRICS)[:3]}
    return _panels(groups, names, 12.0, paper)


def precision_and_recall(groups: arm_panels.Groups) -> Figure:
    """Fig 5e–f: recall and precision of each label, as `main_arms`."""
    names = {"recall": "recall", "precision": "precision"}
    figure = _panels(groups, names, 9.5)
    figure.axes[1].set_xlabel("label said")
    return figure


def _panels(
    groups: arm_panels.Groups,
    metrics: Mapping[str, str],
    width: float,
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """One panel per metric (name → axis label), with the bars of each label."""
    figure, axes = figures.new_figure(width, 3.6, columns=len(metrics))
    for ax, (metric, axis_label) in zip(axes, metrics.items(), strict=True):
        names = {f"{label}_{metric}": name for label, name in LABEL_NAMES.items()}
        arm_panels.grouped(ax, groups, names, paper, PAPER)
        figures.percent_axis(ax, axis_label)
        ax.set_xlabel("gold label")
        ax.set_ylim(0, 1)
    figures.legend_below(figure, 6)
    return figure


def _means(table: int, suffix: str, without: str = "-") -> dict[str, float]:
    """Qwen's arms → the mean of a table's columns with that suffix, as a fraction."""
    rows = published.select_rows(table, "veri").set_index("arm")
    values = rows.drop(columns="model")
    names = [c for c in values if c.endswith(suffix) and not c.startswith(without)]
    return (values[names].mean(axis=1) / 100).dropna().to_dict()


# ---- confidence: the probability of the written label; the paper's is a logit


def answers_of(items: pd.DataFrame) -> pd.DataFrame:
    """The answers in a run's items.csv whose label has a probability: label, whether it
    is right, and its probability p."""
    parts = []
    for label, short in SHORT.items():
        p = items.get(f"{short}_confidence", pd.Series(dtype=float)).dropna()
        if len(p):
            right = items.loc[p.index, "label_accuracy"] == 1
            parts.append(pd.DataFrame({"label": label, "right": right, "p": p}))
    return pd.concat(parts) if parts else pd.DataFrame(columns=["label", "right", "p"])


def answers_by_arm(groups: arm_panels.Groups) -> dict[str, pd.DataFrame]:
    """`answers_of` all runs of each arm that stored their items."""
    answers = {}
    for arm, results in groups.items():
        tables = [runs.read_items(r["folder"]) for r in results]
        parts = [answers_of(items) for items in tables if items is not None]
        if parts:
            answers[figures.name_arm(arm, results)] = pd.concat(parts)
    return answers


def label_probabilities(answers: AnswersByArm) -> Figure:
    """Fig 5a–b: the probabilities of the labels that each arm writes, by label.

    Shares of the answers with that label, in bins of 5 %. Dotted: the limits of low
    and high confidence.
    """
    figure, _ = figures.new_figure(4.2 * len(answers) + 0.4, 3.6, columns=len(answers))
    edges = np.arange(21) / 20
    for ax, (arm, table) in zip(figure.axes, answers.items(), strict=True):
        for i, label in enumerate(LABELS):
            p = table.p[table.label == label].astype(float).clip(0, 1)
            if len(p):
                shares = np.histogram(p, edges)[0] / len(p)
                colour, line, _ = figures.arm_style(i)
                style = {"color": colour, "ls": line, "lw": 1.6, "baseline": None}
                ax.stairs(shares, edges, **style, label=f"{label} (n = {len(p)})")
        if ax.patches:
            ax.legend(**figures.LEGEND, loc="upper left")
        else:
            figures.write_note(ax, "no such answers")
        for limit in (LOW, HIGH):
            ax.axvline(limit, color=figures.PUBLISHED, ls=":", lw=1)
        ax.set_xlim(0, 1)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("probability of the label that is written")
        figures.percent_axis(ax, "answers with the label")
        ax.set_title(figures.format_name(arm), fontsize=10, loc="left")
    return figure


def log_probabilities(answers: AnswersByArm) -> Figure:
    """Fig 6 to 8: the logarithms of the labels' probabilities, one panel per label; the
    first bin holds all lower ones. Shares of an arm's answers with that label, on a
    logarithmic axis, since answers of low confidence are rare."""
    figure, axes = figures.new_figure(11.0, 3.4, columns=len(LABELS))
    lowest = min((table.p.min() for table in answers.values() if len(table)), default=1)
    edges = np.linspace(min(np.log(max(lowest, np.exp(-30))), -1), 0, 31)
    for ax, label in zip(axes, LABELS, strict=True):
        for i, (arm, table) in enumerate(answers.items()):
            p = table.p[table.label == label].astype(float)
            if len(p):
                logs = np.log(p.clip(np.exp(edges[0]), 1)).clip(edges[0], 0)
                shares = np.histogram(logs, edges)[0] / len(p)
                heights = np.where(shares > 0, shares, np.nan)
                colour, line, _ = figures.arm_style(i)
                style = {"color": colour, "ls": line, "lw": 1.6}
                name = f"{figures.format_name(arm)} (n = {len(p)})"
                ax.stairs(heights, edges, **style, label=name)
        if ax.patches:
            ax.legend(**figures.LEGEND, loc="upper left")
        else:
            figures.write_note(ax, "no such answers")
        ax.set_title(label, fontsize=10, loc="left")
        ax.set_xlabel("ln of the label's probability")
        ax.set_yscale("log")
        ax.set_xlim(edges[0], 0)
        ax.set_ylim(top=1.3)
        ax.set_ylabel("answers with the label (%)")
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
        ax.yaxis.set_minor_formatter("")
    return figure


def accuracy_by_confidence(answers: AnswersByArm) -> Figure:
    """Fig 5c–d: the share of labels written with low (< 0.85) and high (> 0.95)
    confidence that are right, by label.

    The number of answers is above each bar, of those in between below the axis.
    """
    figure, _ = figures.new_figure(4.2 * len(answers) + 0.4, 3.6, columns=len(answers))
    places = np.arange(len(LABELS))
    for ax, (arm, table) in zip(figure.axes, answers.items(), strict=True):
        tiers = (
            ("low: below 85 %", table.p < LOW, -0.2, figures.ABSTAIN),
            ("high: above 95 %", table.p > HIGH, 0.2, figures.CORRECT),
        )
        for name, inside, shift, colour in tiers:
            right = table[inside].astype({"right": float}).groupby("label").right
            rows = right.agg(["mean", "size"]).reindex(LABELS, fill_value=0)
            style = {"color": colour, "ec": "black", "lw": 0.6, "label": name}
            drawn = ax.bar(places + shift, rows["mean"], 0.38, **style)
            counts = [f"n={count:.0f}" for count in rows["size"]]
            ax.bar_label(drawn, counts, fontsize=8, padding=2)
        between = table[table.p.between(LOW, HIGH)].label.value_counts()
        names = [
            f"{name}\n({between.get(label, 0)} between)"
            for label, name in zip(LABELS, LABEL_NAMES.values(), strict=True)
        ]
        ax.set_xticks(places, names, fontsize=8)
        ax.set_xlabel(f"label said · {figures.format_name(arm)}")
        ax.set_ylim(0, 1.1)
        figures.percent_axis(ax, "labels that are right")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        **figures.LEGEND,
        loc="outside upper center",
        ncols=2,
        title="confidence",
        title_fontsize=8,
    )
    return figure


# ---- trajectories: HTML without scripts, with styles that JupyterLab keeps


def trajectory_view(rows: Mapping[str, Verified]) -> HTML:
    """Fig 11: trajectories of one claim in columns, to open step by step.

    rows: column title → the claim and its trajectory. A search tells which gold entries
    it found; the score shows what is right, wrong and missing in the answer, and the
    terms of the reward.
    """
    first = next(iter(rows.values()))
    gold = ", ".join(f"[[{i}]]" for i in first.gold) or "none"
    lines = {"Claim": first.claim, "Gold label": first.label, "Gold evidence": gold}
    head = "\n".join(f"<b>{name}:</b> {escape(text)}" for name, text in lines.items())
    cells = "".join(
        f'<td style="{CELL}"><b>{escape(name)}</b>{_steps(row)}</td>'
        for name, row in rows.items()
    )
    table = f'<table style="width: 100%; table-layout: fixed"><tr>{cells}</tr></table>'
    return HTML(figures.PAGE.format(f'<div style="{TEXT}">{head}</div>{table}'))


def _steps(row: Verified) -> str:
    """The steps of a trajectory and its score."""
    parts, retrieved = [], set()
    for number, step in enumerate(parse_steps(row.trajectory), start=1):
        text = " ".join(step.text.split())
        summary, body = escape(text[:60] + "…" * (len(text) > 60)), escape(step.text)
        if step.kind == INFORMATION:
            ids = set(ENTRY.findall(step.text))
            hits = sum(i in ids for i in row.gold)
            mark = RIGHT if hits else WRONG
            summary = _mark(mark, f"{hits} of {len(row.gold)} gold")
            summary += f" among {len(ids)}"
            for i in row.gold:
                cited = escape(f"[[{i}]]")
                body = body.replace(cited, f"{_mark(RIGHT, 'gold')} {cited}")
            retrieved |= ids
        elif step.kind == OTHER:
            summary += f" · {_mark(WRONG, 'outside of the tags')}"
        parts.append(_step(f"{number} · <b>{step.kind}</b> {summary}", body))
    return "".join(parts) + _score(row, retrieved)


def _score(row: Verified, retrieved: set[str]) -> str:
    """What is right in the answer: label, evidence by id, and the rewards."""
    answer, lines = row.answer, []
    for i in answer.evidence:
        mark = (RIGHT, "gold, cited") if i in row.gold else (WRONG, "cited, not gold")
        lines.append(f"{_mark(*mark)} [[{escape(i)}]]")
    for i in row.gold:
        if i not in answer.evidence:
            name = "gold, found, not cited" if i in retrieved else "gold, not cited"
            lines.append(f"{_mark(MISSED, name)} [[{escape(i)}]]")
    if is_forced(row.trajectory):
        lines.append(_mark(WRONG, "the system had to open the answer"))
    formed = is_well_formed(row.trajectory, online=True)
    terms = rewards.RewardTerms(evidence_reward=False, format_reward=False)
    label_term = rewards.reward(answer, formed, row.label, row.gold, terms)
    evidence = evidence_score(answer, row.gold)
    lines.append(
        f"<b>Reward:</b> label × validity {label_term:.3g} · "
        f"evidence {evidence:.3g} · format {formed:d}"
    )
    sign = RIGHT if row.right(answer.label) else WRONG
    label = _mark(sign, answer.label or "no label")
    return _step(f"<b>score</b> · {label}", "\n".join(lines), " open")


def _step(summary: str, body: str, opened: str = "") -> str:
    head = f'<summary style="cursor: pointer; {TEXT}">{summary}</summary>'
    body = f'<div style="{TEXT}">{body}</div>'
    return f'<details{opened} style="{STEP}">{head}{body}</details>'


def _mark(mark: tuple[str, str], text: str) -> str:
    sign, style = mark
    return f'<span style="{style}">{sign} {escape(text)}</span>'
