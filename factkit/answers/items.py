"""Items: what each request adds to the metrics, which are means over requests.

Results keep them for confidence intervals over requests (`run.statistics`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from factkit.data.examples import Example
from factkit.run.statistics import means
from factkit.verify.response import extract_answers

if TYPE_CHECKING:
    from factkit.answers.engine import ClaimEngine, ExactEngine

# request id → metric → value; a metric is absent where the request does not count in it
Items = dict[str, dict[str, float]]


def merge_items(*tables: Mapping[str, Mapping[str, float]]) -> Items:
    """The metrics of all tables by request."""
    merged: Items = {}
    for table in tables:
        for request, values in table.items():
            merged.setdefault(request, {}).update(values)
    return merged


def select_metrics(
    items: Mapping[str, Mapping[str, float]], names: Sequence[str]
) -> Items:
    """The items with these metrics alone, in this order."""
    return {
        request: {name: values[name] for name in names if name in values}
        for request, values in items.items()
    }


def same_answered(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
) -> dict[str, float]:
    """Means before and after over the requests answered both times.

    A mean over the answers given also improves when the policy stops answering what it
    answers badly; these do not. names: metrics that every request answered has, and no
    other. `same_answered_…` are means of the items after, `before_same_answered_…` of
    those before, and same_answered_rate is the share of requests answered both times.
    Empty if there is no such request.
    """
    first = names[0]
    ids = [
        i for i, item in after.items() if first in item and first in before.get(i, {})
    ]
    if not ids:
        return {}
    old, new = (means([rows[i] for i in ids]) for rows in (before, after))
    return {
        "same_answered_rate": len(ids) / len(after),
        **{f"same_answered_{name}": new[name] for name in names},
        **{f"before_same_answered_{name}": old[name] for name in names},
    }


def win_items(ids: Sequence[str], wins: Sequence[float | None]) -> Items:
    """win_rate of the requests whose comparison did not fail."""
    pairs = zip(ids, wins, strict=True)
    return {i: {"win_rate": win} for i, win in pairs if win is not None}


def compare_answers(
    engine: "ExactEngine | ClaimEngine",
    examples: Sequence[Example],
    ours: Sequence[str],
    theirs: Sequence[str],
) -> list[float | None]:
    """1 where our answer has a higher `quality` than theirs, ½ on a tie, else 0; None
    where the score of one failed. Reasoning is not looked at."""
    ids, prompts = [e.id for e in examples], [e.question for e in examples]
    texts = extract_answers([*ours, *theirs])
    scores = engine.values(["quality"], ids * 2, prompts * 2, texts)["quality"]
    return [
        None if None in (a, b) else (a > b) + 0.5 * (a == b)
        for a, b in zip(scores[: len(ids)], scores[len(ids) :], strict=True)
    ]
