"""Learning to Reason's arms: what each one trains, on what, and from where (§2, §3)."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from factkit.answers.rewards import Rewards
from factkit.answers.sampling import ScoredSamples
from factkit.answers.training_rows import RowFormat, margin_pair, require_rows
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
    answers: Sequence[ScoredSamples],
    inputs: Iterable[Path],
) -> Path:
    """The SFT model of the same seed, from which DPO and RL start (§2.2); it is trained
    if its run is not done.

    answers: scored responses of the base policy that reason. Raises DataError if none
    of them can be a target.
    """
    sft_params = p.model_copy(update={"arm": "sft"})
    rows = require_rows(sft_rows(p, examples, answers), p.arm)
    with runs.start(NOTEBOOK, sft_params, inputs, ReasonSftParams, wait=True) as run:
        return offline.sft(base_policy(p), rows, run.folder, sft_params)


def sft_rows(
    p: Reason, examples: Sequence[Example], answers: Sequence[ScoredSamples]
) -> list[dict]:
    """SFT's rows: each request with its most precise response, or with the edited one
    that keeps most. answers: as in `sft_start`."""
    if p.sft_target == "edited":
        answers = rewards.edit_answers(rewards.engine_of(p), examples, answers)
    return RowFormat.of(p).best_rows(examples, answers)


def train_arm(
    p: Reason,
    start: Path,
    train: Sequence[Example],
    answers: Sequence[ScoredSamples],
    folder: Path,
) -> Path:
    """Train sft_dpo or an RL arm from the SFT model `start`; the policy's folder.

    answers: scored responses of the base policy to `train`, which reason. Raises
    DataError if they give no pair for DPO.
    """
    row_format = RowFormat.of(p)
    if p.arm == "sft_dpo":
        choose = partial(
            margin_pair,
            least_margin=p.least_margin,
            length_difference=p.length_difference,
        )
        pairs = row_format.preference_rows(train, answers, choose)
        rows = require_rows(pairs, p.arm)
        return offline.dpo(str(start), rows, folder, p)
    rows = row_format.request_rows(train)
    return grpo.grpo(str(start), rows, reward_function, folder, p)


def reward_function(p: Reason, folder: Path) -> Callable[..., Rewards]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature."""
    return rewards.trl_reward(p.arm, rewards.engine_of(p))
