"""RLFH's parameters."""

from typing import ClassVar, Literal

from pydantic import Field

from factkit.params.long_form import RequestParams
from factkit.params.stages import DpoParams, TokenLevelParams


class RlfhParams(RequestParams):
    """RLFH: the questions, and how responses are annotated."""

    data_notebook: ClassVar[str] = "40_rlfh_data"
    answer_format: Literal["joined"] = "joined"
    requests: Literal["world", "leads", "hotpotqa"]
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
