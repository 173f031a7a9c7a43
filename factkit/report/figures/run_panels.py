"""Figures of one run: curve, before and after, by exposure, rewards, responses."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas.io.formats.style import Styler

from factkit.report.figures import (
    ABOVE,
    ABSTAIN,
    ARM_COLOURS,
    CORRECT,
    LEGEND,
    LINES,
    PUBLISHED,
    WRONG,
    arm_style,
    format_name,
    new_figure,
    percent_axis,
    whole_ticks,
    write_note,
)
from factkit.run.statistics import t_interval
from factkit.verify.response import extract_answers

if TYPE_CHECKING:
    from factkit.answers.long_form import CheckedResponse

COLOURS = {  # of columns that have a colour of their own
    "hallucination": WRONG,
    "abstention": "#666666",
    "correct": CORRECT,
    "hedged_correct": ARM_COLOURS[4],
    "vague": ABSTAIN,
    "hedged_wrong": "#F2B48C",
    "wrong": WRONG,
}
STATED = {  # of `stated_by_exposure`
    "stated_right": "facts stated right",
    "stated_wrong": "facts stated wrong",
}
CLAIMS = {
    "correct_claims_per_question": "correct claims a question",
    "incorrect_claims_per_question": "other claims a question",
}
SIDES = {  # of a training: what a legend says, colour
    "before": ("before", PUBLISHED),
    "start": ("start of RL", ABSTAIN),  # where it was trained before
    "after": ("after", CORRECT),
}
HATCHES = {"hedged_correct": "///", "hedged_wrong": r"\\\\"}
BLUE, GREY, RED = (  # with a text colour, for a dark theme's text is light
    f"background-color: {c}; color: black" for c in ("#cfe2f3", "#eeeeee", "#f9d5c3")
)
OUTCOMES = {"correct": BLUE, "abstain": f"{GREY}; font-style: italic", "wrong": RED}
# of a claim by its evidence: the more serious, the later
SUPPORTS = {"supported": BLUE, "inconclusive": GREY, "contradicted": RED}


def learning_curve(
    curve: pd.DataFrame,
    panels: Mapping[str, Mapping[str, str]],
    window: int = 1,
    stacked: str = "",
) -> Figure:
    """The rollouts of one run by training step.

    curve: its metrics.csv. panels: label of the y axis, ending in "(%)" for fractions
    → column → name. window: lines are running means over so many steps, faint lines
    the steps themselves. stacked: the panel whose columns are parts of one sum.
    """
    figure, _ = new_figure(max(9.0, 3.0 * len(panels)), 3.2, columns=len(panels))
    for ax, (label, columns) in zip(figure.axes, panels.items(), strict=True):
        names = {c: name for c, name in columns.items() if c in curve}
        stacks = label == stacked
        if not names:
            write_note(ax, "not logged")
        elif stacks:
            style = {"colors": [COLOURS[c] for c in names], "ec": "black", "lw": 0.5}
            style["hatch"] = [HATCHES.get(c, "") for c in names]
            parts = [curve[c] for c in names]
            ax.stackplot(curve.step, parts, labels=names.values(), **style)
        for i, (column, name) in enumerate(() if stacks else names.items()):
            style = {"ls": LINES[i], "color": COLOURS.get(column, ARM_COLOURS[i])}
            style["marker"] = "" if len(curve) > 1 else "o"
            known = curve[curve[column].notna()]  # only a rollout's first update logs
            smooth = known[column].rolling(window, min_periods=1).mean()
            ax.plot(known.step, smooth, label=name, **style)
            if window > 1:
                ax.plot(known.step, known[column], lw=0.8, alpha=0.3, **style)
        if len(names) > 1 or len(columns) > len(names) > 0:
            ax.legend(**LEGEND, **ABOVE, ncols=2 if stacks else 1)
        ax.set_xlabel("training step")
        whole_ticks(ax.xaxis)
        ax.set_ylabel(label)
        if "reward" not in columns:
            ax.set_ylim(bottom=0)
        if label.endswith(" (%)"):
            ax.set_ylim(0, 1.02)
            percent_axis(ax, label.removesuffix(" (%)"))
    return figure


def before_and_after(
    metrics: Mapping[str, Mapping[str, float]],
    terms: Mapping[str, Iterable[Mapping[str, float]]],
    panels: Mapping[str, Mapping[str, str]],
) -> Figure:
    """Metrics before and after training; error bars: 95 % t intervals over test items.

    metrics: side (of SIDES) → metric → value. terms: side → each item's values of the
    metrics. panels: label of the y axis, ending in "(%)" for fractions → metric → name.
    """
    figure, _ = new_figure(9.5 if len(panels) > 1 else 7.0, 3.2, columns=len(panels))
    sides = [side for side in SIDES if side in metrics]
    rows = {side: list(terms[side]) for side in sides}
    width = 0.8 / len(sides)
    for ax, (label, names) in zip(figure.axes, panels.items(), strict=True):
        for i, side in enumerate(sides):
            values = [metrics[side].get(name, 0.0) for name in names]
            counted = [[r[n] for r in rows[side] if n in r] for n in names]
            errors = [t_interval(of)[1] if of else 0.0 for of in counted]
            shown, colour = SIDES[side]
            style = {"color": colour, "label": shown, "capsize": 3}
            places = np.arange(len(names)) + width * (i - (len(sides) - 1) / 2)
            ax.bar(places, values, 0.9 * width, yerr=errors, **style)
        ax.axhline(0, color="black", lw=0.8)
        ax.set_xticks(range(len(names)), names.values(), fontsize=8)
        ax.set_ylabel(label)
        if label.endswith(" (%)"):
            percent_axis(ax, label.removesuffix(" (%)"))
    figure.axes[-1].legend(**LEGEND, **ABOVE, ncols=len(sides))
    return figure


def by_exposure(
    groups: Mapping[str, Sequence[Mapping[str, float]]],
    panels: Mapping[str, str] = CLAIMS,
    share: bool = False,
    read: str = "of the person",
) -> Figure:
    """Metrics by frequency in the pre-training text, one line per arm.

    groups: arm → the metrics of each run; `exposure_<lower edge>_<name>` are drawn.
    panels: name → label of the y axis. Means over seeds with 95 % t intervals.
    """
    figure, _ = new_figure(9.5, 3.4, columns=len(panels))
    for ax, (name, label) in zip(figure.axes, panels.items(), strict=True):
        binned = {arm: numbered(runs, "exposure", name) for arm, runs in groups.items()}
        edges = sorted(set().union(*binned.values()), key=float)
        for i, (arm, bins) in enumerate(binned.items()):
            intervals = [t_interval(bins[edge].dropna().tolist()) for edge in bins]
            means, halves = zip(*intervals, strict=True)
            shift = 0.06 * (i - len(groups) / 2)
            places = [edges.index(edge) + shift for edge in bins]
            colour, line, _ = arm_style(i)
            style = {"ls": line, "marker": "o", "ms": 4, "capsize": 2, "color": colour}
            ax.errorbar(places, means, halves, **style, label=format_name(arm))
        ends = [f"–{int(edge) - 1}" for edge in edges[1:]] + ["+"]
        limits = zip(edges, ends, strict=True)
        spans = [e if f"–{e}" == end else e + end for e, end in limits]
        ax.set_xticks(range(len(edges)), spans)
        ax.set_xlabel(f"times that the policy read {read}")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        if share:
            percent_axis(ax, label)
            ax.set_ylim(-0.03, 1.03)
    figure.axes[0].legend(**LEGEND)
    return figure


def numbered(runs: Sequence[Mapping[str, float]], kind: str, name: str) -> pd.DataFrame:
    """The metrics `<kind>_<number>_<name>`: one row per run's metrics, one column per
    number, in the numbers' order."""
    pattern = re.compile(rf"{kind}_([\d.]+)_{name}")
    rows = [
        {match[1]: metrics[key] for key in metrics if (match := pattern.fullmatch(key))}
        for metrics in runs
    ]
    table = pd.DataFrame(rows)
    return table.sort_index(axis=1, key=lambda numbers: numbers.astype(float))


