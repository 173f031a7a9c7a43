"""Learning to Reason for Factuality's reward (§3.1.1, Eq. 2): pure functions first,
then TRL's signature.

None stands for a judge that failed, and what is computed of it is None too: never a
score, never a default.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import models
from factkit.verify.claims import Support
from factkit.verify.failures import Failures
from factkit.verify.response import Reasoned, parts

if TYPE_CHECKING:
    from factkit.reason.arms import Reason
    from factkit.verify.preference import Engine

MALFORMED = -1.0  # Eq. 2
# arm → (λ, μ), the five rows of Table 2
WEIGHTS = {
    "fact": (0.0, 0.0),
    "fact_detail": (0.01, 0.0),
    "fact_relevance": (0.0, 0.1),
    "fact_detail_relevance": (0.01, 0.1),
    "fact_detail10_relevance": (0.1, 0.1),
}


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


# What the engine says of a batch of responses


@dataclass(frozen=True)
class Scored:
    """A response's reward and what it is made of.

    parts: None if malformed; supports: of the answer's claims, None if malformed or
    failed; wins: None if malformed, failed or not asked for (μ = 0).
    """

    reward: float | None
    parts: Reasoned | None
    supports: list[Support | None] | None
    wins: bool | None


def scored(
    arm: str,
    engine: "Engine",
    ids: Sequence[str],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> list[Scored]:
    """Each response with its reward under an arm of WEIGHTS.

    ids: of the prompts, by which the engine knows their evidence. The engine sees the
    answers of well-formed responses alone, all in one batch, and nothing if there are
    none. Raises ValueError on an arm without a reward.
    """
    if arm not in WEIGHTS:
        known = ", ".join(WEIGHTS)
        raise ValueError(f"arm={arm} has no reward; those with one: {known}")
    detail_weight, relevance_weight = WEIGHTS[arm]
    split = [parts(response) for response in responses]
    rows = zip(ids, prompts, split, strict=True)
    asked = [(i, prompt, of.answer) for i, prompt, of in rows if of]
    columns = [list(column) for column in zip(*asked, strict=True)]
    supports = iter(engine.supports(*columns) if asked else [])
    compared = asked and relevance_weight
    wins = iter(engine.preferred(*columns) if compared else [None] * len(asked))
    found = []
    for of in split:
        claims, won = (next(supports), next(wins)) if of else (None, None)
        won = None if won is None else won == 1
        value = reward(
            of is not None, counts(claims), won, detail_weight, relevance_weight
        )
        found.append(Scored(value, of, claims, won))
    return found


def rewards_by_arm(
    arms: Iterable[str],
    engine: "Engine",
    ids: Sequence[str],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> dict[str, list[float | None]]:
    """Arm → the reward of each response."""
    rows = ids, prompts, responses
    return {arm: [of.reward for of in scored(arm, engine, *rows)] for arm in arms}


def precisions(
    engine: "Engine",
    ids: Sequence[str],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> list[float | None]:
    """F / T of each response's answer; SFT's and DPO's are chosen by it (§2.2, §2.3).

    None if it is malformed, has no claim, or the verifier failed.
    """
    found = scored("fact", engine, ids, prompts, responses)
    claims = [counts(of.supports) for of in found]
    return [of[0] / of[1] if of and of[1] else None for of in claims]


# TRL


def reward_function(p: "Reason", folder: Path) -> Callable[..., list[float | None]]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature: on the engine of p, or
    by the reward service at p.reward_url."""
    if p.reward_url:
        from factkit.reward_client import remote

        return trl_reward(p.arm, remote(p))
    from factkit.verify.preference import engine_of

    of = engine_of(p)
    return trl_reward(p.arm, lambda *rows: scored(p.arm, of, *rows))


def trl_reward(
    arm: str, score: Callable[..., Sequence[Scored]]
) -> Callable[..., list[float | None]]:
    """The reward of an arm with TRL's `reward_funcs` signature.

    score: (ids, prompts, responses) → what `scored` gives. The rows need `id` and
    `question`. A response that the verifier or the judge failed on gets None, which TRL
    leaves out of the group's baseline. Raises RuntimeError once more than 5 % of the
    run's responses have none.
    """
    failures = Failures(arm)

    def reason_reward(
        completions: list,
        id: list[str],
        question: list[str],
        log_metric: Callable[[str, float], None] | None = None,
        **_: object,
    ) -> list[float | None]:
        texts = models.completion_texts(completions)
        found = score(id, question, texts)
        rewards = [of.reward for of in found]
        if log_metric:
            log_batch(found, log_metric)
        failures.count(rewards)
        return rewards

    reason_reward.__name__ = f"reason_{arm}"
    return reason_reward


def log_batch(
    found: Sequence[Scored], log_metric: Callable[[str, float], None]
) -> None:
    """Log a batch's share of malformed responses and of failures, and means of the
    well-formed ones: words of reasoning and answer (Fig 2), F, T, precision, wins."""
    log_metric("malformed", _mean([of.parts is None for of in found]))
    log_metric("judge_failures", _mean([of.reward is None for of in found]))
    formed = [of.parts for of in found if of.parts]
    if formed:
        log_metric("reasoning_words", _mean([len(p.reasoning.split()) for p in formed]))
        log_metric("answer_words", _mean([len(p.answer.split()) for p in formed]))
    claims = [c for c in (counts(of.supports) for of in found) if c]
    if claims:
        log_metric("supported_claims", _mean([f for f, _ in claims]))
        log_metric("total_claims", _mean([t for _, t in claims]))
    if precise := [f / t for f, t in claims if t]:
        log_metric("precision", _mean(precise))
    if wins := [of.wins for of in found if of.wins is not None]:
        log_metric("wins", _mean(wins))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
