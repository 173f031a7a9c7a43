"""Learning to Reason's arms (§4.2, Tables 1 and 2)."""

from typing import Literal

from factkit.arms import Arm
from factkit.reason.params import (
    ReasonDpoParams,
    ReasonParams,
    ReasonRlParams,
    ReasonSftParams,
)


def _rl(what: str, main: bool = False) -> Arm:
    return Arm(what, ReasonRlParams, "GRPO", start="sft", main=main)


ARMS = {
    "base": Arm("the policy as it is, without reasoning", ReasonParams, main=True),
    "sft": Arm(
        "taught its most precise reasoned response", ReasonSftParams, "SFT", main=True
    ),
    "sft_dpo": Arm(
        "more over less precise responses", ReasonDpoParams, "DPO", start="sft"
    ),
    "fact": _rl("precision alone: λ = 0, μ = 0", main=True),
    "fact_detail": _rl("precision and detail: λ = 0.01, μ = 0"),
    "fact_relevance": _rl("precision and relevance: λ = 0, μ = 0.1", main=True),
    "fact_detail_relevance": _rl("all three: λ = 0.01, μ = 0.1"),
    "fact_detail10_relevance": _rl("all three: λ = 0.1, μ = 0.1"),
}


class Reason(ReasonDpoParams, ReasonRlParams):
    """Parameters of notebooks 30–34; `arms` and `seeds` are what 33 compares."""

    arm: Literal[tuple(ARMS)] = "fact_relevance"
    arms: str
    seeds: str
