"""How often verifiers err: confusion, kinds of pairs, and curves against people."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from factkit.figures import ARM_COLOURS, CORRECT, LINES, new_figure, percent_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def confusion(counts: np.ndarray, labels: Sequence[str]) -> "Figure":
    """counts (n, n): how many pairs of a label (row) were called which (column)."""
    figure, ax = new_figure(4.6, 3.4)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (y, x), n in np.ndenumerate(counts):
        ink = "white" if shares[y, x] > 0.6 else "black"
        ax.text(x, y, f"{n}\n{shares[y, x]:.0%}", ha="center", va="center", color=ink)
    ax.set_xticks(range(len(labels)), labels)
    ax.set_yticks(range(len(labels)), labels)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="called", ylabel="made as")
    return figure


def accuracy_by_kind(accuracy: Mapping[str, float], n: Mapping[str, int]) -> "Figure":
    """Share of held-out pairs that are labelled right, by how they were made."""
    figure, ax = new_figure(6.0, 0.34 * len(accuracy) + 1.0)
    kinds = sorted(accuracy, key=lambda kind: accuracy[kind])
    names = [f"{kind} (n={n[kind]})" for kind in kinds]
    bars = ax.barh(names, [accuracy[kind] for kind in kinds], color=CORRECT)
    ax.bar_label(bars, [f"{100 * accuracy[kind]:.0f}" for kind in kinds], padding=3)
    ax.set_xlim(0, 1.08)
    percent_axis(ax, "right label", "x")
    return figure


def roc(curves: Mapping[str, tuple[Sequence[bool], np.ndarray]]) -> "Figure":
    """Of each name (contradicted, score): caught contradictions over false alarms."""
    figure, ax = new_figure(4.8, 4.2)
    for i, (name, (contradicted, scores)) in enumerate(curves.items()):
        truth = np.asarray(contradicted, bool)[np.argsort(-scores, kind="stable")]
        caught = np.concatenate([[0], np.cumsum(truth) / truth.sum()])
        alarms = np.concatenate([[0], np.cumsum(~truth) / (~truth).sum()])
        ax.plot(alarms, caught, color=ARM_COLOURS[i], ls=LINES[i], label=name)
    ax.plot([0, 1], [0, 1], color="black", lw=0.6)
    percent_axis(ax, "true claims that are called contradicted", "x")
    percent_axis(ax, "contradicted claims that are caught")
    ax.set_aspect("equal")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return figure
