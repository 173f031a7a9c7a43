"""Figures of RLFH, drawn from checked responses, results and curves.

An accuracy is the share of a response's statements that are correct, which is that the
evidence supports them. A response without statements has none: it refuses, and is in no
distribution.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from factkit.evaluate.long_form import Checked
from factkit.figures import (
    ABOVE,
    ABSTAIN,
    ARM_COLOURS,
    CORRECT,
    LEGEND,
    bars,
    legend_below,
    new_figure,
    percent_axis,
    say,
    spaced,
    tables,
    whole_ticks,
)
from factkit.rlfh import evaluate as statements
from factkit.verify.claims import Support

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
TENTHS = tuple(i / 10 for i in range(11))
NONE = "no responding answers"
ACCURACY = "accuracy: correct of an answer's statements"
PALE = ARM_COLOURS[4]  # where a black line must stand out against it
PANELS = {  # of `granularity`: metric → column of the paper's tables, label
    "factual_precision": ("precision", "FactScore (%)"),
    "factscore_response_rate": (
        "response_rate",
        "questions responded to\n(by words) (%)",
    ),
    "correct_claims": ("correct", "correct statements an answer"),
    "incorrect_claims": ("incorrect", "incorrect statements an answer"),
}


# Responses before and after


def accuracy_change(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 4: how much the share of responding answers with each accuracy changed.

    Bins are [low, high), the last with its end. The shares before sum to 1, as do those
    after, so that refusals change nothing.
    """
    counts = [_counts(rows) for rows in (before, after)]
    n, m = map(len, counts)
    figure, ax = new_figure(6.4, 3.4)
    if n and m:
        old, new = (np.histogram(_accuracies(c), TENTHS)[0] / len(c) for c in counts)
        change = new - old
        colours = [CORRECT if c > 0 else ABSTAIN for c in change]
        middles = np.add(TENTHS[:-1], 0.05)
        ax.bar(middles, change, 0.09, color=colours, ec="black", lw=0.6)
        ax.axhline(0, color="black", lw=0.8)
    else:
        say(ax, NONE)
    percent_axis(ax, "")
    ax.set_ylabel("change of the share of answers\n(percentage points)")
    ax.set_xlim(0, 1)
    percent_axis(ax, ACCURACY, "x")
    ax.set_xticks(TENTHS)
    title = f"Responding answers: {n} before, {m} after"
    ax.set_title(title, fontsize=10, loc="left")
    return figure


def accuracy_and_statements(
    before: Sequence[Checked], after: Sequence[Checked]
) -> "Figure":
    """Fig 5: how responding answers are spread over accuracy and number of statements.

    A cell is the darker, the larger its share of them, on one scale.
    """
    both = [_counts(rows) for rows in (before, after)]
    edges, last = _whole(np.concatenate(both)[:, 1], 1, most=12)
    shares = []
    for counts in both:
        numbers = np.minimum(counts[:, 1], edges[-1])
        table = np.histogram2d(numbers, _accuracies(counts), (edges, TENTHS))[0]
        shares.append(table / max(len(counts), 1))
    scale = {"vmin": 0, "vmax": np.max(shares) or 1, "cmap": "Blues"}
    figure, axes = new_figure(9.5, 3.8, columns=2)
    panels = zip(axes, ("Before", "After"), both, shares, strict=True)
    for ax, name, counts, table in panels:
        mesh = ax.pcolormesh(TENTHS, edges, table, **scale, ec="#E8E8E8", lw=0.5)
        title = f"{name}: {len(counts)} responding answers"
        ax.set_title(title, fontsize=10, loc="left")
        percent_axis(ax, ACCURACY, "x")
        ax.set_ylabel(f"statements an answer{last}")
        whole_ticks(ax.yaxis)
        if not len(counts):
            say(ax, NONE)
    bar = figure.colorbar(mesh, ax=axes, pad=0.02)
    percent_axis(bar.ax, "responding answers")
    return figure


