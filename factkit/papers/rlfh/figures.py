"""Figures and tables of RLFH: arms compared, answers before and after, token rewards.

counts: before and after training, the correct and all statements of each response that
states something, (2, n): `evaluate.count_statements`.
"""

import math
from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler
from scipy.stats import binomtest

from factkit.report import figures, published
from factkit.report.figures import arm_panels

# of `granularity`: metric → column of the paper's tables, label
RATES = {
    "factual_precision": ("precision", "FactScore"),
    "factscore_response_rate": ("response_rate", "questions responded to\n(by words)"),
}
COUNTS = {
    "correct_claims": ("correct", "correct"),
    "incorrect_claims": ("incorrect", "incorrect"),
}


def granularity(groups: arm_panels.Groups) -> Figure:
    """Table 2: FactScore, response rate, correct and incorrect statements by arm: means
    over seeds with 95 % t intervals. Grey: the paper's on HotpotQA; its statements are
    scaled to the total of our base policy."""
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


def _paper(groups: arm_panels.Groups) -> pd.DataFrame:
    """The paper's values of Vicuna on HotpotQA (Tables 1 and 2), one row per arm."""
    first, second = (
        table[table["model"] == "Vicuna-7B"].set_index("arm")
        for table in (published.read_table(n, "rlfh") for n in (1, 2))
    )
    first = first.rename(columns=lambda name: name.removeprefix("hotpotqa_"))
    columns = {column: metric for metric, (column, _) in (RATES | COUNTS).items()}
    paper = second.combine_first(first)[list(columns)].rename(columns=columns)
    paper[list(RATES)] /= 100
    ours = [arm_panels.mean_of(groups.get("base", ()), name) for name in COUNTS]
    total = sum(mean[0] if mean else math.nan for mean in ours)
    paper[list(COUNTS)] *= total / paper.loc["base", list(COUNTS)].sum()
    return paper


# ---- answers before and after training (Fig 4 to 8)

ACCURACY = "accuracy: correct of an answer's statements"
TENTHS, FIFTHS = np.arange(11) / 10, np.arange(6) / 5
RANGES = [f"{20 * i}–{20 * i + 20}" for i in range(5)]  # per cent


def accuracy_change(counts: Sequence[np.ndarray]) -> Figure:
    """Fig 4: the change of the share of answers in each tenth of accuracy."""
    shares = [np.histogram(correct / n, TENTHS)[0] / len(n) for correct, n in counts]
    change = shares[1] - shares[0]
    colours = [figures.CORRECT if c > 0 else figures.ABSTAIN for c in change]
    figure, ax = figures.new_figure(6.4, 3.4)
    ax.bar(TENTHS[:-1] + 0.05, change, 0.09, color=colours, ec="black", lw=0.6)
    ax.axhline(0, color="black", lw=0.8)
    figures.percent_axis(ax, "")
    ax.set_ylabel("change of the share of answers\n(percentage points)")
    ax.set_xlim(0, 1)
    figures.percent_axis(ax, ACCURACY, "x")
    ax.set_xticks(TENTHS)
    before, after = (len(n) for _, n in counts)
    title = f"Responding answers: {before} before, {after} after"
    ax.set_title(title, fontsize=10, loc="left")
    return figure


def accuracy_and_statements(counts: Sequence[np.ndarray]) -> Figure:
    """Fig 5: the shares of answers by accuracy and number of statements."""
    edges = np.arange(1, max(n.max() for _, n in counts) + 2) - 0.5
    joint = [
        np.histogram2d(n, correct / n, (edges, TENTHS))[0] / len(n)
        for correct, n in counts
    ]
    scale = {"vmin": 0, "vmax": np.max(joint), "cmap": "Blues"}
    figure, axes = figures.new_figure(9.5, 3.8, columns=2)
    for ax, when, shares in zip(axes, ("before", "after"), joint, strict=True):
        mesh = ax.pcolormesh(TENTHS, edges, shares, **scale, ec="#E8E8E8", lw=0.5)
        figures.percent_axis(ax, ACCURACY, "x")
        ax.set_ylabel(f"statements an answer {when}")
        figures.whole_ticks(ax.yaxis)
    figures.percent_axis(figure.colorbar(mesh, ax=axes).ax, "responding answers")
    return figure


def statement_counts(counts: Sequence[np.ndarray]) -> Figure:
    """Fig 6: how many statements, correct and incorrect ones, an answer has."""
    panels = {
        "statements": [n for _, n in counts],
        "correct statements": [correct for correct, _ in counts],
        "incorrect statements": [n - correct for correct, n in counts],
    }
    styles = {
        "before": {"color": "#BBBBBB", "fill": True},
        "after": {"color": figures.CORRECT, "lw": 2, "baseline": None},
    }
    figure, axes = figures.new_figure(11.0, 3.4, columns=3)
    for ax, (label, numbers) in zip(axes, panels.items(), strict=True):
        edges = np.arange(max(map(max, numbers)) + 2) - 0.5
        for values, (when, style) in zip(numbers, styles.items(), strict=True):
            shares = np.histogram(values, edges)[0] / len(values)
            mean = f"{when}: mean {np.mean(values):.1f} (n = {len(values)})"
            ax.stairs(shares, edges, **style, label=mean)
        ax.sharey(axes[0])
        ax.set_xlim(edges[0], edges[-1])
        ax.set_xlabel(f"{label} an answer")
        figures.percent_axis(ax, "responding answers")
        figures.whole_ticks(ax.xaxis)
        ax.legend(**figures.LEGEND, **figures.ABOVE)
    axes[0].set_ylim(0)
    return figure


