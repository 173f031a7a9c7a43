"""The papers' claims held against our results: holds, fails, undecided, or why not.

A claim is a row of papers/<paper>/published/claims.csv: an inequality between two arms
in a metric, measured in one setting. `check` computes its difference, interval
(run/statistics.py) and verdict; `verdicts` is a notebook's table of them.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pandas as pd
from pandas.io.formats.style import Styler

from factkit.answers import split_gain
from factkit.report.claims import (
    RISK,
    Claim,
    Results,
    decide,
    find_sides,
    judge,
    read_claims,
)
from factkit.report.figures import tables
from factkit.run import arms, params, past_runs, statistics
from factkit.run.params.stages import RunParams
from factkit.run.past_runs import Result
from factkit.run.statistics import Estimate

# means over the answers given: silence on a badly answered request improves them
OF_ANSWERS = re.compile(r"(factual_precision|hallucination_rate|claim_precision)$")
PRECISION, AT_1 = "factual_precision", "precision_at_1"
PROSE = ("claim", "difference", "why")  # columns with room for words


def _by_setting(results: Results) -> Results:
    """Results by the settings of claims: those of the variants, or, where the main runs
    retrieve, `retrieval`, `retrieval-split1` …, with `closedbook` as the main one."""
    main = results.get("", ())
    if not any(r.get("params", {}).get("retriever") for r in main):
        return results
    others = {k: v for k, v in results.items() if k != "closedbook"}
    by_setting = {f"retrieval-{k}".removesuffix("-"): v for k, v in others.items()}
    return by_setting | {"": results.get("closedbook", ())}


def check(claimed: Sequence[Claim], results: Results) -> pd.DataFrame:
    """One row per claim: the paper's number, ours with its interval, and the verdict.

    results: variant → results of training runs. Differences are in points of a rate, or
    in units of a count. `all together`: the verdict after Holm's correction for all
    claims at 95 %. `same answered`: the difference of a mean over answers on the
    requests that both arms answered, which silence can't improve. `three worlds`: the
    difference and verdict over fact worlds or splits, where these were run. `results`:
    "own" or "reference" of each arm, where they differ.
    """
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
    # columns that some papers and runs have not
    empty = {"same answered": "–", "three worlds": "", "results": ""}
    return table.drop(columns=[c for c, text in empty.items() if all(table[c] == text)])


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
    sides = find_sides(claim, results) if claim.metric else []
    shipped = [any(r.get("reference") for r in side.values()) for side in sides]
    if not any(shipped) or not all(sides):
        return ""
    return " − ".join(dict.fromkeys("reference" if s else "own" for s in shipped))


def _over_worlds(claim: Claim, results: Results) -> str:
    """The difference with its t interval over worlds or splits, each a mean of its
    seeds, and the verdict by it; empty with fewer than three. A bound in per cent has
    no verdict."""
    settings = {setting for setting, _, _ in claim.arms}
    if not claim.metric or len(settings) > 1:
        return ""
    (setting,) = settings
    worlds = [setting, *(v for v in results if params.is_world_of(v, setting))]
    if len(worlds) < statistics.FEWEST_SEEDS:
        return ""
    estimates = [judge(claim, {setting: results.get(w, ())}).estimate for w in worlds]
    gains = [estimate.value for estimate in estimates if estimate]
    if len(gains) < statistics.FEWEST_SEEDS:
        return ""
    over = statistics.over_seeds(gains)
    if "%" in f"{claim.least}{claim.most}" or over.se == 0:
        return _format(over)
    word, _ = decide(claim, lambda bound: over.p_above(float(bound)))
    return f"{_format(over)}, {word}"


def verdicts(paper: str, p: RunParams) -> Styler:
    """A paper's claims at the profile of `p`, in small print, no wider than a page;
    prints how many hold. Arms that were not run here have the reference results."""
    root = params.ROOT / p.output_dir
    table = check(
        read_claims(paper), past_runs.stored(paper, p.profile, root, beside=True)
    )
    print(in_words(table.verdict), count_checks(table))
    small = "font-size: 80%; padding: 2px 5px; text-align: left"
    prose = ", ".join(f".col{table.columns.get_loc(c)}" for c in PROSE if c in table)
    styles = [
        {"selector": "th, td", "props": small},
        {"selector": prose, "props": "overflow-wrap: anywhere; min-width: 9em"},
    ]
    return table.style.hide(axis="index").set_table_styles(styles)


def same_answered(paper: str, results: Sequence[Result], metric: str) -> pd.DataFrame:
    """The change in a mean over answers by training, in its two parts.

    A policy that stops answering requests that it answered badly improves every mean
    over answers. So each arm is compared with its start on all answers, and on the
    requests that both answered with the same seed; the rest of the change is by
    silence. `over first claims`: how much more precise its answers are there than the
    untrained policy's first claims. The untrained rules are compared with the untrained
    policy.

    results: of one variant. metric: factual_precision, hallucination_rate or
    claim_precision. One row per trained arm and rule: points, 95 % intervals; per cent
    of the requests answered.
    """
    table = arms.find_papers()[paper].arms
    untrained = next(name for name, arm in table.items() if not arm.algorithm)
    answered = {
        name: [r["metrics"]["response_rate"] for r in results if r["arm"] == name]
        for name in table
    }
    rows = {}
    for r in tables.rule_results(results):
        before, after = r["before"], r["metrics"]
        parts = split_gain(after, before, metric)
        rows[r["arm"]] = {
            "start": untrained,
            **{name: f"{100 * value:+z.1f}" for name, value in parts.items()},
            "answered before": f"{100 * before['response_rate']:.0f}",
            "answered after": f"{100 * after['response_rate']:.0f}",
        }
    for name, arm in table.items():
        start = arm.start or untrained
        claim = Claim("", "", metric=metric, more=name, less=start)
        change, same = (judge(claim, {"": results}, shared=s) for s in (False, True))
        if not arm.algorithm or not change.estimate:
            continue
        if not same.estimate or not same.estimate.items:
            continue
        source = _sources(claim, {"": results})
        by_silence = change.estimate.value - same.estimate.value
        first = replace(claim, less=untrained, metric=PRECISION, less_metric=AT_1)
        over = judge(first, {"": results}, shared=True).estimate
        row = {
            "start": start,
            "change": _format(change.estimate),
            "same answered": _format(same.estimate),
            "by silence": f"{by_silence:+z.1f}",
            "answered before": f"{100 * fmean(answered[start]):.0f}",
            "answered after": f"{100 * fmean(answered[name]):.0f}",
        }
        if over and over.items:
            row["over first claims"] = _format(over)
        rows[f"{name} ({source})" if source else name] = row
    return pd.DataFrame(rows).T.fillna("–").rename_axis("arm")


def by_chance(verdicts: Sequence[str]) -> float:
    """How many of the claims tested would hold by chance if no arm differed."""
    tested = sum(word in ("holds", "fails", "undecided") for word in verdicts)
    return tested * RISK / 2


def in_words(verdicts: Sequence[str]) -> str:
    """The verdicts counted, with how many would hold by chance, in a sentence."""
    counts = Counter(verdicts)
    several = ", ".join(f"{n} {word}" for word, n in counts.most_common())
    return f"{several}. If no arm differed, {by_chance(verdicts):.1f} would hold."


def count_checks(table: pd.DataFrame) -> str:
    """How many verdicts stay the same on the requests that both arms answered, and over
    three worlds, in sentences; empty where none was checked."""
    sentences = []
    if "same answered" in table:
        held = table[(table.verdict == "holds") & (table["same answered"] != "–")]
        if len(held):
            same = held["same answered"].str.endswith(", holds").sum()
            sentences.append(
                f"Of {len(held)} claims that hold on a mean over answers, {same} hold "
                "on the requests that both arms answered."
            )
    checked, same = over_worlds(table)
    if checked:
        sentences.append(
            f"Of {checked} claims that hold or fail and were measured in three worlds "
            f"or splits, {same} do so by the interval over these."
        )
    return " ".join(sentences)


def over_worlds(table: pd.DataFrame) -> tuple[int, int]:
    """How many decided claims were judged over three worlds, too, and how many with
    the same verdict."""
    if "three worlds" not in table:
        return 0, 0
    words = table["three worlds"].str.extract(r", (\w+)$")[0]
    decided = table.verdict.isin(("holds", "fails")) & words.notna()
    return int(decided.sum()), int((words == table.verdict)[decided].sum())


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
