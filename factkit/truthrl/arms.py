"""TruthRL's parameters and arms (§4.1, Tables 1, 3, 4, 6, 7)."""

from typing import Literal, Self

from pydantic import Field, model_validator

from factkit.arms import Arm
from factkit.params import fields
from factkit.params.stages import (
    DpoParams,
    PolicyParams,
    RewardModelParams,
    SftParams,
    SweepParams,
)

EVAL_SETS = ("crag", "nq_open", "hotpotqa", "musique", "popqa")  # datasets.benchmarks


class QuestionParams(PolicyParams):
    """The questions, how they are asked, probed and answered with evidence."""

    verifier: Literal["rules", "exact", "judge"] = "rules"
    other_judges: fields.Judges = ""
    answer_format: Literal["plain", "boxed"]
    prompt_template: fields.Template
    prompting_template: fields.Template
    abstaining_template: fields.Template
    majority_samples: fields.Few

    questions: Literal["world", "leads", "crag", "nq_open", "hotpotqa", "musique"]
    questions_path: fields.DataFile = ""
    eval_sets: fields.some_of(*EVAL_SETS) = ""
    train_questions: fields.Size
    dev_questions: fields.Size
    test_questions: fields.Size
    comparison_questions: fields.Count = 150
    least_known: fields.Share = 0.0  # share of right samples of a relation
    most_known: fields.Share = 1.0  # that is asked
    split_seed: fields.Seed = 0
    probe_samples: fields.Samples
    probe_temperature: fields.Temperature
    known_share: fields.Share

    retriever: Literal["", "bm25", "e5"] = ""
    encoder: fields.Model = "intfloat/e5-base-v2"
    wikipedia_path: fields.DataFile = ""
    retrieved_chunks: fields.Few = 3
    chunk_tokens: fields.ChunkTokens = 128

    @model_validator(mode="after")
    def _some_relations_are_asked(self) -> Self:
        if self.least_known > self.most_known:
            raise ValueError(
                f"least_known={self.least_known} is above most_known={self.most_known}"
            )
        return self

    @property
    def second_judges(self) -> list[str]:
        """Further judges of the same answers (Table 5): `other_judges`, or, where rules
        judge, a string match and whether the response holds the answer."""
        if self.verifier == "judge":
            return self.other_judges.split()
        return [name for name in ("exact", "contains") if name != self.verifier]


class QuestionSftParams(QuestionParams, SftParams):
    """What supervised fine-tuning takes from the questions."""

    rft_samples: fields.Few
    rft_temperature: fields.Temperature
    rft_top_p: fields.TopP
    cold_start: bool


class QuestionDpoParams(QuestionSftParams, DpoParams):
    """DPO and its iterations."""

    dpo_iterations: int = Field(ge=1, le=100)


class QuestionRlParams(QuestionSftParams, RewardModelParams):
    """RL by the outcome, its reasoning or a learned reward."""

    reason_weight: fields.Weight


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
