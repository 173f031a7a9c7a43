"""Figures of RLFH, drawn from checked responses, results and curves.

An accuracy is the share of a response's statements that are correct, which is that the
evidence supports them. A response without statements has none: it refuses, and is in no
distribution.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from factkit.evaluate import statements
from factkit.evaluate.long_form import Checked
from factkit.figures import (
    ABSTAIN,
    ARM_COLOURS,
    CORRECT,
    WRONG,
    bars,
    mean_and_range,
    new_figure,
    percent_axis,
    tables,
)
from factkit.verify.claims import Support

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
TENTHS = tuple(i / 10 for i in range(11))
NONE = "no responding answers"
ACCURACY = "accuracy: correct of an answer's statements"
PALE = ARM_COLOURS[4]  # where a black line must stand out against it
KINDS = {  # of statements: column → label, colour, hatch; the lowest first
    "correct": ("correct", CORRECT, ""),
    "hedged_correct": ("hedged correct", PALE, "///"),
    "vague": ("vague", ABSTAIN, ""),
    "hedged_wrong": ("hedged wrong", "#F2B48C", r"\\\\"),
    "wrong": ("wrong", WRONG, ""),
}
PANELS = {  # of `granularity`: metric → column of the paper's tables, label
    "factual_precision": ("precision", "FactScore"),
    "factscore_response_rate": ("response_rate", "questions responded to\n(by words)"),
    "correct_claims": ("correct", "correct statements an answer"),
    "incorrect_claims": ("incorrect", "incorrect statements an answer"),
}
RATES = ("factual_precision", "factscore_response_rate")


# Responses before and after


def accuracy_change(
    before: Sequence[Checked],
    after: Sequence[Checked],
    edges: Sequence[float] = TENTHS,
) -> "Figure":
    """Fig 4: how much the share of responding answers with each accuracy changed.

    edges: of the bins, [low, high), the last with its end. The shares before sum to 1,
    as do those after, so that refusals change nothing.
    """
    known = [_accuracies(rows) for rows in (before, after)]
    figure, ax = new_figure(6.4, 3.4)
    if all(known):
        old, new = (np.histogram(of, edges)[0] / len(of) for of in known)
        widths, change = np.diff(edges), new - old
        colours = [CORRECT if c > 0 else ABSTAIN for c in change]
        style = {"color": colours, "ec": "black", "lw": 0.6}
        ax.bar(np.add(edges[:-1], widths / 2), change, 0.9 * widths, **style)
        ax.axhline(0, color="black", lw=0.8)
    else:
        _say(ax, NONE)
    percent_axis(ax, "")
    ax.set_ylabel("change of the share of answers\n(percentage points)")
    ax.set_xlim(edges[0], edges[-1])
    percent_axis(ax, ACCURACY, "x")
    ax.set_xticks(edges)
    n = [len(of) for of in known]
    title = f"Responding answers: {n[0]} before, {n[1]} after"
    ax.set_title(title, fontsize=10, loc="left")
    return figure


def accuracy_and_statements(
    before: Sequence[Checked], after: Sequence[Checked]
) -> "Figure":
    """Fig 5: how responding answers are spread over accuracy and number of statements.

    A cell is the darker, the larger its share of them, on one scale.
    """
    counts = [_counts(rows) for rows in (before, after)]
    edges, last = _whole([n for of in counts for _, n in of], 1, most=12)
    shares = []
    for of in counts:
        numbers = np.minimum([n for _, n in of], edges[-1])
        accuracies = [correct / n for correct, n in of]
        table = np.histogram2d(numbers, accuracies, (edges, TENTHS))[0]
        shares.append(table / max(len(of), 1))
    scale = {"vmin": 0, "vmax": np.max(shares) or 1, "cmap": "Blues"}
    figure, axes = new_figure(9.5, 3.8, columns=2)
    panels = zip(axes, ("Before", "After"), counts, shares, strict=True)
    for ax, name, of, table in panels:
        mesh = ax.pcolormesh(TENTHS, edges, table, **scale, ec="#E8E8E8", lw=0.5)
        ax.set_title(f"{name}: {len(of)} responding answers", fontsize=10, loc="left")
        percent_axis(ax, ACCURACY, "x")
        ax.set_ylabel(f"statements an answer{last}")
        _whole_ticks(ax.yaxis)
        if not of:
            _say(ax, NONE)
    bar = figure.colorbar(mesh, ax=axes, pad=0.02)
    percent_axis(bar.ax, "responding answers")
    return figure


def statement_counts(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 6: shares of responding answers with how many statements, correct statements
    and incorrect ones, which are those that the evidence does not support."""
    figure, axes = new_figure(11.0, 3.4, columns=3)
    both = [_counts(rows) for rows in (before, after)]
    panels = {
        "statements": lambda correct, n: n,
        "correct statements": lambda correct, n: correct,
        "incorrect statements": lambda correct, n: n - correct,
    }
    looks = (
        {"color": "#BBBBBB", "fill": True},
        {"color": CORRECT, "lw": 2, "baseline": None},
    )
    for ax, (label, number) in zip(axes, panels.items(), strict=True):
        found = [[number(*pair) for pair in of] for of in both]
        edges, last = _whole([n for of in found for n in of], 0, most=20)
        for values, name, look in zip(found, ("before", "after"), looks, strict=True):
            if values:
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
        _whole_ticks(ax.xaxis)
        style = {"frameon": False, "fontsize": 8, "loc": "lower left"}
        ax.legend(**style, bbox_to_anchor=(0, 1))
    axes[0].set_ylim(0, None if any(both) else 1)
    return figure


