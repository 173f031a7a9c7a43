"""Papers and their arms, found in factkit/papers/: a folder whose arms.py has a PAPER.

What differs between papers is said there once. Parameters, notebooks, sweeps, reports,
figures and the bill read it from here, and name no paper.
"""

import functools
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from factkit.run.needs import Needs
from factkit.run.paths import ROOT

if TYPE_CHECKING:
    import pandas as pd

    from factkit.run.params.stages import RunParams, SweepParams


@dataclass(frozen=True)
class Arm:
    """One thing that a paper compares: a training, or the policy as it is.

    what: description in one line. reads: the parameter class with all that a run of it
    depends on. algorithm: SFT, DPO, GRPO or PPO; empty for a policy that is not
    trained, which is the same whatever the seed. start: the arm whose policy it starts
    from, or the parameter that names it; empty for the untrained policy. changes:
    values of the parameters that make the arm what it is; computed: a function of the
    parameters with more such values. main: `reproduce` runs it.

    samples: the parameter with the number of responses drawn per training prompt before
    SFT or DPO; empty for none. iterations: the parameter with the number of times that
    it trains. judge_calls: kind of call (`gpu.bill.CALLS`, or the paper's `Needs`) →
    calls per response that training samples, where a model judges. reasoning: it
    rewards the reasoning, which responses must have. learned_reward: a reward model is
    trained first. token_rewards: rewards are given to tokens, by the token-level
    trainer. verl: verl can train it, if its algorithm is RL.
    """

    what: str
    reads: "type[RunParams]"
    algorithm: str = ""
    start: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    computed: Callable[[Any], dict[str, Any]] | None = None
    main: bool = False
    samples: str = ""
    iterations: str = ""
    judge_calls: Mapping[str, float] = field(default_factory=dict)
    reasoning: bool = False
    learned_reward: bool = False
    token_rewards: bool = False
    verl: bool = True

    @property
    def by_rl(self) -> bool:
        """Whether the algorithm is RL."""
        return self.algorithm in ("GRPO", "PPO")

    def find_start(self, p: Any) -> str:
        """The arm whose policy it starts from with the parameters `p`; empty for the
        untrained policy, from which all start without `p.cold_start`."""
        if not self.start or not getattr(p, "cold_start", True):
            return ""
        return getattr(p, self.start, self.start)

    def configure(self, p: Any) -> Any:
        """The parameters `p` with what the arm changes."""
        computed = self.computed(p) if self.computed else {}
        return p.model_copy(update={**self.changes, **computed})

    def changes_policy(self, p: Any) -> bool:
        """Whether its policy is not the untrained one that `p` names."""
        return bool(self.algorithm) or self.configure(p) != p


@dataclass(frozen=True)
class Paper:
    """A paper as its folder's arms.py describes it.

    number: the first digit of its notebooks. parameters: the class of all parameters of
    its notebooks. arms: name → arm, in the order of the paper's tables; the untrained
    policy first. shown_metrics: columns of the results at a glance. needs: what its
    runs ask of GPUs, judges and disks. main_setting: column of the published tables →
    values of the paper's main setting. mean_over_answers: the main metric, if it is a
    mean over the answers given, which silence on bad answers improves.
    rewards_by_hand: the rewards notebook needs no policy.
    """

    number: int
    title: str
    parameters: "type[SweepParams]"
    arms: Mapping[str, Arm]
    shown_metrics: tuple[str, ...]
    needs: type[Needs] = Needs
    main_setting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mean_over_answers: str = ""
    rewards_by_hand: bool = False

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.parameters.__module__.split(".")[-2]

    @property
    def notebooks(self) -> dict[str, str]:
        """Stage (data, rewards, train, ablations, figures) → its notebook's stem; the
        first one writes the data, whatever its name."""
        paths = sorted(ROOT.glob(f"notebooks/{self.number}?_{self.name}_*.ipynb"))
        stems = [path.stem for path in paths]
        return {"data" if s[1] == "0" else s.rpartition("_")[2]: s for s in stems}

    @property
    def main_arms(self) -> list[str]:
        """The arms of `reproduce`: those that the paper's first figures need."""
        return [name for name, arm in self.arms.items() if arm.main]

    def find_module(self, name: str) -> ModuleType | None:
        """The module `name` of its folder, or None if there is none."""
        module = f"factkit.papers.{self.name}.{name}"
        found = importlib.util.find_spec(module)
        return importlib.import_module(module) if found else None

    def describe_arms(self) -> "pd.DataFrame":
        """A table of the arms, one per row."""
        import pandas as pd

        keys = self.parameters.model_fields
        note = " (the policy, without cold_start)" if "cold_start" in keys else ""
        columns = ("what", "algorithm", "starts from")
        rows = {}
        for name, arm in self.arms.items():
            start = f"what {arm.start} names" if arm.start in keys else arm.start
            start = start + note if start else "the policy"
            rows[name] = (arm.what, arm.algorithm or "none", start)
        table = pd.DataFrame.from_dict(rows, "index", columns=columns)
        return table.rename_axis("arm")


@functools.cache
def find_papers() -> dict[str, Paper]:
    """Name → paper, ordered by number."""
    package = importlib.import_module("factkit.papers")
    names = [folder.name for folder in pkgutil.iter_modules(package.__path__)]
    modules = [f"factkit.papers.{name}.arms" for name in names]
    papers = [
        importlib.import_module(m).PAPER for m in modules if importlib.util.find_spec(m)
    ]
    return {paper.name: paper for paper in sorted(papers, key=lambda p: p.number)}


def get_paper(p: Any) -> Paper:
    """The paper whose parameters `p` are."""
    return next(x for x in find_papers().values() if isinstance(p, x.parameters))


def list_arms(p: Any) -> list[Arm]:
    """The arms that `p.arms` names."""
    return [get_paper(p).arms[name] for name in p.arm_names]


@functools.cache
def untrained_arms() -> set[str]:
    """The arms of all papers that are one policy, whatever the seed."""
    tables = [paper.arms for paper in find_papers().values()]
    return {n for arms in tables for n, arm in arms.items() if not arm.algorithm}
