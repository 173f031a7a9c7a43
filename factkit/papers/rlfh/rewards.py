"""RLFH's rewards (§3.2.1): of statements and sentences (Eq. 1 and 2), put on the tokens
of a response, with TRL's signature.

A statement's characters are mapped to its sentence by the longest common subsequence,
the sentence to the response by the longest common substring; the reward goes on the
token that holds the last matched character. Decisions that the paper leaves open:
- of equally long matches, which one counts: see `statement_end` and `find_sentence`;
- a statement's closing full stop is left out, unless the statement is nothing else: it
  would match the sentence's own and draw every reward to the sentence's end;
- where a response was cut off, the reward of a character beyond its end goes on its
  nearest one, so that no reward is lost.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from factkit.answers.engine import engine_of
from factkit.answers.rewards import Rewards, ScoredBatch, reward_func
from factkit.answers.verifier import Texts
from factkit.data.spelling import LONGEST
from factkit.papers.rlfh.arms import (
    INFORMATIVENESS_MAPS,
    TRUTH_MAPS,
    Rlfh,
    TokenRewardParams,
    numbers,
)
from factkit.papers.rlfh.feedback import (
    Annotator,
    Feedback,
    Sentence,
    Statement,
    Truth,
    annotator,
    mean_feedback,
)
from factkit.policy import models
from factkit.verify.response import extract_answers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Granularity = Literal["statement", "sentence", "paragraph"]
Parts = list[tuple[str | None, float]]  # (statement, r_truth), and (None, r_info)
CLOSING = ".!?…。！？ \t\n"  # at a statement's end


@dataclass(frozen=True)
class RewardMap:
    """f and g of Eq. 1 and 2 as tables, and their constants."""

    f: dict[Truth, float]
    g: dict[int, float]
    alpha: float  # weight of truth
    beta: float  # weight of informativeness
    epsilon: float  # the least sum of g that a sentence is counted with


def reward_map(p: TokenRewardParams) -> RewardMap:
    """f, g and constants of p."""
    f = dict(zip(Truth, numbers(p.truth_map, TRUTH_MAPS), strict=True))
    by_grade = numbers(p.informativeness_map, INFORMATIVENESS_MAPS)
    g = dict(zip((5, 4, 3, 2, 1), by_grade, strict=True))
    return RewardMap(f, g, p.alpha, p.info_beta, p.info_epsilon)


def granularity(arm: str) -> Granularity:
    """Where an arm's rewards are put (Table 2)."""
    match arm:
        case "sentence" | "paragraph":
            return arm
    return "statement"


def truth_reward(statement: Statement, m: RewardMap) -> float:
    """r_truth = α f(k_truth) |g(k_info)| (Eq. 1)."""
    return m.alpha * m.f[statement.truth] * abs(m.g[statement.informativeness])


def info_reward(statements: Sequence[Statement], m: RewardMap) -> float:
    """r_info = β log(1 + max(ε, Σ g(k_info))) of a sentence's statements (Eq. 2)."""
    total = sum(m.g[statement.informativeness] for statement in statements)
    return m.beta * math.log1p(max(m.epsilon, total))


def total_reward(feedback: Sequence[Sentence], m: RewardMap) -> float:
    """The sum of all a response's rewards, whatever the granularity (Table 8)."""
    return sum(
        info_reward(sentence.statements, m)
        + sum(truth_reward(statement, m) for statement in sentence.statements)
        for sentence in feedback
    )


# ---- from statements to tokens


def statement_end(statement: str, sentence: str) -> int | None:
    """Index of the sentence's character where their longest common subsequence ends;
    None without one.

    Of the longest ones it is the one that ends first: where a word is repeated, a
    statement ends with the words that complete it, not with the last to look alike.
    Bit-parallel: after each character of the statement, bit j of `flat` is 0 where the
    longest common subsequence with sentence[:j + 1] is longer than with sentence[:j].
    """
    positions: dict[str, int] = {}
    for j, character in enumerate(sentence):
        positions[character] = positions.get(character, 0) | 1 << j
    flat = ones = (1 << len(sentence)) - 1
    for character in statement:
        matched = flat & positions.get(character, 0)
        flat = (flat + matched | flat - matched) & ones
    rises = flat ^ ones
    return rises.bit_length() - 1 if rises else None


def find_sentence(sentence: str, response: str, after: int = 0) -> Match:
    """The longest common substring: its start in the response (a), in the sentence (b),
    and its size.

    after: where the previous sentence's match ends. Of the longest ones it is the first
    that begins there or later, else the first of all, so that sentences which the
    response repeats are matched in order.
    """
    if (whole := response.find(sentence, after)) >= 0:
        return Match(whole, 0, len(sentence))
    sentence = sentence[:LONGEST]  # the search takes its length times the response's
    later, first = (
        SequenceMatcher(None, text, sentence, autojunk=False).find_longest_match()
        for text in (response[after:], response)
    )
    if first.size > later.size:
        return first
    return Match(after + later.a, later.b, later.size)


