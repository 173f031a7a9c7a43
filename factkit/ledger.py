"""The papers' claims held against our results: holds, fails, undecided, or why not.

A claim is a row of factkit/published/<paper>_claims.csv: an inequality between two arms
in a metric, measured in one setting. `check` gives each its difference, its interval
(factkit/statistics.py) and its verdict; `page` lays the profiles side by side. In a
notebook:

    results = ledger.stored("rar", P.profile, params.ROOT / P.output_dir)
    ledger.check(ledger.claims("rar"), results)
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import arms, runs, statistics, stored_runs
from factkit.statistics import Estimate, Items

if TYPE_CHECKING:
    import pandas as pd

# metrics that are counts and no fractions: differences are not in points
COUNTS = re.compile(
    r"(claims|claims_per_question|words|tokens|searches|seconds|length|turns)$"
)
RISK = 0.05  # of a verdict, both sides together
NOT_HERE = "not measurable here"
WAITS = "waits for the next reference run"

Result = Mapping[str, Any]


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
    """What is found of a claim. p: two-sided, None where nothing was tested.

    word: holds | fails | undecided | one seed | not measurable | not run, or
    "not measurable here"; why: the reason where it is none of the first three.
    """

    word: str
    estimate: Estimate | None = None
    p: float | None = None
    why: str = ""


def claims(paper: str) -> list[Claim]:
    """The claims of a paper, from factkit/published/<paper>_claims.csv."""
    path = files("factkit") / "published" / f"{paper}_claims.csv"
    with path.open(encoding="utf-8") as rows:
        return [Claim(**row) for row in csv.DictReader(rows)]


def stored(paper: str, profile: str, root: Path) -> dict[str, list[Result]]:
    """Variant → results of a paper's training runs at a profile; "" is the main one.

    root: the folder of the runs. Of a variant without any below it, the reference
    results.
    """
    found: dict[str, list[Result]] = {}
    for base in (runs.REFERENCE, root):
        for folder in sorted(base.glob(f"{profile}*")):
            name, _, setting = folder.name.partition("-")
            if name != profile:
                continue
            results = [
                r
                for r in runs.all_results(*folder.glob(f"[1-5]2_{paper}_train"))
                if r["paper"] == paper
            ]
            if results:
                found[setting] = stored_runs.with_iterations(stored_runs.apart(results))
    return found


def check(
    claimed: Sequence[Claim], results: Mapping[str, Sequence[Result]]
) -> "pd.DataFrame":
    """A row a claim: the paper's number, ours with its interval, and the verdict.

    results: variant → results of training runs. `verdict` is each claim's own;
    `all together` is what stays of it by Holm's method, when all are to be right with
    95 %. `three worlds` has the difference over other fact worlds or splits, where
    these were run. Differences in points of a rate, or in what a count counts.
    """
    import pandas as pd

    results = _by_setting(results)
    verdicts = [judge(claim, results) for claim in claimed]
    together = _adjusted(verdicts)
    rows = [
        {
            "claim": claim.claim,
            "where": claim.where,
            "setting": " − ".join(dict.fromkeys(s or "main" for s, _, _ in claim.arms)),
            "paper": claim.paper,
            "difference": _difference_of(claim),
            "ours": _shown(found.estimate),
            "seeds": found.estimate.seeds if found.estimate else 0,
            "items": found.estimate.items if found.estimate else 0,
            "verdict": found.word,
            "all together": word,
            "three worlds": _over_worlds(claim, results),
            "why": found.why,
        }
        for claim, found, word in zip(claimed, verdicts, together, strict=True)
    ]
    return pd.DataFrame(rows)


def _by_setting(results: Mapping[str, Sequence[Result]]) -> Mapping[str, Any]:
    """The results by the settings that claims name, which are those of the variants.

    Where a profile's main runs retrieve, theirs is `retrieval`, the main setting is
    variant `closedbook`, and worlds and splits are `retrieval-split1` and so on.
    """
    main = results.get("", ())
    if not any(r.get("params", {}).get("retriever") for r in main):
        return results
    others = {k: v for k, v in results.items() if k != "closedbook"}
    by_setting = {f"retrieval-{k}".removesuffix("-"): v for k, v in others.items()}
    return by_setting | {"": results.get("closedbook", ())}


def judge(claim: Claim, results: Mapping[str, Sequence[Result]]) -> Verdict:
    """The verdict on one claim by the rule of `factkit.statistics`."""
    unmeasured = Verdict("not run")
    if claim.not_here:
        unmeasured = Verdict(NOT_HERE, why=claim.not_here)
    if not claim.metric:
        return unmeasured
    sides = [_by_seed(arm, results.get(setting, ())) for setting, arm, _ in claim.arms]
    if not all(sides):
        return unmeasured
    one_policy = [arm in arms.untrained() for _, arm, _ in claim.arms]
    sides = _common_seeds(sides, one_policy)
    if not sides[0]:
        return Verdict("not run", why="no seed that both arms were trained with")
    metrics = [metric for _, _, metric in claim.arms]
    for side, metric in zip(sides, metrics, strict=True):
        if any(metric not in r["metrics"] for r in side.values()):
            if claim.not_here:
                return unmeasured
            if _stored_items(side):
                return Verdict(
                    "not run", why=f"{metric} was not measured in these runs"
                )
            return Verdict("not run", why=f"{metric} {WAITS}")
    estimate = _estimate(sides, metrics)
    why = ""
    if not estimate.items:
        kept = all(_stored_items(side) for side in sides)
        why = "over seeds alone: " + (
            "no single item has this metric" if kept else f"what is by items {WAITS}"
        )
    if estimate.items and estimate.items < statistics.FEWEST_ITEMS:
        n = estimate.items
        why = f"only {n} items; {statistics.FEWEST_ITEMS} are needed"
        return Verdict("not measurable", estimate, why=why)
    if not all(one_policy):
        if estimate.seeds == 1:
            return Verdict("one seed", estimate)
        if estimate.seeds < statistics.FEWEST_SEEDS:
            return Verdict("not measurable", estimate, why="only two seeds")
    if estimate.se != estimate.se:  # NaN: one policy, whose items were not stored
        why = f"one policy, whose measure by items {WAITS}"
        return Verdict("undecided", estimate, why=why)
    return _decided(claim, sides, metrics, estimate, why)


def _decided(
    claim: Claim, sides: list, metrics: list[str], estimate: Estimate, why: str
) -> Verdict:
    """holds | fails | undecided by the claim's bounds."""
    above, below = [], []  # one-sided p values of lying on the claim's side, and not
    for bound, sign in ((claim.least or "0", 1), (claim.most, -1)):
        if not bound:
            continue
        relative = bound.endswith("%")
        number = float(bound.removesuffix("%"))
        slack = (
            _estimate(sides, metrics, 1 + number / 100)
            if relative and len(sides) > 1
            else estimate
        )
        p = slack.p_above(0.0 if relative else number)
        above.append(p if sign > 0 else 1 - p)
        below.append(1 - p if sign > 0 else p)
    p_holds, p_fails = max(above), min(below)
    p = min(1.0, 2 * min(p_holds, p_fails))
    word = "undecided"
    if p < RISK:
        word = "holds" if p_holds < p_fails else "fails"
    return Verdict(word, estimate, p, why)


