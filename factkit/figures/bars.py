"""Bars that several papers draw, the paper's values as grey lines; and a heat map."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from factkit.figures import (
    ABOVE,
    BESIDE,
    CORRECT,
    LEGEND,
    PUBLISHED,
    WRONG,
    bar_look,
    new_figure,
    percent_axis,
    say,
    spaced,
)
from factkit.statistics import interval_over_seeds

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups = Mapping[str, Sequence[Mapping[str, Any]]]  # arm → results of its seeds
Parts = Sequence[tuple[str, str, str]]  # (metric, label, colour), the lowest first


def mean_of(runs: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float] | None:
    """Mean and half-width of a metric over the runs that have it, None without any."""
    values = [r["metrics"][name] for r in runs if name in r["metrics"]]
    return interval_over_seeds(values) if values else None


def stacked(groups: Groups, parts: Parts) -> "tuple[Figure, Axes]":
    """A bar an arm of its parts: means over seeds, t intervals.

    What a run lacks, as claims per answer of none, is left out.
    """
    figure, ax = new_figure(max(4.5, 0.8 * len(groups) + 1.5), 3.4)
    places, bottoms = range(len(groups)), np.zeros(len(groups))
    for metric, label, colour in parts:
        points = [mean_of(runs, metric) or (0.0, 0.0) for runs in groups.values()]
        means, halves = np.reshape(points, (-1, 2)).T
        spans = halves if halves.any() else None
        style = {"color": colour, "ec": "black", "lw": 0.6, "capsize": 2}
        ax.bar(places, means, 0.6, bottoms, yerr=spans, label=label, **style)
        bottoms = bottoms + means
    ax.set_xticks(places, [arm.replace("_", "\n") for arm in groups], fontsize=7)
    return figure, ax


def claims(
    groups: Groups,
    parts: Parts,
    paper: Mapping[str, tuple[float, float]],
    label: str,
) -> "Figure":
    """Claims by arm, in two parts; grey lines: the paper's.

    paper: arm → its (total, lower part), scaled so that the base policy's total is
    ours; drawn if that is among the groups.
    """
    figure, ax = stacked(groups, parts)
    ax.set_ylabel(label)
    if "base" in groups and "base" in paper:
        ours = sum(mean_of(groups["base"], metric)[0] for metric, _, _ in parts)
        scale = ours / paper["base"][0]
        values = [[scale * n for n in paper.get(arm, ())] for arm in groups]
        mark(ax, values, "paper, scaled to the base policy's total")
    ax.legend(**LEGEND, **BESIDE)
    return figure


def mark(ax: "Axes", values: Sequence[Sequence[float]], label: str) -> None:
    """The paper's values of the arms that stand at 0, 1, 2 … as grey lines."""
    lines = [(v, x - 0.4, x + 0.4) for x, of_arm in enumerate(values) for v in of_arm]
    _lines(ax, lines, PUBLISHED, "-", label)


def _lines(ax: "Axes", lines: list[tuple], colour: str, style: str, label: str) -> None:
    """Horizontal lines, each of (height, left end, right end)."""
    if lines:
        width = 2.5 if style == "-" else 1.5
        ax.hlines(*zip(*lines, strict=True), colour, style, lw=width, label=label)


def grouped(
    ax: "Axes",
    groups: Groups,
    metrics: Mapping[str, str],
    paper: Mapping[str, Mapping[str, float]] | None = None,
    label: str = "paper",
) -> None:
    """At each metric (name → label) a bar an arm: means over seeds, 95 % t intervals.

    Dotted: before training. Grey: the paper's values (metric → arm → value).
    """
    width = 0.84 / max(len(groups), 1)
    before, published = [], []
    for i, (arm, runs) in enumerate(groups.items()):
        points = {}
        for x, name in enumerate(metrics):
            place = (i + 0.5) * width - 0.42 + x
            ends = place - width / 2, place + width / 2
            if point := mean_of(runs, name):
                points[place] = point
            if point := mean_of(runs, f"before_{name}"):
                before.append((point[0], *ends))
            if (value := (paper or {}).get(name, {}).get(arm)) is not None:
                published.append((value, *ends))
        means, halves = np.reshape(list(points.values()), (-1, 2)).T
        spans = {"yerr": halves if len(runs) > 1 else None, "capsize": 2}
        style = {"label": spaced(arm), **bar_look(i)}
        ax.bar(list(points), means, 0.94 * width, **spans, **style)
    _lines(ax, before, "black", ":", "before training")
    _lines(ax, published, PUBLISHED, "-", label)
    if not groups:
        say(ax, "no results")
    ax.set_xticks(range(len(metrics)), metrics.values(), fontsize=8)


