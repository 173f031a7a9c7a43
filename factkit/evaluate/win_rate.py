"""Pairwise win rate by an LLM judge, with length and style held equal.

The judge sees each pair in both orders, so that a liking for the first place cancels.
Binary RAR §4.1 reports AlpacaEval 2's length-controlled win rate and ArenaHard 2's
style-controlled score. `length_controlled` is AlpacaEval's own regression, for
AlpacaEval's own prompts. `style_controlled` holds style equal on any prompts; of
ArenaHard it takes the style features and the idea, but for one pair of models.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from factkit.verify import judge
from factkit.verify.failures import MOST_JUDGE_FAILURES
from factkit.verify.replies import Form, Verdict, read, word
from factkit.verify.response import final_answer

if TYPE_CHECKING:
    from factkit.llm import LLM

REPLY_TOKENS = 256
STYLE = ("words", "headers", "bold", "lists")
_HEADER = re.compile(r"^#{1,6}\s+\S", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+\S", re.MULTILINE)


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
    said = [[final_answer(text, False) for text in side] for side in (ours, theirs)]
    rows = [
        {"prompt": prompt, "response_a": first, "response_b": second}
        for prompt, a, b in zip(prompts, *said, strict=True)
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


def win_rate(verdicts: Sequence[Verdict]) -> float:
    """The mean preference for our responses, in [0, 1]; 0.5 is a draw.

    Raises ValueError without verdicts, and if more than 5 % failed.
    """
    values, _ = judged(verdicts)
    return sum(values) / len(values)


def judged(verdicts: Sequence[Verdict]) -> tuple[list[float], float]:
    """The values of the verdicts that did not fail, and the share that failed.

    Raises ValueError as `win_rate`.
    """
    values = [v.value for v in verdicts if v.value is not None]
    share = (len(verdicts) - len(values)) / max(len(verdicts), 1)
    if not values or share > MOST_JUDGE_FAILURES:
        raise ValueError(
            f"the judge failed on {share:.1%} of {len(verdicts)} comparisons, at most "
            f"{MOST_JUDGE_FAILURES:.0%} may: see to its endpoint and run again"
        )
    return values, share


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
    Raises ValueError on any other number of prompts and as `win_rate`.
    """
    if len(prompts) != 805:
        raise ValueError(
            f"{len(prompts)} prompts: AlpacaEval has 805, and its length control knows "
            "only these; use style_controlled for others"
        )
    from alpaca_eval.metrics import get_length_controlled_winrate

    judged(verdicts)
    # it counts from 1 (the baseline wins) to 2 (the model wins)
    rows = [
        {
            "index": i,
            "instruction": prompt,
            "output_1": final_answer(their, False),
            "output_2": final_answer(our, False),
            "generator_1": "baseline",
            "generator_2": "model",
            "annotator": "factkit",
            "preference": 1 + verdict.value,
        }
        for i, (verdict, prompt, our, their) in enumerate(
            zip(verdicts, prompts, ours, theirs, strict=True)
        )
        if verdict.value is not None
    ]
    found: Mapping[str, Any] = get_length_controlled_winrate(
        rows, save_weights_dir=None
    )
    return {
        "win_rate": found["win_rate"] / 100,
        "length_controlled_win_rate": found["length_controlled_winrate"] / 100,
        "length_controlled_stderr": found["lc_standard_error"] / 100,
    }


# ---- style


def style_features(text: str) -> tuple[int, int, int, int]:
    """Numbers of words, Markdown headers, bold spans and list items (ArenaHard's)."""
    return (
        len(text.split()),
        len(_HEADER.findall(text)),
        len(_BOLD.findall(text)),
        len(_ITEM.findall(text)),
    )


def style_controlled(
    verdicts: Sequence[Verdict],
    ours: Sequence[str],
    theirs: Sequence[str],
    features: Sequence[str] = STYLE,
) -> dict[str, float]:
    """The win rate between responses of equal style, and what each feature is worth.

    A logistic regression P(we win) = σ(s + Σ_j w_j z_j), where z_j is the difference of
    feature j relative to its sum, (ours − theirs) / (ours + theirs), scaled to standard
    deviation 1; σ(s) is the controlled win rate, with Δ = 0 for all of style. A value
    of 0.5 is half a win and half a loss. Weights w_j are in `weight_<feature>`, 0 for a
    feature in which the two never differ. A faint penalty (C = 100) keeps weights
    finite. Where all verdicts are wins, or all losses, that is the controlled rate too.
    features: those to hold equal, of `STYLE`; ("words",) is length control alone.
    Raises ValueError on an unknown feature and as `win_rate`.
    """
    unknown = sorted(set(features) - set(STYLE))
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no style feature of {STYLE}")
    values, _ = judged(verdicts)
    rate = sum(values) / len(values)
    weights = dict.fromkeys(features, 0.0)
    strength = math.inf if rate == 1 else -math.inf
    if 0 < rate < 1:
        import numpy as np

        counts = np.array(
            [
                [style_features(final_answer(text, False)) for text in pair]
                for pair, verdict in zip(
                    zip(ours, theirs, strict=True), verdicts, strict=True
                )
                if verdict.value is not None
            ],
            dtype=float,
        )  # (N, 2, features)
        columns = [STYLE.index(name) for name in features]
        strength, fitted = _fit(_differences(counts[:, :, columns]), np.array(values))
        weights = dict(zip(features, fitted, strict=True))
    return {
        "win_rate": rate,
        "style_controlled_win_rate": 1 / (1 + math.exp(-strength)),
        **{f"weight_{name}": weight for name, weight in weights.items()},
    }


def _differences(counts):
    """(N, 2, K) counts of ours and theirs → (N, K) relative differences, scaled."""
    import numpy as np

    difference, total = counts[:, 0] - counts[:, 1], counts.sum(axis=1)
    relative = np.divide(difference, total, out=np.zeros_like(total), where=total > 0)
    deviation = relative.std(axis=0)
    return relative / np.where(deviation > 0, deviation, 1)


def _fit(differences, values) -> tuple[float, list[float]]:
    """Strength s and weights w of the regression; values (N,) in [0, 1]."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    wins = np.repeat([1, 0], len(values))
    fitted = LogisticRegression(C=100.0, max_iter=1000).fit(
        np.concatenate([differences, differences]),
        wins,
        sample_weight=np.concatenate([values, 1 - values]),
    )
    return float(fitted.intercept_[0]), [float(w) for w in fitted.coef_[0]]
