"""Learning to Reason for Factuality's reward (§3.1.1, Eq. 2): pure functions first,
then TRL's signature.

None stands for a judge that failed, and what is computed of it is None too: never a
score, never a default.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import models
from factkit.reason.reward_client import Scored, remote
from factkit.verify.claims import Support
from factkit.verify.failures import Failures
from factkit.verify.response import parts

if TYPE_CHECKING:
    from factkit.reason.arms import Reason
    from factkit.reason.preference import Engine

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
    formed = [(i, prompt, two.answer) for i, prompt, two in rows if two]
    columns = [list(column) for column in zip(*formed, strict=True)]
    supports = iter(engine.supports(*columns) if formed else [])
    compared = formed and relevance_weight
    wins = iter(engine.preferred(*columns) if compared else [None] * len(formed))
    scores = []
    for two in split:
        claims, won = (next(supports), next(wins)) if two else (None, None)
        won = None if won is None else won == 1
        value = reward(
            two is not None, counts(claims), won, detail_weight, relevance_weight
        )
        scores.append(Scored(value, two, claims, won))
    return scores


def rewards_by_arm(
    arms: Iterable[str],
    engine: "Engine",
    ids: Sequence[str],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> dict[str, list[float | None]]:
    """Arm → the reward of each response."""
    rows = ids, prompts, responses
    return {arm: [one.reward for one in scored(arm, engine, *rows)] for arm in arms}


def precisions(
    engine: "Engine",
    ids: Sequence[str],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> list[float | None]:
    """F / T of each response's answer; SFT's and DPO's are chosen by it (§2.2, §2.3).

    None if it is malformed, has no claim, or the verifier failed.
    """
    scores = scored("fact", engine, ids, prompts, responses)
    claims = [counts(one.supports) for one in scores]
    return [c[0] / c[1] if c and c[1] else None for c in claims]


# TRL


def reward_function(p: "Reason", folder: Path) -> Callable[..., list[float | None]]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature: on the engine of p, or
    by the reward service at p.reward_url."""
    if p.reward_url:
        return trl_reward(p.arm, remote(p))
    from factkit.reason.preference import engine_of

    return trl_reward(p.arm, functools.partial(scored, p.arm, engine_of(p)))


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
        scores = score(id, question, texts)
        rewards = [one.reward for one in scores]
        if log_metric:
            log_batch(scores, log_metric)
        failures.count(rewards)
        return rewards

    reason_reward.__name__ = f"reason_{arm}"
    return reason_reward


def log_batch(
    scores: Sequence[Scored], log_metric: Callable[[str, float], None]
) -> None:
    """Log a batch's share of malformed responses and of failures, and means of the
    well-formed ones: words of reasoning and answer (Fig 2), F, T, precision, wins."""
    log_metric("malformed", _mean([one.parts is None for one in scores]))
    log_metric("judge_failures", _mean([one.reward is None for one in scores]))
    formed = [one.parts for one in scores if one.parts]
    if formed:
        log_metric("reasoning_words", _mean([len(p.reasoning.split()) for p in formed]))
        log_metric("answer_words", _mean([len(p.answer.split()) for p in formed]))
    claims = [c for c in (counts(one.supports) for one in scores) if c]
    if claims:
        log_metric("supported_claims", _mean([f for f, _ in claims]))
        log_metric("total_claims", _mean([t for _, t in claims]))
    if precise := [f / t for f, t in claims if t]:
        log_metric("precision", _mean(precise))
    if wins := [one.wins for one in scores if one.wins is not None]:
        log_metric("wins", _mean(wins))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
