"""Learning to Reason's arms: what each one trains, on what, and from where (§2, §3)."""

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from factkit.answers import drawn
from factkit.answers.drawn import Drawn
from factkit.data.examples import Example
from factkit.facts.policy import base_policy
from factkit.papers.reason import rewards
from factkit.papers.reason.arms import Reason, ReasonSftParams
from factkit.run import runs
from factkit.train import grpo, offline

NOTEBOOK = "32_reason_train"


def sft_start(
    p: Reason,
    examples: Sequence[Example],
    answers: Sequence[Drawn],
    inputs: Iterable[Path],
) -> Path:
    """The SFT model of the same seed, from which DPO and RL start (§2.2); trained here
    if its run is not done.

    answers: responses that reason, drawn from the base policy for the examples.
    Raises DataError if none of them can be a target.
    """
    first = p.model_copy(update={"arm": "sft"})
    rows = drawn.required(drawn.best_rows(examples, answers, p), p)
    with runs.start(NOTEBOOK, first, inputs, ReasonSftParams, wait=True) as run:
        return offline.sft(base_policy(p), rows, run.folder, first)


def train_arm(
    p: Reason,
    start: Path,
    train: Sequence[Example],
    answers: Sequence[Drawn],
    folder: Path,
) -> Path:
    """Train sft_dpo or an RL arm from the SFT model `start`; the policy's folder.

    answers: responses that reason, drawn from the base policy for `train`.
    Raises DataError if they leave no pair for DPO.
    """
    if p.arm == "sft_dpo":
        rows = drawn.required(drawn.margin_pairs(train, answers, p), p)
        return offline.dpo(str(start), rows, folder, p)
    rows = drawn.asked_rows(train, p)
    return grpo.grpo(str(start), rows, reward_function, folder, p)


def reward_function(p: Reason, folder: Path) -> Callable[..., list[float | None]]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature."""
    engine = rewards.engine_of(p)
    score = functools.partial(rewards.scored, p.arm, engine)
    return rewards.trl_reward(p.arm, score)