def drawn_scores(scores: Sequence[Sequence[float]], label: str) -> Figure:
    """Distributions over requests of the mean and the spread of the responses' scores.

    scores: one sequence per request. Raises ValueError if all are empty.
    """
    if not (known := [values for values in scores if values]):
        raise ValueError(f"no response has a score ({label}): read some of them")
    figure, ax = new_figure(5, 3)
    mean, spread = "mean of a request's responses", "best − worst of a request"
    ax.ecdf([np.mean(values) for values in known], color=CORRECT, label=mean)
    ax.ecdf([np.ptp(values) for values in known], color=PUBLISHED, label=spread)
    percent_axis(ax, "requests up to this")
    ax.set_xlabel(label)
    ax.legend(**LEGEND)
    return figure


def lengths(words: Sequence[int], label: str) -> Figure:
    """Histogram of the words of each response; dashed: the median."""
    figure, ax = new_figure(5, 3)
    width = (max(words) - min(words)) // 30 + 1  # whole words
    edges = np.arange(min(words), max(words) + width + 1, width) - 0.5
    ax.hist(words, edges, color=CORRECT)
    middle = np.median(words)
    ax.axvline(middle, color="black", ls="--", lw=1.2, label=f"median: {middle:g}")
    ax.set_xlabel(label)
    ax.set_ylabel("responses")
    ax.legend(**LEGEND)
    return figure