def place_rewards(
    rewards: Sequence[tuple[str, Parts]], response: str, offsets: list[tuple[int, int]]
) -> np.ndarray:
    """The sum of the rewards that land on each token, (T,).

    rewards: for each sentence in order (statement, r_truth), and (None, r_info), which
    goes on the sentence's last character, as does that of a statement without a common
    character. A sentence that has nothing but white space in common with the response
    has no reward. offsets: of T tokens, from `models.decode_with_offsets`. Where tokens
    share a character the last one holds it; white space between tokens belongs to the
    first.
    """
    dense, after = np.zeros(len(offsets)), 0
    tokens = [i for i, (start, end) in enumerate(offsets) if start < end]
    starts = [offsets[i][0] for i in tokens]
    for sentence, sentence_rewards in rewards:
        sentence = sentence.strip()
        begin, skipped, size = find_sentence(sentence, response, after)
        if not response[begin : begin + size].strip():
            continue
        after = begin + size
        for statement, reward in sentence_rewards:
            end = None
            if statement is not None:
                end = statement_end(statement.rstrip(CLOSING) or statement, sentence)
            end = len(sentence) - 1 if end is None else end
            character = begin + min(max(end - skipped, 0), size - 1)
            dense[tokens[max(bisect_right(starts, character) - 1, 0)]] += reward
    return dense


def token_rewards(
    feedback: Sequence[Sentence],
    completion_ids: Sequence[int],
    tokenizer: "PreTrainedTokenizerBase",
    where: Granularity,
    m: RewardMap,
) -> np.ndarray:
    """The rewards of a response on its tokens, (T,), T the number of completion_ids.

    where: statement puts r_truth on the token that the statement ends with and r_info
    on its sentence's last token; sentence puts both on that token; paragraph puts all
    on the response's last token (§4.4). Their sum is the same, as far as sentences are
    found in the response; its reasoning is not searched.
    """
    if where == "paragraph":
        rewards = np.zeros(len(completion_ids))
        rewards[-1:] = total_reward(feedback, m)
        return rewards
    by_sentence = []
    for sentence in feedback:
        parts: Parts = [(s.text, truth_reward(s, m)) for s in sentence.statements]
        parts.append((None, info_reward(sentence.statements, m)))
        if where == "sentence":
            parts = [(None, sum(reward for _, reward in parts))]
        by_sentence.append((sentence.text, parts))
    text, offsets = models.decode_with_offsets(completion_ids, tokenizer)
    start = text.rfind(extract_answers([text])[0])
    return place_rewards(by_sentence, " " * start + text[start:], offsets)


def rewarded_tokens(
    text: str,
    feedback: Feedback,
    tokenizer: "PreTrainedTokenizerBase",
    where: Granularity,
    m: RewardMap,
) -> tuple[list[str], np.ndarray | None]:
    """A response's tokens and their rewards, None without feedback; for display."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    decoded, offsets = models.decode_with_offsets(ids, tokenizer)
    tokens = [decoded[start:end] for start, end in offsets]
    if feedback is None:
        return tokens, None
    return tokens, token_rewards(feedback, ids, tokenizer, where, m)


# ---- TRL


def reward_function(p: Rlfh, folder: Path) -> Callable[..., Rewards]:
    """The token rewards of `p.arm`, by the annotator of `p`."""
    from transformers import AutoTokenizer

    from factkit.facts.policy import base_policy

    tokenizer = AutoTokenizer.from_pretrained(base_policy(p))
    return trl_reward(p.arm, annotator(p, engine_of(p)), tokenizer, reward_map(p))


def trl_reward(
    arm: str, annotate: Annotator, tokenizer: "PreTrainedTokenizerBase", m: RewardMap
) -> Callable[..., Rewards]:
    """The token rewards of an arm, with the signature of TRL's `reward_funcs`; None
    where the annotator failed.

    Logs the share of failures and, among the other responses, `mean_feedback` and the
    share that state something.
    """
    where = granularity(arm)

    def score(
        ids: Texts, prompts: Texts, responses: Texts, token_ids: Sequence[list[int]]
    ) -> ScoredBatch:
        feedback = annotate(ids, prompts, responses)
        known = [sentences for sentences in feedback if sentences is not None]
        metrics = {
            "annotator_failures": [sentences is None for sentences in feedback],
            "responds": [bool(sentences) for sentences in known],
        } | {name: [mean] for name, mean in mean_feedback(known).items()}
        rewards = [
            None
            if sentences is None
            else token_rewards(sentences, tokens, tokenizer, where, m).tolist()
            for sentences, tokens in zip(feedback, token_ids, strict=True)
        ]
        return ScoredBatch(rewards, metrics)

    return reward_func(f"rlfh_{arm}", score)
