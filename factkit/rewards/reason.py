"""Learning to Reason for Factuality's reward (§3.1.1, Eq. 2), as pure functions.

None stands for a judge that failed, and what is computed of it is None too: never a
score, never a default.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from factkit.verify.claims import Support

MALFORMED = -1.0  # Eq. 2
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
FORM = re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)
# arm → (λ, μ), the five rows of Table 2
WEIGHTS = {
    "fact": (0.0, 0.0),
    "fact_detail": (0.01, 0.0),
    "fact_relevance": (0.0, 0.1),
    "fact_detail_relevance": (0.01, 0.1),
    "fact_detail10_relevance": (0.1, 0.1),
}


@dataclass(frozen=True)
class Reasoned:
    """The two parts of a well-formed response, without space at their ends."""

    reasoning: str
    answer: str


def parts(response: str) -> Reasoned | None:
    """y_cot and y_ans of `<think> y_cot </think> <answer> y_ans </answer>` (§3.1.1).

    None if the response is malformed: unless each tag occurs once, in this order, with
    only space before, between and after the two parts (ours: the paper does not say how
    strict it is). A part may be empty.
    """
    found = FORM.fullmatch(response)
    if not found or any(response.count(tag) != 1 for tag in TAGS):
        return None
    return Reasoned(found[1].strip(), found[2].strip())


def counts(supports: Sequence[Support | None] | None) -> tuple[int, int] | None:
    """(F, T): an answer's supported and all its claims; None if the verifier failed."""
    if supports is None or None in supports:
        return None
    return supports.count(Support.SUPPORTED), len(supports)


def smoothed_precision(f: int, t: int) -> float:
    """R_fact = F / (T + 1), in [0, 1). Raises ValueError unless 0 ≤ F ≤ T."""
    if not 0 <= f <= t:
        raise ValueError(f"F={f}, T={t}: supported claims are among all claims")
    return f / (t + 1)


def detail(f: int) -> float:
    """R_dtl = log(1 + F), natural."""
    return math.log1p(f)


def reward(
    well_formed: bool,
    claims: tuple[int, int] | None,
    wins: bool | None,
    detail_weight: float,
    relevance_weight: float,
) -> float | None:
    """R = F / (T + 1) + λ log(1 + F) + μ 1[y_ans ≻ y_ref], or −1 if malformed (Eq. 2).

    claims: (F, T) of the answer, None if the verifier failed; wins: whether the answer
    is preferred to the reference policy's, None if the judge failed, which matters
    only with μ ≠ 0. detail_weight: λ; relevance_weight: μ.
    """
    if not well_formed:
        return MALFORMED
    if claims is None or (relevance_weight and wins is None):
        return None
    f, t = claims
    relevance = relevance_weight * bool(wins)
    return smoothed_precision(f, t) + detail_weight * detail(f) + relevance
