"""TruthRL for verl: GRPO from the instruct model, on the data of notebook 10."""

from factkit.answers.sampling import Probe
from factkit.answers.training_rows import RowFormat
from factkit.data.examples import read_examples, read_rows
from factkit.facts.policy import base_policy
from factkit.papers.truthrl import rewards
from factkit.papers.truthrl.arms import TruthRL
from factkit.papers.truthrl.train import ProbedQuestions, prompt_rows
from factkit.run import runs
from factkit.train.verl_adapter import Job


def make_job(p: TruthRL) -> Job:
    """What verl needs to train `p.arm`."""
    data = runs.run_folder("10_truthrl_data", p)
    train = read_examples(data / "train.jsonl")
    probes = read_rows(data / "probe.jsonl", Probe)
    rows = prompt_rows(ProbedQuestions(train, probes, p.known_share), RowFormat.of(p))
    return Job(p, base_policy(p), rows, rewards.reward_function)
