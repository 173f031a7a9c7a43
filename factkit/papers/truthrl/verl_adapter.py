"""TruthRL for verl: GRPO from the instruct model, on the data of notebook 10."""

from factkit.answers import drawn
from factkit.data.examples import read_examples
from factkit.facts.world.policy import base_policy
from factkit.papers.truthrl import rewards
from factkit.papers.truthrl.arms import TruthRL
from factkit.papers.truthrl.train import prompt_rows
from factkit.run import runs
from factkit.train.verl_adapter import Job


def make_job(p: TruthRL) -> Job:
    """What verl needs to train `p.arm`."""
    data = runs.run_folder("10_truthrl_data", p)
    probes = drawn.read_probes(data / "probe.jsonl")
    rows = prompt_rows(read_examples(data / "train.jsonl"), probes, p)
    return Job(p, base_policy(p), rows, rewards.reward_function)