def by_chance(verdicts: Sequence[str]) -> float:
    """How many of the claims tested would hold by chance if no arm differed."""
    tested = sum(word in ("holds", "fails", "undecided") for word in verdicts)
    return tested * RISK / 2


def in_words(verdicts: Sequence[str]) -> str:
    """The verdicts counted, with how many would hold by chance, in a sentence."""
    counts = Counter(verdicts)
    several = ", ".join(f"{n} {word}" for word, n in counts.most_common())
    return f"{several}. If no arm differed, {by_chance(verdicts):.1f} would hold."


def page(paper: str, root: Path, profiles: Sequence[str] = ()) -> "pd.DataFrame":
    """The whole ledger of a paper: ours and the verdict at each profile with runs.

    Columns: claim, where, setting, paper, difference; then by profile ours, verdict,
    all together, three worlds and why.
    """
    import pandas as pd

    parts = {}
    for profile in profiles or ("tiny", "laptop", "h100_lora", "h100_full"):
        if found := stored(paper, profile, root):
            parts[profile] = check(claims(paper), found)
    if not parts:
        return pd.DataFrame()
    shared = ["claim", "where", "setting", "paper", "difference"]
    own = ["ours", "seeds", "items", "verdict", "all together", "three worlds", "why"]
    first = next(iter(parts.values()))[shared]
    return pd.concat(
        [first, *(p[own] for p in parts.values())], axis=1, keys=("", *parts)
    )


