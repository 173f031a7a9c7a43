"""Binary RAR's arms: what each one trains, on what, and from where (§4.3, App. C)."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from factkit.answers.sampling import ScoredSamples
from factkit.answers.training_rows import RowFormat, require_rows, widest_pair
from factkit.data.examples import Example
from factkit.papers.rar import rewards
from factkit.papers.rar.arms import ARMS, RAR
from factkit.train import grpo, offline


def train_arm(
    p: RAR,
    start: str,
    train: Sequence[Example],
    answers: Sequence[ScoredSamples],
    folder: Path,
) -> dict[int, Path]:
    """Train `p.arm` from the policy `start`; number of updates → the policy saved after
    them, 0 for an arm without RL.

    answers: scored responses of the base policy to `train`. Raises DataError if they
    give the arm no row.
    """
    row_format = RowFormat(p.prompt_template, p.chat)
    if p.arm == "sft":
        rows = require_rows(row_format.best_rows(train, answers), p.arm)
        return {0: offline.sft(start, rows, folder, p)}
    if p.arm == "dpo":
        choose = partial(widest_pair, length_difference=p.length_difference)
        pairs = row_format.preference_rows(train, answers, choose)
        return {0: offline.dpo(start, require_rows(pairs, p.arm), folder, p)}
    p = ARMS[p.arm].configure(p)
    rows = row_format.request_rows(train)
    last = grpo.grpo(start, rows, rewards.reward_function, folder, p)
    policies = {step: folder / f"model-{step}" for step in p.kept_steps}
    return policies | {p.kept_steps[-1]: last}
