"""RLFH's parameters and arms (§4.1, Tables 1 to 3)."""

from typing import ClassVar, Literal

from pydantic import Field

from factkit.arms import Arm
from factkit.params.stages import DpoParams, RequestParams, TokenLevelParams


class RlfhParams(RequestParams):
    """RLFH: the questions, and how responses are annotated."""

    data_notebook: ClassVar[str] = "40_rlfh_data"
    answer_format: Literal["joined"] = "joined"
    requests: Literal["world", "leads", "hotpotqa"]
    wikipedia_path: str = ""
    annotation: Literal["pipeline", "single_pass"] = "pipeline"


class RlfhDpoParams(RlfhParams, DpoParams):
    """FACT-style DPO, which RLFH is compared with."""


class RlfhRlParams(RlfhParams, TokenLevelParams):
    """RLFH: token rewards, and how they are learnt from."""

    truth_map: str
    informativeness_map: str
    alpha: float = Field(ge=0)
    info_beta: float = Field(ge=0)
    info_epsilon: float = Field(gt=-1)


def _rl(where: str, main: bool = False) -> Arm:
    return Arm(f"rewards on the {where}", RlfhRlParams, "PPO", main=main)


ARMS = {
    "base": Arm("the policy as it is", RlfhParams, main=True),
    "dpo": Arm("FACT: the most over the least factual response", RlfhDpoParams, "DPO"),
    "paragraph": _rl("last token of the response"),
    "sentence": _rl("last token of each sentence", main=True),
    "statement": _rl("statements and sentences that earn them", main=True),
    "statement_group": Arm(
        "the same, relative to the group in place of a value head (ours)",
        RlfhRlParams,
        "GRPO",
        changes={"method": "group"},
    ),
}


class Rlfh(RlfhDpoParams, RlfhRlParams):
    """Parameters of notebooks 40–44; `arms` and `seeds` are what 43 compares."""

    arm: Literal[tuple(ARMS)] = "statement"
    arms: str
    seeds: str
