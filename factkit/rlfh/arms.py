"""RLFH's arms (§4.1, Tables 1 to 3)."""

from typing import Literal

from factkit.arms import Arm
from factkit.rlfh.params import RlfhDpoParams, RlfhParams, RlfhRlParams


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
