"""Learning to Reason for Factuality's reward (§3.1.1, Eq. 2): pure functions first,
then who prefers, then TRL's signature.

None stands for a judge that failed, and what is computed of it is None too: never a
score, never a default.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from factkit.answers import engine as engines
from factkit.answers.engine import ClaimEngine, ExactEngine
from factkit.answers.verifier import judge_llm
from factkit.papers.reason.arms import WEIGHTS
from factkit.prompts import completion_texts
from factkit.verify import judge
from factkit.verify.judge import Form, free, word
from factkit.verify.outcome import Support
from factkit.verify.response import Reasoned, parts

if TYPE_CHECKING:
    from factkit.papers.reason.arms import ReasonParams
    from factkit.verify.llm import LLM

MALFORMED = -1.0  # Eq. 2


def counts(supports: Sequence[Support | None] | None) -> tuple[int, int] | None:
    """(F, T): an answer's supported and all its claims; None if the verifier failed."""
    if supports is None or None in supports:
        return None
    return supports.count(Support.SUPPORTED), len(supports)


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
    precision, detail, relevance = f / (t + 1), math.log1p(f), bool(wins)
    return precision + detail_weight * detail + relevance_weight * relevance


# Who prefers


class Preference(Form):
    """What the judge of App. G, Fig. 9 replies: its own answer, then which of the two
    is better. As JSON, in place of prose that ends with a letter (ours)."""

    answer: free(3_000) = ""
    reason: free(400) = ""
    label: word("a", "b")


@dataclass(frozen=True, kw_only=True)
class PreferenceEngine(ClaimEngine):
    """Claims, and preference to the reference policy's answer (R_rel, §3.1.1) by a
    judge; `ExactEngine.preferred` stands in where no model is good enough to judge."""

    llm: "LLM"

    def preferred(self, ids, prompts, answers) -> list[float | None]:
        """1.0 if an answer is better than the judge's own, 0.0 if not, None: it failed.

        The judge, in the paper the base model, answers first and then compares (App. G,
        Fig. 9), without evidence. The answer is always a, so that a judge that favours
        a position favours all alike.
        """
        rows = zip(prompts, answers, strict=True)
        fields = [{"question": prompt, "response": answer} for prompt, answer in rows]
        replies = judge.ask(self.llm, "judge_relevance", fields, Preference, 2048)
        return [None if r is None else float(r.label == "a") for r in replies]


Engine = ExactEngine | PreferenceEngine


def engine_of(p: "ReasonParams") -> Engine:
    """The engine of `p`: the exact one, or a `PreferenceEngine`, whose preferences
    p.relevance_model states if it is named."""
    return engines.engine_of(p, _preference_engine)


def _preference_engine(p: "ReasonParams", fields, *_) -> PreferenceEngine:
    model, url = p.relevance_model or p.judge_model, p.relevance_url or p.judge_url
    return PreferenceEngine(**fields, llm=judge_llm(p, model, url))


# What the engine says of a batch of responses: ids of prompts, prompts, responses


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


def scored(arm: str, engine: Engine, ids, prompts, responses) -> list[Scored]:
    """Each response with its reward under an arm of WEIGHTS.

    The engine sees the answers of well-formed responses alone, all in one batch, and
    nothing if there are none.
    """
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
    arms: Iterable[str], engine: Engine, *rows: Sequence[str]
) -> dict[str, list[float | None]]:
    """Arm → the reward of each response."""
    return {arm: [one.reward for one in scored(arm, engine, *rows)] for arm in arms}


def precisions(engine: Engine, *rows: Sequence[str]) -> list[float | None]:
    """F / T of each response's answer; SFT's and DPO's are chosen by it (§2.2, §2.3).

    None if it is malformed, has no claim, or the verifier failed.
    """
    claims = [counts(one.supports) for one in scored("fact", engine, *rows)]
    return [c[0] / c[1] if c and c[1] else None for c in claims]


# TRL


def trl_reward(
    arm: str, score: Callable[..., Sequence[Scored]]
) -> Callable[..., list[float | None]]:
    """The reward of an arm with TRL's `reward_funcs` signature.

    score: (ids, prompts, responses) → what `scored` gives. The rows need `id` and
    `question`. A response that the verifier or the judge failed on gets None, which TRL
    leaves out of the group's baseline.
    """

    def reason_reward(
        completions, id, question, log_metric=None, **_
    ) -> list[float | None]:
        scores = score(id, question, completion_texts(completions))
        for name, values in logged(scores).items() if log_metric else ():
            if values:
                log_metric(name, sum(values) / len(values))
        return [one.reward for one in scores]

    reason_reward.__name__ = f"reason_{arm}"
    return reason_reward


def logged(scores: Sequence[Scored]) -> dict[str, list[float]]:
    """Metric → its values in a batch: of all whether malformed or failed; of the well-
    formed words of reasoning and answer (Fig 2), T, F, precision, wins."""
    formed = [one.parts for one in scores if one.parts]
    claims = [c for c in (counts(one.supports) for one in scores) if c]
    return {
        "malformed": [one.parts is None for one in scores],
        "judge_failures": [one.reward is None for one in scores],
        "reasoning_words": [len(two.reasoning.split()) for two in formed],
        "answer_words": [len(two.answer.split()) for two in formed],
        "supported_claims": [f for f, _ in claims],
        "total_claims": [t for _, t in claims],
        "precision": [f / t for f, t in claims if t],
        "wins": [one.wins for one in scores if one.wins is not None],
    }
