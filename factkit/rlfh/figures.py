"""Figures of RLFH, drawn from checked responses and results.

An accuracy is the share of a response's statements that are correct, which is that the
evidence supports them. A response without statements has none: it refuses, and is in no
distribution. Fig 5 and 7 are drawn in notebook 44.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from factkit import figures, published
from factkit.evaluate.long_form import Checked
from factkit.figures import arm_panels, tables
from factkit.rlfh import evaluate
from factkit.verify.outcome import Support

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
TENTHS = tuple(i / 10 for i in range(11))
NONE = "no responding answers"
ACCURACY = "accuracy: correct of an answer's statements"
FIFTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RANGES = [f"{100 * low:g}–{100 * high:g}" for low, high in pairwise(FIFTHS)]
# of `granularity`: metric → column of the paper's tables, label
RATES = {
    "factual_precision": ("precision", "FactScore"),
    "factscore_response_rate": ("response_rate", "questions responded to\n(by words)"),
}
COUNTS = {
    "correct_claims": ("correct", "correct"),
    "incorrect_claims": ("incorrect", "incorrect"),
}


# Responses before and after


def counts(rows: Sequence[Checked]) -> np.ndarray:
    """Correct and all statements of each responding answer: (answers, 2)."""
    supports = [[s for s in row.supports if s is not None] for row in rows]
    pairs = [(s.count(Support.SUPPORTED), len(s)) for s in supports if s]
    return np.array(pairs, dtype=int).reshape(-1, 2)


def accuracy_change(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 4: how much the share of responding answers with each accuracy changed.

    Bins are [low, high), the last with its end. The shares before sum to 1, as do those
    after, so that refusals change nothing.
    """
    both = [counts(rows) for rows in (before, after)]
    n, m = map(len, both)
    figure, ax = figures.new_figure(6.4, 3.4)
    if n and m:
        shares = [np.histogram(c[:, 0] / c[:, 1], TENTHS)[0] / len(c) for c in both]
        change = shares[1] - shares[0]
        colours = [figures.CORRECT if c > 0 else figures.ABSTAIN for c in change]
        middles = np.add(TENTHS[:-1], 0.05)
        ax.bar(middles, change, 0.09, color=colours, ec="black", lw=0.6)
        ax.axhline(0, color="black", lw=0.8)
    else:
        figures.say(ax, NONE)
    figures.percent_axis(ax, "")
    ax.set_ylabel("change of the share of answers\n(percentage points)")
    ax.set_xlim(0, 1)
    figures.percent_axis(ax, ACCURACY, "x")
    ax.set_xticks(TENTHS)
    title = f"Responding answers: {n} before, {m} after"
    ax.set_title(title, fontsize=10, loc="left")
    return figure


def statement_counts(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 6: shares of responding answers with how many statements, correct statements
    and incorrect ones, which are those that the evidence does not support."""
    figure, axes = figures.new_figure(11.0, 3.4, columns=3)
    both = [counts(rows) for rows in (before, after)]
    panels = {
        "statements": [c[:, 1] for c in both],
        "correct statements": [c[:, 0] for c in both],
        "incorrect statements": [c[:, 1] - c[:, 0] for c in both],
    }
    looks = {
        "before": {"color": "#BBBBBB", "fill": True},
        "after": {"color": figures.CORRECT, "lw": 2, "baseline": None},
    }
    for ax, (label, numbers) in zip(axes, panels.items(), strict=True):
        edges = np.arange(max(map(max, filter(len, numbers)), default=0) + 2) - 0.5
        for values, (name, look) in zip(numbers, looks.items(), strict=True):
            share = np.histogram(values, edges)[0]
            mean = f"mean {np.mean(values):.1f}" if len(values) else NONE
            mean = f"{name}: {mean} (n = {len(values)})"
            ax.stairs(share / max(len(values), 1), edges, **look, label=mean)
        ax.sharey(axes[0])
        ax.set_xlim(edges[0], edges[-1])
        ax.set_xlabel(f"{label} an answer")
        figures.percent_axis(ax, "responding answers")
        figures.whole_ticks(ax.xaxis)
        ax.legend(**figures.LEGEND, **figures.ABOVE)
    axes[0].set_ylim(0, None if any(map(len, both)) else 1)
    return figure


def refusals(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 8: the share of questions refused after by the accuracy of the answer before.

    Bars: 95 % Wilson intervals. before, after: of the same questions.
    """
    from scipy.stats import binomtest

    refused: list[list[bool]] = [[] for _ in RANGES]
    for old, new in zip(before, after, strict=True):
        share = evaluate.accuracy(old)
        if share is not None and new.judged:
            refused[np.digitize(share, FIFTHS[1:-1])].append(not new.claims)
    figure, ax = figures.new_figure(6.4, 3.6)
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
    tops = [0.0] * len(RANGES)
    for x, answers in enumerate(refused):
        if answers:
            share = np.mean(answers)
            test = binomtest(sum(answers), len(answers))
            low, tops[x] = test.proportion_ci(method="wilson")
            ends = [[max(share - low, 0)], [max(tops[x] - share, 0)]]
            ax.bar(
                x, share, 0.7, yerr=ends, color=figures.CORRECT, capsize=4, ec="black"
            )
        ax.annotate(f"n = {len(answers)}", (x, tops[x]), (0, 4), **style)
    ax.set_xticks(range(len(RANGES)), RANGES)
    ax.set_xlim(-0.6, len(RANGES) - 0.4)
    ax.set_ylim(0, 1.12 * max(tops) or 1)
    ax.set_xlabel("accuracy before: correct of the answer's statements (%)")
    figures.percent_axis(ax, "questions refused after")
    total = sum(map(len, refused))
    title = f"{total} questions, all answered before" if total else f"Before: {NONE}"
    ax.set_title(title, fontsize=10, loc="left")
    return figure


# Runs


def granularity(results: Results) -> "Figure":
    """Table 2: FactScore, response rate, correct and incorrect statements by arm.

    Bars: means over seeds with 95 % t intervals. Grey: the paper's on HotpotQA,
    statements scaled so that its base policy makes as many as ours, and left out
    without ours.
    """
    groups = tables.by_arm(results)
    paper = _paper(groups)
    figure, axes = figures.new_figure(11.0, 3.6, columns=2)
    for ax, panel in zip(axes, (RATES, COUNTS), strict=True):
        labels = {metric: label for metric, (_, label) in panel.items()}
        values = {metric: paper[metric].dropna().to_dict() for metric in panel}
        arm_panels.grouped(ax, groups, labels, values, "paper (7B, HotpotQA)")
    figures.percent_axis(axes[0], "share")
    axes[1].set_ylabel("statements an answer\n(paper: scaled to our base policy)")
    figures.legend_below(figure)
    return figure


def _paper(groups: Mapping[str, Results]) -> "pd.DataFrame":
    """The paper's values of Vicuna on HotpotQA (Tables 1 and 2), a row an arm."""
    first, second = (
        table[table["model"] == "Vicuna-7B"].set_index("arm")
        for table in (published.table(n, "rlfh") for n in (1, 2))
    )
    first = first.rename(columns=lambda name: name.removeprefix("hotpotqa_"))
    columns = {column: metric for metric, (column, _) in (RATES | COUNTS).items()}
    paper = second.combine_first(first)[list(columns)].rename(columns=columns)
    paper[list(RATES)] /= 100
    ours = [arm_panels.mean_of(groups.get("base", ()), name) for name in COUNTS]
    total = sum(mean for mean, _ in ours) if all(ours) else float("nan")
    paper[list(COUNTS)] *= total / paper.loc["base", list(COUNTS)].sum()
    return paper
