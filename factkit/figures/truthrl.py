"""TruthRL's figures, redrawn from results files beside the published numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.curate.probing import Probe
from factkit.datasets.examples import Example
from factkit.figures import (
    ABSTAIN,
    ARM_COLOURS,
    CORRECT,
    LINES,
    PUBLISHED,
    WRONG,
    look,
    mean_and_range,
    new_figure,
    percent_axis,
    tables,
)
from factkit.truthrl.arms import ARMS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PARTS = (
    ("accuracy", "correct", CORRECT),
    ("hallucination", "hallucinated", WRONG),
    ("abstention", "abstained", ABSTAIN),
)


def knowledge_boundary(
    examples: Sequence[Example], probes: Sequence[Probe], known_share: float
) -> "Figure":
    """Share of correct samples by relation: a dot a question, a bar at the mean."""
    shares: dict[str, list[float]] = {}
    for example, probe in zip(examples, probes, strict=True):
        shares.setdefault(example.relation, []).append(probe.share)
    ordered = sorted(shares, key=lambda r: sum(shares[r]) / len(shares[r]))
    figure, ax = new_figure(height=0.26 * len(ordered) + 1.2)
    for y, relation in enumerate(ordered):
        values = shares[relation]
        spread = [y + 0.3 * (((7 * i) % 11) / 11 - 0.5) for i in range(len(values))]
        ax.plot(values, spread, ".", color=CORRECT, alpha=0.4, ms=6, mew=0)
        ax.plot(sum(values) / len(values), y, "|", color="black", ms=14, mew=2)
    step = 1 / len(probes[0].samples)
    edge = max(known_share, step) - step / 2  # between the last unknown and first known
    ax.axvline(edge, color=WRONG, lw=1.2, ls="--")
    ax.set_yticks(range(len(ordered)), [r.replace("_", " ") for r in ordered])
    percent_axis(ax, "correct samples of a question; bar: mean of the relation", "x")
    ax.set_title("Left of the dashed line: out of knowledge", fontsize=10, loc="left")
    return figure


def stacked_outcomes(
    results: Sequence[Mapping[str, Any]], prefix: str = "", published: bool = True
) -> "Figure":
    """Fig 4: correct, hallucinated and abstained by arm; grey: the paper's values.

    prefix: of the metrics, as "difficult_" for Fig 4b. Bars are means over seeds, error
    bars 95 % t intervals.
    """
    groups = tables.by_arm([r for r in results if f"{prefix}accuracy" in r["metrics"]])
    figure, ax = new_figure(width=max(5.0, 0.75 * len(groups) + 1.5), height=3.6)
    for x, (arm, runs) in enumerate(groups.items()):
        bottom = 0.0
        for metric, label, colour in PARTS:
            name = f"{prefix}{metric}"
            mean, half = mean_and_range([r["metrics"][name] for r in runs])
            style = {"color": colour, "edgecolor": "black", "lw": 0.6, "capsize": 2}
            bar_label = label if x == 0 else None
            ax.bar(
                x - 0.14, mean, 0.5, bottom, yerr=half or None, label=bar_label, **style
            )
            if mean > 0.06:
                ink = "black" if colour == ABSTAIN else "white"
                middle = bottom + mean / 2
                text = f"{100 * mean:.0f}"
                ax.text(x - 0.14, middle, text, ha="center", va="center", color=ink)
            bottom += mean
        if published:
            _published_bar(ax, x + 0.26, arm, first=x == 0)
    names = [arm.replace("_", "\n") for arm in groups]
    ax.set_xticks(range(len(groups)), names, fontsize=7 if len(groups) > 6 else 9)
    percent_axis(ax, "held-out questions")
    ax.set_ylim(0, 1)
    ax.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.16), frameon=False)
    return figure


def _published_bar(ax, x: float, arm: str, first: bool) -> None:
    """The paper's outcome shares (CRAG, retrieval, Llama3.1-8B) as an outlined bar."""
    row = tables.published(1)
    for column in ("setting", "model", "dataset"):
        row = row[row[column].isin(tables.PAPER_DEFAULT[column])]
    row = row[row.arm == arm]
    if row.empty:
        return
    accuracy, wrong = row.A.item() / 100, row.H.item() / 100
    parts = ((0, accuracy, ""), (accuracy, wrong, "xx"))
    for bottom, height, hatch in (*parts, (accuracy + wrong, 1 - accuracy - wrong, "")):
        ax.bar(
            x,
            height,
            0.14,
            bottom,
            color="white",
            edgecolor=PUBLISHED,
            hatch=hatch,
            lw=1,
            label="paper (CRAG, 8B)" if first and hatch else None,
        )


