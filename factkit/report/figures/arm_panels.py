"""Arms compared: bars, the paper's values as grey lines, and lines by step.

Groups are results by arm, as `tables.by_arm` gives them: means over seeds are drawn,
with 95 % t intervals.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from factkit.report.figures import (
    ABSTAIN,
    BESIDE,
    CORRECT,
    LEGEND,
    PUBLISHED,
    WRONG,
    Style,
    arm_style,
    bar_style,
    format_name,
    legend_below,
    name_arm,
    new_figure,
    percent_axis,
    point,
    write_note,
)
from factkit.report.figures.run_panels import numbered
from factkit.run.statistics import t_interval

Groups = Mapping[str, Sequence[Mapping[str, Any]]]  # arm → results of its seeds
Parts = Sequence[tuple[str, str, str]]  # (metric, label, colour), the lowest first
OUTCOMES = (
    ("accuracy", "correct", CORRECT),
    ("hallucination", "hallucinated", WRONG),
    ("abstention", "abstained", ABSTAIN),
)
CLAIMS_FRONT = ("incorrect_claims_per_question", "correct_claims_per_question")
SOLID: Style = {"colors": PUBLISHED, "linestyles": "-", "lw": 2.5}
DOTTED: Style = {"colors": "black", "linestyles": ":", "lw": 1.5}


def mean_of(runs: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float] | None:
    """Mean and half-width of a metric over the runs that have it, None without any."""
    values = [r["metrics"][name] for r in runs if name in r["metrics"]]
    return t_interval(values) if values else None


def stacked(groups: Groups, parts: Parts) -> tuple[Figure, Axes]:
    """One stacked bar per arm: means over seeds, t intervals at the upper end of each
    part. Runs without the metric are left out."""
    from textwrap import fill

    figure, ax = new_figure(max(4.5, 0.8 * len(groups) + 1.5), 3.4)
    places, bottoms = range(len(groups)), np.zeros(len(groups))
    for i, (metric, label, colour) in enumerate(parts):
        points = [mean_of(runs, metric) or (0.0, 0.0) for runs in groups.values()]
        means, halves = np.reshape(points, (-1, 2)).T
        style = {"color": colour, "ec": "black", "lw": 0.6}
        ax.bar(places, means, 0.6, bottoms, label=label, **style)
        bottoms = bottoms + means
        known = np.flatnonzero(halves)  # of one seed there is none
        beside = known + 0.15 + 0.05 * i  # the number in the middle
        line = {"fmt": "none", "ecolor": "black", "elinewidth": 1, "capsize": 2}
        ax.errorbar(beside, bottoms[known], halves[known], **line)
    names = [
        fill(format_name(name_arm(arm, runs)), 10, break_long_words=False)
        for arm, runs in groups.items()
    ]
    ax.set_xticks(places, names, fontsize=7)
    return figure, ax


def outcomes(
    groups: Groups, prefix: str = "", paper: pd.DataFrame | None = None
) -> Figure:
    """TruthRL's Fig 4: correct, hallucinated and abstained by arm, in per cent.

    prefix: of the metrics, as "difficult_" for Fig 4b. paper: one row per arm, its `A`
    and `H` in per cent (CRAG, Llama3.1-8B), drawn as narrow grey bars.
    """
    parts = [(f"{prefix}{metric}", label, colour) for metric, label, colour in OUTCOMES]
    groups = {a: runs for a, runs in groups.items() if mean_of(runs, parts[0][0])}
    figure, ax = stacked(groups, parts)
    drawn = [c for c in ax.containers if isinstance(c, BarContainer)]
    for container, (_, _, colour) in zip(drawn, parts, strict=True):
        heights = [patch.get_height() for patch in container]
        names = [f"{100 * height:.0f}" if height > 0.06 else "" for height in heights]
        ink = "black" if colour == ABSTAIN else "white"
        ax.bar_label(container, names, label_type="center", color=ink)
    if paper is not None:
        theirs = paper.reindex([*groups])[["A", "H"]].div(100).dropna()
        places = [x + 0.4 for x, arm in enumerate(groups) if arm in theirs.index]
        rest = 1 - theirs.sum(axis=1)
        style: Style = {"width": 0.14, "color": "white", "ec": PUBLISHED, "lw": 1}
        label = "paper (CRAG, 8B)" if places else None
        ax.bar(places, theirs.A, **style)
        ax.bar(places, theirs.H, bottom=theirs.A, hatch="xx", label=label, **style)
        ax.bar(places, rest, bottom=1 - rest, **style)
    percent_axis(ax, "held-out questions")
    ax.set_ylim(0, 1)
    figure.legend(loc="outside upper center", ncols=4, **LEGEND)
    return figure


def claims(
    groups: Groups,
    parts: Parts,
    paper: Mapping[str, tuple[float, float]],
    label: str,
) -> Figure:
    """Claims by arm, in two parts; grey lines: the paper's.

    paper: arm → its (total, lower part), scaled so that the base policy's total is
    ours; drawn if that is among the groups.
    """
    figure, ax = stacked(groups, parts)
    ax.set_ylabel(label)
    totals = [mean_of(groups.get("base", ()), metric) for metric, _, _ in parts]
    ours = sum(mean for mean, _ in filter(None, totals))
    if ours and "base" in paper:
        scale = ours / paper["base"][0]
        values = [[scale * n for n in paper.get(arm, ())] for arm in groups]
        mark(ax, values, "paper, scaled to the base policy's total")
    ax.legend(**LEGEND, **BESIDE)
    return figure


def claims_front(groups: Groups, start: Mapping[str, float]) -> Figure:
    """Correct claims a question against other ones: a mark for each arm, with 95 % t
    intervals, and the `consistency_line` of `start`. Up and left is better."""
    figure, ax = new_figure(6.6, 3.9)
    consistency_line(ax, start)
    for place, (arm, runs) in enumerate(groups.items()):
        x, y = (mean_of(runs, name) for name in CLAIMS_FRONT)
        if x and y:
            point(ax, x, y, place, format_name(name_arm(arm, runs)))
    ax.set(xlabel="other claims a question", ylabel="correct claims a question")
    ax.set(xlim=(0, None), ylim=(0, None))
    ax.legend(**LEGEND, **BESIDE)
    return figure


def consistency_line(ax: Axes, start: Mapping[str, float]) -> None:
    """Draw the claims that the untrained consistency rule keeps at each threshold.

    start: metrics with those of `claim_rules.score_consistency`; else nothing is drawn.
    """
    tables = [numbered([start], "consistency", name) for name in CLAIMS_FRONT]
    if tables[0].empty:
        return
    x, y = (table.iloc[0] for table in tables)
    style: Style = {"color": PUBLISHED, "marker": ".", "zorder": 1}
    ax.plot(x, y, **style, label="consistency rule (untrained)")
    labels: Style = {"textcoords": "offset points", "fontsize": 7}
    for threshold, at_x, at_y in [*zip(tables[0], x, y, strict=True)][::2]:
        ax.annotate(threshold, (at_x, at_y), (3, -9), **labels)


def mark(ax: Axes, values: Sequence[Sequence[float]], label: str) -> None:
    """Draw the paper's values of the arms at 0, 1, 2 … as grey lines."""
    _lines(ax, [(v, x, 0.4) for x, arm in enumerate(values) for v in arm], label)


