"""RLFH's rewards (§3.2.1) and what is learnt from them (§3.2.2): of statements and
sentences (Eq. 1 and 2), put on the tokens of a response; the tokens' advantages; and
the function that trainers call.

A statement's characters are mapped to its sentence by the longest common subsequence,
the sentence to the response by the longest common substring; the reward goes on the
token that holds the last matched character. The paper leaves open, and is decided here:
- ties: see `last_in_sentence` and `in_response`;
- a statement's closing full stop, which would match the sentence's own and draw every
  reward to the sentence's end: it is left out, unless the statement is nothing else;
- a last character outside the part of the sentence that the response has: it moves to
  the nearest one inside, so that no reward is lost where the response was cut off.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from factkit.data.spelling import LONGEST
from factkit.papers.rlfh.arms import INFORMATIVENESS_MAPS, TRUTH_MAPS, numbers
from factkit.papers.rlfh.feedback import (
    Annotator,
    Feedback,
    Sentence,
    Statement,
    Truth,
    annotator,
    kinds,
)
from factkit.policy import models
from factkit.prompts import completion_texts
from factkit.verify.response import answers

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from factkit.papers.rlfh.arms import Rlfh

Granularity = Literal["statement", "sentence", "paragraph"]
CLOSING = ".!?…。！？ \t\n"  # at a statement's end
# (ids, questions, completions and their tokens) → a reward a token, None: failed
TokenReward = Callable[..., list[list[float] | None]]


def granularity(arm: str) -> Granularity:
    """Where an arm's rewards are put (Table 2)."""
    return arm if arm in ("sentence", "paragraph") else "statement"


@dataclass(frozen=True)
class RewardMap:
    """f and g of Eq. 1 and 2 as tables, and their constants."""

    f: dict[Truth, float]
    g: dict[int, float]
    alpha: float  # weight of truth
    beta: float  # of informativeness
    epsilon: float  # the least sum of g that a sentence is counted with


def reward_map(p: "Rlfh") -> RewardMap:
    """f, g and constants of p."""
    f = dict(zip(Truth, numbers(p.truth_map, TRUTH_MAPS), strict=True))
    by_grade = numbers(p.informativeness_map, INFORMATIVENESS_MAPS)
    g = dict(zip((5, 4, 3, 2, 1), by_grade, strict=True))
    return RewardMap(f, g, p.alpha, p.info_beta, p.info_epsilon)


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


# From statements to tokens


def last_in_sentence(statement: str, sentence: str) -> int | None:
    """Where in the sentence a longest common subsequence ends; None without one.

    Of all that are longest, the one that ends first: where a word is repeated, a
    statement ends with the words that complete it, not with the last to look alike.
    Bit-parallel: after each character of the statement, bit j of `flat` is 0 where the
    longest common subsequence with sentence[:j + 1] is longer than with sentence[:j].
    """
    places: dict[str, int] = {}
    for j, character in enumerate(sentence):
        places[character] = places.get(character, 0) | 1 << j
    flat = every = (1 << len(sentence)) - 1
    for character in statement:
        matched = flat & places.get(character, 0)
        flat = (flat + matched | flat - matched) & every
    rises = flat ^ every
    return rises.bit_length() - 1 if rises else None


def in_response(sentence: str, response: str, after: int = 0) -> Match:
    """The longest common substring: its place in response (a), in sentence (b), size.

    after: where the previous sentence's match ends. Of all that are longest, the first
    in the response that begins there or later, else the first of all: sentences that
    the response repeats are matched in order. Of its places in the sentence, the first.
    """
    if (whole := response.find(sentence, after)) >= 0:
        return Match(whole, 0, len(sentence))
    sentence = sentence[:LONGEST]  # the search below takes its length times the text's
    later, first = (
        SequenceMatcher(None, text, sentence, autojunk=False).find_longest_match()
        for text in (response[after:], response)
    )
    if first.size > later.size:
        return first
    return Match(after + later.a, later.b, later.size)


def spread(
    rewards: Sequence[tuple[str, Sequence[tuple[str | None, float]]]],
    response: str,
    offsets: Sequence[tuple[int, int]],
) -> np.ndarray:
    """Each token's reward, (T,): the sum of what lands on it.

    rewards: of each sentence in order, what it is paid for: (statement, r_truth), and
    (None, r_info) for the sentence itself, whose token is that of its last character;
    so is that of a statement without a common character. A sentence that has nothing
    but white space in common with the response pays nothing. offsets: of T tokens, as
    `models.offsets_of` gives them. Of tokens that share a character the last holds it;
    white space between two tokens is the first one's.
    """
    dense, after = np.zeros(len(offsets)), 0
    tokens = [i for i, (start, end) in enumerate(offsets) if start < end]
    starts = [offsets[i][0] for i in tokens]
    for sentence, paid in rewards:
        sentence = sentence.strip()
        begin, skipped, size = in_response(sentence, response, after)
        if not response[begin : begin + size].strip():
            continue
        after = begin + size
        for statement, reward in paid:
            last = None
            if statement is not None:
                own = statement.rstrip(CLOSING) or statement
                last = last_in_sentence(own, sentence)
            last = len(sentence) - 1 if last is None else last
            character = begin + min(max(last - skipped, 0), size - 1)
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

    where: at each statement r_truth is on the token that it ends with and r_info on its
    sentence's last token; at each sentence both are on its last token; for a paragraph
    all is on the response's last token (§4.4). Their sum is the same, as far as
    sentences are found in the response; they are not looked for in its reasoning.
    """
    if where == "paragraph":
        rewards = np.zeros(len(completion_ids))
        rewards[-1:] = total_reward(feedback, m)
        return rewards
    placed = []
    for sentence in feedback:
        own = [(s.text, truth_reward(s, m)) for s in sentence.statements]
        own.append((None, info_reward(sentence.statements, m)))
        if where == "sentence":
            own = [(None, sum(reward for _, reward in own))]
        placed.append((sentence.text, own))
    text, offsets = models.offsets_of(completion_ids, tokenizer)
    start = text.rfind(answers([text])[0])
    return spread(placed, " " * start + text[start:], offsets)


def on_tokens(
    text: str,
    feedback: Feedback,
    tokenizer: "PreTrainedTokenizerBase",
    where: Granularity,
    m: RewardMap,
) -> tuple[list[str], Sequence[float] | None]:
    """A response's tokens and their rewards, None without feedback: to look at."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    decoded, offsets = models.offsets_of(ids, tokenizer)
    tokens = [decoded[start:end] for start, end in offsets]
    if feedback is None:
        return tokens, None
    return tokens, token_rewards(feedback, ids, tokenizer, where, m)