def majority_curves(
    results: Sequence[Mapping[str, Any]], arms: Sequence[str]
) -> "Figure":
    """Fig 2: accuracy, abstention and hallucination of majority@k against k, by arm.

    Lines are means over seeds, bands their range.
    """
    figure, axes = new_figure(9.5, 3.0, columns=3)
    groups = tables.by_arm([r for r in results if r["arm"] in arms])
    panels = ("accuracy", "abstention", "hallucination")
    for ax, metric in zip(axes, panels, strict=True):
        for i, (arm, runs) in enumerate(groups.items()):
            colour, style, _ = look(i)
            curves = [_numbered(r["metrics"], "majority", metric) for r in runs]
            ks = [int(k) for k in curves[0]]
            rows = [[c[k] for c in curves] for k in curves[0]]
            means = [sum(row) / len(row) for row in rows]
            ax.plot(ks, means, style, marker="o", ms=3, color=colour, label=arm)
            low, high = [min(r) for r in rows], [max(r) for r in rows]
            ax.fill_between(ks, low, high, color=colour, alpha=0.2)
        ax.set_xscale("log", base=2)
        ax.set_xticks(ks, [str(k) for k in ks])
        ax.set_xlabel("samples k")
        ax.set_title(metric, fontsize=10)
        percent_axis(ax, "held-out questions")
    axes[0].legend(frameon=False)
    return figure


def _numbered(metrics: Mapping[str, float], kind: str, name: str) -> dict[str, float]:
    """{"8": value} from the metrics <kind>_8_<name>, in the order of their numbers."""
    found = {
        key.removeprefix(f"{kind}_").removesuffix(f"_{name}"): value
        for key, value in metrics.items()
        if key.startswith(f"{kind}_") and key.endswith(f"_{name}")
    }
    return dict(sorted(found.items(), key=lambda item: float(item[0])))


def confidence_bins(
    results: Sequence[Mapping[str, Any]], arms: Sequence[str]
) -> "Figure":
    """Fig 6: outcomes by confidence, the probability of the answer's tokens, by arm.

    Bars are means over the seeds that have answers in the bin; the share of all answers
    that lie in it is written above.
    """
    groups = tables.by_arm([r for r in results if r["arm"] in arms])
    figure, axes = new_figure(3.4 * len(groups), 3.2, columns=len(groups))
    for ax, (arm, runs) in zip(figure.axes, groups.items(), strict=True):
        edges = sorted(
            {e for r in runs for e in _numbered(r["metrics"], "confidence", "n")}
        )
        for x, edge in enumerate(edges):
            have = [
                r["metrics"] for r in runs if f"confidence_{edge}_n" in r["metrics"]
            ]
            bottom = 0.0
            for metric, label, colour in PARTS:
                values = [m[f"confidence_{edge}_{metric}"] for m in have]
                mean = sum(values) / len(values)
                part = label if x == 0 else None
                ax.bar(
                    x, mean, 0.8, bottom, color=colour, ec="black", lw=0.6, label=part
                )
                bottom += mean
            share = sum(m[f"confidence_{edge}_n"] for m in have) / len(runs)
            ax.text(x, 1.02, f"{100 * share:.0f} %", ha="center", fontsize=8)
        spans = [f"{float(e):.1f}–{float(e) + 0.2:.1f}" for e in edges]
        ax.set_xticks(range(len(edges)), spans, fontsize=8)
        ax.set_xlabel(f"confidence · {arm}")
        percent_axis(ax, "answers in the bin")
        ax.set_ylim(0, 1.1)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False)
    return figure


def exposure_curves(
    results: Sequence[Mapping[str, Any]], arms: Sequence[str]
) -> "Figure":
    """Abstention and accuracy against how often the policy read the fact (ours).

    Points are means over seeds, error bars 95 % t intervals.
    """
    groups = tables.by_arm([r for r in results if r["arm"] in arms])
    figure, axes = new_figure(9.5, 3.4, columns=2)
    for ax, metric in zip(axes, ("abstention", "accuracy"), strict=True):
        for i, (arm, runs) in enumerate(groups.items()):
            curves = [_numbered(r["metrics"], "exposure", metric) for r in runs]
            bins = list(curves[0])
            points = [mean_and_range([c[b] for c in curves if b in c]) for b in bins]
            shift = 0.06 * (i - len(groups) / 2)
            ax.errorbar(
                [x + shift for x in range(len(bins))],
                [mean for mean, _ in points],
                [half for _, half in points],
                ls=LINES[i % len(LINES)],
                marker="o",
                ms=4,
                capsize=2,
                color=ARM_COLOURS[i % len(ARM_COLOURS)],
                label=arm,
            )
        nexts = [f"–{int(b) - 1}" for b in bins[1:]] + ["+"]
        names = [b if f"–{b}" == e else b + e for b, e in zip(bins, nexts, strict=True)]
        ax.set_xticks(range(len(bins)), names)
        ax.set_xlabel("times that the policy read the fact")
        percent_axis(ax, f"{metric}, held-out questions")
        ax.set_ylim(-0.03, 1.03)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def learning_dynamics(curves: Mapping[str, Sequence["pd.DataFrame"]]) -> "Figure":
    """Fig 5: rates of the rollouts over training, by reward.

    curves: arm → the metrics.csv of each seed. Means over seeds of running means of 10
    steps.
    """
    import pandas as pd

    figure, axes = new_figure(9.5, 3.2, columns=3)
    panels = ("accuracy", "hallucination", "truthfulness")
    for ax, metric in zip(axes, panels, strict=True):
        for i, (arm, frames) in enumerate(curves.items()):
            series = [
                f.assign(truthfulness=f.accuracy - f.hallucination)
                .set_index("step")[metric]
                .rolling(10, min_periods=1)
                .mean()
                for f in frames
            ]
            mean = pd.concat(series, axis=1).mean(axis=1)
            style, colour = LINES[i % len(LINES)], ARM_COLOURS[i % len(ARM_COLOURS)]
            ax.plot(mean.index, mean, style, color=colour, label=arm, lw=1.4)
        ax.set_title(metric, fontsize=10)
        ax.set_xlabel("GRPO step")
        percent_axis(ax, "sampled responses")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=5,
        frameon=False,
        fontsize=8,
    )
    return figure


