"""Learning to Reason for Factuality's parameters."""

from typing import ClassVar, Literal

from pydantic import Field

from factkit.params.long_form import RequestParams
from factkit.params.stages import DpoParams, RlParams, SftParams


class ReasonParams(RequestParams):
    """Learning to Reason: the requests of SFT, and how a response that reasons is
    asked for before the policy does so by itself."""

    data_notebook: ClassVar[str] = "30_reason_data"
    splits: ClassVar[tuple[str, ...]] = ("sft", "train", "dev", "test")
    answer_format: Literal["reasoned"] = "reasoned"
    requests: Literal["world", "leads", "synthetic"]
    reasoning_template: str
    sft_requests: int = Field(ge=8)
    eval_sets: str = ""
    # who writes y_ref and compares (App. G); empty: the judge
    relevance_model: str = ""
    relevance_url: str = ""


class ReasonSftParams(ReasonParams, SftParams):
    """Learning to Reason: supervised fine-tuning."""


class ReasonDpoParams(ReasonSftParams, DpoParams):
    """Learning to Reason: DPO."""

    least_margin: float = Field(ge=0, lt=1)
    length_difference: float = Field(gt=0)


class ReasonRlParams(ReasonSftParams, RlParams):
    """Learning to Reason: online RL."""

    reward_url: str = ""
