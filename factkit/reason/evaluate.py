"""Precision, detail and relevance of a policy that reasons (Learning to Reason §4.1).

Claims are those of the answer; reasoning is not held against evidence.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from factkit.datasets.examples import Example
from factkit.evaluate import long_form
from factkit.reason import strategies
from factkit.statistics import means
from factkit.verify import judge
from factkit.verify.engine import facts_of
from factkit.verify.response import answers, parts
from factkit.verify.verifier import failed_share, judge_llm

if TYPE_CHECKING:
    import pandas as pd

    from factkit.reason.arms import ReasonParams
    from factkit.reason.rewards import Engine

# (ids, prompts, ours, theirs) → 1.0 ours preferred, 0.5 a tie, 0.0 theirs; None: failed
Compare = Callable[
    [Sequence[str], Sequence[str], Sequence[str], Sequence[str]], list[float | None]
]
# request id → metric → its value, absent where the response does not count
Items = dict[str, dict[str, float]]
DETAIL = "correct_claims_per_question"
# metrics that the claims compare (published/reason_claims.csv), stored for each request
CLAIMED = (
    *("factual_precision", "win_rate", "malformed", DETAIL),
    *("incorrect_claims_per_question", "reasoning_words", "answer_words"),
)


def compare(p: "ReasonParams", engine: "Engine") -> Compare:
    """Who decides win rates: a judge in both orders (§4.1: AlpacaEval's way), or, where
    there is none, the stand-in for relevance."""

    if p.verifier == "judge":
        llm = judge_llm(p, p.judge_model, p.judge_url)
        return lambda ids, *texts: judge.compare(llm, *texts)

    def by_relevance(ids, prompts, ours, theirs) -> list[float | None]:
        sides = (engine.relevance(ids, prompts, answers(s)) for s in (ours, theirs))
        return [(a > b) + 0.5 * (a == b) for a, b in zip(*sides, strict=True)]

    return by_relevance


def measure(
    examples: Sequence[Example],
    responses: Mapping[str, str],
    base: Mapping[str, str],
    engine: "Engine",
    decide: Compare,
    p: "ReasonParams",
    path: Path,
) -> tuple[dict[str, float], Items]:
    """Metrics of the responses (request id → text), and the items that they are means
    of; the responses' claims go to `path`.

    Those of `long_form.scores` (factual_precision F/T, detail F, which counts 0 of a
    refusal, as correct_claims_per_question …), win_rate over the base policy's
    responses, malformed (the share not of the form), and of the others the words of
    reasoning and answer (Fig 2). Each for every evaluation set, as
    `<set>_factual_precision` …, and their mean over the sets, whatever their sizes: the
    averages of Tables 1 and 2. Raises ValueError above 5 % of failed extractions,
    verifications or comparisons; the shares are in `…_failures`.
    """
    ids, prompts = [e.id for e in examples], [e.question for e in examples]
    texts = [responses[i] for i in ids]
    checked = long_form.evaluate(examples, texts, *engine.reader, path, p.test_chunks)
    wins = decide(ids, prompts, texts, [base[i] for i in ids])
    failed = failed_share(wins, "comparison_failures")
    failures = long_form.failures(checked) | {"comparison_failures": failed}
    terms = long_form.items(checked)
    by_set: dict[str, Items] = {}
    for e, text, win in zip(examples, texts, wins, strict=True):
        won = {} if win is None else {"win_rate": win}
        item = terms.get(e.id, {}) | won | _form(text)
        by_set.setdefault(e.meta["set"], {})[e.id] = item
    metrics, items = over_sets(by_set)
    set_metrics = {
        f"{name}_{metric}": value
        for name, rows in by_set.items()
        for metric, value in means(rows.values()).items()
    }
    return metrics | failures | set_metrics, items


def _form(text: str) -> dict[str, float]:
    """Whether a response is malformed, and if not the words of its two parts."""
    split = parts(text)
    if not split:
        return {"malformed": 1.0}
    return {
        "malformed": 0.0,
        "reasoning_words": float(len(split.reasoning.split())),
        "answer_words": float(len(split.answer.split())),
    }


def over_sets(by_set: Mapping[str, Items]) -> tuple[dict[str, float], Items]:
    """Metric → the mean over sets of each set's mean M, and each item's share in it.

    An item's share of its value x is M + w (x − M), where w = N / (K n): N items count
    in the metric, n of them in the item's set, one of K sets. So the shares' mean is M,
    and with sets of one size a share is the value itself.
    """
    set_means = {name: means(rows.values()) for name, rows in by_set.items()}
    metrics: dict[str, float] = {}
    shares: Items = {i: {} for rows in by_set.values() for i in rows}
    for metric in dict.fromkeys(name for row in set_means.values() for name in row):
        counted = {
            name: {i: row[metric] for i, row in rows.items() if metric in row}
            for name, rows in by_set.items()
            if metric in set_means[name]
        }
        mean = sum(set_means[name][metric] for name in counted) / len(counted)
        total = sum(len(values) for values in counted.values())
        metrics[metric] = mean
        for values in counted.values():
            weight = total / (len(counted) * len(values))
            for i, x in values.items():
                shares[i][metric] = mean + weight * (x - mean)
    return metrics, shares


def stored_items(items: Items) -> Items:
    """Of the items, the metrics that the paper's claims compare."""
    return {i: {k: row[k] for k in CLAIMED if k in row} for i, row in items.items()}


def intervals(items: Items, resamples: int) -> dict[str, tuple[float, float]]:
    """95 % percentile intervals of the metrics over resampled requests."""
    names = list(means(items.values()))
    nan = float("nan")
    table = np.array([[row.get(name, nan) for name in names] for row in items.values()])
    drawn = np.random.default_rng(0).integers(len(table), size=(resamples, len(table)))
    spans = {}
    for name, column in zip(names, table.T, strict=True):
        values = column[drawn]  # (resamples, requests)
        counted = values[~np.isnan(values).all(axis=1)]
        low, high = np.percentile(np.nanmean(counted, axis=1), [2.5, 97.5])
        spans[name] = float(low), float(high)
    return spans


# ---- what a claim on every set, or on the course of training, is measured by


def over_base(
    after: Mapping[str, float], before: Mapping[str, float], sets: Sequence[str]
) -> dict[str, float]:
    """Over the evaluation sets one by one (Table 1): the least gain in precision and in
    detail over the base policy, the least win rate, and the share of the sets with at
    least the base policy's detail."""
    gains = {
        metric: [
            after[f"{name}_{metric}"] - before[f"{name}_{metric}"]
            for name in sets
            if f"{name}_{metric}" in after and f"{name}_{metric}" in before
        ]
        for metric in ("factual_precision", DETAIL)
    }
    least = {f"least_gain_{k}": min(values) for k, values in gains.items() if values}
    kept = [gain >= 0 for gain in gains[DETAIL]]
    wins = [after[f"{name}_win_rate"] for name in sets if f"{name}_win_rate" in after]
    return least | {
        "least_win_rate": min(wins),
        "sets_with_detail_kept": sum(kept) / len(kept),
    }


def growth(curve: "pd.DataFrame") -> dict[str, float]:
    """Words of reasoning and answer in the rollouts of the first, the middle and the
    last tenth of the updates, and what they grow by until the middle and after it
    (Fig 2: a sharp rise early, then a plateau). curve: metrics.csv of an RL run."""
    metrics = {}
    for name in ("reasoning_words", "answer_words"):
        values = curve[name].dropna().tolist() if name in curve else []
        if not values:
            continue
        n = max(1, len(values) // 10)
        starts = (0, (len(values) - n) // 2, len(values) - n)
        first, middle, last = (sum(values[i : i + n]) / n for i in starts)
        metrics |= {
            f"first_{name}": first,
            f"middle_{name}": middle,
            f"last_{name}": last,
            f"early_growth_{name}": middle - first,
            f"late_growth_{name}": last - middle,
        }
    return metrics


def strategies_used(
    examples: Sequence[Example], responses: Mapping[str, str], p: "ReasonParams"
) -> dict[str, float]:
    """The share of well-formed responses with each strategy of reasoning (Fig 4), the
    most frequent first: by an annotator where there is a judge, else by rules on what
    its sentences state."""
    split = [(e, parts(responses[e.id])) for e in examples]
    formed = [(e, two.reasoning, two.answer) for e, two in split if two]
    if p.verifier == "judge":
        llm = judge_llm(p, p.judge_model, p.judge_url)
        rows = [(e.question, *two) for e, *two in formed]
        return strategies.shares(strategies.annotate(llm, rows))
    facts = facts_of(p)
    return strategies.shares(
        [strategies.tag(*two, strategies.stated(facts, e.entity)) for e, *two in formed]
    )
