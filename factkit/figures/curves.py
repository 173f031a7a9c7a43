"""Lines: one run while it trains, arms while they train, arms by exposure."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.figures import (
    ABOVE,
    ABSTAIN,
    ARM_COLOURS,
    CORRECT,
    LEGEND,
    LINES,
    PUBLISHED,
    WRONG,
    legend_below,
    look,
    new_figure,
    percent_axis,
    say,
    spaced,
    whole_ticks,
)
from factkit.statistics import interval_over_seeds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

CLAIMS = {
    "correct_claims_per_question": "correct claims a question",
    "incorrect_claims_per_question": "other claims a question",
}
COLOURS = {  # of columns that have a colour of their own
    "hallucination": WRONG,
    "abstention": "#666666",
    "correct": CORRECT,
    "hedged_correct": ARM_COLOURS[4],
    "vague": ABSTAIN,
    "hedged_wrong": "#F2B48C",
    "wrong": WRONG,
}
HATCHES = {"hedged_correct": "///", "hedged_wrong": r"\\\\"}


def drawn_scores(scores: Sequence[Sequence[float]], label: str) -> "Figure":
    """A score of a request's responses: the mean of each request, and its spread.

    scores: for each request those of its responses.
    """
    known = [values for values in scores if values]
    means = sorted(sum(values) / len(values) for values in known)
    gaps = sorted(max(values) - min(values) for values in known)
    fig, ax = new_figure(5, 3)
    share = [100 * (i + 1) / len(known) for i in range(len(known))]
    label_means, label_gaps = (
        "mean of a request's responses",
        "best − worst of a request",
    )
    ax.step(means, share, where="post", color=CORRECT, label=label_means)
    ax.step(gaps, share, where="post", color=PUBLISHED, label=label_gaps)
    ax.set_xlabel(label)
    ax.set_ylabel("requests up to this (%)")
    ax.legend(**LEGEND)
    return fig


def learning_curve(
    curve: "pd.DataFrame",
    panels: Mapping[str, Mapping[str, str]],
    window: int = 1,
    stacked: str = "",
) -> "Figure":
    """The rollouts of one run by training step.

    curve: its metrics.csv. panels: what the y axis says → columns → their names; "(%)":
    of fractions; a panel says if none of its columns was logged. With a window, lines
    are running means over so many steps, and the faint ones the steps themselves.
    stacked: the panel whose columns are parts of one sum.
    """
    figure, axes = new_figure(max(9.0, 3.0 * len(panels)), 3.2, columns=len(panels))
    for ax, (label, columns) in zip(axes, panels.items(), strict=True):
        names = {c: name for c, name in columns.items() if c in curve}
        stacks = label == stacked
        if not names:
            say(ax, "not logged")
        elif stacks:
            style = {"colors": [COLOURS[c] for c in names], "ec": "black", "lw": 0.5}
            style["hatch"] = [HATCHES.get(c, "") for c in names]
            parts = [curve[c] for c in names]
            ax.stackplot(curve.step, parts, labels=names.values(), **style)
        for i, (column, name) in enumerate(() if stacks else names.items()):
            style = {"ls": LINES[i], "color": COLOURS.get(column, ARM_COLOURS[i])}
            style["marker"] = "" if len(curve) > 1 else "o"
            smooth = curve[column].rolling(window, min_periods=1).mean()
            ax.plot(curve.step, smooth, label=name, **style)
            if window > 1:
                ax.plot(curve.step, curve[column], lw=0.8, alpha=0.3, **style)
        if len(names) > 1 or len(columns) > len(names) > 0:
            ax.legend(**LEGEND, **ABOVE, ncols=2 if stacks else 1)
        ax.set_xlabel("training step")
        whole_ticks(ax.xaxis)
        ax.set_ylabel(label)
        if "reward" not in columns:
            ax.set_ylim(bottom=0)
        if label.endswith(" (%)"):
            ax.set_ylim(0, 1.02)
            percent_axis(ax, label.removesuffix(" (%)"))
    return figure


def read(
    results: Sequence[Mapping[str, Any]], column: str, arms: Sequence[str] = ()
) -> dict[str, list["pd.DataFrame"]]:
    """The training curves that have a column, of `arms` or all: arm → one a seed."""
    import pandas as pd

    curves: dict[str, list[pd.DataFrame]] = {}
    for r in results:
        path = Path(r["folder"]) / "metrics.csv"
        if path.exists() and (not arms or r["arm"] in arms):
            curve = pd.read_csv(path)
            if column in curve:
                curves.setdefault(r["arm"], []).append(curve)
    return curves


def over_training(
    curves: Mapping[str, Sequence["pd.DataFrame"]],
    panels: Mapping[str, str],
    window: int = 5,
    share: bool = True,
    band: bool = True,
    limits: tuple[float | None, float | None] = (0, None),
) -> "Figure":
    """Columns of the training curves by step, a panel a column, a line an arm.

    curves: as `read` has them. panels: column → what its y axis says. The line is the
    mean over seeds of a running mean of `window` steps, the band their range. limits:
    of the y axes. A panel says if no run logged it.
    """
    import pandas as pd

    figure, _ = new_figure(1.5 * len(panels) + 6.5, 3.4, columns=len(panels))
    for ax, (column, label) in zip(figure.axes, panels.items(), strict=True):
        for i, (arm, frames) in enumerate(curves.items()):
            logged = [f.set_index("step")[column] for f in frames if column in f]
            if not logged:
                continue
            series = [one.rolling(window, min_periods=1).mean() for one in logged]
            table = pd.concat(series, axis=1).sort_index()
            mean, low, high = (table.agg(f, axis=1) for f in ("mean", "min", "max"))
            colour, style, _ = look(i)
            ax.plot(table.index, mean, ls=style, color=colour, label=spaced(arm))
            if band:
                ax.fill_between(mean.index, low, high, color=colour, alpha=0.15, lw=0)
        if not ax.lines:
            say(ax, "not logged")
        ax.set_xlabel("GRPO step")
        ax.set_ylim(*limits)
        ax.set_ylabel(label)
        if share:
            percent_axis(ax, label)
    legend_below(figure, 6)
    return figure


def by_exposure(
    groups: Mapping[str, Sequence[Mapping[str, float]]],
    panels: Mapping[str, str] = CLAIMS,
    share: bool = False,
    read: str = "of the person",
) -> "Figure":
    """Metrics by how often the policy read what it is asked, a line an arm.

    groups: arm → the metrics of each run, of which `exposure_<lower edge>_<name>` are
    drawn. panels: name → what its y axis says. Points are means over seeds, error bars
    95 % t intervals.
    """
    figure, _ = new_figure(9.5, 3.4, columns=len(panels))
    for ax, (name, label) in zip(figure.axes, panels.items(), strict=True):
        for i, (arm, runs) in enumerate(groups.items()):
            binned = [numbered(metrics, "exposure", name) for metrics in runs]
            edges = list(binned[0])
            values = [[bins[edge] for bins in binned if edge in bins] for edge in edges]
            means, halves = zip(*map(interval_over_seeds, values), strict=True)
            places = [x + 0.06 * (i - len(groups) / 2) for x in range(len(edges))]
            colour, line, _ = look(i)
            style = {"ls": line, "marker": "o", "ms": 4, "capsize": 2, "color": colour}
            ax.errorbar(places, means, halves, **style, label=spaced(arm))
        ends = [f"–{int(edge) - 1}" for edge in edges[1:]] + ["+"]
        bins = zip(edges, ends, strict=True)
        spans = [e if f"–{e}" == end else e + end for e, end in bins]
        ax.set_xticks(range(len(edges)), spans)
        ax.set_xlabel(f"times that the policy read {read}")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        if share:
            percent_axis(ax, label)
            ax.set_ylim(-0.03, 1.03)
    figure.axes[0].legend(**LEGEND)
    return figure


def numbered(metrics: Mapping[str, float], kind: str, name: str) -> dict[str, float]:
    """{"8": value} from the metrics <kind>_8_<name>, in the order of their numbers."""
    pattern = re.compile(rf"{kind}_([\d.]+)_{name}")
    matches = {pattern.fullmatch(key): value for key, value in metrics.items()}
    values = {match[1]: value for match, value in matches.items() if match}
    return dict(sorted(values.items(), key=lambda item: float(item[0])))
