"""Tokens of responses with their rewards, to look at."""

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from factkit import figures, models
from factkit.rlfh import rewards
from factkit.rlfh.feedback import Feedback

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler
    from transformers import PreTrainedTokenizerBase


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
        colour = f"{figures.CORRECT if reward > 0 else figures.WRONG}{strength:02x}"
        number = f'<sup style="font-size: 0.7em">{_signed(reward)}</sup>'
        style = f"background-color: {colour}; border-radius: 3px"
        parts.append(f'<span style="{style}">{escape(token)}{number}</span>')
    return "".join(parts)


def _signed(reward: float) -> str:
    return f"{reward:+.2f}".replace("-", "−") if abs(reward) >= 1e-9 else "0"
