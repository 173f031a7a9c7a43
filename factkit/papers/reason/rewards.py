"""Learning to Reason for Factuality's reward (§3.1.1, Eq. 2): the equation, the engine
that counts claims and compares answers, TRL's signature.

A response on which the verifier or the judge failed has no reward: None, never a score
or a default.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from factkit.answers import engine as engines
from factkit.answers.engine import ClaimEngine, ExactEngine, Scores
from factkit.answers.rewards import Rewards, ScoredBatch, reward_func
from factkit.answers.verifier import Texts, has_judge, judge_llm
from factkit.papers.reason.arms import WEIGHTS, ReasonParams, Weights
from factkit.verify import judge
from factkit.verify.claims import Supports
from factkit.verify.llm import LLM
from factkit.verify.outcome import Support
from factkit.verify.replies import Form, limit_text, match_word
from factkit.verify.response import ResponseParts, split_response

MALFORMED = -1.0  # Eq. 2


def reward(
    well_formed: bool,
    claims: tuple[int, int],
    wins: bool | None,
    detail_weight: float,
    relevance_weight: float,
) -> float:
    """R = F / (T + 1) + λ log(1 + F) + μ 1[y_ans ≻ y_ref], or −1 if malformed (Eq. 2).

    claims: (F, T), the supported and all claims of the answer; wins: whether the answer
    is preferred to the reference policy's. detail_weight: λ; relevance_weight: μ.
    """
    if not well_formed:
        return MALFORMED
    f, t = claims
    precision, detail, relevance = f / (t + 1), math.log1p(f), bool(wins)
    return precision + detail_weight * detail + relevance_weight * relevance


def reasoning_reward(claims: tuple[int, int]) -> float:
    """R_fact = F / T of the reasoning's claims, 0 if there are none (KnowRL, arXiv
    2506.19807). The arm adds ν R_fact to a well-formed response's reward."""
    f, t = claims
    return f / t if t else 0.0


def counts(supports: Supports) -> tuple[int, int] | None:
    """(F, T): a text's supported and all its claims; None if the verifier failed."""
    if supports is None or None in supports:
        return None
    return supports.count(Support.SUPPORTED), len(supports)


# ---- the engine


class Preference(Form):
    """What the judge of App. G, Fig. 9 replies: its own answer, then which of the two
    is better. As JSON, in place of prose that ends with a letter (ours)."""

    answer: Annotated[str, limit_text(3_000)] = ""
    reason: Annotated[str, limit_text(400)] = ""
    label: Annotated[str, match_word("a", "b")]


@dataclass(frozen=True, kw_only=True)
class PreferenceEngine(ClaimEngine):
    """`ClaimEngine`, whose judge also compares an answer with the reference policy's
    (R_rel, §3.1.1). Where no model is good enough to judge, `ExactEngine.preferred`
    stands in."""

    llm: LLM

    async def preferred(self, prompt_id: str, prompt: str, answer: str) -> float | None:
        """1.0 if an answer is better than the judge's own, 0.0 if not, None: it failed.

        The judge, in the paper the base model, answers first and then compares (App. G,
        Fig. 9), without evidence. The answer is always a, so that a judge that favours
        a position favours all alike.
        """
        row = {"question": prompt, "response": answer}
        reply = await judge.ask(self.llm, "judge_relevance", row, Preference, 2048)
        return None if reply is None else float(reply.label == "a")


Engine = ExactEngine | PreferenceEngine


def engine_of(p: ReasonParams) -> Engine:
    """The engine of `p`: the exact one, or a `PreferenceEngine`, whose preferences
    p.relevance_model states if it is named."""
    if not has_judge(p):
        return engines.exact_engine(p)
    model, url = p.relevance_model or p.judge_model, p.relevance_url or p.judge_url
    fields, _, _ = engines.claim_fields(p)
    return PreferenceEngine(**fields, llm=judge_llm(p, model, url))


# ---- from responses to rewards


@dataclass(frozen=True)
class Scored:
    """A response's reward and its parts, as far as they were computed.

    parts: None if malformed; supports: one per claim of the answer, None if malformed
    or failed; wins: None if malformed, failed or not needed (μ = 0); reasoning: one
    support per claim of the reasoning, None if malformed, failed or not needed (ν = 0).
    """

    reward: float | None
    parts: ResponseParts | None
    supports: Supports = None
    wins: bool | None = None
    reasoning: Supports = None


