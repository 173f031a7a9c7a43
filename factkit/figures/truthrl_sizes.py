"""TruthRL's Table 8 as a figure: sizes of the tiny policy, the paper's backbones."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.figures import (
    ABSTAIN,
    CORRECT,
    PUBLISHED,
    mean_and_range,
    new_figure,
    percent_axis,
    tables,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# variants in order, the main one between the tiny ones → the paper's backbone
SIZES = {
    "small": "",
    "": "",
    "large": "",
    "llama3.2-3b": "Llama3.2-3B-Inst",
    "qwen2.5-3b": "Qwen2.5-3B-Inst",
    "qwen2.5-7b": "Qwen2.5-7B-Inst",
    "qwen2.5-32b": "Qwen2.5-32B-Inst",
}
ARMS = (("prompting", -0.2, ABSTAIN), ("ternary", 0.2, CORRECT))


def sizes(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> "Figure":
    """Truthfulness and hallucination of prompting and TruthRL, by size of the policy.

    results: variant → runs, "main" the main one. Bars are means over seeds, error bars
    95 % t intervals; grey marks are the paper's values for the same backbone.
    """
    figure, axes = new_figure(max(6.0, 1.6 * len(results) + 3), 3.2, columns=2)
    printed = tables.published(8).set_index(["arm", "model"])
    panels = (("truthfulness", "T"), ("hallucination", "H"))
    for ax, (metric, column) in zip(axes, panels, strict=True):
        for arm, shift, colour in ARMS:
            of_arm = [tables.by_arm(runs).get(arm, []) for runs in results.values()]
            found = [
                mean_and_range([r["metrics"][metric] for r in of]) if of else (0, 0)
                for of in of_arm
            ]
            places = [x + shift for x in range(len(results))]
            means, halves = zip(*found, strict=True)
            style = {"color": colour, "ec": "black", "lw": 0.6, "capsize": 2}
            ax.bar(places, means, 0.38, yerr=halves, label=arm, **style)
            for x, name in zip(places, results, strict=True):
                if model := SIZES.get(name):
                    paper = printed.at[(arm, model), column] / 100
                    ax.plot(x, paper, "_", color=PUBLISHED, ms=16, mew=3)
        ax.axhline(0, color="black", lw=0.8)
        ax.set_xticks(range(len(results)), list(results), fontsize=8)
        ax.set_title(metric, fontsize=10)
        percent_axis(ax, "held-out questions")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