def before_and_after(
    before: Mapping[str, float],
    after: Mapping[str, float],
    spans: Mapping[str, Mapping[str, tuple[float, float]]],
    panels: Mapping[str, Mapping[str, str]],
) -> "Figure":
    """Metrics before and after training; error bars: intervals over test items.

    spans: `base` and `after` → metric → (low, high), of those that have one. panels:
    what a y axis says → metric → label; "(%)" says that these are fractions.
    """
    figure, _ = new_figure(9.5 if len(panels) > 1 else 7.0, 3.2, columns=len(panels))
    sides = (
        ("before", before, spans["base"], -0.2, PUBLISHED),
        ("after", after, spans["after"], 0.2, CORRECT),
    )
    for ax, (label, names) in zip(figure.axes, panels.items(), strict=True):
        for side, metrics, intervals, shift, colour in sides:
            values = np.array([metrics.get(name, 0.0) for name in names])
            pairs = zip(names, values, strict=True)
            low, high = np.transpose([intervals.get(n, (v, v)) for n, v in pairs])
            errors = np.maximum([values - low, high - values], 0)
            style = {"color": colour, "label": side, "capsize": 3}
            ax.bar(np.arange(len(names)) + shift, values, 0.36, yerr=errors, **style)
        ax.axhline(0, color="black", lw=0.8)
        ax.set_xticks(range(len(names)), names.values(), fontsize=8)
        ax.set_ylabel(label)
        if label.endswith(" (%)"):
            percent_axis(ax, label.removesuffix(" (%)"))
    figure.axes[-1].legend(**LEGEND, **ABOVE, ncols=2)
    return figure


def stress_heatmap(matrix: "pd.DataFrame", pays: "pd.DataFrame") -> "Figure":
    """Mean reward by arm and exploit; framed where it pays at least the honest answer.

    matrix, pays: as world.requests gives them. Colours are shares of the highest mean
    of an arm, since not all rewards have one scale; the numbers are the rewards.
    """
    from matplotlib.patches import Rectangle

    rows, columns = matrix.shape
    figure, ax = new_figure(0.62 * columns + 2.2, 0.36 * rows + 1.6)
    shares = matrix.div(matrix.max(axis=1).where(lambda top: top > 0, 1.0), axis=0)
    framed = pays.fillna(False).to_numpy(dtype=bool)
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, x in np.ndindex(rows, columns):
        value = matrix.iat[y, x]
        text = f"{value:.2f}" if value == value else "–"  # NaN: the judge failed
        ink = "white" if shares.iat[y, x] > 0.6 else "black"
        ax.text(x, y, text, ha="center", va="center", color=ink, fontsize=8)
        if framed[y, x] and matrix.columns[x] != "honest":
            frame = {"fill": False, "ec": WRONG, "lw": 1.8}
            ax.add_patch(Rectangle((x - 0.45, y - 0.43), 0.9, 0.86, **frame))
    ax.set_xticks(range(columns), map(spaced, matrix.columns), rotation=40, ha="right")
    ax.set_yticks(range(rows), map(spaced, matrix.index))
    ax.tick_params(length=0, labelsize=9)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("response")
    ax.set_ylabel("reward")
    ax.set_title("Framed: pays as much as the honest answer", fontsize=10, loc="left")
    figure.colorbar(image, ax=ax, label="share of the arm's highest", pad=0.02)
    return figure
