"""TruthRL's figures, redrawn from results files beside the published numbers."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.curate.probing import Probe
from factkit.datasets.examples import Example
from factkit.figures import (
    ABSTAIN,
    ARM_COLOURS,
    CORRECT,
    PUBLISHED,
    WRONG,
    mean_and_range,
    new_figure,
    percent_axis,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PARTS = (
    ("accuracy", "correct", CORRECT),
    ("hallucination", "hallucinated", WRONG),
    ("abstention", "abstained", ABSTAIN),
)


def published_table_1() -> "pd.DataFrame":
    """The paper's Table 1: setting, model, arm, dataset, T, H, A in per cent."""
    import pandas as pd

    return pd.read_csv(str(files("factkit") / "published" / "truthrl_table1.csv"))


def results_table(results: Sequence[Mapping[str, Any]]) -> "pd.DataFrame":
    """A row an arm: mean over seeds of each rate in per cent, ± the 95 % interval."""
    import pandas as pd

    rows = {}
    for arm, runs in by_arm(results).items():
        row: dict[str, Any] = {"seeds": len(runs)}
        for name in ("truthfulness", "accuracy", "hallucination", "abstention"):
            mean, half = mean_and_range([100 * r["metrics"][name] for r in runs])
            row[name] = f"{mean:.1f} ± {half:.1f}" if len(runs) > 1 else f"{mean:.1f}"
        rows[arm] = row
    return pd.DataFrame(rows).T.rename_axis("arm")


def by_arm(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Results of training runs grouped by arm, in the order that the paper tells."""
    order = ("prompting", "sft", "r_tuning", "binary", "ternary")
    groups = {arm: [r for r in results if r["arm"] == arm] for arm in order}
    return {arm: runs for arm, runs in groups.items() if runs}


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
    results: Sequence[Mapping[str, Any]], published: bool = True
) -> "Figure":
    """Fig 4a: correct, hallucinated and abstained by arm; grey: the paper's values."""
    groups = by_arm(results)
    figure, ax = new_figure(height=3.4)
    for x, (arm, runs) in enumerate(groups.items()):
        bottom = 0.0
        for metric, label, colour in PARTS:
            mean, half = mean_and_range([r["metrics"][metric] for r in runs])
            ax.bar(
                x - 0.14,
                mean,
                0.5,
                bottom,
                color=colour,
                edgecolor="black",
                lw=0.6,
                yerr=half or None,
                capsize=3,
                label=label if x == 0 else None,
            )
            if mean > 0.06:
                ax.text(
                    x - 0.14,
                    bottom + mean / 2,
                    f"{100 * mean:.0f}",
                    ha="center",
                    va="center",
                    color="black" if colour == ABSTAIN else "white",
                )
            bottom += mean
        if published:
            _published_bar(ax, x + 0.26, arm, first=x == 0)
    ax.set_xticks(range(len(groups)), [arm.replace("_", " ") for arm in groups])
    percent_axis(ax, "held-out questions")
    ax.set_ylim(0, 1)
    ax.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.16), frameon=False)
    return figure


def _published_bar(ax, x: float, arm: str, first: bool) -> None:
    """The paper's outcome shares (CRAG, retrieval, Llama3.1-8B) as an outlined bar."""
    table = published_table_1()
    row = table.query(
        "setting == 'with retrieval' and model == 'Llama3.1-8B-Inst'"
        " and dataset == 'CRAG' and arm == @arm"
    )
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
        for colour, style, (arm, frames) in zip(
            ARM_COLOURS, ("-", "--"), sorted(curves.items()), strict=False
        ):
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


def read_curves(folders: Sequence[Path]) -> dict[str, list["pd.DataFrame"]]:
    """The training curves of RL runs: arm → one data frame a seed."""
    import pandas as pd

    curves: dict[str, list[pd.DataFrame]] = {}
    for folder in sorted(folders):
        path = folder / "metrics.csv"
        arm = folder.name.rsplit("-s", 1)[0]
        if arm in ("binary", "ternary") and path.exists():
            curves.setdefault(arm, []).append(pd.read_csv(path))
    return curves