def statements_by_accuracy(counts: Sequence[np.ndarray]) -> Figure:
    """Fig 7: the number of statements of an answer, by fifths of accuracy."""
    figure, ax = figures.new_figure(7.0, 3.8)
    sides = {"before": (-0.2, figures.ABSTAIN), "after": (0.2, figures.ARM_COLOURS[4])}
    for (correct, n), (when, (shift, colour)) in zip(
        counts, sides.items(), strict=True
    ):
        fifths = np.digitize(correct / n, FIFTHS[1:-1])
        boxes = {i + shift: n[fifths == i] for i in sorted(set(fifths))}
        style = {"patch_artist": True, "boxprops": {"facecolor": colour}, "label": when}
        ax.boxplot([*boxes.values()], positions=[*boxes], widths=0.34, **style)
    ax.set_xticks(range(len(RANGES)), RANGES)
    ax.set_xlabel(f"{ACCURACY} (%)")
    ax.set_ylabel("statements an answer")
    figures.whole_ticks(ax.yaxis)
    ax.legend(**figures.LEGEND)
    return figure


def refusals(refused: Sequence[tuple[float, bool]]) -> Figure:
    """Fig 8: the share of questions refused after training, by fifths of the accuracy
    before, with Wilson's 95 % intervals. refused: from `evaluate.refusals`."""
    figure, ax = figures.new_figure(6.4, 3.6)
    by_range: list[list[bool]] = [[] for _ in RANGES]
    for accuracy, is_refused in refused:
        by_range[np.digitize(accuracy, FIFTHS[1:-1])].append(is_refused)
    tops = [0.0] * len(RANGES)
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
    for x, outcomes in enumerate(by_range):
        if outcomes:
            share, test = np.mean(outcomes), binomtest(sum(outcomes), len(outcomes))
            low, tops[x] = test.proportion_ci(method="wilson")
            ends = [[max(share - low, 0)], [max(tops[x] - share, 0)]]
            bar = {"color": figures.CORRECT, "ec": "black", "capsize": 4}
            ax.bar(x, share, 0.7, yerr=ends, **bar)
        ax.annotate(f"n = {len(outcomes)}", (x, tops[x]), (0, 4), **style)
    ax.set_xticks(range(len(RANGES)), RANGES)
    ax.set_xlim(-0.6, len(RANGES) - 0.4)
    ax.set_ylim(0, 1.12 * max(tops) or 1)
    ax.set_xlabel("accuracy before: correct of the answer's statements (%)")
    figures.percent_axis(ax, "questions refused after")
    title = f"{len(refused)} questions, all answered before"
    ax.set_title(title, fontsize=10, loc="left")
    return figure


# ---- token rewards


def token_reward_rows(
    rows: Sequence[tuple[str, Sequence[str], np.ndarray | None]],
) -> Styler:
    """Table 8: prompts, responses with tokens coloured by reward (blue positive, orange
    negative), and the sum of rewards.

    rows: (prompt, tokens, rewards); rewards are None if the annotator failed.
    """
    known = [abs(r) for _, _, values in rows if values is not None for r in values]
    table = pd.DataFrame(
        [
            (
                escape(prompt),
                _marked(tokens, values, max(known, default=0)),
                "–" if values is None else _signed(math.fsum(values)),
            )
            for prompt, tokens, values in rows
        ],
        columns=["prompt", "response", "reward"],
    )
    style = {"text-align": "left", "vertical-align": "top", "white-space": "pre-wrap"}
    return table.style.hide(axis="index").set_properties(**style)


def _marked(tokens: Sequence[str], values: np.ndarray | None, largest: float) -> str:
    """Tokens as HTML, with the rewards as numbers and colours."""
    if values is None:
        return f"{escape(''.join(tokens))} <i>(no feedback: the annotator failed)</i>"
    parts = []
    for token, reward in zip(tokens, values, strict=True):
        if not reward:
            parts.append(escape(token))
            continue
        strength = round(255 * (0.15 + 0.45 * abs(reward) / largest))
        colour = f"{figures.CORRECT if reward > 0 else figures.WRONG}{strength:02x}"
        number = f'<sup style="font-size: 0.7em">{_signed(reward)}</sup>'
        style = f"background-color: {colour}; color: black; border-radius: 3px"
        parts.append(f'<span style="{style}">{escape(token)}{number}</span>')
    return "".join(parts)


def _signed(reward: float) -> str:
    return f"{reward:+.2f}".replace("-", "−") if abs(reward) >= 1e-9 else "0"
