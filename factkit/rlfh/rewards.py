"""RLFH's rewards (§3.2.1): of statements and sentences (Eq. 1 and 2), on the tokens of
a response, and for the trainer of `factkit.rlfh.token_level`.

Pure functions of feedback (`factkit.rlfh.feedback`) first. Feedback of None stands
for an annotator that failed: such a response has none, and is left out of training.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from factkit import models
from factkit.rewards import token_mapping
from factkit.rlfh.feedback import Annotator, Sentence, Statement, Truth
from factkit.verify.failures import Failures
from factkit.verify.response import answers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from factkit.rlfh.arms import Rlfh

Granularity = Literal["statement", "sentence", "paragraph"]
# the papers' arms → where rewards are put (Table 2)
GRANULARITY: dict[str, Granularity] = {
    "paragraph": "paragraph",
    "sentence": "sentence",
    "statement": "statement",
    "statement_group": "statement",
}
# The paper does not give f and g. Its public code has three pairs of maps: in its class
# of settings, in its script, and in its README.
TRUTH_MAPS = {
    "settings": "1 0.5 -1 -1.5 -2",
    "script": "0.3 0.1 -0.8 -0.9 -1.2",
    "readme": "0.45 0.35 -1 -1.5 -1.7",
}
INFORMATIVENESS_MAPS = {
    "settings": "1.3 1.2 1.1 1 -0.1",
    "script": "1.3 1.2 1.1 1 -0.1",
    "readme": "1.25 1 0.75 0.1 -0.2",
}


@dataclass(frozen=True)
class RewardMap:
    """f and g of Eq. 1 and 2 as tables, and their constants.

    alpha: weight of truth; beta: of informativeness; epsilon: the least sum of g that a
    sentence is counted with, above −1.
    """

    f: dict[Truth, float]
    g: dict[int, float]
    alpha: float
    beta: float
    epsilon: float

    def __post_init__(self) -> None:
        if self.epsilon <= -1:
            raise ValueError(f"epsilon={self.epsilon}: Eq. 2 needs one above −1")


def reward_map(p: "Rlfh") -> RewardMap:
    """f, g and constants of p: each map five numbers, or the name of one above.

    truth_map: of correct, hedged correct, vague, hedged wrong, wrong;
    informativeness_map: of 5, 4, 3, 2, 1. Raises ValueError on anything else.
    """
    f = _numbers("truth_map", p.truth_map, TRUTH_MAPS)
    g = _numbers("informativeness_map", p.informativeness_map, INFORMATIVENESS_MAPS)
    return RewardMap(
        dict(zip(Truth, f, strict=True)),
        dict(zip((5, 4, 3, 2, 1), g, strict=True)),
        p.alpha,
        p.info_beta,
        p.info_epsilon,
    )


def _numbers(name: str, text: str, known: dict[str, str]) -> list[float]:
    try:
        values = [float(word) for word in known.get(text, text).split()]
    except ValueError:
        values = []
    if len(values) != len(Truth) or not all(map(math.isfinite, values)):
        raise ValueError(
            f"{name}={text!r}: give five numbers, or one of {', '.join(known)}"
        )
    return values


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


def expected(right: float, m: RewardMap, hedged: bool = False) -> float:
    """The expected reward of a sentence whose only statement answers the question (5)
    and is right with the probability `right`."""
    kinds = (Truth.CORRECT, Truth.WRONG)
    if hedged:
        kinds = (Truth.HEDGED_CORRECT, Truth.HEDGED_WRONG)
    statements = [Statement("", truth, 5) for truth in kinds]
    worth = [truth_reward(s, m) + info_reward([s], m) for s in statements]
    return right * worth[0] + (1 - right) * worth[1]


def break_even(m: RewardMap) -> tuple[float, float, float]:
    """Probabilities of being right, in [0, 1]: from which on a statement pays, from
    which on a hedged one does, and up to which hedging pays more than stating."""
    (never, always), (never_hedged, always_hedged) = (
        [expected(right, m, hedged) for right in (0.0, 1.0)] for hedged in (False, True)
    )
    return (
        _zero(never, always),
        _zero(never_hedged, always_hedged),
        _zero(never - never_hedged, always - always_hedged),
    )


def _zero(at_0: float, at_1: float) -> float:
    """Where the line through (0, at_0) and (1, at_1) crosses zero, within [0, 1]."""
    if at_0 >= 0 or at_1 <= 0:  # not on its way up
        return 0.0 if at_0 >= 0 else 1.0
    return at_0 / (at_0 - at_1)


def token_rewards(
    feedback: Sequence[Sentence],
    completion_ids: Sequence[int],
    tokenizer: "PreTrainedTokenizerBase",
    granularity: Granularity,
    m: RewardMap,
) -> np.ndarray:
    """The rewards of a response on its tokens, (T,), T the number of completion_ids.

    statement: each r_truth on the token that a statement ends with, each r_info on its
    sentence's last token; sentence: both on the sentence's last token; paragraph: all
    on the response's last token (§4.4). Their sum is the same, as far as sentences are
    found in the response; they are not looked for in its reasoning.
    """
    if granularity == "paragraph":
        rewards = np.zeros(len(completion_ids))
        if len(completion_ids):
            rewards[-1] = total_reward(feedback, m)
        return rewards
    placed = [
        (
            sentence.text,
            [(s.text, truth_reward(s, m)) for s in sentence.statements]
            + [(None, info_reward(sentence.statements, m))],
        )
        for sentence in feedback
    ]
    if granularity == "sentence":
        placed = [(text, [(None, sum(r for _, r in of))]) for text, of in placed]
    text, offsets = token_mapping.offsets_of(completion_ids, tokenizer)
    start = text.rfind(answers([text])[0])
    return token_mapping.spread(placed, " " * start + text[start:], offsets)


# The trainer


def reward_function(p: "Rlfh", folder: Path) -> Callable[..., list[list[float] | None]]:
    """The token rewards of `p.arm`, by the annotator that `p.verifier` names."""
    from transformers import AutoTokenizer

    from factkit.rlfh.annotators import annotator
    from factkit.train.start import base_policy
    from factkit.verify.engine import engine_of

    tokenizer = AutoTokenizer.from_pretrained(base_policy(p))
    rewards = GRANULARITY[p.arm], reward_map(p), p.arm
    return token_reward(annotator(p, engine_of(p)), tokenizer, *rewards)


def token_reward(
    annotate: Annotator,
    tokenizer: "PreTrainedTokenizerBase",
    granularity: Granularity,
    m: RewardMap,
    name: str,
) -> Callable[..., list[list[float] | None]]:
    """A function of completions, with the signature of `token_level`: a reward for each
    of a completion's tokens, None where the annotator failed.

    The rows need `id` and `question`. Raises RuntimeError once more than 5 % of the
    run's responses have no feedback.
    """
    failures = Failures(name)

    def rlfh_reward(
        completions: list,
        completion_ids: list[list[int]],
        id: list[str],
        question: list[str],
        log_metric: Callable[[str, float], None] | None = None,
        **_: object,
    ) -> list[list[float] | None]:
        texts = models.completion_texts(completions)
        feedback = annotate(id, question, texts)
        if log_metric:
            log_batch(feedback, log_metric)
        failures.count([None if one is None else 0.0 for one in feedback])
        return [
            None
            if one is None
            else token_rewards(one, ids, tokenizer, granularity, m).tolist()
            for one, ids in zip(feedback, completion_ids, strict=True)
        ]

    rlfh_reward.__name__ = f"rlfh_{name}"
    return rlfh_reward


def log_batch(
    feedback: Sequence[Sequence[Sentence] | None],
    log_metric: Callable[[str, float], None],
) -> None:
    """Log the share of failures, of responses without statements, and a response's
    statements of each kind, means over those that did not fail."""
    known = [
        [s for sentence in one for s in sentence.statements]
        for one in feedback
        if one is not None
    ]
    log_metric("annotator_failures", 1 - len(known) / max(len(feedback), 1))
    if not known:
        return
    log_metric("responds", sum(map(bool, known)) / len(known))
    for truth in Truth:
        n = sum(s.truth == truth for statements in known for s in statements)
        log_metric(truth.replace(" ", "_"), n / len(known))
    stated = [s.informativeness for statements in known for s in statements]
    if stated:
        log_metric("informativeness", sum(stated) / len(stated))
