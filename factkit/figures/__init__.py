"""Figures from results: labelled axes, white background, readable in grey."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe–Ito colours, of different lightness; grey is for published values.
CORRECT, ABSTAIN, WRONG, PUBLISHED = "#0072B2", "#DDDDDD", "#D55E00", "#888888"
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
ARM_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


MARKERS = "os^Dv<>PX*"


def look(i: int) -> tuple[str, Any, str]:
    """(colour, line, marker) of the arm at place i: a colour comes again with another
    line and marker, so that no arm is left out and none looks like another."""
    colours = len(ARM_COLOURS)
    line = LINES[(i + i // colours) % len(LINES)]
    return ARM_COLOURS[i % colours], line, MARKERS[i % len(MARKERS)]


def new_figure(width: float = 7.0, height: float = 3.6, columns: int = 1) -> tuple:
    """A figure and its axes (a list if there are several), without upper and right."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, columns, figsize=(width, height), layout="constrained"
    )
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
    plt.close(figure)  # shown once, by the cell that returns it
    return figure, axes


def percent_axis(ax: "Axes", label: str, which: str = "y") -> None:
    """Label an axis that shows fractions as per cent."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis = ax.yaxis if which == "y" else ax.xaxis
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))
    axis.set_label_text(f"{label} (%)")


def widen(ax: "Axes", least: float) -> None:
    """Have both axes show `least` or more, so that small differences look small."""
    for low, high, set_limits in (
        (*ax.get_xlim(), ax.set_xlim),
        (*ax.get_ylim(), ax.set_ylim),
    ):
        lacking = max(least - (high - low), 0) / 2
        set_limits(low - lacking, high + lacking)


def mean_and_range(values: list[float]) -> tuple[float, float]:
    """Mean and half-width of the 95 % t interval of values over seeds (0 for one)."""
    from factkit.statistics import interval_over_seeds

    return interval_over_seeds(values)
