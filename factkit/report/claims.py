"""The verdict on a paper's claim: an inequality between two arms in one metric.

`judge` computes the difference over items and seeds, its interval
(run/statistics.py) and whether the claim holds. `report.ledger` makes tables of it.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from factkit.report import published
from factkit.run import arms, runs, statistics
from factkit.run.past_runs import Result
from factkit.run.results import FILE
from factkit.run.statistics import Estimate, Items

# metrics that are counts and no fractions: differences are not in points
COUNTS = re.compile(
    r"(claims|claims_per_question|words|tokens|searches|seconds|length|turns)$"
)
RISK = 0.05  # of a verdict, both sides together
NOT_HERE = "not measurable here"
ONE_SEED = "one seed"

Results = Mapping[str, Sequence[Result]]  # variant → results of training runs
Side = dict[int, Result]  # seed → result of one arm of a claim


@dataclass(frozen=True)
class Claim:
    """`metric` of arm `more` is above that of arm `less`, the paper says in `where`.

    paper: its own number for the difference. setting: the variant in which both were
    measured; an arm may name its own as `arm@variant`. Without `less` the claim is on
    the sign of `more`'s metric. less_metric: the other arm's, where not the same.
    least, most: bounds of the difference in points (of counts: as they are), or as
    "-10%" of `less`'s value; by default above 0. not_here: why it can't be measured at
    our scale.
    """

    claim: str
    where: str
    paper: str = ""
    setting: str = ""
    metric: str = ""
    more: str = ""
    less: str = ""
    less_metric: str = ""
    least: str = ""
    most: str = ""
    not_here: str = ""

    @property
    def arms(self) -> list[tuple[str, str, str]]:
        """(setting, arm, metric) of `more`, and of `less` if there is one."""
        sides = [(self.more, self.metric)]
        sides += [(self.less, self.less_metric or self.metric)] if self.less else []
        split = [(*arm.partition("@")[::2], metric) for arm, metric in sides]
        return [(own or self.setting, arm, metric) for arm, own, metric in split]


@dataclass(frozen=True)
class Verdict:
    """What a claim came to. p: two-sided, None where nothing was tested.

    word: holds | fails | undecided | one seed | not measurable | not run, or
    "not measurable here"; why: the reason where it is none of the first three.
    """

    word: str
    estimate: Estimate | None = None
    p: float | None = None
    why: str = ""


def read_claims(paper: str) -> list[Claim]:
    """The claims of a paper, from papers/<paper>/published/claims.csv."""
    return [Claim(**row) for row in published.read_rows(paper, "claims")]


def judge(claim: Claim, results: Results, shared: bool = False) -> Verdict:
    """The verdict on one claim by the rule of `factkit.run.statistics`.

    Arms of two settings are compared on the test items that both have. shared: on the
    items that count in the metric for both arms alone, seed by seed.
    """
    unmeasured = Verdict(NOT_HERE if claim.not_here else "not run", why=claim.not_here)
    if not claim.metric:
        return unmeasured
    metrics = [metric for _, _, metric in claim.arms]
    one_policy = [arm in arms.untrained_arms() for _, arm, _ in claim.arms]
    sides = find_sides(claim, results)
    if not all(sides):
        return unmeasured
    sides = _common_seeds(sides, one_policy)
    if not sides[0]:
        return Verdict("not run", why="no seed that both arms were trained with")
    for side, metric in zip(sides, metrics, strict=True):
        if any(metric not in r["metrics"] for r in side.values()):
            why = f"{metric} was not measured in these runs"
            return unmeasured if claim.not_here else Verdict("not run", why=why)
    means, cells = _read_sides(sides, metrics)
    if shared and all(cells):
        cells = list(statistics.shared_items(*cells))
    elif len({setting for setting, _, _ in claim.arms}) > 1:
        cells = _common_population(sides, cells)
    estimate = _estimate(means, cells)
    if why := _why_untested(sides, estimate, all(one_policy)):
        word = "one seed" if why == ONE_SEED else "not measurable"
        return Verdict(word, estimate, why="" if why == ONE_SEED else why)

    def p_above(bound: str) -> float:
        if not bound.endswith("%"):
            return estimate.p_above(float(bound))
        factor = 1 + float(bound.removesuffix("%")) / 100
        return _estimate(means, cells, factor).p_above(0.0)

    word, p = decide(claim, p_above)
    return Verdict(word, estimate, p, _describe(claim, sides, cells))


def decide(claim: Claim, p_above: Callable[[str], float]) -> tuple[str, float]:
    """Whether a claim holds, fails or is undecided, and the two-sided p.

    p_above: bound → one-sided p against "the difference is at most the bound".
    """
    p_met = [p_above(claim.least or "0")]
    p_met += [1 - p_above(claim.most)] if claim.most else []
    p_holds, p_fails = max(p_met), min(1 - p for p in p_met)
    p = min(1.0, 2 * min(p_holds, p_fails))
    word = "holds" if p_holds < p_fails else "fails"
    return word if p < RISK else "undecided", p


def find_sides(claim: Claim, results: Results) -> list[Side]:
    """The results of each arm of a claim, by seed."""
    return [
        {r["seed"]: r for r in results.get(setting, ()) if r["arm"] == arm}
        for setting, arm, _ in claim.arms
    ]


def _why_untested(sides: list[Side], estimate: Estimate, untrained: bool) -> str:
    """Why a difference can't be tested; "" if it can."""
    n, fewest = estimate.items, statistics.FEWEST_ITEMS
    if 0 < n < fewest:
        return f"only {n} items; {fewest} are needed"
    if estimate.seeds < statistics.FEWEST_SEEDS and not untrained:
        return ONE_SEED if estimate.seeds == 1 else "only two seeds"
    if any(_table(r) is None for side in sides for r in side.values()):
        return "no items were stored; seeds alone say nothing of other questions"
    if math.isnan(estimate.value):
        return "the arms have no test item in common"
    if math.isnan(estimate.se):
        return "one policy, and a metric without items"
    if estimate.se == 0:
        return "all items and seeds have the same difference: there is no variance"
    return ""


