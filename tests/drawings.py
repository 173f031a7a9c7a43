"""What tests read from a drawn figure, and results with made-up metrics."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def none_left_open():
    """A figure that pyplot still knows is shown twice in a notebook."""
    yield
    assert plt.get_fignums() == []


def with_metrics(arm, metrics, seed=0, shift=0.0, **more):
    """A result whose metrics are `shift` above the given ones; more: as they are."""
    shifted = {name: value + shift for name, value in metrics.items()}
    return {"arm": arm, "seed": seed, "metrics": shifted | more}


def without(result, *ends):
    """A result without the metrics that end so."""
    kept = {k: v for k, v in result["metrics"].items() if not k.endswith(ends)}
    return result | {"metrics": kept}


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def named(ax):
    return ax.get_legend_handles_labels()[1]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def bar_groups(ax):
    return [c for c in ax.containers if hasattr(c, "patches")]


def heights(ax):
    """Of each group of bars."""
    return [[round(bar.get_height(), 9) for bar in g] for g in bar_groups(ax)]


def segments(ax, label):
    """(middle, height) of the horizontal lines of this name, from left to right."""
    lines = [c for c in ax.collections if c.get_label() == label]
    ends = [segment for line in lines for segment in line.get_segments()]
    return sorted((round(e[:, 0].mean(), 9), round(e[0, 1], 9)) for e in ends)


def points(ax):
    """Name → (x, y) of the marks."""
    return {
        c.get_label(): tuple(float(values[0]) for values in c.lines[0].get_data())
        for c in ax.containers
    }
