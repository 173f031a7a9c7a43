"""Binary RAR's arms (§4.3, §6.2, Tables 2 to 4, Fig 4)."""

from typing import Literal

from factkit.arms import Arm
from factkit.rar.params import RarDpoParams, RarParams, RarRlParams, RarSftParams


def _rl(what: str, main: bool = False) -> Arm:
    return Arm(what, RarRlParams, "GRPO", main=main)


ARMS = {
    "base": Arm("the policy as it is", RarParams, main=True),
    "sft": Arm("taught its most factual response", RarSftParams, "SFT"),
    "dpo": Arm("the most over the least factual response", RarDpoParams, "DPO"),
    "lm_judge": _rl("a judge's rating of quality / 10"),
    "veriscore": _rl("supported claims / claims", main=True),
    "binary_rar": _rl("1 if nothing contradicts the evidence, else 0", main=True),
    "rating_rar": _rl("the verifier's rating of factuality / 10"),
    "binary_veriscore": _rl("1 if at least half of the claims are supported, else 0"),
    "conflict_only_veriscore": _rl("the share of claims that are not contradicted"),
    "veriscore_plus_judge": _rl("VeriScore + the judge's rating / 10"),
}


class RAR(RarDpoParams, RarRlParams):
    """Parameters of notebooks 20–24; `arms` and `seeds` are what 23 compares."""

    arm: Literal[tuple(ARMS)] = "binary_rar"
    arms: str
    seeds: str