def abstention_dynamics(curves: Mapping[str, Sequence["pd.DataFrame"]]) -> "Figure":
    """Fig 3: abstention ratio over training by reward: all, pro- and anti-abstention.

    curves: arm → the metrics.csv of each seed, as data frames with column `step`. The
    line is the mean over seeds of a running mean of 5 steps, the band their range.
    """
    import pandas as pd

    panels = {
        "abstention": "all groups",
        "abstention_pro": "wrong + abstaining only",
        "abstention_anti": "abstaining + a correct one",
    }
    figure, axes = new_figure(9.5, 3.0, columns=3)
    for ax, (metric, title) in zip(axes, panels.items(), strict=True):
        for i, (arm, frames) in enumerate(sorted(curves.items())):
            colour, style, _ = look(i)
            series = [
                f.set_index("step")[metric].rolling(5, min_periods=1).mean()
                for f in frames
                if metric in f
            ]
            if not series:
                continue
            table = pd.concat(series, axis=1)
            ax.plot(table.index, table.mean(axis=1), style, color=colour, label=arm)
            ax.fill_between(
                table.index,
                table.min(axis=1),
                table.max(axis=1),
                color=colour,
                alpha=0.2,
            )
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("GRPO step")
        ax.set_ylim(0, 1)
        percent_axis(ax, "abstaining samples")
    axes[0].legend(frameon=False)
    return figure


def learning_curve(curve: "pd.DataFrame") -> "Figure":
    """Outcome rates of the rollouts and the reward, by step of one run."""
    figure, axes = new_figure(9.0, 3.0, columns=2)
    styles = ("-", "--", ":")
    for (metric, label, _), colour, style in zip(
        PARTS, (CORRECT, WRONG, "#666666"), styles, strict=True
    ):
        axes[0].plot(curve.step, curve[metric], style, color=colour, label=label)
    percent_axis(axes[0], "sampled responses")
    axes[0].set_ylim(0, 1)
    axes[0].legend(frameon=False)
    axes[1].plot(curve.step, curve.reward, color=CORRECT)
    axes[1].set_ylabel("mean reward, in [−1, 1]")
    for ax in axes:
        ax.set_xlabel("GRPO step")
    return figure


def before_and_after(
    before: Mapping[str, float],
    after: Mapping[str, float],
    intervals: Sequence[Mapping[str, tuple[float, float]]],
) -> "Figure":
    """Rates before and after training with their bootstrap intervals."""
    names = ("truthfulness", "accuracy", "hallucination", "abstention")
    figure, ax = new_figure(height=3.2)
    bars = ((before, -0.2, ABSTAIN, "before"), (after, 0.2, CORRECT, "after"))
    for (rates, shift, colour, label), spans in zip(bars, intervals, strict=True):
        for x, name in enumerate(names):
            low, high = spans[name]
            ax.bar(
                x + shift,
                rates[name],
                0.38,
                color=colour,
                edgecolor="black",
                lw=0.6,
                yerr=[[rates[name] - low], [high - rates[name]]],
                capsize=3,
                label=label if x == 0 else None,
            )
    ax.axhline(0, color="black", lw=0.8)
    ax.set_xticks(range(len(names)), names)
    percent_axis(ax, "held-out questions")
    ax.legend(frameon=False)
    return figure


def read_curves(
    folders: Sequence[Path], arms: Sequence[str] = ()
) -> dict[str, list["pd.DataFrame"]]:
    """The training curves of RL runs, of `arms` or all: arm → a data frame a seed."""
    import pandas as pd

    curves: dict[str, list[pd.DataFrame]] = {}
    for folder in sorted(folders):
        path = folder / "metrics.csv"
        arm = folder.name.rsplit("-s", 1)[0]
        if path.exists() and (not arms or arm in arms):
            curve = pd.read_csv(path)
            if "hallucination" in curve:
                curves.setdefault(arm, []).append(curve)
    return {arm: curves[arm] for arm in ARMS if arm in curves}
