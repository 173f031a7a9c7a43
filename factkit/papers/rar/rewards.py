"""Binary RAR's rewards: the equations, the engine that judges, TRL's signature.

A reward is computed from the verdicts on one response. It is 0 at worst and 1 at best
(veriscore_plus_judge: 2). A response on which the verifier or the judge failed has no
reward: None, never a score or a default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from factkit.answers import engine as engines
from factkit.answers.engine import ClaimEngine, ExactEngine, Scores
from factkit.answers.rewards import Rewards, ScoredBatch, has_failed, reward_func
from factkit.answers.verifier import Texts, has_judge, judge_llm
from factkit.data.evidence import EvidenceCache, query_of
from factkit.verify import judge
from factkit.verify.llm import LLM
from factkit.verify.outcome import Support
from factkit.verify.replies import Form, limit_integer, limit_text
from factkit.verify.response import extract_answers

if TYPE_CHECKING:
    from factkit.papers.rar.arms import RAR, RarParams


def binary_rar(no_contradiction: float) -> float:
    """1 if nothing in the response contradicts the evidence, else 0 (Eq. 5)."""
    return no_contradiction


def lm_judge(quality: float) -> float:
    """quality / 10 (§4.3): a judge's rating in [0, 10]."""
    return quality / 10


def veriscore(supports: Sequence[Support]) -> float:
    """supported claims / claims (§4.3); 0 without claims (ours: not stated)."""
    return supports.count(Support.SUPPORTED) / max(len(supports), 1)


def rating_rar(rating: float) -> float:
    """rating / 10 (§6.2): the verifier's rating of factuality in [0, 10]."""
    return rating / 10


def binary_veriscore(supports: Sequence[Support], threshold: float = 0.5) -> float:
    """1 if VeriScore ≥ threshold, else 0 (§6.2)."""
    return float(veriscore(supports) >= threshold)


def conflict_only_veriscore(supports: Sequence[Support]) -> float:
    """1 − contradicted claims / claims (§6.2); 1 without claims (ours: not stated)."""
    return 1.0 - supports.count(Support.CONTRADICTED) / max(len(supports), 1)


def veriscore_plus_judge(supports: Sequence[Support], quality: float) -> float:
    """VeriScore + quality / 10, in [0, 2] (§6.2; ours: equal weights, none stated)."""
    return veriscore(supports) + lm_judge(quality)


# arm → its reward, and the methods of the engine that give the reward's arguments
REWARDS: Mapping[str, tuple[Callable[..., float], tuple[str, ...]]] = {
    "lm_judge": (lm_judge, ("quality",)),
    "veriscore": (veriscore, ("supports",)),
    "binary_rar": (binary_rar, ("no_contradiction",)),
    "rating_rar": (rating_rar, ("rating",)),
    "binary_veriscore": (binary_veriscore, ("supports",)),
    "conflict_only_veriscore": (conflict_only_veriscore, ("supports",)),
    "veriscore_plus_judge": (veriscore_plus_judge, ("supports", "quality")),
}


# ---- the engine: one call judges a whole response, in place of one per claim


class Check(Form):
    """The form of Binary RAR's Fig. 9: the score follows from the reasoning."""

    REASONING: Annotated[str, limit_text(1_800)] = ""
    SCORE: Annotated[int, limit_integer(range(2))]


class Rating(Form):
    """The form of Binary RAR's Fig. 10."""

    REASONING: Annotated[str, limit_text(1_800)] = ""
    SCORE: Annotated[int, limit_integer(range(11))]