def _lines(ax: Axes, lines: list[tuple], label: str, style: Style = SOLID) -> None:
    """Horizontal lines, each of (height, centre, half of its length)."""
    if lines:
        y, x, half = np.transpose(lines)
        ax.hlines(y, x - half, x + half, **style, label=label)


def grouped(
    ax: Axes,
    groups: Groups,
    metrics: Mapping[str, str],
    paper: Mapping[str, Mapping[str, float]] | None = None,
    label: str = "paper",
) -> None:
    """At each metric (name → label) one bar per arm: means over seeds with 95 % t
    intervals. Dotted: before training. Grey: paper's values (metric → arm → value)."""
    width = 0.84 / max(len(groups), 1)
    before, published = [], []
    for i, (arm, runs) in enumerate(groups.items()):
        points = {}
        for x, name in enumerate(metrics):
            place = (i + 0.5) * width - 0.42 + x
            if point := mean_of(runs, name):
                points[place] = point
            if point := mean_of(runs, f"before_{name}"):
                before.append((point[0], place, width / 2))
            if (value := (paper or {}).get(name, {}).get(arm)) is not None:
                published.append((value, place, width / 2))
        means, halves = np.reshape(list(points.values()), (-1, 2)).T
        style = {"label": format_name(name_arm(arm, runs)), **bar_style(i)}
        style |= {"yerr": halves if len(runs) > 1 else None, "capsize": 2}
        ax.bar(list(points), means, 0.94 * width, **style)
    _lines(ax, before, "before training", DOTTED)
    _lines(ax, published, label)
    if not groups:
        write_note(ax, "no results")
    ax.set_xticks(range(len(metrics)), metrics.values(), fontsize=8)


def training_curves(
    results: Sequence[Mapping[str, Any]], column: str, arms: Sequence[str] = ()
) -> dict[str, list[pd.DataFrame]]:
    """Training curves with this column, of `arms` or all: arm → one per seed."""
    curves: dict[str, list[pd.DataFrame]] = {}
    for r in results:
        path = Path(r["folder"]) / "metrics.csv"
        if path.exists() and (not arms or r["arm"] in arms):
            curve = pd.read_csv(path)
            if column in curve:
                curves.setdefault(name_arm(r["arm"], [r]), []).append(curve)
    return curves


def over_training(
    curves: Mapping[str, Sequence[pd.DataFrame]],
    panels: Mapping[str, str],
    window: int = 5,
    share: bool = True,
    band: bool = True,
    limits: tuple[float | None, float | None] = (0, None),
) -> Figure:
    """Training curves by step: one panel per column, one line per arm.

    curves: from `training_curves`. panels: column → label of the y axis. Lines are
    means over seeds of a running mean of `window` steps, bands the range of the seeds.
    limits: of the y axes.
    """
    figure, _ = new_figure(1.5 * len(panels) + 6.5, 3.4, columns=len(panels))
    for ax, (column, label) in zip(figure.axes, panels.items(), strict=True):
        for i, (arm, frames) in enumerate(curves.items()):
            logged = [f.set_index("step")[column] for f in frames if column in f]
            if not logged:
                continue
            series = [one.rolling(window, min_periods=1).mean() for one in logged]
            table = pd.concat(series, axis=1).sort_index()
            mean, low, high = (table.agg(f, axis=1) for f in ("mean", "min", "max"))
            colour, style, _ = arm_style(i)
            ax.plot(table.index, mean, ls=style, color=colour, label=format_name(arm))
            if band:
                ax.fill_between(mean.index, low, high, color=colour, alpha=0.15, lw=0)
        if not ax.lines:
            write_note(ax, "not logged")
        ax.set_xlabel("GRPO step")
        ax.set_ylim(*limits)
        ax.set_ylabel(label)
        if share:
            percent_axis(ax, label)
    legend_below(figure, 6)
    return figure
