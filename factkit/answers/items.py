"""Items: what each request adds to the metrics, which are means over requests.

Results keep them for confidence intervals over requests (`run.statistics`).
"""

from collections.abc import Callable, Mapping, Sequence

from factkit.data.examples import Example
from factkit.verify.response import extract_answers

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


def win_items(ids: Sequence[str], wins: Sequence[float | None]) -> Items:
    """win_rate of the requests whose comparison did not fail."""
    pairs = zip(ids, wins, strict=True)
    return {i: {"win_rate": win} for i, win in pairs if win is not None}


def compare_answers(
    score: Callable[..., Sequence[float | None]],
    examples: Sequence[Example],
    ours: Sequence[str],
    theirs: Sequence[str],
) -> list[float | None]:
    """1 where our response has a higher score than theirs, ½ on a tie, else 0; None
    where the score of one failed.

    score: a method of an engine, (ids, prompts, answers without reasoning) → scores.
    """
    ids, prompts = [e.id for e in examples], [e.question for e in examples]
    scores = [score(ids, prompts, extract_answers(texts)) for texts in (ours, theirs)]
    return [
        None if None in pair else (pair[0] > pair[1]) + 0.5 * (pair[0] == pair[1])
        for pair in zip(*scores, strict=True)
    ]
