"""RLFH's parameters and arms (§4.1, Tables 1 to 3)."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from factkit.papers.rlfh.needs import RlfhNeeds
from factkit.run.arms import Arm, Paper
from factkit.run.params import fields
from factkit.run.params.data import RequestParams
from factkit.run.params.stages import DpoParams, SweepParams, TokenLevelParams


class RlfhParams(RequestParams):
    """RLFH: the questions, and how responses are annotated."""

    data_notebook: ClassVar[str] = "40_rlfh_data"
    answer_format: Literal["joined"] = "joined"
    requests: Literal["world", "leads", "own", "hotpotqa"]
    wikipedia_path: fields.FetchedFile = ""

    @model_validator(mode="after")
    def _own_documents_are_searched(self) -> Self:
        if self.has_own_data and self.wikipedia_path:
            raise ValueError("wikipedia_path must be empty with requests=own")
        return self


class RlfhDpoParams(RlfhParams, DpoParams):
    """FACT-style DPO, which RLFH is compared with."""


# The paper does not give f and g. Its public code has three pairs of maps: in its class
# of settings, in its script, and in its README.
TRUTH_MAPS = {
    "settings": "1 0.5 -1 -1.5 -2",
    "script": "0.3 0.1 -0.8 -0.9 -1.2",
    "readme": "0.45 0.35 -1 -1.5 -1.7",
}
INFORMATIVENESS_MAPS = {
    "settings": "1.3 1.2 1.1 1 -0.1",
    "script": "1.3 1.2 1.1 1 -0.1",
    "readme": "1.25 1 0.75 0.1 -0.2",
}


class TokenRewardParams(TokenLevelParams):
    """f and g of RLFH's token rewards, each by name or as five numbers, and their
    constants (Eq. 1, 2)."""

    truth_map: fields.Text  # of correct, hedged correct, vague, hedged wrong, wrong
    informativeness_map: fields.Text  # of 5, 4, 3, 2, 1
    alpha: fields.Weight = 1.0  # not stated; code: 1
    info_beta: fields.Weight
    info_epsilon: float = Field(-0.9, gt=-1, le=100)  # not stated; code: −0.9

    @field_validator("truth_map", "informativeness_map")
    @classmethod
    def _are_five(cls, text: str, field: ValidationInfo) -> str:
        truth = field.field_name == "truth_map"
        numbers(text, TRUTH_MAPS if truth else INFORMATIVENESS_MAPS)
        return text


def numbers(text: str, named: Mapping[str, str]) -> list[float]:
    """The five numbers of a map. Raises ValueError on anything else."""
    try:
        values = [float(number) for number in named.get(text, text).split()]
    except ValueError:
        values = []
    if len(values) != 5 or not all(abs(value) <= 100 for value in values):
        raise ValueError(f"give five numbers, or one of {', '.join(named)}")
    return values


class RlfhRlParams(RlfhParams, TokenRewardParams):
    """RLFH: token rewards, and how they are learnt from."""


# a judge's calls per response, of 22 statements in 11 sentences (Table 1)
CALLS = {"extract": 11, "verify": 22, "rate": 1}


rl = partial(
    Arm,
    reads=RlfhRlParams,
    algorithm="PPO",
    judge_calls=CALLS,
    token_rewards=True,
)

ARMS = {
    "base": Arm("the policy as it is", RlfhParams, main=True),
    "dpo": Arm("FACT: the most over the least factual response", RlfhDpoParams, "DPO"),
    "paragraph": rl("rewards on the last token of the response"),
    "sentence": rl("rewards on the last token of each sentence", main=True),
    "statement": rl(
        "rewards on the statements and sentences that earn them", main=True
    ),
    "statement_group": rl(
        "the same, relative to the group in place of a value head (ours)",
        algorithm="GRPO",
        changes={"method": "group"},
        verl=False,
    ),
}


class Rlfh(RlfhDpoParams, RlfhRlParams, SweepParams):
    """Parameters of notebooks 40–44; `arms` and `seeds` are what 43 compares."""

    known_arms = tuple(ARMS)
    arm: fields.Name = "statement"


PAPER = Paper(
    number=4,
    title="RLFH",
    parameters=Rlfh,
    arms=ARMS,
    shown_metrics=("factual_precision", "response_rate"),
    needs=RlfhNeeds,
    main_setting={"model": ("Vicuna-7B",)},
    mean_over_answers="factual_precision",
)
