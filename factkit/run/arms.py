"""What an arm is. Each paper has its own table: factkit/papers/<paper>/arms.py.

Parameters, notebooks, sweeps, ledger and figures read it; an arm is defined there
once.
"""

import functools
import pkgutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from factkit.run.params.stages import RunParams

PAPERS = ("truthrl", "rar", "reason", "rlfh", "veri")
SETS = (*PAPERS, "compare")  # of arms: the papers', and their rewards on one policy


@dataclass(frozen=True)
class Arm:
    """One thing that a paper compares: a training, or the policy as it is.

    what: in a line. reads: the parameter class with all that a run of it depends on.
    algorithm: SFT, DPO, GRPO or PPO; empty for a policy that is not trained, which is
    the same whatever the seed. start: the arm whose policy it starts from; empty for
    the untrained one. changes: the parameters that make the arm what it is. main:
    `reproduce` runs it.
    """

    what: str
    reads: "type[RunParams]"
    algorithm: str = ""
    start: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    main: bool = False


def table(paper: str) -> dict[str, Arm]:
    """Name → arm of a paper, in the order of its tables."""
    return pkgutil.resolve_name(f"factkit.papers.{paper}.arms:ARMS")


def page(paper: str) -> "pd.DataFrame":
    """The arms of a paper as a table to look at, a row each."""
    import pandas as pd

    from factkit.run import params

    def start(arm: Arm) -> str:
        if not arm.start:
            return "the policy"
        may_not = "cold_start" in params.class_of(paper).model_fields
        return arm.start + " (the policy, without cold_start)" * may_not

    columns = ("what", "algorithm", "starts from")
    rows = {
        name: (arm.what, arm.algorithm or "none", start(arm))
        for name, arm in table(paper).items()
    }
    return pd.DataFrame.from_dict(rows, "index", columns=columns).rename_axis("arm")


def main(paper: str) -> list[str]:
    """The arms of `reproduce`: those that the paper's first figures need."""
    return [name for name, arm in table(paper).items() if arm.main]


@functools.cache
def untrained() -> set[str]:
    """The arms of all papers that are one policy, whatever the seed."""
    tables = map(table, PAPERS)
    return {n for arms in tables for n, arm in arms.items() if not arm.algorithm}