def score_responses(
    arm: str, engine: Engine, ids: Texts, prompts: Texts, responses: Texts
) -> list[Scored]:
    """Score each response under an arm of WEIGHTS.

    The engine sees the answers of the well-formed responses alone, all at once; then,
    if ν is not 0, their reasoning.
    """
    weights = WEIGHTS[arm]
    parts = map(split_response, responses)
    formed = {i: response for i, response in enumerate(parts) if response}
    asked = [ids[i] for i in formed], [prompts[i] for i in formed]
    answers = [response.answer for response in formed.values()]
    methods = ["supports", "preferred"] if weights.relevance else ["supports"]
    values = engine.values(methods, *asked, answers)
    preferred: Scores = values.get("preferred", [None] * len(formed))
    reasoning: Sequence[Supports] = [None] * len(formed)
    if weights.reasoning:
        texts = [response.reasoning for response in formed.values()]
        reasoning = engine.values(["supports"], *asked, texts)["supports"]
    scores = [Scored(MALFORMED, None) for _ in responses]
    for i, verdicts, preference, recalled in zip(
        formed, values["supports"], preferred, reasoning, strict=True
    ):
        wins = None if preference is None else preference == 1
        value = well_formed_reward(weights, verdicts, wins, recalled)
        scores[i] = Scored(value, formed[i], verdicts, wins, recalled)
    return scores


def well_formed_reward(
    weights: Weights, answer: Supports, wins: bool | None, reasoning: Supports
) -> float | None:
    """The reward of a well-formed response under an arm's weights; None if a verdict
    that it needs failed. answer, reasoning: the supports of the claims of either."""
    claims, recalled = counts(answer), counts(reasoning)
    if claims is None or (weights.relevance and wins is None):
        return None
    value = reward(True, claims, wins, weights.detail, weights.relevance)
    if not weights.reasoning:
        return value
    if recalled is None:
        return None
    return value + weights.reasoning * reasoning_reward(recalled)


def rewards_by_arm(
    arms: Iterable[str], engine: Engine, ids: Texts, prompts: Texts, responses: Texts
) -> dict[str, Scores]:
    """Arm → the reward of each response."""
    return {
        arm: [s.reward for s in score_responses(arm, engine, ids, prompts, responses)]
        for arm in arms
    }


def precisions(engine: Engine, ids: Texts, prompts: Texts, responses: Texts) -> Scores:
    """F / T of each response's answer, by which SFT's and DPO's rows are chosen (§2.2,
    §2.3). None if it is malformed, has no claim, or the verifier failed."""
    scores = score_responses("fact", engine, ids, prompts, responses)
    claims = [counts(one.supports) for one in scores]
    return [c[0] / c[1] if c and c[1] else None for c in claims]


# ---- TRL


def trl_reward(arm: str, engine: Engine) -> Callable[..., Rewards]:
    """The reward of an arm with TRL's `reward_funcs` signature.

    Logs the shares of malformed and of failed responses; of the well-formed ones the
    words of reasoning and answer (Fig 2), F, T, precision and wins.
    """

    def score(ids: Texts, prompts: Texts, responses: Texts, _: Any) -> ScoredBatch:
        scores = score_responses(arm, engine, ids, prompts, responses)
        formed = [one.parts for one in scores if one.parts]
        claims = [c for c in (counts(one.supports) for one in scores) if c]
        recalled = [c for c in (counts(one.reasoning) for one in scores) if c]
        metrics: dict[str, Sequence[float]] = {
            "malformed": [one.parts is None for one in scores],
            "judge_failures": [one.reward is None for one in scores],
            "reasoning_words": [len(split.reasoning.split()) for split in formed],
            "answer_words": [len(split.answer.split()) for split in formed],
            "supported_claims": [f for f, _ in claims],
            "total_claims": [t for _, t in claims],
            "precision": [f / t for f, t in claims if t],
            "reasoning_precision": [f / t for f, t in recalled if t],
            "wins": [one.wins for one in scores if one.wins is not None],
        }
        return ScoredBatch([one.reward for one in scores], metrics)

    return reward_func(f"reason_{arm}", score)
