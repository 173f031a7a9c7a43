"""Pairwise win rate by an LLM judge, with length and style held equal.

The judge sees each pair in both orders, so that a liking for the first place cancels.
Binary RAR §4.1 reports AlpacaEval 2's length-controlled win rate and ArenaHard 2's
style-controlled score. `length_controlled` is AlpacaEval's own regression, for
AlpacaEval's own prompts. `style_controlled` holds style equal on any prompts; of
ArenaHard it takes the style features and the idea, but for one pair of models.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from factkit.verify import judge
from factkit.verify.failures import failed_share
from factkit.verify.replies import Form, Verdict, read, word
from factkit.verify.response import answers

if TYPE_CHECKING:
    from factkit.llm import LLM

REPLY_TOKENS = 256
STYLE = {  # feature → what is counted
    "words": re.compile(r"\S+"),
    "headers": re.compile(r"^#{1,6}\s+\S", re.MULTILINE),
    "bold": re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__"),
    "lists": re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+\S", re.MULTILINE),
}


class Choice(Form):
    """The form of the judge's reply."""

    reason: str = ""
    label: word("a", "b")


def compare(
    llm: "LLM",
    prompts: Sequence[str],
    ours: Sequence[str],
    theirs: Sequence[str],
    template: str = "compare_responses",
) -> list[Verdict]:
    """How often the judge prefers our response: 1.0, 0.5 (one order each) or 0.0.

    Both orders of all pairs are one batch. Reasoning is not shown. None where the judge
    failed in either order. raw: its two replies, ours first and ours second.
    """
    rows = [
        {"prompt": prompt, "response_a": first, "response_b": second}
        for prompt, a, b in zip(prompts, answers(ours), answers(theirs), strict=True)
        for first, second in ((a, b), (b, a))
    ]
    replies = judge.ask(llm, template, rows, Choice, REPLY_TOKENS, "comparing")
    choices = [read(reply, Choice) for reply in replies]
    labels = [None if choice is None else choice.label for choice in choices]
    raw = [reply.text or reply.error for reply in replies]
    pairs = zip(labels[::2], labels[1::2], raw[::2], raw[1::2], strict=True)
    return [
        Verdict(
            None if None in (as_a, as_b) else ((as_a == "a") + (as_b == "b")) / 2,
            f"{raw_a}\n{raw_b}",
        )
        for as_a, as_b, raw_a, raw_b in pairs
    ]


def mean_preference(verdicts: Sequence[Verdict]) -> float:
    """How often ours are preferred, in [0, 1]; 0.5 is a draw. Failures are left out.

    Raises ValueError without verdicts, and if more than 5 % failed.
    """
    failed_share([v.value for v in verdicts], "comparison_failures")
    values = [v.value for v in verdicts if v.value is not None]
    if not values:
        raise ValueError("no comparisons to take the mean of")
    return sum(values) / len(values)


# ---- length, by alpaca-eval


def length_controlled(
    verdicts: Sequence[Verdict],
    prompts: Sequence[str],
    ours: Sequence[str],
    theirs: Sequence[str],
) -> dict[str, float]:
    """AlpacaEval 2's length-controlled win rate and its standard error, in [0, 1].

    By the package alpaca-eval (extra gpu), which takes the difficulty of each prompt
    from the hub. All of AlpacaEval's 805 prompts, in its order: a prompt's place is its
    number there. theirs: the baseline's responses. A failed comparison is left out.
    Raises ValueError on any other number of prompts and as `mean_preference`.
    """
    if len(prompts) != 805:
        raise ValueError(
            f"{len(prompts)} prompts: AlpacaEval has 805, and its length control knows "
            "only these; use style_controlled for others"
        )
    from alpaca_eval.metrics import get_length_controlled_winrate

    mean_preference(verdicts)  # raises
    # it counts from 1 (the baseline wins) to 2 (the model wins)
    rows = [
        {
            "index": i,
            "instruction": prompt,
            "output_1": their,
            "output_2": our,
            "generator_1": "baseline",
            "generator_2": "model",
            "annotator": "factkit",
            "preference": 1 + verdict.value,
        }
        for i, (verdict, prompt, our, their) in enumerate(
            zip(verdicts, prompts, answers(ours), answers(theirs), strict=True)
        )
        if verdict.value is not None
    ]
    rates = get_length_controlled_winrate(rows, save_weights_dir=None)
    return {
        "win_rate": rates["win_rate"] / 100,
        "length_controlled_win_rate": rates["length_controlled_winrate"] / 100,
        "length_controlled_stderr": rates["lc_standard_error"] / 100,
    }


# ---- style


def style_features(text: str, features: Sequence[str] = tuple(STYLE)) -> list[int]:
    """Numbers of words, Markdown headers, bold spans and list items (ArenaHard's)."""
    return [len(STYLE[name].findall(text)) for name in features]


def style_controlled(
    verdicts: Sequence[Verdict],
    ours: Sequence[str],
    theirs: Sequence[str],
    features: Sequence[str] = tuple(STYLE),
) -> dict[str, float]:
    """The win rate between responses of equal style, and what each feature is worth.

    A logistic regression P(we win) = σ(s + Σ_j w_j z_j), where z_j is the difference of
    feature j relative to its sum, (ours − theirs) / (ours + theirs), scaled to standard
    deviation 1; σ(s) is the controlled win rate, with Δ = 0 for all of style. A value
    of 0.5 is half a win and half a loss. Weights w_j are in `weight_<feature>`, 0 for a
    feature in which the two never differ. A faint penalty (C = 100) keeps weights
    finite. Where all verdicts are wins, or all losses, that is the controlled rate too.
    features: those to hold equal, of `STYLE`; ("words",) is length control alone.
    Raises ValueError on an unknown feature and as `mean_preference`.
    """
    unknown = sorted(set(features) - set(STYLE))
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no style feature of {tuple(STYLE)}")
    rate = mean_preference(verdicts)
    weights, strength = [0.0] * len(features), math.inf if rate == 1 else -math.inf
    if 0 < rate < 1:
        rows = [
            (verdict.value, style_features(a, features), style_features(b, features))
            for verdict, a, b in zip(
                verdicts, answers(ours), answers(theirs), strict=True
            )
            if verdict.value is not None
        ]
        values, *counts = (np.array(of, dtype=float) for of in zip(*rows, strict=True))
        strength, weights = _fit(_differences(*counts), values)
    return {
        "win_rate": rate,
        "style_controlled_win_rate": 1 / (1 + math.exp(-strength)),
        **{f"weight_{name}": w for name, w in zip(features, weights, strict=True)},
    }


def _differences(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """(N, K) counts of ours and theirs → (N, K) relative differences, scaled."""
    difference, total = ours - theirs, ours + theirs
    relative = np.divide(difference, total, out=np.zeros_like(total), where=total > 0)
    deviation = relative.std(axis=0)
    return relative / np.where(deviation > 0, deviation, 1)


def _fit(differences: np.ndarray, values: np.ndarray) -> tuple[float, list[float]]:
    """Strength s and weights w of the regression; values (N,) in [0, 1]."""
    from sklearn.linear_model import LogisticRegression

    wins = np.repeat([1, 0], len(values))
    fitted = LogisticRegression(C=100.0, max_iter=1000).fit(
        np.concatenate([differences, differences]),
        wins,
        sample_weight=np.concatenate([values, 1 - values]),
    )
    return float(fitted.intercept_[0]), [float(w) for w in fitted.coef_[0]]
