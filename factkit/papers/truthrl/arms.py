"""TruthRL's parameters and arms (§4.1, Tables 1, 3, 4, 6, 7)."""

from typing import Literal, Self

from pydantic import Field, model_validator

from factkit.run.arms import Arm
from factkit.run.params import fields
from factkit.run.params.stages import (
    DpoParams,
    QuestionParams,
    RewardModelParams,
    SftParams,
    SweepParams,
)


class QuestionSftParams(QuestionParams, SftParams):
    """What supervised fine-tuning takes from the questions."""

    rft_samples: fields.Few
    rft_temperature: fields.Temperature = 0.6  # App. C
    rft_top_p: fields.TopP = 0.9  # App. C
    cold_start: bool


class QuestionDpoParams(QuestionSftParams, DpoParams):
    """DPO and its iterations."""

    dpo_iterations: int = Field(ge=1, le=100)


class QuestionRlParams(QuestionSftParams, RewardModelParams):
    """RL by the outcome, its reasoning or a learned reward."""

    reason_weight: fields.Weight = 0.5  # λ, App. C


def _sft(what: str, main: bool = False) -> Arm:
    return Arm(what, QuestionSftParams, "SFT", main=main)


def _dpo(what: str) -> Arm:
    return Arm(what, QuestionDpoParams, "DPO", start="r_tuning")


def _rl(what: str, main: bool = False) -> Arm:
    return Arm(what, QuestionRlParams, "GRPO", start="r_tuning", main=main)


ARMS = {
    "prompting": Arm(
        "the instruct model, asked with examples", QuestionParams, main=True
    ),
    "sft": _sft("taught the gold answers"),
    "rft": _sft("taught its own right samples"),
    "r_tuning": _sft(
        "taught gold answers, and I don't know where probing found none right", True
    ),
    "rlhf": _rl("rewarded by a model of preferences for right answers"),
    "rlkf": _rl("the same, with preferences for abstaining out of knowledge"),
    "dpo": _dpo("right over wrong samples"),
    "iterative_dpo": _dpo("DPO anew on each iteration's own samples"),
    "binary": _rl("+1 right, −1 wrong or abstaining"),
    "binary_knowledge": _rl("binary, and +1 for abstaining out of knowledge"),
    "ternary": _rl("+1 right, 0 abstaining, −1 wrong", main=True),
    "ternary_knowledge": _rl("ternary, and +1 for abstaining out of knowledge"),
    "ternary_reason_multiplicative": _rl("ternary × (1 + quality of the reasoning)"),
    "ternary_reason_additive": _rl("ternary + λ · quality of the reasoning"),
    "ternary_reason_conditional": _rl("ternary, a right answer × its reasoning"),
    "ternary_strict_match": _rl("ternary by string match in place of a judge"),
}


class TruthRL(QuestionDpoParams, QuestionRlParams, SweepParams):
    """Parameters of notebooks 10–14; `arms` and `seeds` are what 13 compares."""

    arm: Literal[tuple(ARMS)] = "ternary"

    @model_validator(mode="after")
    def _reasoning_is_written(self) -> Self:
        reasoned = [arm for arm in (self.arm, *self.arm_names) if "reason" in arm]
        if reasoned and self.answer_format != "boxed":
            raise ValueError(
                f"arm={reasoned[0]} rewards reasoning, of which answer_format=plain "
                "has none: set answer_format=boxed (profile tiny: variant=reasoning)"
            )
        return self
