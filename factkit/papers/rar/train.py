"""Binary RAR's arms: what each one trains, on what, and from where (§4.3, App. C)."""

from collections.abc import Sequence
from pathlib import Path

from factkit.answers import drawn
from factkit.answers.drawn import Drawn
from factkit.data.examples import Example
from factkit.papers.rar import rewards
from factkit.papers.rar.arms import ARMS, RAR
from factkit.train import grpo, offline


def train_arm(
    p: RAR, start: str, train: Sequence[Example], answers: Sequence[Drawn], folder: Path
) -> dict[int, Path]:
    """Train `p.arm` from the policy `start`; number of updates → the policy saved after
    them, 0 for an arm without RL.

    answers: scored responses of the base policy to `train`. Raises DataError if they
    give the arm no row.
    """
    if p.arm == "sft":
        rows = drawn.required(drawn.best_rows(train, answers, p), p)
        return {0: offline.sft(start, rows, folder, p)}
    if p.arm == "dpo":
        pairs = drawn.gap_pairs(train, answers, p, p.length_difference)
        return {0: offline.dpo(start, drawn.required(pairs, p), folder, p)}
    p = ARMS[p.arm].configure(p)
    rows = drawn.asked_rows(train, p)
    last = grpo.grpo(start, rows, rewards.reward_function, folder, p)
    policies = {step: folder / f"model-{step}" for step in p.kept_steps}
    return policies | {p.kept_steps[-1]: last}
