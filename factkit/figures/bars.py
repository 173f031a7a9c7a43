"""Bars that several papers draw: parts stacked by arm, claims beside the paper's,
before and after."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.figures import CORRECT, PUBLISHED, mean_and_range, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups = Mapping[str, Sequence[Mapping[str, Any]]]  # arm → results of its seeds
Parts = Sequence[tuple[str, str, str]]  # (metric, label, colour), the lowest first
Spans = Mapping[str, tuple[float, float]]  # metric → interval (low, high)


def stacked(groups: Groups, parts: Parts) -> "tuple[Figure, Axes]":
    """A bar an arm of its parts: means over seeds, t intervals."""
    figure, ax = new_figure(max(4.5, 0.8 * len(groups) + 1.5), 3.4)
    bottoms = [0.0] * len(groups)
    for metric, label, colour in parts:
        found = [  # what a run lacks, as claims per answer of none, is left out
            mean_and_range([m[metric] for m in all_of if metric in m] or [0.0])
            for all_of in ([r["metrics"] for r in runs] for runs in groups.values())
        ]
        means = [mean for mean, _ in found]
        spans = [half for _, half in found] if any(h for _, h in found) else None
        style = {"color": colour, "ec": "black", "lw": 0.6, "capsize": 2}
        ax.bar(
            range(len(groups)), means, 0.6, bottoms, yerr=spans, label=label, **style
        )
        bottoms = [b + m for b, m in zip(bottoms, means, strict=True)]
    names = [arm.replace("_", "\n") for arm in groups]
    ax.set_xticks(range(len(groups)), names, fontsize=7)
    return figure, ax


def claims(
    groups: Groups,
    parts: Parts,
    paper: Mapping[str, tuple[float, float]],
    label: str = "claims an answer",
) -> "Figure":
    """Claims by arm, in two parts; grey lines: the paper's.

    paper: arm → its (total, lower part), drawn if the base policy is among the groups.
    """
    figure, ax = stacked(groups, parts)
    ax.set_ylabel(label)
    if "base" in groups and "base" in paper:
        names = [metric for metric, _, _ in parts]
        before = [sum(r["metrics"][name] for name in names) for r in groups["base"]]
        _paper_claims(ax, list(groups), paper, mean_and_range(before)[0])
    ax.legend(frameon=False, fontsize=8, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    return figure


def _paper_claims(
    ax: "Axes",
    arms: Sequence[str],
    paper: Mapping[str, tuple[float, float]],
    before: float,
) -> None:
    """The paper's claims, scaled so that its base policy's total is ours, `before`."""
    scale = before / paper["base"][0]
    label = "paper, scaled to the base policy's total"
    for arm in [arm for arm in paper if arm in arms]:
        for value in paper[arm]:
            x = arms.index(arm)
            ax.hlines(value * scale, x - 0.4, x + 0.4, PUBLISHED, lw=2, label=label)
            label = None


def before_and_after(
    before: Mapping[str, float],
    after: Mapping[str, float],
    spans: Mapping[str, Spans],
    panels: Sequence[Mapping[str, str]],
) -> "Figure":
    """Metrics before and after; bars: intervals over requests.

    spans: `base` and `after` → metric → (low, high), of those that have one. panels:
    metric → label, each panel's. Those of the axes are the caller's to name.
    """
    figure, axes = new_figure(9.5, 3.0, columns=len(panels))
    for ax, names in zip(axes, panels, strict=True):
        for shift, (key, found) in zip(
            (-0.2, 0.2), (("base", before), ("after", after)), strict=True
        ):
            ax.bar(
                [i + shift for i in range(len(names))],
                [found.get(name, 0.0) for name in names],
                0.36,
                yerr=_errors(names, found, spans[key]),
                color=PUBLISHED if key == "base" else CORRECT,
                label="before" if key == "base" else "after",
                capsize=3,
            )
        ax.set_xticks(range(len(names)), names.values(), fontsize=8)
    axes[-1].legend(frameon=False, fontsize=8)
    return figure


def _errors(
    names: Mapping[str, str], found: Mapping[str, float], span: Spans
) -> list[list[float]]:
    """What error bars need: distances below and above, 0 without an interval."""
    ends = [(found.get(n, 0.0), *span.get(n, (found.get(n, 0.0),) * 2)) for n in names]
    return [
        [max(value - low, 0.0) for value, low, _ in ends],
        [max(high - value, 0.0) for value, _, high in ends],
    ]
