"""Rewards of long answers with the signature that TRL's trainers call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from factkit.prompts import completion_texts

# one per completion: a number, or one number per token; None: the judge failed
Rewards = list[float | None] | list[list[float] | None]


@dataclass(frozen=True)
class ScoredBatch:
    """The rewards of a batch of completions, and what the trainer logs of them.

    metrics: name → values, whose mean is logged; a metric without values is not.
    """

    rewards: Rewards
    metrics: Mapping[str, Sequence[float]] = field(default_factory=dict)


def reward_func(name: str, score: Callable[..., ScoredBatch]) -> Callable[..., Rewards]:
    """A function of this name with the signature of TRL's `reward_funcs`.

    score: (prompt ids, prompts, responses, their token ids) → `ScoredBatch`. The rows
    need `id` and `question`. TRL leaves a completion whose reward is None out of its
    group's baseline.
    """

    def reward(
        completions: Sequence[Any],
        completion_ids: Sequence[list[int]],
        id: Sequence[str],
        question: Sequence[str],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> Rewards:
        batch = score(id, question, completion_texts(completions), completion_ids)
        for metric, values in batch.metrics.items():
            if log_metric and values:
                log_metric(metric, sum(values) / len(values))
        return batch.rewards

    reward.__name__ = name
    return reward


def has_failed(value: object) -> bool:
    """Whether a verifier or judge failed: on a response, or on one of its claims."""
    return value is None or (isinstance(value, Sequence) and None in value)
