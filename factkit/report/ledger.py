"""The papers' claims held against our results: holds, fails, undecided, or why not.

A claim is a row of papers/<paper>/published/claims.csv: an inequality between two arms
in a metric, measured in one setting. `check` computes its difference, interval
(run/statistics.py) and verdict; `verdicts` is a notebook's table of them.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from factkit.report import published
from factkit.run import arms, params, past_runs, runs, statistics
from factkit.run.past_runs import Result
from factkit.run.results import FILE
from factkit.run.statistics import Estimate, Items

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

    from factkit.run.params.stages import RunParams

# metrics that are counts and no fractions: differences are not in points
COUNTS = re.compile(
    r"(claims|claims_per_question|words|tokens|searches|seconds|length|turns)$"
)
# means over the answers given: silence on a badly answered request improves them
OF_ANSWERS = re.compile(r"(factual_precision|hallucination_rate|claim_precision)$")
PROSE = ("claim", "difference", "why")  # columns with room for words
RISK = 0.05  # of a verdict, both sides together
NOT_HERE = "not measurable here"

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


def claims(paper: str) -> list[Claim]:
    """The claims of a paper, from papers/<paper>/published/claims.csv."""
    return [Claim(**row) for row in published.read_rows(paper, "claims")]


def _by_setting(results: Results) -> Results:
    """Results by the settings of claims: those of the variants, or, where the main runs
    retrieve, `retrieval`, `retrieval-split1` …, with `closedbook` as the main one."""
    main = results.get("", ())
    if not any(r.get("params", {}).get("retriever") for r in main):
        return results
    others = {k: v for k, v in results.items() if k != "closedbook"}
    by_setting = {f"retrieval-{k}".removesuffix("-"): v for k, v in others.items()}
    return by_setting | {"": results.get("closedbook", ())}


def check(claimed: Sequence[Claim], results: Results) -> "pd.DataFrame":
    """One row per claim: the paper's number, ours with its interval, and the verdict.

    results: variant → results of training runs. Differences are in points of a rate, or
    in units of a count. `all together`: the verdict after Holm's correction for all
    claims at 95 %. `same answered`: the difference of a mean over answers on the
    requests that both arms answered, which silence can't improve. `three worlds`: the
    difference over fact worlds or splits, where these were run. `results`: "own" or
    "reference" of each arm, where they differ.
    """
    import pandas as pd

    results = _by_setting(results)
    verdicts = [judge(claim, results) for claim in claimed]
    p_values = [v.p for v in verdicts if v.p is not None]
    adjusted = iter(statistics.holm(p_values))
    rows = []
    for claim, v in zip(claimed, verdicts, strict=True):
        significant = v.p is None or next(adjusted) < RISK
        settings = dict.fromkeys(setting or "main" for setting, _, _ in claim.arms)
        rows.append(
            {
                "claim": claim.claim,
                "where": claim.where,
                "setting": " − ".join(settings),
                "paper": claim.paper,
                "difference": _name_difference(claim),
                "ours": _format(v.estimate),
                "seeds": v.estimate.seeds if v.estimate else 0,
                "items": v.estimate.items if v.estimate else 0,
                "same answered": _same_answered(claim, results),
                "verdict": v.word,
                "all together": v.word if significant else "undecided",
                "three worlds": _over_worlds(claim, results),
                "why": v.why,
                "results": _sources(claim, results),
            }
        )
    table = pd.DataFrame(rows)
    empty = {"same answered": "–", "results": ""}  # which some papers and runs have not
    return table.drop(columns=[c for c, text in empty.items() if all(table[c] == text)])


def judge(claim: Claim, results: Results, shared: bool = False) -> Verdict:
    """The verdict on one claim by the rule of `factkit.run.statistics`.

    shared: on the items that count in the metric for both arms alone, seed by seed.
    """
    unmeasured = Verdict(NOT_HERE if claim.not_here else "not run", why=claim.not_here)
    if not claim.metric:
        return unmeasured
    metrics = [metric for _, _, metric in claim.arms]
    one_policy = [arm in arms.untrained_arms() for _, arm, _ in claim.arms]
    sides = _sides(claim, results)
    if not all(sides):
        return unmeasured
    sides = _common_seeds(sides, one_policy)
    if not sides[0]:
        return Verdict("not run", why="no seed that both arms were trained with")
    for side, metric in zip(sides, metrics, strict=True):
        if any(metric not in r["metrics"] for r in side.values()):
            why = f"{metric} was not measured in these runs"
            return unmeasured if claim.not_here else Verdict("not run", why=why)
    estimate = _estimate(sides, metrics, shared=shared)
    n, fewest = estimate.items, statistics.FEWEST_ITEMS
    if 0 < n < fewest:
        why = f"only {n} items; {fewest} are needed"
        return Verdict("not measurable", estimate, why=why)
    if estimate.seeds < statistics.FEWEST_SEEDS and not all(one_policy):
        if estimate.seeds == 1:
            return Verdict("one seed", estimate)
        return Verdict("not measurable", estimate, why="only two seeds")
    if math.isnan(estimate.se):
        return Verdict("undecided", estimate, why="one policy without stored items")

    def p_above(bound: str) -> float:
        if not bound.endswith("%"):
            return estimate.p_above(float(bound))
        factor = 1 + float(bound.removesuffix("%")) / 100
        return _estimate(sides, metrics, factor, shared).p_above(0.0)

    p_met = [p_above(claim.least or "0")]  # one-sided, of each bound
    p_met += [1 - p_above(claim.most)] if claim.most else []
    p_holds, p_fails = max(p_met), min(1 - p for p in p_met)
    p = min(1.0, 2 * min(p_holds, p_fails))
    word = "holds" if p_holds < p_fails else "fails"
    why = "" if n else "over seeds alone: no items were stored"
    return Verdict(word if p < RISK else "undecided", estimate, p, why)


def _sides(claim: Claim, results: Results) -> list[Side]:
    return [
        {r["seed"]: r for r in results.get(setting, ()) if r["arm"] == arm}
        for setting, arm, _ in claim.arms
    ]


def _same_answered(claim: Claim, results: Results) -> str:
    """Difference and verdict on the requests that both arms answered; "–" if the metric
    is no mean over answers, or a run stored no items."""
    if not claim.less or not OF_ANSWERS.search(claim.metric):
        return "–"
    verdict = judge(claim, results, shared=True)
    if not verdict.estimate or not verdict.estimate.items:
        return "–"
    return f"{_format(verdict.estimate)}, {verdict.word}"


def _sources(claim: Claim, results: Results) -> str:
    """ "own" or "reference" of each arm; empty if all are own or one was not run."""
    sides = _sides(claim, results) if claim.metric else []
    shipped = [any(r.get("reference") for r in side.values()) for side in sides]
    if not any(shipped) or not all(sides):
        return ""
    return " − ".join(dict.fromkeys("reference" if s else "own" for s in shipped))


def _common_seeds(sides: list[Side], one_policy: list[bool]) -> list[Side]:
    """The sides with the seeds that both have; one policy stands for every seed."""
    trained = [set(s) for s, one in zip(sides, one_policy, strict=True) if not one]
    common = sorted(set.intersection(*trained)) if trained else [0]
    return [
        {seed: side[min(side)] if one else side[seed] for seed in common}
        for side, one in zip(sides, one_policy, strict=True)
    ]


def _estimate(
    sides: list[Side], metrics: list[str], factor: float = 1.0, shared: bool = False
) -> Estimate:
    """more − factor·less with its interval over seeds and items; without stored items
    over seeds. shared: on the items that both have."""
    unit = 1 if COUNTS.search(metrics[0]) else 100
    pairs = list(zip(sides, metrics, strict=True))
    cells = [
        {seed: _items(r, metric, unit) for seed, r in side.items()}
        for side, metric in pairs
    ]
    if all(cell for side in cells for cell in side.values()):
        if shared:
            cells = list(statistics.shared_items(*cells))
        less = cells[1] if len(cells) > 1 else {}
        return statistics.difference(cells[0], less, factor)
    means = [[unit * r["metrics"][name] for r in side.values()] for side, name in pairs]
    others = means[1] if len(means) > 1 else [0.0] * len(means[0])
    gains = [m - factor * n for m, n in zip(means[0], others, strict=True)]
    return statistics.over_seeds(gains)


def _items(result: Result, metric: str, unit: float) -> Items:
    """The items of a metric; empty where the run has not stored them."""
    path = Path(result.get("folder", "")) / FILE
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
def _read_table(path: Path, _changed: int) -> "pd.DataFrame | None":
    return runs.read_items(path.parent)


def _over_worlds(claim: Claim, results: Results) -> str:
    """The difference with its t interval over worlds or splits, each a mean of its
    seeds; empty with fewer than three."""
    settings = {setting for setting, _, _ in claim.arms}
    if not claim.metric or len(settings) > 1:
        return ""
    (setting,) = settings
    world_of = re.compile(rf"{setting and f'{setting}-'}(world|split)\d+")
    worlds = [setting, *filter(world_of.fullmatch, results)]
    if len(worlds) < statistics.FEWEST_SEEDS:
        return ""
    estimates = [judge(claim, {setting: results.get(w, ())}).estimate for w in worlds]
    gains = [estimate.value for estimate in estimates if estimate]
    if len(gains) < statistics.FEWEST_SEEDS:
        return ""
    return _format(statistics.over_seeds(gains))


def verdicts(paper: str, p: "RunParams") -> "Styler":
    """A paper's claims at the profile of `p`, in small print, no wider than a page;
    prints how many hold. Arms that were not run here have the reference results."""
    root = params.ROOT / p.output_dir
    table = check(claims(paper), past_runs.stored(paper, p.profile, root, beside=True))
    print(in_words(table.verdict), count_same_answered(table))
    small = "font-size: 80%; padding: 2px 5px; text-align: left"
    prose = ", ".join(f".col{table.columns.get_loc(c)}" for c in PROSE if c in table)
    styles = [
        {"selector": "th, td", "props": small},
        {"selector": prose, "props": "overflow-wrap: anywhere; min-width: 9em"},
    ]
    return table.style.hide(axis="index").set_table_styles(styles)


def same_answered(
    paper: str, results: Sequence[Result], metric: str
) -> "tuple[pd.DataFrame, dict[str, float]]":
    """The change in a mean over answers by training, and the part that is not silence.

    A policy that stops answering requests that it answered badly improves every mean
    over answers. So each arm is compared with its start on all answers, and on the
    requests that both answered with the same seed.

    results: of one variant. metric: factual_precision, hallucination_rate or
    claim_precision. Returns a table with one row per trained arm (points, 95 %
    intervals; per cent of the requests answered), and the changes on the requests that
    both answered as metrics, `<arm>_same_answered_<metric>`, fractions.
    """
    import pandas as pd

    table = arms.find_papers()[paper].arms
    untrained = next(name for name, arm in table.items() if not arm.algorithm)
    answered = {
        name: [r["metrics"]["response_rate"] for r in results if r["arm"] == name]
        for name in table
    }
    rows, metrics = {}, {}
    for name, arm in table.items():
        start = arm.start or untrained
        claim = Claim("", "", metric=metric, more=name, less=start)
        change, same = (judge(claim, {"": results}, shared=s) for s in (False, True))
        if not arm.algorithm or not same.estimate or not same.estimate.items:
            continue
        source = _sources(claim, {"": results})
        label = f"{name} ({source})" if source else name
        metrics[f"{label}_same_answered_{metric}"] = same.estimate.value / 100
        rows[label] = {
            "start": start,
            "change, all answers": _format(change.estimate),
            "change, same answered": _format(same.estimate),
            "answered before": f"{100 * fmean(answered[start]):.0f}",
            "answered after": f"{100 * fmean(answered[name]):.0f}",
        }
    return pd.DataFrame(rows).T.rename_axis("arm"), metrics


def by_chance(verdicts: Sequence[str]) -> float:
    """How many of the claims tested would hold by chance if no arm differed."""
    tested = sum(word in ("holds", "fails", "undecided") for word in verdicts)
    return tested * RISK / 2


def in_words(verdicts: Sequence[str]) -> str:
    """The verdicts counted, with how many would hold by chance, in a sentence."""
    counts = Counter(verdicts)
    several = ", ".join(f"{n} {word}" for word, n in counts.most_common())
    return f"{several}. If no arm differed, {by_chance(verdicts):.1f} would hold."


def count_same_answered(table: "pd.DataFrame") -> str:
    """How many claims on a mean over answers still hold on the requests that both arms
    answered, in a sentence; empty if none holds."""
    if "same answered" not in table:
        return ""
    holding = table[(table["verdict"] == "holds") & (table["same answered"] != "–")]
    if holding.empty:
        return ""
    number = holding["same answered"].str.endswith(", holds").sum()
    return (
        f"Of {len(holding)} claims that hold on a mean over answers, {number} hold on "
        "the requests that both arms answered."
    )


def _name_difference(claim: Claim) -> str:
    if not claim.less:
        return f"{claim.metric}: {claim.more}" if claim.metric else ""
    if claim.less_metric and claim.less_metric != claim.metric:
        return f"{claim.more} {claim.metric} − {claim.less} {claim.less_metric}"
    return f"{claim.metric}: {claim.more} − {claim.less}"


def _format(estimate: Estimate | None) -> str:
    """The difference with the half-width of its interval, if it has one."""
    if estimate is None:
        return "–"
    few = 0 < estimate.items < statistics.FEWEST_ITEMS
    half = estimate.half_width
    if few or math.isnan(half) or estimate.seeds == 2:
        return f"{estimate.value:+.1f}"
    return f"{estimate.value:+.1f} ± {half:.1f}"
