"""Figures of RLFH, drawn from checked responses and results; tokens with rewards.

An accuracy is the share of a response's statements that are correct, which is that the
evidence supports them. A response without statements has none: it refuses, and is in no
distribution. Fig 5 and 7 are drawn in notebook 44.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from factkit import models
from factkit.evaluate.long_form import Checked
from factkit.figures import (
    ABOVE,
    ABSTAIN,
    CORRECT,
    LEGEND,
    WRONG,
    bars,
    legend_below,
    new_figure,
    percent_axis,
    say,
    spaced,
    tables,
    whole_ticks,
)
from factkit.rlfh import evaluate, rewards
from factkit.rlfh.feedback import Feedback
from factkit.verify.claims import Support

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pandas.io.formats.style import Styler
    from transformers import PreTrainedTokenizerBase

Results = Sequence[Mapping[str, Any]]
TENTHS = tuple(i / 10 for i in range(11))
NONE = "no responding answers"
ACCURACY = "accuracy: correct of an answer's statements"
FIFTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RANGES = [f"{100 * low:g}–{100 * high:g}" for low, high in pairwise(FIFTHS)]
MOST_BINS = 20  # of numbers of statements
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
    figure, ax = new_figure(6.4, 3.4)
    if n and m:
        shares = [np.histogram(c[:, 0] / c[:, 1], TENTHS)[0] / len(c) for c in both]
        change = shares[1] - shares[0]
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


def statement_counts(before: Sequence[Checked], after: Sequence[Checked]) -> "Figure":
    """Fig 6: shares of responding answers with how many statements, correct statements
    and incorrect ones, which are those that the evidence does not support.

    Of long answers a bin holds several numbers, the last one all that are beyond.
    """
    figure, axes = new_figure(11.0, 3.4, columns=3)
    both = [counts(rows) for rows in (before, after)]
    panels = {
        "statements": [c[:, 1] for c in both],
        "correct statements": [c[:, 0] for c in both],
        "incorrect statements": [c[:, 1] - c[:, 0] for c in both],
    }
    looks = {
        "before": {"color": "#BBBBBB", "fill": True},
        "after": {"color": CORRECT, "lw": 2, "baseline": None},
    }
    for ax, (label, numbers) in zip(axes, panels.items(), strict=True):
        edges, last = whole_bins(np.concatenate(numbers), 0, MOST_BINS)
        for values, (name, look) in zip(numbers, looks.items(), strict=True):
            share = np.histogram(np.minimum(values, edges[-1]), edges)[0]
            mean = f"mean {np.mean(values):.1f}" if len(values) else NONE
            mean = f"{name}: {mean} (n = {len(values)})"
            ax.stairs(share / max(len(values), 1), edges, **look, label=mean)
        ax.sharey(axes[0])
        ax.set_xlim(edges[0], edges[-1])
        ax.set_xlabel(f"{label} an answer{last}")
        percent_axis(ax, "responding answers")
        whole_ticks(ax.xaxis)
        ax.legend(**LEGEND, **ABOVE)
    axes[0].set_ylim(0, None if any(map(len, both)) else 1)
    return figure


def whole_bins(values: np.ndarray, least: int, most: int) -> tuple[np.ndarray, str]:
    """Edges of `most` bins or fewer, each of as many whole numbers from `least` on, and
    what is to be said of the last: of more than 100 values it holds the highest 1 %."""
    top = np.quantile(values, 0.99, method="higher") if len(values) else least
    width = int(top - least) // most + 1
    edges = np.arange(least, top + width + 1, width) - 0.5
    beyond = len(values) and max(values) > edges[-1]
    return edges, f"\n(last: {edges[-2] + 0.5:.0f} or more)" if beyond else ""


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
    figure, ax = new_figure(6.4, 3.6)
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
    tops = [0.0] * len(RANGES)
    for x, answers in enumerate(refused):
        if answers:
            share = np.mean(answers)
            test = binomtest(sum(answers), len(answers))
            low, tops[x] = test.proportion_ci(method="wilson")
            ends = [[max(share - low, 0)], [max(tops[x] - share, 0)]]
            ax.bar(x, share, 0.7, yerr=ends, color=CORRECT, capsize=4, ec="black")
        ax.annotate(f"n = {len(answers)}", (x, tops[x]), (0, 4), **style)
    ax.set_xticks(range(len(RANGES)), RANGES)
    ax.set_xlim(-0.6, len(RANGES) - 0.4)
    ax.set_ylim(0, 1.12 * max(tops) or 1)
    ax.set_xlabel("accuracy before: correct of the answer's statements (%)")
    percent_axis(ax, "questions refused after")
    total = sum(map(len, refused))
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
        ax.set_yticks(range(len(groups)), [""] * len(groups))
        ax.set_ylim(max(len(groups), 1) - 0.5, -0.5)
        ax.grid(axis="y", color="#DDDDDD", lw=0.6)
        ax.set_axisbelow(True)
        ax.margins(x=0.12)
        ax.set_xlabel(label)
        if label.endswith(" (%)"):
            percent_axis(ax, label.removesuffix(" (%)"), "x")
        if not groups:
            say(ax, "no results")
    names = [f"{spaced(arm)} (n = {len(runs)})" for arm, runs in groups.items()]
    axes[0].set_yticks(range(len(groups)), names)
    axes[0].set_ylabel("arm (n: seeds)")
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
    rates, stated = list(PANELS)[:2], list(PANELS)[2:]
    paper[rates] /= 100
    ours = [bars.mean_of(groups.get("base", ()), name) for name in stated]
    total = sum(mean for mean, _ in ours) if all(ours) else float("nan")
    paper[stated] *= total / paper.loc["base", stated].sum()
    return paper


# Tokens with their rewards


def on_tokens(
    prompts: Sequence[str],
    texts: Sequence[str],
    feedback: Sequence[Feedback],
    granularity: rewards.Granularity,
    tokenizer: "PreTrainedTokenizerBase",
    m: rewards.RewardMap,
) -> list[tuple[str, list[str], Sequence[float] | None]]:
    """Rows for `token_reward_rows` of responses with their feedback."""
    rows = []
    for prompt, text, sentences in zip(prompts, texts, feedback, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        decoded, offsets = models.offsets_of(ids, tokenizer)
        values = None
        if sentences is not None:
            values = rewards.token_rewards(sentences, ids, tokenizer, granularity, m)
        rows.append((prompt, [decoded[a:b] for a, b in offsets], values))
    return rows


def token_reward_rows(
    rows: Sequence[tuple[str, Sequence[str], Sequence[float] | None]],
) -> "Styler":
    """Table 8: prompts with their responses' tokens, blue where the reward is positive,
    orange where negative, the stronger the larger, and the sum of each response's.

    rows: (prompt, tokens, rewards), None where the annotator failed; all have one scale
    of colours.
    """
    import pandas as pd

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


def _marked(
    tokens: Sequence[str], values: Sequence[float] | None, largest: float
) -> str:
    """Tokens as HTML, those with a reward in its colour and before its number."""
    if values is None:
        return f"{escape(''.join(tokens))} <i>(no feedback: the annotator failed)</i>"
    parts = []
    for token, reward in zip(tokens, values, strict=True):
        if not reward:
            parts.append(escape(token))
            continue
        strength = round(255 * (0.15 + 0.45 * abs(reward) / largest))
        colour = f"{CORRECT if reward > 0 else WRONG}{strength:02x}"
        number = f'<sup style="font-size: 0.7em">{_signed(reward)}</sup>'
        style = f"background-color: {colour}; border-radius: 3px"
        parts.append(f'<span style="{style}">{escape(token)}{number}</span>')
    return "".join(parts)


def _signed(reward: float) -> str:
    return f"{reward:+.2f}".replace("-", "−") if abs(reward) >= 1e-9 else "0"