def statement_counts(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 6: shares of responding answers with how many statements, correct statements
    and incorrect ones, which are those that the evidence does not support."""
    figure, axes = new_figure(11.0, 3.4, columns=3)
    both = [_counts(rows) for rows in (before, after)]
    panels = {
        "statements": [counts[:, 1] for counts in both],
        "correct statements": [counts[:, 0] for counts in both],
        "incorrect statements": [counts[:, 1] - counts[:, 0] for counts in both],
    }
    looks = {
        "before": {"color": "#BBBBBB", "fill": True},
        "after": {"color": CORRECT, "lw": 2, "baseline": None},
    }
    for ax, (label, numbers) in zip(axes, panels.items(), strict=True):
        edges, last = _whole(np.concatenate(numbers), 0, most=20)
        for values, (name, look) in zip(numbers, looks.items(), strict=True):
            if len(values):
                inside = np.minimum(values, edges[-1])
                share = np.histogram(inside, edges)[0] / len(values)
                mean = f"{name}: mean {np.mean(values):.1f} (n = {len(values)})"
                ax.stairs(share, edges, **look, label=mean)
            else:
                ax.plot([], [], " ", label=f"{name}: {NONE}")
        ax.sharey(axes[0])
        ax.set_xlim(edges[0], edges[-1])
        ax.set_xlabel(f"{label} an answer{last}")
        percent_axis(ax, "responding answers")
        whole_ticks(ax.xaxis)
        ax.legend(**LEGEND, **ABOVE)
    axes[0].set_ylim(0, None if any(map(len, both)) else 1)
    return figure


def statements_by_accuracy(
    before: Sequence[Checked], after: Sequence[Checked]
) -> "Figure":
    """Fig 7: the number of statements of responding answers by their own accuracy.

    Boxes: the middle half, and the median; whiskers: the outermost within 1.5 boxes.
    """
    figure, ax = new_figure(7.0, 3.8)
    old, new = (statements.by_accuracy(rows) for rows in (before, after))
    looks = ((old, -0.2, "before", ABSTAIN), (new, 0.2, "after", PALE))
    for table, shift, name, colour in looks:
        boxes = {
            i + shift: _counts(rows)[:, 1]
            for i, rows in enumerate(table.values())
            if rows
        }
        if not boxes:
            ax.plot([], [], " ", label=f"{name}: {NONE}")
            continue
        ax.boxplot(
            list(boxes.values()),
            positions=list(boxes),
            widths=0.34,
            patch_artist=True,
            boxprops={"facecolor": colour, "lw": 0.8},
            medianprops={"color": "black", "lw": 2},
            flierprops={"marker": ".", "ms": 3, "mec": "#555555"},
            label=name,
        )
    names = [
        f"{_range(edges)}\nn = {len(rows)}; {len(new[edges])}"
        for edges, rows in old.items()
    ]
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylim(0, None if any((*old.values(), *new.values())) else 1)
    whole_ticks(ax.yaxis)
    ax.set_xlabel(f"{ACCURACY} (%); n: answers before; after")
    ax.set_ylabel("statements an answer")
    ax.legend(frameon=False, ncols=2, **ABOVE)
    return figure


def refusals(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 8: the share of questions refused after by the accuracy of the answer before.

    Bars: 95 % Wilson intervals. before, after: of the same questions.
    """
    from scipy.stats import binomtest

    table = statements.refusals_by_accuracy(before, after)
    figure, ax = new_figure(6.4, 3.6)
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
    highest = 0.0
    for x, (refused, n) in enumerate(table.values()):
        top = 0.0
        if n:
            share = refused / n
            low, top = binomtest(refused, n).proportion_ci(method="wilson")
            ends = [[max(share - low, 0)], [max(top - share, 0)]]
            ax.bar(x, share, 0.7, yerr=ends, color=CORRECT, capsize=4, ec="black")
        ax.annotate(f"n = {n}", (x, top), (0, 4), **style)
        highest = max(highest, top)
    ax.set_xticks(range(len(table)), [_range(edges) for edges in table])
    ax.set_xlim(-0.6, len(table) - 0.4)
    ax.set_ylim(0, 1.12 * highest or 1)
    ax.set_xlabel("accuracy before: correct of the answer's statements (%)")
    percent_axis(ax, "questions refused after")
    total = sum(n for _, n in table.values())
    title = f"{total} questions, all answered before" if total else f"Before: {NONE}"
    ax.set_title(title, fontsize=10, loc="left")
    return figure


# Runs


def granularity(results: Results) -> "Figure":
    """Table 2: FactScore, response rate, correct and incorrect statements by arm.

    Filled: means over seeds with 95 % t intervals. Hollow: the paper's on HotpotQA,
    statements scaled so that its base policy makes as many as ours, and left out
    without ours.
    """
    groups = tables.by_arm(results)
    rows = range(len(groups))
    figure, axes = new_figure(12.0, 0.4 * len(groups) + 1.6, columns=len(PANELS))
    paper = _paper(groups)
    scaled = "; statements scaled to the base policy's" if "base" in groups else ""
    theirs = {"ls": "", "marker": "D", "ms": 6, "mec": "#555555", "mfc": "white"}
    ours = {"ls": "", "marker": "o", "ms": 6, "color": CORRECT, "capsize": 3}
    theirs["label"] = f"paper (7B, HotpotQA{scaled})"
    ours["label"] = "here: mean over seeds, 95 % t interval"
    for ax, (metric, (_, label)) in zip(axes, PANELS.items(), strict=True):
        values = paper[metric].reindex(list(groups)).dropna()
        places = [list(groups).index(arm) + 0.18 for arm in values.index]
        ax.plot(values, places, **theirs)
        for y, runs in enumerate(groups.values()):
            if at := bars.mean_of(runs, metric):
                ax.errorbar(at[0], y - 0.18, xerr=at[1] or None, **ours)
        ax.set_yticks(rows, [""] * len(groups))
        ax.set_ylim(max(len(groups), 1) - 0.5, -0.5)
        ax.grid(axis="y", color="#DDDDDD", lw=0.6)
        ax.set_axisbelow(True)
        ax.margins(x=0.12)
        ax.set_xlabel(label)
        if label.endswith(" (%)"):
            percent_axis(ax, label.removesuffix(" (%)"), "x")
        if not groups:
            say(ax, "no results")
    names = [
        f"{spaced(arm)} ({len(runs)} seed{'s'[: len(runs) > 1]})"
        for arm, runs in groups.items()
    ]
    axes[0].set_yticks(rows, names)
    legend_below(figure, 2)
    return figure


def _paper(groups: Mapping[str, Results]) -> "pd.DataFrame":
    """The paper's values of Vicuna on HotpotQA (Tables 1 and 2), a row an arm."""
    first, second = (
        table[table["model"] == "Vicuna-7B"].set_index("arm")
        for table in (tables.published(n, "rlfh") for n in (1, 2))
    )
    first = first.rename(columns=lambda name: name.removeprefix("hotpotqa_"))
    columns = {column: metric for metric, (column, _) in PANELS.items()}
    paper = second.combine_first(first)[list(columns)].rename(columns=columns)
    rates, counts = list(PANELS)[:2], list(PANELS)[2:]
    paper[rates] /= 100
    ours = [bars.mean_of(groups.get("base", ()), name) for name in counts]
    total = sum(mean for mean, _ in ours) if all(ours) else float("nan")
    paper[counts] *= total / paper.loc["base", counts].sum()
    return paper


# Counts


def _counts(rows: Sequence[Checked]) -> np.ndarray:
    """Correct and all statements of each responding answer: (answers, 2)."""
    supports = [[s for s in row.supports if s is not None] for row in rows]
    counts = [(s.count(Support.SUPPORTED), len(s)) for s in supports if s]
    return np.array(counts, dtype=int).reshape(-1, 2)


def _accuracies(counts: np.ndarray) -> np.ndarray:
    return counts[:, 0] / counts[:, 1]


def _whole(values: np.ndarray, least: int, most: int) -> tuple[np.ndarray, str]:
    """Edges of `most` bins or fewer, each of as many whole numbers from `least` on, and
    what is to be said of the last.

    Of more than 100 values, those above 99 % are the last bin's, wherever they end.
    """
    top = np.quantile(values, 0.99, method="higher") if len(values) else least
    width = int(top - least) // most + 1
    edges = np.arange(least, top + width + 1, width) - 0.5
    beyond = len(values) and max(values) > edges[-1]
    return edges, f"\n(last: {edges[-2] + 0.5:.0f} or more)" if beyond else ""


def _range(edges: tuple[float, float]) -> str:
    """Edges of shares in per cent."""
    return "–".join(f"{100 * edge:g}" for edge in edges)
