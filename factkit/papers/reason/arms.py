"""Learning to Reason for Factuality's parameters and arms (§4.2, Tables 1 and 2)."""

from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from factkit.papers.reason.needs import ReasonNeeds
from factkit.run.arms import Arm, Paper
from factkit.run.params import fields
from factkit.run.params.data import RequestParams
from factkit.run.params.stages import DpoParams, RlParams, SftParams, SweepParams

# of data.sources
EVAL_SETS = """longfact_objects fava alpaca_fact biography factory_hard
factbench_hard""".split()


class ReasonParams(RequestParams):
    """The requests of SFT, and how a response that reasons is asked for before the
    policy does so by itself."""

    data_notebook: ClassVar[str] = "30_reason_data"
    splits: ClassVar[tuple[str, ...]] = ("sft", "train", "dev", "test")
    answer_format: Literal["reasoned"] = "reasoned"
    requests: Literal["world", "leads", "own", "synthetic"]
    reasoning_template: fields.Template
    sft_requests: fields.Size
    # best: the most precise response (§2.2); edited: `train.edit_answers` (ours)
    sft_target: Literal["best", "edited"] = "best"
    eval_sets: Annotated[fields.Text, fields.require_names(*EVAL_SETS)] = ""
    # who writes y_ref and compares (App. G); empty: the judge
    relevance_model: fields.Name = ""
    relevance_url: fields.Url = ""

    @model_validator(mode="after")
    def _own_requests_are_evaluated_on(self) -> Self:
        if self.has_own_data and self.eval_sets:
            raise ValueError("eval_sets must be empty with requests=own")
        return self


class ReasonSftParams(ReasonParams, SftParams):
    """Learning to Reason: supervised fine-tuning."""


class ReasonDpoParams(ReasonSftParams, DpoParams):
    """Learning to Reason: DPO."""

    least_margin: float = Field(0.1, ge=0, lt=1)  # τ_m, §2.3
    length_difference: float = Field(0.1, gt=0, le=100)  # τ_l, §2.3


class ReasonRlParams(ReasonSftParams, RlParams):
    """Learning to Reason: online RL."""


class Weights(NamedTuple):
    """Of the reward's terms: detail λ, relevance μ (Eq. 2), and ν of the reasoning's
    precision, which KnowRL has (arXiv 2506.19807)."""

    detail: float
    relevance: float
    reasoning: float = 0.0


# the five rows of Table 2, and two that are not the paper's
WEIGHTS = {
    "fact": Weights(0.0, 0.0),
    "fact_detail": Weights(0.01, 0.0),
    "fact_relevance": Weights(0.0, 0.1),
    "fact_detail_relevance": Weights(0.01, 0.1),
    "fact_detail10_relevance": Weights(0.1, 0.1),
    "fact_relevance50": Weights(0.0, 0.5),
    "fact_relevance_reasoning": Weights(0.0, 0.1, reasoning=1.0),
}


# a judge's calls per response, of 46 claims in 23 sentences (Table 2)
CLAIMS = {"extract": 23, "verify": 46}
TWICE = {call: 2 * number for call, number in CLAIMS.items()}  # reasoning and answer


rl = partial(
    Arm, reads=ReasonRlParams, algorithm="GRPO", start="sft", judge_calls=CLAIMS
)
relevant = partial(rl, judge_calls=CLAIMS | {"relevance": 1})

ARMS = {
    "base": Arm("the policy as it is, without reasoning", ReasonParams, main=True),
    "sft": Arm(
        "taught its most precise reasoned response", ReasonSftParams, "SFT", main=True
    ),
    "sft_dpo": Arm(
        "more over less precise responses", ReasonDpoParams, "DPO", start="sft"
    ),
    "fact": rl("precision alone: λ = 0, μ = 0", main=True),
    "fact_detail": rl("precision and detail: λ = 0.01, μ = 0"),
    "fact_relevance": relevant("precision and relevance: λ = 0, μ = 0.1", main=True),
    "fact_detail_relevance": relevant("all three: λ = 0.01, μ = 0.1"),
    "fact_detail10_relevance": relevant("all three: λ = 0.1, μ = 0.1"),
    "fact_relevance50": relevant("precision and more relevance: λ = 0, μ = 0.5 (ours)"),
    "fact_relevance_reasoning": rl(
        "precision of answer and reasoning (KnowRL), relevance: ν = 1, μ = 0.1",
        judge_calls=TWICE | {"relevance": 1},
    ),
}


class Reason(ReasonDpoParams, ReasonRlParams, SweepParams):
    """Parameters of notebooks 30–34; `arms` and `seeds` are what 33 compares."""

    known_arms = tuple(ARMS)
    arm: fields.Name = "fact_relevance"


PAPER = Paper(
    number=3,
    title="Learning to Reason for Factuality",
    parameters=Reason,
    arms=ARMS,
    shown_metrics=("factual_precision", "win_rate", "response_rate", "malformed"),
    needs=ReasonNeeds,
    main_setting={"model": ("Llama3.1-8B-Inst",)},
    mean_over_answers="factual_precision",
)
