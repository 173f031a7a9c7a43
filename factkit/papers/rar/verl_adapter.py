"""Binary RAR for verl: GRPO from the instruct model, on the data of notebook 20."""

from factkit.answers.training_rows import RowFormat
from factkit.data.examples import read_examples
from factkit.facts.policy import base_policy
from factkit.papers.rar import rewards
from factkit.papers.rar.arms import ARMS, RAR
from factkit.run import runs
from factkit.train.verl_adapter import Job


def make_job(p: RAR) -> Job:
    """What verl needs to train `p.arm`."""
    train = read_examples(runs.run_folder(p.data_notebook, p) / "train.jsonl")
    rows = RowFormat.of(p).request_rows(train)
    p = ARMS[p.arm].configure(p)
    return Job(p, base_policy(p), rows, rewards.reward_function)
