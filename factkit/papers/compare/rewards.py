"""The papers' rewards of one response, by one engine: each is its paper's own function.

A short answer is the statement that it makes of its question. What a reward would ask a
judge for is `calls`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.answers import engine as engines
from factkit.answers.engine import ExactEngine
from factkit.papers.rar import rewards as rar
from factkit.papers.reason import rewards as reason
from factkit.papers.rlfh import rewards as rlfh
from factkit.papers.rlfh.feedback import (
    TRUTHS,
    Feedback,
    Sentence,
    Statement,
    Truth,
    annotator,
)
from factkit.papers.truthrl.rewards import ternary
from factkit.prompts import completion_texts
from factkit.verify.outcome import Outcome, Support

if TYPE_CHECKING:
    from factkit.papers.compare.arms import Compare

MOST_USEFUL = 5  # of RLFH's informativeness: the answer to the question


def outcome(supports: Sequence[Support]) -> Outcome:
    """What a response is to TruthRL (§3.2): abstaining if it states nothing, correct if
    all of it is supported, else wrong. Of long responses this is ours."""
    if not supports:
        return Outcome.ABSTAIN
    right = all(s is Support.SUPPORTED for s in supports)
    return Outcome.CORRECT if right else Outcome.WRONG


def preferred(engine: ExactEngine, ids, prompts, responses) -> list[bool]:
    """Whether each response is no worse an answer than the base policy's, and one at
    all (Learning to Reason §3.1.1); a short one is if it is of the kind asked for."""
    long = [i for i, row in enumerate(ids) if not engine.examples[row].relation]
    columns = ([column[i] for i in long] for column in (ids, prompts, responses))
    wins = dict(zip(long, engine.preferred(*columns), strict=True))
    quality = engine.quality(ids, prompts, responses)
    return [bool(wins.get(i, quality[i])) for i in range(len(ids))]


def rewards_of(arm: str, engine: ExactEngine, ids, prompts, responses) -> list[float]:
    """The reward of each response under an arm of GRPO."""
    rows = ids, prompts, responses
    if arm in ("binary_rar", "veriscore"):
        return rar.rewards_of(arm, engine, *rows)
    supports = engine.supports(*rows)
    if arm == "ternary":
        return [ternary(outcome(each)) for each in supports]
    weights = reason.WEIGHTS[arm]
    wins = preferred(engine, *rows)
    return [
        reason.reward(True, reason.counts(each), won, *weights)
        for each, won in zip(supports, wins, strict=True)
    ]


def feedback(p: "Compare", engine: ExactEngine, ids, prompts, responses) -> list:
    """RLFH's feedback on each response, of a short one on what it answers."""

    def on(i: str, response: str, told: Feedback) -> Feedback:
        if not engine.examples[i].relation:
            return told
        return [
            Sentence(response, (Statement(response, truth, MOST_USEFUL),))
            for claim in engine.claims(i, response)
            for support in [(engine.facts.verify(claim.text), False)]
            for truth in [TRUTHS.get(support, Truth.VAGUE)]
        ]

    every = annotator(p, engine)(ids, prompts, responses)
    return list(map(on, ids, responses, every))


def totals(p: "Compare", engine: ExactEngine, *rows: Sequence[str]) -> list[float]:
    """The sum of RLFH's rewards on the tokens of each response."""
    maps = rlfh.reward_map(p)
    return [rlfh.total_reward(each, maps) for each in feedback(p, engine, *rows)]


def rewards_by_arm(
    p: "Compare", arms: Sequence[str], engine: ExactEngine, *rows: Sequence[str]
) -> dict[str, list[float]]:
    """Arm → the reward of each response; RLFH's arms have one between them."""
    return {
        arm: totals(p, engine, *rows)
        if arm.startswith("statement")
        else rewards_of(arm, engine, *rows)
        for arm in arms
    }


# TRL


def reward_function(p: "Compare", folder: Path) -> Callable[..., list[float]]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature; the rows need `id` and
    `question`."""
    engine = engines.exact_engine(p)

    def compared_reward(completions, id, question, log_metric=None, **_) -> list[float]:
        texts = completion_texts(completions)
        if log_metric:
            stated = list(map(len, engine.supports(id, question, texts)))
            log_metric("total_claims", sum(stated) / len(stated))
            log_metric("responds", sum(map(bool, stated)) / len(stated))
        return rewards_of(p.arm, engine, id, question, texts)

    compared_reward.__name__ = p.arm
    return compared_reward


def token_reward_function(p: "Compare", folder: Path) -> rlfh.TokenReward:
    """The token rewards of RLFH's arms."""
    from transformers import AutoTokenizer

    from factkit.facts.policy import base_policy

    engine = engines.exact_engine(p)
    tokenizer = AutoTokenizer.from_pretrained(base_policy(p))

    def annotate(ids, prompts, responses) -> list[Feedback]:
        return feedback(p, engine, ids, prompts, responses)

    return rlfh.token_reward(annotate, tokenizer, p)


# What it costs where a model judges


def calls(arm: str, sentences: float, claims: float) -> float:
    """How often a reward asks a judge about a response of so many sentences and
    different claims, by its paper's own pipeline: `verifier.verifier`,
    `rar.rewards.EvidenceEngine`, `verify.claims`, `reason.rewards.PreferenceEngine`,
    `rlfh.feedback.llm_annotator`.

    What states nothing is known by a rule for TruthRL, and not rated for RLFH.
    """
    states = min(claims, 1)
    of_claims = sentences + claims  # to extract them, and to verify each
    return {
        "ternary": states,
        "binary_rar": 1,  # the whole response in one look
        "veriscore": of_claims,
        "fact_relevance": of_claims + 1,  # preference (§3.1.1)
        "fact_detail_relevance": of_claims + 1,
        "statement": of_claims + states,  # one rating (§3.1.3)
        "statement_group": of_claims + states,
    }[arm]
