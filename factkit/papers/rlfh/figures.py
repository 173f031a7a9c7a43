"""Figures and tables of RLFH that two notebooks share."""

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from factkit.report import figures, published
from factkit.report.figures import arm_panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pandas.io.formats.style import Styler

# of `granularity`: metric → column of the paper's tables, label
RATES = {
    "factual_precision": ("precision", "FactScore"),
    "factscore_response_rate": ("response_rate", "questions responded to\n(by words)"),
}
COUNTS = {
    "correct_claims": ("correct", "correct"),
    "incorrect_claims": ("incorrect", "incorrect"),
}


def granularity(groups: arm_panels.Groups) -> "Figure":
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


def _paper(groups: arm_panels.Groups) -> "pd.DataFrame":
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
    total = sum(mean for mean, _ in ours) if all(ours) else float("nan")
    paper[list(COUNTS)] *= total / paper.loc["base", list(COUNTS)].sum()
    return paper


def token_reward_rows(
    rows: Sequence[tuple[str, Sequence[str], Sequence[float] | None]],
) -> "Styler":
    """Table 8: prompts, responses with tokens coloured by reward (blue positive, orange
    negative), and the sum of rewards.

    rows: (prompt, tokens, rewards); rewards are None if the annotator failed.
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
        style = f"background-color: {colour}; border-radius: 3px"
        parts.append(f'<span style="{style}">{escape(token)}{number}</span>')
    return "".join(parts)


def _signed(reward: float) -> str:
    return f"{reward:+.2f}".replace("-", "−") if abs(reward) >= 1e-9 else "0"