def _describe(claim: Claim, sides: list[Side], cells: list[dict[int, Items]]) -> str:
    """What a reader of a verdict must know: a trivial opponent, an interval over seeds
    alone."""
    notes = []
    for side, (_, arm, metric) in zip(sides[1:], claim.arms[1:], strict=True):
        scores = [r["metrics"][metric] for r in side.values()]
        if arm in arms.untrained_arms() and not any(scores):
            notes.append(f"the untrained {arm} scores 0")
    if not all(cells):
        notes.append("over seeds alone: a value of a training curve has no items")
    return "; ".join(notes)


def _common_seeds(sides: list[Side], one_policy: list[bool]) -> list[Side]:
    """The sides with the seeds that both have; one policy stands for every seed."""
    trained = [set(s) for s, one in zip(sides, one_policy, strict=True) if not one]
    common = sorted(set.intersection(*trained)) if trained else [0]
    return [
        {seed: side[min(side)] if one else side[seed] for seed in common}
        for side, one in zip(sides, one_policy, strict=True)
    ]


def _read_sides(
    sides: list[Side], metrics: list[str]
) -> tuple[list[list[float]], list[dict[int, Items]]]:
    """The values of each side's metric, one per seed, and its items by seed; no items
    at all unless every run stored them. In points of a rate."""
    unit = 1 if COUNTS.search(metrics[0]) else 100
    pairs = list(zip(sides, metrics, strict=True))
    means = [[unit * r["metrics"][name] for r in side.values()] for side, name in pairs]
    cells = [
        {seed: _items(r, metric, unit) for seed, r in side.items()}
        for side, metric in pairs
    ]
    complete = all(items for side in cells for items in side.values())
    return means, cells if complete else [{} for _ in cells]


def _common_population(
    sides: list[Side], cells: list[dict[int, Items]]
) -> list[dict[int, Items]]:
    """The items of test questions that all runs have."""
    tables = [_table(r) for side in sides for r in side.values()]
    ids = set.intersection(*(set(t.index) if t is not None else set() for t in tables))
    return [
        {seed: {i: items[i] for i in items if i in ids} for seed, items in side.items()}
        for side in cells
    ]


def _estimate(
    means: list[list[float]], cells: list[dict[int, Items]], factor: float = 1.0
) -> Estimate:
    """more − factor·less with its interval over seeds and items; without items over
    seeds."""
    if all(cells):
        if not all(items for side in cells for items in side.values()):
            return Estimate(math.nan, math.nan, 0, len(cells[0]), 0)
        return statistics.difference(
            cells[0], cells[1] if len(cells) > 1 else {}, factor
        )
    others = means[1] if len(means) > 1 else [0.0] * len(means[0])
    gains = [m - factor * n for m, n in zip(means[0], others, strict=True)]
    return statistics.over_seeds(gains)


def _items_path(result: Result) -> Path:
    return Path(result.get("folder", "")) / FILE


def _table(result: Result) -> pd.DataFrame | None:
    path = _items_path(result)
    return _read_table(path, path.stat().st_mtime_ns) if path.is_file() else None


def _items(result: Result, metric: str, unit: float) -> Items:
    """The items of a metric; empty where the run has not stored them."""
    path = _items_path(result)
    if not path.is_file():
        return {}
    changed = path.stat().st_mtime_ns
    return _read_values(path, changed, metric, result.get("prefix", ""), unit)


@functools.lru_cache(maxsize=5000)  # hundreds of claims read the same values
def _read_values(
    path: Path, changed: int, metric: str, prefix: str, unit: float
) -> Items:
    table = _read_table(path, changed)
    if table is None or prefix + metric not in table:
        return {}
    values = runs.item_values(table, metric, prefix)
    return {item: (unit * value, weight) for item, (value, weight) in values.items()}


@functools.lru_cache(maxsize=1000)
def _read_table(path: Path, _changed: int) -> pd.DataFrame | None:
    return runs.read_items(path.parent)
