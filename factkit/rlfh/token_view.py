"""Responses in a notebook with the rewards on their tokens, as HTML.

Styles are inline, so that an exported notebook looks the same.
"""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from factkit.figures import CORRECT, PAGE, WRONG
from factkit.rewards import token_mapping
from factkit.rlfh import rewards as rlfh
from factkit.rlfh.feedback import Sentence
from factkit.rlfh.rewards import Granularity, RewardMap

if TYPE_CHECKING:
    from IPython.display import HTML
    from transformers import PreTrainedTokenizerBase

PALEST, STRONGEST = 0.15, 0.6  # how much of the colour a background has
TEXT = "white-space: pre-wrap; text-align: left; line-height: 2"
CELL = f"{TEXT}; vertical-align: top; padding: 4px 8px; border: 1px solid #dddddd"


def token_rewards(tokens: Sequence[str], rewards: Sequence[float] | None) -> "HTML":
    """A response's tokens: blue where the reward is positive, orange where negative.

    The larger the reward, the stronger the colour; the number stands above, and exactly
    in the tooltip. tokens: they tile the text, special ones are empty. rewards: as many
    as tokens, else ValueError; None if the annotator failed.
    """
    from IPython.display import HTML

    body = _marked(tokens, rewards, _largest([rewards]))
    return HTML(PAGE.format(f'<div style="{TEXT}">{body}</div>'))


def token_reward_rows(
    rows: Sequence[tuple[str, Sequence[str], Sequence[float] | None]],
) -> "HTML":
    """Table 8: prompts with their responses' tokens as `token_rewards` shows them, and
    the sum of each response's rewards.

    rows: (prompt, tokens, rewards). Of rows of one prompt, the first shows it. All
    have one scale of colours.
    """
    from IPython.display import HTML

    largest = _largest([rewards for _, _, rewards in rows])
    prompts = [None, *(prompt for prompt, _, _ in rows)]
    lines = [_line("th", "prompt", "response", "reward")]
    for (last, prompt), (_, tokens, rewards) in zip(
        pairwise(prompts), rows, strict=True
    ):
        total = "–" if rewards is None else _signed(math.fsum(rewards))
        shown = "" if prompt == last else escape(prompt)
        lines.append(_line("td", shown, _marked(tokens, rewards, largest), total))
    table = '<table style="border-collapse: collapse; background-color: white">{}'
    return HTML(PAGE.format(f"{table.format(''.join(lines))}</table>"))


def on_tokens(
    prompts: Sequence[str],
    texts: Sequence[str],
    feedback: Sequence[Sequence[Sentence] | None],
    granularity: Granularity,
    tokenizer: "PreTrainedTokenizerBase",
    m: RewardMap,
) -> list[tuple[str, list[str], Sequence[float] | None]]:
    """Rows for `token_reward_rows` of responses with their feedback."""
    rows = []
    for prompt, text, sentences in zip(prompts, texts, feedback, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        decoded, offsets = token_mapping.offsets_of(ids, tokenizer)
        rewards = None
        if sentences is not None:
            rewards = rlfh.token_rewards(sentences, ids, tokenizer, granularity, m)
        rows.append((prompt, [decoded[a:b] for a, b in offsets], rewards))
    return rows


def _line(tag: str, *cells: str) -> str:
    """A row of the table; its cells are HTML."""
    made = "".join(f'<{tag} style="{CELL}">{cell}</{tag}>' for cell in cells)
    return f'<tr style="background-color: white">{made}</tr>'


def _marked(
    tokens: Sequence[str], rewards: Sequence[float] | None, largest: float
) -> str:
    """Tokens as HTML, those with a reward in its colour and below its number."""
    if rewards is None:
        return f"{escape(''.join(tokens))} <i>(no feedback: the annotator failed)</i>"
    parts = []
    for token, reward in zip(tokens, map(float, rewards), strict=True):
        if not reward:
            parts.append(escape(token))
            continue
        number = f'<sup style="font-size: 0.7em">{_signed(reward)}</sup>'
        style = f"background-color: {_background(reward, largest)}; border-radius: 3px"
        parts.append(
            f'<span style="{style}" title="{reward!r}">{escape(token)}{number}</span>'
        )
    return "".join(parts)


def _largest(rewards: Sequence[Sequence[float] | None]) -> float:
    return max(
        (abs(float(r)) for of in rewards if of is not None for r in of), default=0
    )


def _background(reward: float, largest: float) -> str:
    """Blue or orange on white, as #rrggbb: rgba is not printed by every exporter."""
    colour = CORRECT if reward > 0 else WRONG
    share = PALEST + (STRONGEST - PALEST) * abs(reward) / largest
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - c)):02x}" for c in channels)


def _signed(reward: float) -> str:
    """A reward with its sign and two decimals, or one digit where these are 0."""
    shown = f"{reward:+.2f}" if abs(reward) >= 0.005 else f"{reward:+.1g}"
    return shown.replace("-", "−") if abs(reward) >= 1e-9 else "0"