# Advantages: B completions of at most T tokens, padded on the right. mask (B, T), bool,
# is true at the tokens that count; what other places hold never matters: they get 0.


def gae(
    rewards: "Tensor", values: "Tensor", mask: "Tensor", gamma: float, lam: float
) -> tuple["Tensor", "Tensor"]:
    """Generalised advantage estimation (Schulman et al. 2016): advantages and returns.

    δ_t = r_t + γ V_{t+1} − V_t,  A_t = δ_t + γλ A_{t+1},  return_t = A_t + V_t

    values (B, T): V_t, of the state in which token t is chosen. After a completion's
    last token V and A are 0.
    """
    rewards, values = rewards.where(mask, 0.0), values.where(mask, 0.0)
    advantages = values.new_zeros(values.shape)
    advantage = value = values.new_zeros(len(values))  # (B,), of the token after
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * value - values[:, t]
        advantage, value = delta + gamma * lam * advantage, values[:, t]
        advantages[:, t] = advantage
    return advantages.where(mask, 0.0), (advantages + values).where(mask, 0.0)


def group_advantages(returns: "Tensor", known: "Tensor", group: int) -> "Tensor":
    """A_{i,t} = R_{i,t} − mean of R_{j,t} over the other completions j of i's prompt.

    A baseline is unbiased if it does not depend on the action that it judges. So it is
    taken from the other completions alone (RLOO, Ahmadian et al. 2024), at the same
    token, and one that has ended by then counts with the 0 that it has yet to get:
    whether it is still going is its own chance, too.

    returns: R (B, T), the discounted rewards from t on, 0 after an end; `group` rows a
    prompt. known: bool (B,), false where the judge failed: such a row counts in no mean
    and has A = 0, as a row has that no other is known beside.
    """
    grouped = returns.where(known[:, None], 0.0).view(-1, group, returns.shape[1])
    there = known.view(-1, group, 1)
    others = there.sum(1, keepdim=True) - there.long()
    mean = (grouped.sum(1, keepdim=True) - grouped) / others.clamp(min=1)
    return (grouped - mean).where(there & (others > 0), 0.0).view_as(returns)


def masked_mean(x: "Tensor", mask: "Tensor") -> "Tensor":
    """The mean of x over the tokens of mask, a scalar; 0 if there are none."""
    return x.where(mask, 0.0).sum() / mask.sum().clamp(min=1)


def whiten(advantages: "Tensor", mask: "Tensor") -> "Tensor":
    """Advantages with mean 0 and variance 1 over the tokens of mask, (B, T)."""
    centred = advantages - masked_mean(advantages, mask)
    variance = masked_mean(centred**2, mask)
    return (centred * (variance + 1e-8).rsqrt()).where(mask, 0.0)


# The trainer's function


def reward_function(p: "Rlfh", folder: Path) -> TokenReward:
    """The token rewards of `p.arm`, by the annotator of `p`."""
    from transformers import AutoTokenizer

    from factkit.answers.engine import engine_of
    from factkit.facts.policy import base_policy

    tokenizer = AutoTokenizer.from_pretrained(base_policy(p))
    return token_reward(annotator(p, engine_of(p)), tokenizer, p)


def token_reward(
    annotate: Annotator, tokenizer: "PreTrainedTokenizerBase", p: "Rlfh"
) -> TokenReward:
    """A function of completions, with the signature of TRL's `reward_funcs`: a reward
    for each of a completion's tokens, None where the annotator failed, so that the
    completion is left out of training.

    The rows need `id` and `question`. Logs the share of failures, of responses with
    statements among the others, and `kinds`.
    """
    how = tokenizer, granularity(p.arm), reward_map(p)

    def rlfh_reward(
        completions: list,
        completion_ids: list[list[int]],
        id: list[str],
        question: list[str],
        log_metric: Callable[[str, float], None] = lambda name, value: None,
        **_: object,
    ) -> list[list[float] | None]:
        feedback = annotate(id, question, completion_texts(completions))
        known = [sentences for sentences in feedback if sentences is not None]
        log_metric("annotator_failures", 1 - len(known) / max(len(feedback), 1))
        if known:
            log_metric("responds", sum(map(bool, known)) / len(known))
        for name, mean in kinds(known).items():
            log_metric(name, mean)
        return [
            None if row is None else token_rewards(row, ids, *how).tolist()
            for row, ids in zip(feedback, completion_ids, strict=True)
        ]

    rlfh_reward.__name__ = f"rlfh_{p.arm}"
    return rlfh_reward
