"""RLFH's arms: what each one trains, on what, and by which algorithm (§3.2.2, §4.1)."""

from collections.abc import Sequence
from pathlib import Path

from factkit.answers.sampling import ScoredSamples
from factkit.answers.training_rows import RowFormat, require_rows, widest_pair
from factkit.data.examples import Example
from factkit.papers.rlfh import rewards
from factkit.papers.rlfh.arms import ARMS, Rlfh
from factkit.train import offline


def train_arm(
    p: Rlfh,
    start: str,
    train: Sequence[Example],
    answers: Sequence[ScoredSamples],
    folder: Path,
) -> Path:
    """Train `p.arm` from the policy `start`; the folder of the trained policy.

    answers: responses of `start` to `train`, scored with FactScore, for dpo (FACT: the
    most and the least factual one). Raises DataError if they give no pair.
    """
    row_format = RowFormat(p.prompt_template, p.chat)
    if p.arm == "dpo":
        pairs = row_format.preference_rows(train, answers, widest_pair)
        rows = require_rows(pairs, p.arm)
        return offline.dpo(start, rows, folder, p)
    from factkit.papers.rlfh.token_trainer import token_level

    rows = row_format.request_rows(train)
    p = ARMS[p.arm].configure(p)
    return token_level(start, rows, rewards.reward_function, folder, p)
