"""TruthRL's outcomes by arm, from results beside the published numbers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.figures import (
    ABSTAIN,
    CORRECT,
    LEGEND,
    PUBLISHED,
    WRONG,
    bars,
    percent_axis,
    tables,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = (
    ("accuracy", "correct", CORRECT),
    ("hallucination", "hallucinated", WRONG),
    ("abstention", "abstained", ABSTAIN),
)


def stacked_outcomes(
    results: Sequence[Mapping[str, Any]], prefix: str = "", published: bool = True
) -> "Figure":
    """Fig 4: correct, hallucinated and abstained by arm; grey: the paper's values
    (CRAG, retrieval, Llama3.1-8B).

    prefix: of the metrics, as "difficult_" for Fig 4b. Bars are means over seeds, error
    bars 95 % t intervals.
    """
    groups = tables.by_arm([r for r in results if f"{prefix}accuracy" in r["metrics"]])
    parts = [(f"{prefix}{metric}", label, colour) for metric, label, colour in PARTS]
    figure, ax = bars.stacked(groups, parts)
    drawn = [c for c in ax.containers if hasattr(c, "patches")]
    for container, (_, _, colour) in zip(drawn, parts, strict=True):
        heights = [patch.get_height() for patch in container]
        names = [f"{100 * height:.0f}" if height > 0.06 else "" for height in heights]
        ink = "black" if colour == ABSTAIN else "white"
        ax.bar_label(container, names, label_type="center", color=ink)
    if published:
        theirs = tables.of_paper(1).set_index("arm")[["A", "H"]] / 100
        places = [x + 0.4 for x, arm in enumerate(groups) if arm in theirs.index]
        theirs = theirs.loc[[arm for arm in groups if arm in theirs.index]]
        rest = 1 - theirs.sum(axis=1)
        style = {"width": 0.14, "color": "white", "edgecolor": PUBLISHED, "lw": 1}
        label = "paper (CRAG, 8B)" if places else None
        ax.bar(places, theirs.A, **style)
        ax.bar(places, theirs.H, bottom=theirs.A, hatch="xx", label=label, **style)
        ax.bar(places, rest, bottom=1 - rest, **style)
    percent_axis(ax, "held-out questions")
    ax.set_ylim(0, 1)
    figure.legend(loc="outside upper center", ncols=4, **LEGEND)
    return figure
