"""What is compared, and with which parameters. What can't be held equal is in
papers/compare/published/deviations.csv."""

from functools import partial
from typing import ClassVar, Literal

from factkit.papers.rlfh.arms import TokenRewardParams
from factkit.run.arms import Arm, Paper
from factkit.run.params import fields
from factkit.run.params.stages import PolicyParams, SweepParams


class CompareParams(PolicyParams):
    """The requests to tell of a subject, and short questions about it."""

    data_notebook: ClassVar[str] = "60_compare_setup"
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    answer_format: Literal["mixed"] = "mixed"
    prompt_template: fields.Template
    verifier: Literal["world", "leads"]
    requests: Literal["world", "leads"]
    train_requests: fields.Size  # long ones, and as many short ones
    test_requests: fields.Size
    test_questions: fields.Size
    split_seed: fields.Seed = 0  # of the leads; the world's is world_seed
    probe_samples: fields.Samples


class CompareRlParams(CompareParams, TokenRewardParams):
    """One budget for all rewards; RLFH's maps, and its value head."""

    train_on: Literal["long", "short"]


rl = partial(Arm, reads=CompareRlParams, algorithm="GRPO", main=True)

ARMS = {
    "base": Arm("the start of all the others", CompareParams, main=True),
    "ternary": rl("TruthRL: +1 all right, 0 states nothing, −1 anything else"),
    "binary_rar": rl("Binary RAR: 1 if nothing is contradicted, else 0"),
    "veriscore": rl("VeriScore: supported claims / claims"),
    "fact_relevance": rl("Learning to Reason: precision + 0.1 · preferred"),
    "fact_detail_relevance": rl(
        "the same + 0.01 · log(1 + supported claims): precision, detail and relevance"
    ),
    "statement": rl(
        "RLFH: rewards of statements on their tokens, PPO",
        algorithm="PPO",
        token_rewards=True,
    ),
    "statement_group": rl(
        "the same rewards, relative to the group (ours)",
        changes={"method": "group"},
        token_rewards=True,
    ),
}
TRAINED = tuple(name for name, arm in ARMS.items() if arm.algorithm)


class Compare(CompareRlParams, SweepParams):
    """Parameters of notebooks 60–62; `arms` and `seeds` are what 62 compares."""

    known_arms = tuple(ARMS)
    arm: fields.Name = "binary_rar"


PAPER = Paper(
    number=6,
    title="The papers against each other",
    parameters=Compare,
    arms=ARMS,
    shown_metrics=(
        "factual_precision",
        "response_rate",
        "win_rate",
        "short_truthfulness",
        "short_abstention",
    ),
    mean_over_answers="factual_precision",
)
