"""Binary RAR's rewards (§3.3, §6.2, Fig 4): pure functions first, then TRL's signature.

A reward is 0 at worst and 1 at best, veriscore_plus_judge 2. None stands for a judge
that failed, and what is computed of it is None too: never a score, never a default.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import models
from factkit.verify.claims import Support
from factkit.verify.failures import Failures
from factkit.verify.response import answers

if TYPE_CHECKING:
    from factkit.rar.arms import RAR
    from factkit.rar.whole_response import Engine

Supports = Sequence[Support | None] | None  # of a response's claims; None: failed
RATING_MAX = 10.0
# arm → what its reward is computed from, as the engine's methods are named
PIECES: Mapping[str, tuple[str, ...]] = {
    "lm_judge": ("quality",),
    "veriscore": ("supports",),
    "binary_rar": ("no_contradiction",),
    "rating_rar": ("rating",),
    "binary_veriscore": ("supports",),
    "conflict_only_veriscore": ("supports",),
    "veriscore_plus_judge": ("supports", "quality"),
}
ARMS = tuple(PIECES)


def binary_rar(no_contradiction: float | None) -> float | None:
    """1 if nothing in the response contradicts the evidence, else 0 (§3.3, Eq. 5).

    no_contradiction: the verdict on the whole response, 1.0 or 0.0.
    """
    if no_contradiction is None:
        return None
    return 1.0 if no_contradiction == 1 else 0.0


def rating_rar(rating: float | None) -> float | None:
    """rating / 10 (§6.2): the verifier's factuality rating, in [0, 10]."""
    return _share_of_ten(rating)


def lm_judge(rating: float | None) -> float | None:
    """rating / 10 (§4.3): a judge's rating of the quality, in [0, 10]."""
    return _share_of_ten(rating)


def veriscore(supports: Supports) -> float | None:
    """supported claims / claims (§4.3); 0 without claims (ours: not stated)."""
    if supports is None or None in supports:
        return None
    return _share(supports, Support.SUPPORTED)


def binary_veriscore(supports: Supports, threshold: float = 0.5) -> float | None:
    """1 if VeriScore ≥ threshold, else 0 (§6.2)."""
    score = veriscore(supports)
    return None if score is None else float(score >= threshold)


def conflict_only_veriscore(supports: Supports) -> float | None:
    """1 − contradicted claims / claims (§6.2); 1 without claims (ours: not stated)."""
    if supports is None or None in supports:
        return None
    return 1.0 - _share(supports, Support.CONTRADICTED)


def veriscore_plus_judge(supports: Supports, rating: float | None) -> float | None:
    """VeriScore + rating / 10, in [0, 2] (§6.2; ours: equal weights, none stated)."""
    score, quality = veriscore(supports), lm_judge(rating)
    return None if score is None or quality is None else score + quality


def _share_of_ten(rating: float | None) -> float | None:
    """A rating in [0, 10] as a share. Raises ValueError on any other number."""
    if rating is None:
        return None
    if not 0 <= rating <= RATING_MAX:
        raise ValueError(f"rating={rating}: a rating lies between 0 and 10")
    return rating / RATING_MAX


def _share(supports: Sequence[Support | None], kind: Support) -> float:
    """The share of the claims that are of a kind, 0 without claims."""
    return supports.count(kind) / max(len(supports), 1)


def reward(arm: str, **pieces: Any) -> float | None:
    """The reward of one response under an arm, from the pieces that PIECES names.

    It is what the function of the arm's name says. A piece of None, or left out: the
    judge failed on it. Raises ValueError on an arm without a reward.
    """
    names = needs(arm)
    return globals()[arm](*map(pieces.get, names))


def needs(arm: str) -> tuple[str, ...]:
    """The pieces of an arm's reward. Raises ValueError on an arm without."""
    if arm not in PIECES:
        raise ValueError(f"arm={arm} has no reward; those with one: {', '.join(ARMS)}")
    return PIECES[arm]


