"""Items: what each request adds to the metrics, which are means over requests.

Results keep them for confidence intervals over requests (`run.statistics`).
"""

from collections.abc import Mapping, Sequence

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


def compare_scores(
    ours: Sequence[float | None], theirs: Sequence[float | None]
) -> list[float | None]:
    """1 where our score is higher, ½ on a tie, else 0; None where one is missing."""
    return [
        None if None in (a, b) else (a > b) + 0.5 * (a == b)
        for a, b in zip(ours, theirs, strict=True)
    ]
