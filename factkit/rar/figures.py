"""Figures of Binary RAR, drawn from results."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.figures import (
    BESIDE,
    CORRECT,
    LEGEND,
    PUBLISHED,
    WRONG,
    bars,
    look,
    new_figure,
    percent_axis,
    point,
    spaced,
    tables,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
UTILITY = {  # the first that the results have is drawn
    "win_rate": "preferred to the base policy's answer",
    "format_following": "answers of the form asked for",
}
LEAST_SPAN = 0.05  # of the axes, so that small differences look small
# arm → (total, correct) of the paper's biographies (§6.1)
PAPER_CLAIMS = {"base": (30.0, 8.8), "binary_rar": (13.6, 8.6)}


def drawn_scores(
    scores: Sequence[Sequence[float]], label: str = "VeriScore"
) -> "Figure":
    """A score of a request's responses: the mean of each request, and its spread.

    scores: for each request those of its responses.
    """
    known = [of_request for of_request in scores if of_request]
    means = sorted(sum(of_request) / len(of_request) for of_request in known)
    gaps = sorted(max(of_request) - min(of_request) for of_request in known)
    fig, ax = new_figure(5, 3)
    for values, colour, name in (
        (means, CORRECT, "mean of a request's responses"),
        (gaps, PUBLISHED, "best − worst of a request"),
    ):
        share = [100 * (i + 1) / len(values) for i in range(len(values))]
        ax.step(values, share, where="post", color=colour, label=name)
    ax.set_xlabel(label)
    ax.set_ylabel("requests up to this (%)")
    ax.legend(**LEGEND)
    return fig


def trade_off(results: Results) -> "Figure":
    """Fig 4: hallucination in long answers against utility, a mark an arm.

    Marks are means over seeds, bars 95 % t intervals. Better is left and up.
    """
    figure, ax = new_figure(6.4, 4.2)
    utility = _utility(results)
    for i, (arm, runs) in enumerate(tables.by_arm(results).items()):
        answering = [r for r in runs if "hallucination_rate" in r["metrics"]]
        if answering:
            names = ("hallucination_rate", utility)
            at = [bars.mean_of(answering, name) for name in names]
            point(ax, *at, place=i, label=spaced(arm))
    _widen(ax)
    _label(ax, utility)
    ax.legend(**LEGEND, **BESIDE)
    return figure


def _widen(ax: "Axes") -> None:
    """Have both axes show `LEAST_SPAN` or more."""
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        lacking = max(LEAST_SPAN - (high - low), 0) / 2
        axis.set_view_interval(low - lacking, high + lacking, ignore=True)


def _utility(results: Results) -> str:
    """The first of UTILITY that the results measured."""
    return next(name for name in UTILITY if all(name in r["metrics"] for r in results))


def _label(ax: "Axes", utility: str) -> None:
    percent_axis(ax, "hallucination rate of long answers", "x")
    percent_axis(ax, UTILITY[utility])


def claims(results: Results) -> "Figure":
    """Fig 3: correct and other claims a question by arm; grey lines: the paper's.

    A refusal has 0 of them, as in the paper's public code: leaving details out counts.
    """
    parts = (
        ("correct_claims_per_question", "correct", CORRECT),
        ("incorrect_claims_per_question", "other", WRONG),
    )
    groups = tables.by_arm(results)
    both = set(PAPER_CLAIMS) <= set(groups)
    return bars.claims(groups, parts, PAPER_CLAIMS if both else {}, "claims a question")


def trajectories(
    panels: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> "Figure":
    """Hallucination against utility of the policies kept while training (Fig 5).

    panels: title → name of a line → the run that it is of. On the dev requests; a
    number says after how many updates.
    """
    figure, _ = new_figure(max(5.4, 4.6 * len(panels)), 3.8, columns=len(panels))
    for ax in figure.axes[1:]:
        ax.sharex(figure.axes[0])
        ax.sharey(figure.axes[0])
    for ax, (title, runs) in zip(figure.axes, panels.items(), strict=True):
        for i, (name, run) in enumerate(runs.items()):
            utility = _utility([run])
            _trajectory(ax, run["metrics"], utility, i, name)
            _label(ax, utility)
        ax.set_title(title, fontsize=10)
        ax.legend(**LEGEND)
    return figure


def _trajectory(
    ax: "Axes", metrics: Mapping[str, float], utility: str, place: int, name: str
) -> None:
    """One run's policies as a line from the base policy on."""
    steps = [
        key.split("_")[1]
        for key in metrics
        if key.startswith("dev_") and key.endswith(utility)
    ]
    points = [
        (
            metrics[f"dev_{step}_hallucination_rate"],
            metrics[f"dev_{step}_{utility}"],
            step,
        )
        for step in sorted(steps, key=lambda s: -1 if s == "base" else int(s))
        if f"dev_{step}_hallucination_rate" in metrics
    ]
    if not points:  # nobody responded
        return
    xs, ys, labels = zip(*points, strict=True)
    colour, _, marker = look(place)
    ax.plot(xs, ys, marker=marker, ms=4, color=colour, label=name)
    for x, y, label in points:
        ax.annotate(label, (x, y), xytext=(4, 4), textcoords="offset points", size=7)