@dataclass(frozen=True, kw_only=True)
class EvidenceEngine(ClaimEngine):
    """`ClaimEngine`, whose judge also reads whole responses; it never cuts one.

    whole: the evidence for whole responses, of 512-token chunks in the paper.
    with_prompt: whether evidence is searched by prompt and response, or by the latter.
    """

    llm: LLM
    whole: EvidenceCache
    whole_chunks: int = 8
    with_prompt: bool = True

    async def no_contradiction(self, *row: str) -> float | None:
        """1.0 if nothing contradicts the evidence, else 0.0 (Eq. 5, Fig. 9). Omissions
        are no errors, nor are claims that the evidence does not mention (§3.3)."""
        return await self._judge("judge_contradiction", Check, self._add_evidence(*row))

    async def rating(self, *row: str) -> float | None:
        """How surely the evidence shows no error, 0–10 (§6.2, Fig. 10)."""
        return await self._judge("rate_factuality", Rating, self._add_evidence(*row))

    async def quality(self, prompt_id: str, prompt: str, response: str) -> float | None:
        """How helpful, relevant and detailed a response is, 0–10, without evidence
        (§4.3; the paper prints no prompt, this one is ours)."""
        row = {"question": prompt, "response": response}
        return await self._judge("judge_quality", Rating, row)

    def _add_evidence(self, prompt_id: str, prompt: str, response: str) -> dict:
        """The prompt x with the response y and the evidence C(x, y), best first."""
        query = query_of(prompt, response, self.with_prompt)
        hits = self.whole.search(prompt_id, query, self.whole_chunks)
        evidence = [hit.chunk.text for hit in hits]
        return {"question": prompt, "response": response, "evidence": evidence}

    async def _judge(
        self, template: str, form: type[Check | Rating], row: dict
    ) -> float | None:
        reply = await judge.ask(self.llm, template, row, form, 1024)
        return None if reply is None else float(reply.SCORE)


Engine = ExactEngine | EvidenceEngine


def engine_of(p: "RarParams") -> Engine:
    """The engine of `p`: the exact one, or an `EvidenceEngine`."""
    if not has_judge(p):
        return engines.exact_engine(p)
    fields, evidence, tokenizer = engines.claim_fields(p)
    return EvidenceEngine(
        **fields,
        llm=judge_llm(p, p.judge_model, p.judge_url),
        whole=EvidenceCache(evidence, tokenizer, p.whole_chunk_tokens),
        whole_chunks=p.whole_chunks,
        with_prompt=p.query_with_prompt,
    )


# ---- from responses to rewards


def judge_responses(
    arms: Sequence[str], engine: Engine, ids: Texts, prompts: Texts, responses: Texts
) -> dict[str, list[Any]]:
    """Method of the engine → its value per response: each that the arms need, once.

    The engine sees the answers alone, without the reasoning in `<think>`.
    """
    methods = dict.fromkeys(name for arm in arms for name in REWARDS[arm][1])
    return engine.values(methods, ids, prompts, extract_answers(responses))


def rewards_from(arm: str, values: Mapping[str, Sequence[Any]]) -> Scores:
    """The arm's reward of each response, from the values of `judge_responses`."""
    reward, methods = REWARDS[arm]
    columns = [values[name] for name in methods]
    return [
        None if any(map(has_failed, row)) else reward(*row)
        for row in zip(*columns, strict=True)
    ]


def rewards_by_arm(
    arms: Sequence[str], engine: Engine, ids: Texts, prompts: Texts, responses: Texts
) -> dict[str, Scores]:
    """Arm → the reward of each response."""
    values = judge_responses(arms, engine, ids, prompts, responses)
    return {arm: rewards_from(arm, values) for arm in arms}


# ---- TRL


def reward_function(p: "RAR", folder: Path) -> Callable[..., Rewards]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature, on the engine of p."""
    return trl_reward(p.arm, engine_of(p), p.max_completion_length, p.non_stop_penalty)


def trl_reward(
    arm: str, engine: Engine, max_tokens: int, non_stop_penalty: float
) -> Callable[..., Rewards]:
    """The reward of an arm with TRL's `reward_funcs` signature.

    A response of `max_tokens` tokens did not stop: it costs the penalty, down to 0 (A.5
    has one without its size).
    """

    def score(
        ids: Texts, prompts: Texts, responses: Texts, token_ids: Sequence[list[int]]
    ) -> ScoredBatch:
        values = judge_responses([arm], engine, ids, prompts, responses)
        rewards = rewards_from(arm, values)
        texts = extract_answers(responses)
        metrics: dict[str, Sequence[float]] = {
            "response_words": [len(text.split()) for text in texts],
            "judge_failures": [reward is None for reward in rewards],
        }
        claims = [c for c in values.get("supports", ()) if not has_failed(c)]
        metrics["total_claims"] = [len(supports) for supports in claims]
        for kind in (Support.SUPPORTED, Support.CONTRADICTED):
            metrics[f"{kind}_claims"] = [supports.count(kind) for supports in claims]
        penalised = [
            max(r - non_stop_penalty, 0.0) if r and len(tokens) >= max_tokens else r
            for r, tokens in zip(rewards, token_ids, strict=True)
        ]
        return ScoredBatch(penalised, metrics)

    return reward_func(f"rar_{arm}", score)
