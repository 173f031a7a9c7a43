"""What each paper hands to verl (`train.verl_adapter`): its start, rows and reward.

They stand apart from the papers' train.py, so that no notebook reaches verl; each
imports its paper alone.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from factkit.answers import drawn
from factkit.data.examples import DataError, read_examples
from factkit.run import runs
from factkit.train.verl_adapter import Job

if TYPE_CHECKING:
    from factkit.papers.rar.arms import RAR
    from factkit.papers.reason.arms import Reason
    from factkit.papers.rlfh.arms import Rlfh
    from factkit.papers.truthrl.arms import TruthRL
    from factkit.papers.veri.arms import Veri


def truthrl(p: "TruthRL") -> Job:
    """What verl needs to train `p.arm` from the instruct model, of notebook 10's data.

    A learned reward is not for it: its model would stand in the process that judges.
    """
    from factkit.facts.policy import base_policy
    from factkit.papers.truthrl import rewards
    from factkit.papers.truthrl.train import prompt_rows

    data = runs.run_folder("10_truthrl_data", p)
    probes = drawn.read_probes(data / "probe.jsonl")
    rows = prompt_rows(read_examples(data / "train.jsonl"), probes, p)
    no = {"arm": p.arm in ("rlhf", "rlkf"), "cold_start": p.cold_start}
    return Job(p, base_policy(p), rows, rewards.reward_function, refused=no)


def rar(p: "RAR") -> Job:
    """What verl needs to train `p.arm`, of notebook 20's data."""
    from factkit.facts.policy import base_policy
    from factkit.papers.rar import rewards

    train = read_examples(runs.run_folder(p.data_notebook, p) / "train.jsonl")
    rows = drawn.asked_rows(train, p)
    how = p.model_copy(update={"rl_steps": p.updates(p.arm)})
    return Job(how, base_policy(p), rows, rewards.reward_function)


def reason(p: "Reason") -> Job:
    """What verl needs to train `p.arm`, of notebook 30's data and the SFT model of the
    same seed. Raises DataError if that is not trained."""
    from factkit.papers.reason.train import NOTEBOOK, reward_function

    start = runs.run_folder(NOTEBOOK, p.model_copy(update={"arm": "sft"})) / "model"
    if not start.exists():
        raise DataError(f"{start}: not there; train arm=sft with notebook 32 first")
    train = read_examples(runs.run_folder(p.data_notebook, p) / "train.jsonl")
    return Job(p, str(start), drawn.asked_rows(train, p), reward_function)


def rlfh(p: "Rlfh") -> Job:
    """What verl needs to train `p.arm` by PPO, of notebook 40's data."""
    from factkit.facts.policy import base_policy
    from factkit.papers.rlfh import rewards, verl_adapter
    from factkit.papers.rlfh.arms import ARMS

    train = read_examples(runs.run_folder(p.data_notebook, p) / "train.jsonl")
    start, reward = base_policy(p), rewards.reward_function
    refused = {"arm": ARMS[p.arm].algorithm != "PPO"}
    loop, changes = verl_adapter.TokenRewardLoop, verl_adapter.ppo(p, start)
    return Job(p, start, drawn.asked_rows(train, p), reward, loop, changes, refused)


def veri(p: "Veri") -> Job:
    """What verl needs to train `p.arm` from the instruct model, of notebook 50's data.

    Offline RL's policy is to be chosen from verl's checkpoints (App. H).
    """
    from factkit.papers.veri import rewards, verl_adapter
    from factkit.papers.veri.train import (
        policy_of,
        prompt_rows,
        read_given,
        reward_params,
    )

    data, how = runs.run_folder(p.data_notebook, p), reward_params(p)
    train = read_examples(data / "train.jsonl")
    rows = prompt_rows(train, read_given(data / "given.jsonl"), how)
    refused = {"cold_start": p.cold_start}
    job = Job(how, policy_of(p), rows, rewards.reward_function, refused=refused)
    if not how.online:
        return job
    lengths = {
        "data.max_prompt_length": p.max_prompt_length,
        "data.max_response_length": p.longest - p.max_prompt_length,
    }
    return replace(job, loop=verl_adapter.SearchLoop, changes=lengths)