# What the engine says of a batch of responses


def judged(
    arms: Iterable[str],
    engine: "Engine",
    ids: Sequence[str],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> dict[str, list]:
    """Piece → its values, one a response: all that the arms' rewards need, each once.

    ids: of the prompts, by which the engine knows their evidence. Judged are the
    answers alone, without what stands in `<think>`.
    """
    needed = dict.fromkeys(piece for arm in arms for piece in needs(arm))
    rows = ids, prompts, answers(responses)
    return {piece: getattr(engine, piece)(*rows) for piece in needed}


def rewards_from(arm: str, pieces: Mapping[str, Sequence[Any]]) -> list[float | None]:
    """The arm's reward of each response, from what `judged` found."""
    names = needs(arm)
    rows = zip(*(pieces[name] for name in names), strict=True)
    return [reward(arm, **dict(zip(names, row, strict=True))) for row in rows]


def rewards_by_arm(
    arms: Iterable[str],
    engine: "Engine",
    ids: Sequence[str],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> dict[str, list[float | None]]:
    """Arm → the reward of each response; each piece is asked for once."""
    arms = list(arms)
    pieces = judged(arms, engine, ids, prompts, responses)
    return {arm: rewards_from(arm, pieces) for arm in arms}


def rewards_of(
    arm: str,
    engine: "Engine",
    ids: Sequence[str],
    prompts: Sequence[str],
    responses: Sequence[str],
) -> list[float | None]:
    """The arm's reward of each response; the engine is asked for nothing else."""
    return rewards_by_arm([arm], engine, ids, prompts, responses)[arm]


# TRL


def reward_function(p: "RAR", folder: Path) -> Callable[..., list[float | None]]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature, on the engine of p."""
    from factkit.rar.whole_response import engine_of

    return trl_reward(p.arm, engine_of(p), p.max_completion_length, p.non_stop_penalty)


def trl_reward(
    arm: str, engine: "Engine", most_tokens: int, non_stop_penalty: float
) -> Callable[..., list[float | None]]:
    """The reward of an arm with TRL's `reward_funcs` signature.

    The rows need `id` and `question`. A response that fills all of `most_tokens` did
    not stop; it costs the penalty, down to 0 (A.5 has one without its size). A response
    that the judge failed on gets None, which TRL leaves out of the group's baseline.
    Raises RuntimeError once more than 5 % of the run's responses have none.
    """
    failures = Failures(arm)

    def rar_reward(
        completions: list,
        completion_ids: list[list[int]],
        id: list[str],
        question: list[str],
        log_metric: Callable[[str, float], None] | None = None,
        **_: object,
    ) -> list[float | None]:
        texts = models.completion_texts(completions)
        pieces = judged([arm], engine, id, question, texts)
        rewards = rewards_from(arm, pieces)
        if log_metric:
            log_batch(texts, pieces.get("supports", []), rewards, log_metric)
        failures.count(rewards)
        return [
            max(r - non_stop_penalty, 0.0) if r and len(ids) >= most_tokens else r
            for r, ids in zip(rewards, completion_ids, strict=True)
        ]

    rar_reward.__name__ = f"rar_{arm}"
    return rar_reward


def log_batch(
    responses: Sequence[str],
    supports: Sequence[Supports],
    rewards: Sequence[float | None],
    log_metric: Callable[[str, float], None],
) -> None:
    """Log a batch's share of failures, and its words and claims an answer.

    supports: none for an arm without claims; responses that failed are left out.
    """
    log_metric("response_words", _mean(len(r.split()) for r in answers(responses)))
    log_metric("judge_failures", _mean(r is None for r in rewards))
    known = [s for s in supports if s is not None and None not in s]
    if known:
        log_metric("total_claims", _mean(len(s) for s in known))
        log_metric("supported_claims", _mean(s.count(Support.SUPPORTED) for s in known))
        log_metric(
            "contradicted_claims", _mean(s.count(Support.CONTRADICTED) for s in known)
        )


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
