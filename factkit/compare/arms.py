"""What is compared, with which parameters, and what can't be held equal."""

from typing import ClassVar, Literal

from pydantic import Field

from factkit.arms import Arm
from factkit.params.stages import PolicyParams, Template, TokenLevelParams


class CompareParams(PolicyParams):
    """The requests to tell of a subject, and short questions about it."""

    data_notebook: ClassVar[str] = "60_compare_setup"
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    answer_format: Literal["mixed"] = "mixed"
    prompt_template: Template
    verifier: Literal["world", "leads"]
    requests: Literal["world", "leads"]
    train_requests: int = Field(ge=8)  # long ones, and as many short ones
    test_requests: int = Field(ge=8)
    test_questions: int = Field(ge=8)
    split_seed: int = Field(0, ge=0)  # of the leads; the world's is world_seed
    probe_samples: int = Field(ge=2)


class CompareRlParams(CompareParams, TokenLevelParams):
    """One budget for all rewards; RLFH's maps, and its value head."""

    train_on: Literal["long", "short"]
    truth_map: str
    informativeness_map: str
    alpha: float = Field(ge=0)
    info_beta: float = Field(ge=0)
    info_epsilon: float = Field(gt=-1)


def _rl(what: str, algorithm: str = "GRPO", **changes: str) -> Arm:
    return Arm(what, CompareRlParams, algorithm, main=True, changes=changes)


ARMS = {
    "base": Arm("the start of all the others", CompareParams, main=True),
    "ternary": _rl("TruthRL: +1 all right, 0 states nothing, −1 anything else"),
    "binary_rar": _rl("Binary RAR: 1 if nothing is contradicted, else 0"),
    "veriscore": _rl("VeriScore: supported claims / claims"),
    "fact_relevance": _rl("Learning to Reason: precision + 0.1 · preferred"),
    "fact_detail_relevance": _rl(
        "the same + 0.01 · log(1 + supported claims): precision, detail and relevance"
    ),
    "statement": _rl("RLFH: rewards of statements on their tokens, PPO", "PPO"),
    "statement_group": _rl(
        "the same rewards, relative to the group (ours)", method="group"
    ),
}
TRAINED = tuple(name for name, arm in ARMS.items() if arm.algorithm)

UNEQUAL = [
    "no reasoning: Learning to Reason's reward is of the whole response, which has no "
    "tags to be malformed in (§3.1.1)",
    "advantages (r − mean) / std for all rewards of responses, also those that "
    "Learning to Reason takes without std (Eq. 3)",
    "a long response is right for the ternary reward if it states something and all "
    "of it is supported, and abstains if it states nothing (TruthRL §3.2: short "
    "answers)",
    "RLFH's rewards lie on tokens: PPO has a value head beside the policy, with a "
    "rate of its own, and KL in the reward instead of the loss",
    "learning rate, KL coefficient, group size and updates are one for all, not each "
    "paper's own",
    "quality and preference are judged by a rule that knows what was asked and not "
    "what is true, where the papers ask a model",
]


class Compare(CompareRlParams):
    """Parameters of notebooks 60–62; `arms` and `seeds` are what 62 compares."""

    arm: Literal[tuple(ARMS)] = "binary_rar"
    arms: str
    seeds: str
