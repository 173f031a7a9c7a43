"""Colours, styles, axes and legends that all figures share.

`run_panels` draws one run, `arm_panels` compares arms; papers/<paper>/figures.py has
the figures of one paper.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from IPython import get_ipython
from IPython.core.pylabtools import select_figure_formats
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

Style = dict[str, Any]  # keyword arguments of Matplotlib

# Okabe–Ito colours, of different lightness; grey is for published values.
CORRECT, ABSTAIN, WRONG, PUBLISHED = "#0072B2", "#DDDDDD", "#D55E00", "#888888"
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
ARM_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
MARKERS = "os^Dv<>PX*"
HATCHES = ("", "//", "..", "xx", "\\\\", "--")
LEGEND: Style = {"frameon": False, "fontsize": 8}
ABOVE: Style = {"loc": "lower left", "bbox_to_anchor": (0, 1)}  # a legend's place
BESIDE: Style = {"loc": "upper left", "bbox_to_anchor": (1, 1)}

# MathJax would set "$5 or $6" as a formula, but leaves these classes alone
PAGE = (
    '<div class="mathjax_ignore tex2jax_ignore" '
    'style="background-color: white; color: black; padding: 4px">{}</div>'
)


def arm_style(i: int) -> tuple[str, Any, str]:
    """(colour, line, marker) of the i-th arm; a repeated colour has another line and
    marker."""
    colours = len(ARM_COLOURS)
    line = LINES[(i + i // colours) % len(LINES)]
    return ARM_COLOURS[i % colours], line, MARKERS[i % len(MARKERS)]


def bar_style(i: int) -> Style:
    """Colour, hatch and edge of the i-th arm's bars."""
    hatch = HATCHES[(i + i // len(ARM_COLOURS)) % len(HATCHES)]
    return {"color": arm_style(i)[0], "hatch": hatch, "ec": "black", "lw": 0.5}


def new_figure(width: float = 7.0, height: float = 3.6, columns: int = 1) -> tuple:
    """A figure and its axes (an array if there are several), without upper and right
    spines, in Matplotlib's defaults, whatever matplotlibrc and MPLBACKEND say."""
    matplotlib.rcdefaults()
    if shell := get_ipython():
        select_figure_formats(shell, {"png"})
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns)
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def percent_axis(ax: Axes, label: str, which: str = "y") -> None:
    """Label an axis that shows fractions as per cent."""
    axis = ax.yaxis if which == "y" else ax.xaxis
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))
    axis.set_label_text(f"{label} (%)")


def whole_ticks(axis: Axis) -> None:
    """Tick whole numbers only."""
    axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))


def point(
    ax: Axes,
    x: tuple[float, float],
    y: tuple[float, float],
    place: int,
    label: str,
    colour: str = "",
) -> None:
    """Draw the mark of the arm `place` at the means of x and y, with half-widths."""
    own, _, marker = arm_style(place)
    style: Style = {"marker": marker, "ms": 7, "mec": "black", "mew": 0.6, "ls": ""}
    style |= {"label": label, "color": colour or own, "capsize": 2, "elinewidth": 0.8}
    ax.errorbar(x[0], y[0], y[1] or None, x[1] or None, **style)


def legend_below(figure: Figure, columns: int = 4) -> None:
    """Draw one legend for all panels."""
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    style: Style = {"loc": "outside lower center", "ncols": columns, **LEGEND}
    figure.legend(handles.values(), handles.keys(), **style)


def format_name(name: str) -> str:
    """An arm's name, or a metric's, in words."""
    return name.replace("_", " ")


def name_arm(arm: str, results: Sequence[Mapping[str, Any]]) -> str:
    """An arm's name, followed by "(reference)" if it has reference results."""
    mark = " (reference)"
    reference = any(r.get("reference") for r in results)
    return arm.removesuffix(mark) + mark * reference


def write_note(ax: Axes, text: str) -> None:
    """Write in the middle of a panel why it is empty."""
    style: Style = {"transform": ax.transAxes, "ha": "center", "va": "center"}
    ax.text(0.5, 0.5, text, **style, color="#555555")