# ---- what was measured


def _by_seed(arm: str, results: Sequence[Result]) -> dict[int, Result]:
    return {r["seed"]: r for r in results if r["arm"] == arm}


def _common_seeds(
    sides: list[dict[int, Result]], one_policy: list[bool]
) -> list[dict[int, Result]]:
    """The sides with the seeds that both have; one policy stands for every seed."""
    firsts = [min(side) for side in sides]
    if all(one_policy):
        return [{0: side[first]} for side, first in zip(sides, firsts, strict=True)]
    common = set.intersection(
        *(set(s) for s, one in zip(sides, one_policy, strict=True) if not one)
    )
    return [
        {seed: side[first] if one else side[seed] for seed in sorted(common)}
        for side, one, first in zip(sides, one_policy, firsts, strict=True)
    ]


def _stored_items(side: dict[int, Result]) -> bool:
    """Whether all runs of an arm have stored items."""
    folders = [r.get("folder") for r in side.values()]
    return all(
        folder and stored_runs.read_items(folder) is not None for folder in folders
    )


def _estimate(
    sides: list[dict[int, Result]], metrics: list[str], factor: float = 1.0
) -> Estimate:
    """more − factor·less with its interval: over seeds and items, else seeds alone."""
    unit = 1 if COUNTS.search(metrics[0]) else 100
    cells = [
        {seed: _items(r, metric, unit) for seed, r in side.items()}
        for side, metric in zip(sides, metrics, strict=True)
    ]
    if all(cell for side in cells for cell in side.values()):
        return statistics.difference(
            cells[0], cells[1] if len(cells) > 1 else {}, factor
        )
    values = [
        [unit * side[seed]["metrics"][metric] for seed in sides[0]]
        for side, metric in zip(sides, metrics, strict=True)
    ]
    less = values[1] if len(values) > 1 else [0.0] * len(values[0])
    return statistics.over_seeds(
        [m - factor * n for m, n in zip(values[0], less, strict=True)]
    )


def _items(result: Result, metric: str, unit: float) -> Items:
    """The items of a metric; empty where the run has not stored them."""
    table = stored_runs.read_items(result["folder"]) if "folder" in result else None
    prefix = result.get("prefix", "")
    if table is None or prefix + metric not in table:
        return {}
    values = stored_runs.item_values(table, metric, prefix)
    return {item: (unit * value, weight) for item, (value, weight) in values.items()}


def _over_worlds(claim: Claim, results: Mapping[str, Sequence[Result]]) -> str:
    """The difference over the main world or split and the others, each a mean of its
    seeds, with the t interval over worlds; empty with fewer than three."""
    settings = {setting for setting, _, _ in claim.arms}
    if not claim.metric or len(settings) > 1:
        return ""
    (setting,) = settings
    world_of = re.compile(rf"{setting and f'{setting}-'}(world|split)\d+")
    gains = []
    for world in (setting, *filter(world_of.fullmatch, results)):
        found = judge(claim, {setting: results.get(world, ())})
        if found.estimate:
            gains.append(found.estimate.value)
    if len(gains) < statistics.FEWEST_SEEDS:
        return ""
    return _shown(statistics.over_seeds(gains))


# ---- words


def _adjusted(verdicts: Sequence[Verdict]) -> list[str]:
    """What stays of each verdict if all tested are to be right together."""
    tested = [v for v in verdicts if v.p is not None]
    adjusted = iter(statistics.holm([v.p for v in tested]))
    return [
        v.word if v.p is None or next(adjusted) < RISK else "undecided"
        for v in verdicts
    ]


def _difference_of(claim: Claim) -> str:
    """The metric and the arms of a claim, in a few words."""
    if not claim.metric:
        return ""
    (_, _, first), *rest = claim.arms
    if not rest:
        return f"{first}: {claim.more}"
    if rest[0][2] != first:
        return f"{claim.more} {first} − {claim.less} {rest[0][2]}"
    return f"{first}: {claim.more} − {claim.less}"


def _shown(estimate: Estimate | None) -> str:
    """The difference with the half-width of its interval, if it has one."""
    if estimate is None:
        return "–"
    few = 0 < estimate.items < statistics.FEWEST_ITEMS
    half = estimate.half_width
    if few or half != half or estimate.seeds == 2:
        return f"{estimate.value:+.1f}"
    return f"{estimate.value:+.1f} ± {half:.1f}"
