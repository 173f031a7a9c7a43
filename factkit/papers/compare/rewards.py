"""The papers' rewards of one response, computed by one engine with each paper's own
function.

A short answer counts as the statement that it makes. `count_calls` says how often a
reward would call a judge.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from factkit.answers.engine import ExactEngine, Scores, exact_engine
from factkit.answers.rewards import Rewards, ScoredBatch, reward_func
from factkit.answers.verifier import Texts
from factkit.papers.compare.arms import ARMS, Compare
from factkit.papers.rar import rewards as rar
from factkit.papers.reason import rewards as reason
from factkit.papers.rlfh import rewards as rlfh
from factkit.papers.rlfh.feedback import (
    TRUTHS,
    Sentence,
    Statement,
    Truth,
    exact_annotator,
)
from factkit.papers.truthrl.rewards import ternary
from factkit.run import params
from factkit.verify.outcome import Outcome, Support
from factkit.verify.response import extract_answers

MOST_USEFUL = 5  # of RLFH's informativeness: the answer to the question


def judge_response(supports: Sequence[Support]) -> Outcome:
    """The outcome of a response for TruthRL (§3.2): abstaining if it states nothing,
    correct if all claims are supported, else wrong. For long responses this is ours."""
    if not supports:
        return Outcome.ABSTAIN
    right = all(s is Support.SUPPORTED for s in supports)
    return Outcome.CORRECT if right else Outcome.WRONG


def compare_with_base(
    engine: ExactEngine, ids: Texts, prompts: Texts, responses: Texts
) -> list[bool]:
    """Whether each response is an answer, and no worse than the base policy's (Learning
    to Reason §3.1.1). A short response only has to be of the kind that is asked for."""
    long = [i for i, row in enumerate(ids) if not engine.examples[row].relation]
    columns = ([column[i] for i in long] for column in (ids, prompts, responses))
    wins = dict(zip(long, map(engine.preferred, *columns), strict=True))
    quality = list(map(engine.quality, ids, prompts, responses))
    return [bool(wins.get(i, quality[i])) for i in range(len(ids))]


def compute_rewards(
    arm: str, engine: ExactEngine, ids: Texts, prompts: Texts, responses: Texts
) -> Scores:
    """The reward of each response under an arm of GRPO."""
    rows = ids, prompts, responses
    if arm in ("binary_rar", "veriscore"):
        return rar.rewards_by_arm([arm], engine, *rows)[arm]
    supports = list(map(engine.supports, *rows))
    if arm == "ternary":
        return [ternary(judge_response(each)) for each in supports]
    weights = reason.WEIGHTS[arm]
    wins = compare_with_base(engine, *rows)
    return [
        reason.well_formed_reward(weights, each, won, None)
        for each, won in zip(supports, wins, strict=True)
    ]


def annotate_responses(
    engine: ExactEngine, ids: Texts, prompts: Texts, responses: Texts
) -> list[list[Sentence]]:
    """RLFH's feedback on each response; on a short one as a single sentence."""

    def annotate(i: str, response: str, feedback: list[Sentence]) -> list[Sentence]:
        if not engine.examples[i].relation:
            return feedback
        supports = [engine.facts.verify(c.text) for c in engine.claims(i, response)]
        truths = [TRUTHS.get((support, False), Truth.VAGUE) for support in supports]
        return [
            Sentence(response, (Statement(response, truth, MOST_USEFUL),))
            for truth in truths
        ]

    annotator = exact_annotator(engine.facts, engine.examples)
    feedbacks = annotator(ids, prompts, extract_answers(responses))
    return list(map(annotate, ids, responses, feedbacks))


def compute_rewards_by_arm(
    p: Compare, arms: Sequence[str], engine: ExactEngine, *rows: Texts
) -> dict[str, Scores]:
    """Arm → the reward of each response; RLFH's arms share one, the sum over tokens."""
    by_arm: dict[str, Scores] = {}
    reward_map = rlfh.reward_map(p)
    for arm in arms:
        if ARMS[arm].token_rewards:
            feedback = annotate_responses(engine, *rows)
            by_arm[arm] = [rlfh.total_reward(each, reward_map) for each in feedback]
        else:
            by_arm[arm] = compute_rewards(arm, engine, *rows)
    return by_arm


# TRL


def reward_function(p: Compare, folder: Path) -> Callable[..., Rewards]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature; the rows need `id` and
    `question`."""
    engine = exact_engine(p)

    def score(ids: Texts, prompts: Texts, responses: Texts, _: Any) -> ScoredBatch:
        rows = ids, prompts, responses
        claims = list(map(len, map(engine.supports, *rows)))
        rewards = compute_rewards(p.arm, engine, *rows)
        responds = list(map(bool, claims))
        return ScoredBatch(rewards, {"total_claims": claims, "responds": responds})

    return reward_func(p.arm, score)


def token_reward_function(p: Compare, folder: Path) -> Callable[..., Rewards]:
    """The token rewards of RLFH's arms."""
    from transformers import AutoTokenizer

    from factkit.facts.policy import base_policy

    engine = exact_engine(p)
    tokenizer = AutoTokenizer.from_pretrained(base_policy(p))
    annotate = partial(annotate_responses, engine)
    return rlfh.trl_reward(p.arm, annotate, tokenizer, rlfh.reward_map(p))


# What it costs where a model judges


def count_calls(arm: str, sentences: float, claims: float) -> float:
    """Judge calls per response with so many sentences and different claims, in each
    paper's own pipeline.

    A response that states nothing needs no call for TruthRL, and no rating for RLFH.
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


def count_evidence(arm: str, claims: float) -> float:
    """Tokens of evidence that the judge calls of a response with so many claims read,
    in each paper's profile h100_full. TruthRL's judge reads none."""
    if arm == "ternary":
        return 0
    if arm == "binary_rar":
        p = params.load("rar", "h100_full")
        return p.whole_chunks * p.whole_chunk_tokens
    paper = "reason" if arm in reason.WEIGHTS else "rlfh"
    p = params.load("rar" if arm == "veriscore" else paper, "h100_full")
    return claims * p.claim_chunks * p.claim_chunk_tokens