def statements_by_accuracy(
    before: Sequence[Checked], after: Sequence[Checked]
) -> "Figure":
    """Fig 7: the number of statements of responding answers by their own accuracy.

    Boxes: the middle half, and the median; whiskers: the outermost within 1.5 boxes.
    """
    figure, ax = new_figure(7.0, 3.8)
    tables_of = [statements.by_accuracy(rows) for rows in (before, after)]
    looks = ((-0.2, "before", ABSTAIN), (0.2, "after", PALE))
    for table, (shift, name, colour) in zip(tables_of, looks, strict=True):
        found = {
            i + shift: [n for _, n in _counts(rows)]
            for i, rows in enumerate(table.values())
            if rows
        }
        if not found:
            ax.plot([], [], " ", label=f"{name}: {NONE}")
            continue
        ax.boxplot(
            list(found.values()),
            positions=list(found),
            widths=0.34,
            patch_artist=True,
            boxprops={"facecolor": colour, "lw": 0.8},
            medianprops={"color": "black", "lw": 2},
            flierprops={"marker": ".", "ms": 3, "mec": "#555555"},
            label=name,
        )
    names = [
        f"{_range(edges)}\nn = {len(old)}; {len(new)}"
        for (edges, old), new in zip(
            tables_of[0].items(), tables_of[1].values(), strict=True
        )
    ]
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylim(0, None if any(map(_counts, (before, after))) else 1)
    _whole_ticks(ax.yaxis)
    ax.set_xlabel(f"{ACCURACY} (%); n: answers before; after")
    ax.set_ylabel("statements an answer")
    ax.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def refusals(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 8: the share of questions refused after by the accuracy of the answer before.

    Bars: 95 % Wilson intervals. before, after: of the same questions.
    """
    table = statements.refusals_by_accuracy(before, after)
    figure, ax = new_figure(6.4, 3.6)
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
    highest = 0.0
    for x, (refused, n) in enumerate(table.values()):
        top = 0.0
        if n:
            share, (low, top) = refused / n, wilson(refused, n)
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
    said = f"{total} questions, all answered before" if total else f"Before: {NONE}"
    ax.set_title(said, fontsize=10, loc="left")
    return figure


def wilson(k: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share, k of n; (0, 1) where n is 0.

    (k + z²/2 ± z √(k (n − k) / n + z²/4)) / (n + z²), z = 1.96.
    """
    z = 1.96
    middle = k + z * z / 2
    half = z * sqrt(k * (n - k) / max(n, 1) + z * z / 4)
    low, high = ((middle + side * half) / (n + z * z) for side in (-1, 1))
    return max(low, 0.0), min(high, 1.0)


def before_and_after(
    before: Mapping[str, float],
    after: Mapping[str, float],
    spans: Mapping[str, bars.Spans],
) -> "Figure":
    """FactScore, response rate and statements before and after; bars: intervals over
    questions.

    spans: `base` and `after` → metric → (low, high), of those that have one.
    """
    rates = {
        "factual_precision": "FactScore: correct\nof the statements",
        "response_rate": "questions\nresponded to",
    }
    counts = {"correct_claims": "correct", "incorrect_claims": "incorrect"}
    figure = bars.before_and_after(before, after, spans, (rates, counts))
    percent_axis(figure.axes[0], "share")
    figure.axes[1].set_ylabel("statements an answer")
    return figure


# Runs


def learning_curve(curve: "pd.DataFrame") -> "Figure":
    """Reward of the rollouts, their statements by kind, how informative these are, and
    the share of responses that have some, by step of one run.

    curve: its metrics.csv; the figure says what it lacks.
    """
    figure, axes = new_figure(12.0, 3.4, columns=4)
    shown = [name for name in KINDS if name in curve]
    if shown:
        labels, colours, hatches = zip(*(KINDS[name] for name in shown), strict=True)
        heights = [curve[name] for name in shown]
        style = {"labels": labels, "colors": colours, "hatch": hatches}
        axes[1].stackplot(curve.step, heights, **style, ec="black", lw=0.5)
        handles, labels = axes[1].get_legend_handles_labels()
        style = {"frameon": False, "fontsize": 8, "loc": "lower left"}
        above = {"bbox_to_anchor": (0, 1), "ncols": 2}
        axes[1].legend(handles, labels, **style, **above)
    else:
        _say(axes[1], "not logged")
    lines = {"reward": axes[0], "informativeness": axes[2], "responds": axes[3]}
    marker = "" if len(curve) > 1 else "o"
    for name, ax in lines.items():
        if name in curve:
            ax.plot(curve.step, curve[name], color=CORRECT, marker=marker)
        else:
            _say(ax, "not logged")
    labels = (
        "mean reward of a response",
        "statements a response",
        "informativeness (1 to 5)",
    )
    for ax, label in zip(axes, labels, strict=False):
        ax.set_ylabel(label)
    axes[1].set_ylim(bottom=0)
    axes[2].set_ylim(0.9, 5.1)
    axes[3].set_ylim(0, 1.02)
    percent_axis(axes[3], "share responding")
    for ax in axes:
        ax.set_xlabel("training step")
        _whole_ticks(ax.xaxis)
    return figure


def granularity(results: Results, prefix: str = "") -> "Figure":
    """Table 2: FactScore, response rate, correct and incorrect statements by arm.

    Filled: means over seeds with 95 % t intervals. Hollow: the paper's on HotpotQA,
    statements scaled so that its base policy makes as many as ours, and left out
    without ours. prefix: of the metrics, as "hotpotqa_" for one evaluation set.
    """
    groups = tables.by_arm(results)
    figure, axes = new_figure(12.0, 0.4 * len(groups) + 1.6, columns=len(PANELS))
    paper = _paper(groups, prefix)
    scaled = "; statements scaled to the base policy's" if "base" in groups else ""
    labels = (
        "here: mean over seeds, 95 % t interval",
        f"paper (7B, HotpotQA{scaled})",
    )
    theirs = {"ls": "", "marker": "D", "ms": 6, "mec": "#555555", "mfc": "white"}
    ours = {"ls": "", "marker": "o", "ms": 6, "color": CORRECT, "capsize": 3}
    for ax, (metric, (_, label)) in zip(axes, PANELS.items(), strict=True):
        marks = paper.get(metric, {})
        places = [y for y, arm in enumerate(groups) if arm in marks]
        at = [marks[arm] for arm in groups if arm in marks]
        ax.plot(at, [y + 0.18 for y in places], **theirs, label=labels[1])
        for y, runs in enumerate(groups.values()):
            values = [r["metrics"].get(f"{prefix}{metric}") for r in runs]
            known = [value for value in values if value is not None]
            if known:
                mean, half = mean_and_range(known)
                ax.errorbar(mean, y - 0.18, xerr=half or None, **ours, label=labels[0])
        _arms(ax, groups if ax is axes[0] else {}, len(groups))
        if metric in RATES:
            percent_axis(ax, label, "x")
        else:
            ax.set_xlabel(label)
    handles = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    style = {"loc": "outside lower center", "ncols": 2, "frameon": False, "fontsize": 8}
    figure.legend(handles.values(), handles.keys(), **style)
    return figure


def _paper(groups: Mapping[str, Results], prefix: str) -> dict[str, dict[str, float]]:
    """Metric → arm → the paper's value, of Vicuna on HotpotQA (Tables 1 and 2)."""
    found = {}
    for table, before in ((1, "hotpotqa_"), (2, "")):
        rows = tables.published(table, "rlfh")
        for row in rows[rows.model == "Vicuna-7B"].to_dict("records"):
            found[row["arm"]] = {
                metric: row[f"{before}{column}"]
                for metric, (column, _) in PANELS.items()
            }
    made = ("correct_claims", "incorrect_claims")
    own = [[r["metrics"].get(prefix + n) for n in made] for r in groups.get("base", ())]
    totals = [sum(numbers) for numbers in own if None not in numbers]
    base = sum(found["base"][name] for name in made)
    factors = dict.fromkeys(RATES, 0.01)
    if totals:
        factors |= dict.fromkeys(made, sum(totals) / len(totals) / base)
    return {
        metric: {arm: of[metric] * factor for arm, of in found.items()}
        for metric, factor in factors.items()
    }


def _arms(ax: "Axes", groups: Mapping[str, Results], n: int) -> None:
    """n rows, the first uppermost, and the names of the arms if there are any."""
    names = [
        f"{arm.replace('_', ' ')} ({len(runs)} seed{'s'[: len(runs) > 1]})"
        for arm, runs in groups.items()
    ]
    ax.set_yticks(range(n), names or [""] * n)
    ax.set_ylim(max(n, 1) - 0.5, -0.5)
    if not n:
        _say(ax, "no results")
    ax.grid(axis="y", color="#DDDDDD", lw=0.6)
    ax.set_axisbelow(True)
    ax.margins(x=0.12)


# Counts


def _counts(rows: Sequence[Checked]) -> list[tuple[int, int]]:
    """Correct and all statements of each responding answer."""
    known = [[s for s in row.supports if s is not None] for row in rows]
    return [(of.count(Support.SUPPORTED), len(of)) for of in known if of]


def _accuracies(rows: Sequence[Checked]) -> list[float]:
    return [correct / n for correct, n in _counts(rows)]


def _whole(values: Sequence[int], least: int, most: int) -> tuple[np.ndarray, str]:
    """Edges of `most` bins or fewer, each of as many whole numbers from `least` on, and
    what is to be said of the last.

    Of more than 100 values, those above 99 % are the last bin's, wherever they end.
    """
    top = np.quantile(values, 0.99, method="higher") if len(values) else least
    width = int(top - least) // most + 1
    edges = np.arange(least, top + width + 1, width) - 0.5
    beyond = len(values) and max(values) > edges[-1]
    return edges, f"\n(last: {edges[-2] + 0.5:.0f} or more)" if beyond else ""


def _whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))


def _range(edges: tuple[float, float]) -> str:
    """Edges of shares in per cent."""
    return "–".join(f"{100 * edge:g}" for edge in edges)


def _say(ax: "Axes", text: str) -> None:
    style = {"transform": ax.transAxes, "ha": "center", "va": "center"}
    ax.text(0.5, 0.5, text, **style, color="#555555")
