"""The requests of the comparison, and the training of one arm on them."""

import random
from collections.abc import Sequence
from pathlib import Path

from factkit.answers.training_rows import RowFormat
from factkit.data.examples import BEST_GUESS, MAY_ABSTAIN, OPEN, Example
from factkit.facts.source import open_source
from factkit.papers.compare import rewards
from factkit.papers.compare.arms import ARMS, Compare, CompareParams
from factkit.train import grpo

KINDS = {"long": OPEN, "short": MAY_ABSTAIN}


def request_sets(p: CompareParams) -> dict[str, list[Example]]:
    """The splits train and test, with no subject in common, each with long and short
    requests about the same subjects; probe: short questions about test's subjects."""
    source = open_source(p.requests, p)
    subjects = source.split({"train": p.train_requests, "test": p.test_requests})
    sizes = {
        ("train", OPEN): p.train_requests,
        ("train", MAY_ABSTAIN): p.train_requests,
        ("test", OPEN): p.test_requests,
        ("test", MAY_ABSTAIN): p.test_questions,
    }
    sets: dict[str, list[Example]] = {"train": [], "test": []}
    for (split, kind), size in sizes.items():
        requests = source.requests(subjects[split], kind)
        sets[split] += _some(requests, size, each_once=split == "test")
    asked_about = {e.entity for e in sets["test"] if e.meta["kind"] == OPEN}
    probes = source.requests(subjects["test"], BEST_GUESS)
    sets["probe"] = [e for e in probes if e.entity in asked_about]
    return sets


def _some(examples: Sequence[Example], size: int, each_once: bool) -> list[Example]:
    """At most `size` examples, drawn at random; each_once: one long request per
    subject."""
    if each_once and not examples[0].relation:
        examples = list({e.entity: e for e in examples}.values())
    return random.Random("compare").sample(examples, min(size, len(examples)))


def train_arm(
    p: Compare, start: str, train: Sequence[Example], folder: Path
) -> dict[int, Path]:
    """Train `p.arm` from the policy `start` on training requests of the kind
    `p.train_on`. Returns updates → the policy kept after so many, in order."""
    kind = KINDS[p.train_on]
    row_format = RowFormat.of(p)
    rows = row_format.request_rows([e for e in train if e.meta["kind"] == kind])
    arm_p = ARMS[p.arm].configure(p)
    if ARMS[p.arm].token_rewards:
        from factkit.papers.rlfh.token_trainer import token_level

        make_reward = rewards.token_reward_function
        last = token_level(start, rows, make_reward, folder, arm_p)
    else:
        last = grpo.grpo(start, rows, rewards.reward_function, folder, arm_p)
    policies = {step: folder / f"model-{step}" for step in p.kept_steps}
    return policies | {p.kept_steps[-1]: last}
