"""TruthRL's arms (§4.1, Tables 1, 3, 4, 6, 7)."""

from typing import Literal, Self

from pydantic import model_validator

from factkit.arms import Arm
from factkit.truthrl.params import (
    QuestionDpoParams,
    QuestionParams,
    QuestionRlParams,
    QuestionSftParams,
)


def _rl(what: str, main: bool = False) -> Arm:
    return Arm(what, QuestionRlParams, "GRPO", start="r_tuning", main=main)


ARMS = {
    "prompting": Arm(
        "the instruct model, asked with examples", QuestionParams, main=True
    ),
    "sft": Arm("taught the gold answers", QuestionSftParams, "SFT"),
    "rft": Arm("taught its own right samples", QuestionSftParams, "SFT"),
    "r_tuning": Arm(
        "taught gold answers, and I don't know where probing found none right",
        QuestionSftParams,
        "SFT",
        main=True,
    ),
    "rlhf": _rl("rewarded by a model of preferences for right answers"),
    "rlkf": _rl("the same, with preferences for abstaining out of knowledge"),
    "dpo": Arm("right over wrong samples", QuestionDpoParams, "DPO", start="r_tuning"),
    "iterative_dpo": Arm(
        "DPO anew on each iteration's own samples",
        QuestionDpoParams,
        "DPO",
        start="r_tuning",
    ),
    "binary": _rl("+1 right, −1 wrong or abstaining"),
    "binary_knowledge": _rl("binary, and +1 for abstaining out of knowledge"),
    "ternary": _rl("+1 right, 0 abstaining, −1 wrong", main=True),
    "ternary_knowledge": _rl("ternary, and +1 for abstaining out of knowledge"),
    "ternary_reason_multiplicative": _rl("ternary × (1 + quality of the reasoning)"),
    "ternary_reason_additive": _rl("ternary + λ · quality of the reasoning"),
    "ternary_reason_conditional": _rl("ternary, a right answer × its reasoning"),
    "ternary_strict_match": _rl("ternary by string match in place of a judge"),
}


class TruthRL(QuestionDpoParams, QuestionRlParams):
    """Parameters of notebooks 10–14; `arms` and `seeds` are what 13 compares."""

    arm: Literal[tuple(ARMS)] = "ternary"
    arms: str
    seeds: str

    @model_validator(mode="after")
    def _reasoning_is_written(self) -> Self:
        if "reason" in self.arm and self.answer_format != "boxed":
            raise ValueError(
                f"arm={self.arm} rewards reasoning, of which answer_format=plain has "
                "none: set answer_format=boxed (profile tiny: variant=reasoning)"
            )
        return self
