"""TruthRL's parameters and arms (§4.1, Tables 1, 3, 4, 6, 7).

Beside the paper's arms, two of later papers: a price of abstaining (arXiv 2601.20126)
and RLCR, whose policy states its confidence (arXiv 2507.16806).
"""

from functools import partial
from typing import Literal, Self

from pydantic import Field, model_validator

from factkit.papers.truthrl.needs import TruthRLNeeds
from factkit.run.arms import Arm, Paper
from factkit.run.params import fields
from factkit.run.params.data import QuestionParams
from factkit.run.params.stages import (
    DpoParams,
    RewardModelParams,
    SftParams,
    SweepParams,
)


class QuestionSftParams(QuestionParams, SftParams):
    """Supervised fine-tuning on questions."""

    rft_samples: fields.Few
    rft_temperature: fields.Temperature = 0.6  # App. C
    rft_top_p: fields.TopP = 0.9  # App. C


class StartParams(QuestionSftParams):
    """Training that may start from the policy of an SFT arm."""

    cold_start: bool
    cold_start_arm: Literal["r_tuning", "random_abstention"] = "r_tuning"


class QuestionDpoParams(StartParams, DpoParams):
    """DPO and its iterations."""

    dpo_iterations: int = Field(ge=1, le=100)


class QuestionRlParams(StartParams, RewardModelParams):
    """RL by the outcome, the reasoning or a learned reward."""

    reason_weight: fields.Weight = 0.5  # λ, App. C


class PricedRlParams(QuestionRlParams):
    """RL with a reward for abstaining."""

    abstention_reward: float = Field(0.25, ge=-1, le=1)  # r_abs of arXiv 2601.20126


OUTCOME = {"outcome": 1}  # a judge's calls per response
REASONED = {"outcome": 1, "reasoning": 1}


sft = partial(Arm, reads=QuestionSftParams, algorithm="SFT")
dpo = partial(Arm, reads=QuestionDpoParams, algorithm="DPO", start="cold_start_arm")
rl = partial(
    Arm,
    reads=QuestionRlParams,
    algorithm="GRPO",
    start="cold_start_arm",
    judge_calls=OUTCOME,
)
reasoned = partial(rl, judge_calls=REASONED, reasoning=True)

ARMS = {
    "prompting": Arm(
        "the instruct model, prompted with examples", QuestionParams, main=True
    ),
    "sft": sft("taught the gold answers"),
    "rft": sft(
        "taught its own right samples", samples="rft_samples", judge_calls=OUTCOME
    ),
    "r_tuning": sft(
        "taught gold answers, and I don't know where probing found none right",
        main=True,
    ),
    "random_abstention": sft(
        "taught its own samples, and I don't know for a fifth of the questions, drawn "
        "at random"
    ),
    "rlhf": rl(
        "rewarded by a model of preferences for right answers", learned_reward=True
    ),
    "rlkf": rl(
        "the same, with preferences for abstaining out of knowledge",
        learned_reward=True,
    ),
    "dpo": dpo("right over wrong samples"),
    "iterative_dpo": dpo(
        "DPO anew on each iteration's own samples",
        samples="probe_samples",
        iterations="dpo_iterations",
        judge_calls=OUTCOME,
    ),
    "binary": rl("+1 right, −1 wrong or abstaining"),
    "binary_knowledge": rl("binary, and +1 for abstaining out of knowledge"),
    "ternary": rl("+1 right, 0 abstaining, −1 wrong", main=True),
    "ternary_knowledge": rl("ternary, and +1 for abstaining out of knowledge"),
    "ternary_reason_multiplicative": reasoned(
        "ternary × (1 + quality of the reasoning)"
    ),
    "ternary_reason_additive": reasoned("ternary + λ · quality of the reasoning"),
    "ternary_reason_conditional": reasoned("ternary, a right answer × its reasoning"),
    "ternary_strict_match": rl(
        "ternary by string match in place of a judge", judge_calls={}
    ),
    "abstention_price": rl(
        "+1 right, r_abs abstaining, −1 wrong", reads=PricedRlParams
    ),
    "stated_confidence": sft(
        "taught its own samples, each with the share of right ones as its confidence"
    ),
    "rlcr": rl(
        "1 if right, minus the squared error of its confidence (needs cold_start)",
        start="stated_confidence",
        verl=False,
    ),
}


class TruthRL(QuestionDpoParams, PricedRlParams, SweepParams):
    """Parameters of notebooks 10–14; `arms` and `seeds` are what 13 compares."""

    data_notebook = "10_truthrl_data"
    known_arms = tuple(ARMS)
    arm: fields.Name = "ternary"

    @property
    def states_confidence(self) -> bool:
        return "stated_confidence" in (self.arm, ARMS[self.arm].start)

    @model_validator(mode="after")
    def _reasoning_is_written(self) -> Self:
        names = (self.arm, *self.arm_names)
        reasoned = [name for name in names if ARMS[name].reasoning]
        if reasoned and self.answer_format != "boxed":
            raise ValueError(
                f"arm={reasoned[0]} rewards reasoning, of which answer_format=plain "
                "has none: set answer_format=boxed (profile tiny: variant=reasoning)"
            )
        return self

    @model_validator(mode="after")
    def _confidence_is_taught(self) -> Self:
        if self.arm == "rlcr" and not self.cold_start:
            raise ValueError(
                "arm=rlcr starts from the arm stated_confidence, for no prompt asks "
                "for a confidence: set cold_start=true"
            )
        return self


PAPER = Paper(
    number=1,
    title="TruthRL",
    parameters=TruthRL,
    arms=ARMS,
    shown_metrics=("truthfulness", "accuracy", "hallucination", "abstention"),
    needs=TruthRLNeeds,
    main_setting={
        "setting": ("with retrieval",),
        "model": ("Llama3.1-8B-Inst",),
        "dataset": ("CRAG",),
        "judge": ("Llama3.3-70B-Inst",),
    },
    rewards_by_hand=True,
)
