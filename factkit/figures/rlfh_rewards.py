"""RLFH's rewards: from which probability of being right a statement pays."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from factkit.figures import look, new_figure
from factkit.rewards import rlfh as rewards

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from factkit.rewards.rlfh import RewardMap


def when_it_pays(maps: "Mapping[str, RewardMap]") -> "Figure":
    """The expected reward of a statement, stated and hedged, over its probability of
    being right; a panel a map. Dots: where it starts to pay."""
    figure, axes = new_figure(2.6 * len(maps) + 1.0, 3.2, columns=len(maps))
    for ax, (name, m) in zip(figure.axes, maps.items(), strict=True):
        for i, (label, hedged) in enumerate((("stated", False), ("hedged", True))):
            ends = [rewards.expected(right, m, hedged) for right in (0.0, 1.0)]
            colour, line, marker = look(i)
            ax.plot((0, 1), ends, color=colour, linestyle=line, label=label)
            ax.plot(rewards.break_even(m)[i], 0, marker, color=colour)
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set_title(name, fontsize=10, loc="left")
        ax.set_xlabel("probability of being right")
    figure.axes[0].set_ylabel("expected reward")
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure
