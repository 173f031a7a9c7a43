"""Veri-R1's arms (§3.2, App. H, Tables 1 to 3, Fig 4)."""

from typing import Any, Literal

from factkit.arms import Arm
from factkit.veri.params import (
    VeriLargerParams,
    VeriParams,
    VeriRlParams,
    VeriSftParams,
)


def _rl(what: str, main: bool = False, **changes: Any) -> Arm:
    return Arm(what, VeriRlParams, "GRPO", "sft", changes, main)


ARMS = {
    "instruct": Arm("the policy as it is, with the search", VeriParams, main=True),
    "sft": Arm(
        "taught trajectories that were verified", VeriSftParams, "SFT", main=True
    ),
    "offline_rl": _rl("the evidence is given, nothing is searched", True, online=False),
    "online_rl": _rl("searches as it answers; all of the reward", True),
    "without_evidence": _rl(
        "online, without the evidence reward", evidence_reward=False
    ),
    "without_validity": _rl(
        "online, without the validity weight", validity_weight=False
    ),
    "without_format": _rl("online, without the format reward", format_reward=False),
    "label_only": _rl(
        "online, for the label alone",
        evidence_reward=False,
        validity_weight=False,
        format_reward=False,
    ),
    "larger": Arm("a larger policy that is not trained", VeriLargerParams),
}


class Veri(VeriRlParams, VeriLargerParams):
    """Parameters of notebooks 50–54; `arms` and `seeds` are what 53 compares."""

    arm: Literal[tuple(ARMS)] = "online_rl"
    arms: str
    seeds: str