def stress_heatmap(matrix: pd.DataFrame, pays: pd.DataFrame) -> Figure:
    """Mean reward by arm and exploit; framed where it pays at least the honest answer.

    matrix, pays: from `answers.stress`. Colours are shares of the highest mean
    of an arm, since not all rewards have one scale; the numbers are the rewards.
    """
    rows, columns = matrix.shape
    figure, ax = new_figure(0.62 * columns + 2.2, 0.36 * rows + 1.6)
    shares = matrix.div(matrix.max(axis=1).where(lambda top: top > 0, 1.0), axis=0)
    framed = pays.fillna(False).to_numpy(dtype=bool)
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, x in np.ndindex(rows, columns):
        value = matrix.iat[y, x]
        text = f"{value:.2f}" if value == value else "–"  # NaN: the judge failed
        ink = "white" if shares.iat[y, x] > 0.6 else "black"
        ax.text(x, y, text, ha="center", va="center", color=ink, fontsize=8)
        if framed[y, x] and matrix.columns[x] != "honest":
            corner = (x - 0.45, y - 0.43)
            ax.add_patch(Rectangle(corner, 0.9, 0.86, fill=False, ec=WRONG, lw=1.8))
    ax.set_xticks(
        range(columns), map(format_name, matrix.columns), rotation=40, ha="right"
    )
    ax.set_yticks(range(rows), map(format_name, matrix.index))
    ax.tick_params(length=0, labelsize=9)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("response")
    ax.set_ylabel("reward")
    ax.set_title("Framed: pays as much as the honest answer", fontsize=10, loc="left")
    figure.colorbar(image, ax=ax, label="share of the arm's highest", pad=0.02)
    return figure


def outcome_colours(table: pd.DataFrame, outcome_of: Mapping[str, str]) -> Styler:
    """Colour response columns by their outcome: blue correct, grey abstains, red wrong.

    outcome_of: response column → the column with its outcome.
    """
    style = table.style.hide(axis="index")
    for column, outcome_column in outcome_of.items():
        colours = [OUTCOMES[o] for o in table[outcome_column]]
        style = style.apply(lambda _, c=colours: c, subset=[column])
    return style


def claim_colours(
    rows: Sequence[tuple[str, "CheckedResponse", "CheckedResponse"]],
) -> Styler:
    """Requests with two answers each; sentences with claims are blue (supported), red
    (contradicted) or grey (neither)."""
    table = pd.DataFrame(
        [(escape(prompt), _coloured(b), _coloured(a)) for prompt, b, a in rows],
        columns=["request", "before", "after"],
    )
    style = table.style.hide(axis="index")
    return style.set_properties(**{"text-align": "left", "vertical-align": "top"})


def _coloured(row: "CheckedResponse") -> str:
    """An answer as HTML, each sentence marked by the worst support of its claims."""
    (answer,) = extract_answers([row.response])
    worst: dict[str, str] = {}
    for claim, support in zip(row.claims or (), row.supports, strict=True):
        if support:
            supports = support, worst.get(claim.sentence, support)
            worst[claim.sentence] = max(supports, key=list(SUPPORTS).index)
    longest = sorted(worst, key=len, reverse=True)  # one may hold another
    pattern = "|".join(map(re.escape, longest)) or "$"
    parts = re.split(f"({pattern})", answer)
    spans = {
        text: f'<span style="{SUPPORTS[support]}">{escape(text)}</span>'
        for text, support in worst.items()
    }
    return "".join(spans.get(part) or escape(part) for part in parts)
