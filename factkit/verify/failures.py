"""Failures of a judge: how many a run may have, and their causes in words."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Failure(NamedTuple):
    """Why a reply gives no verdict, and the text of the server or the model."""

    cause: str
    text: str


MOST_JUDGE_FAILURES = 0.05  # of the responses; a run with more of them fails
FEWEST_RESPONSES = 200  # before the share of failures can fail a run
RECENT_FAILURES: deque[Failure] = deque(maxlen=1_000)  # of this process


def describe_failures(failures: Iterable[Failure] | None = None) -> str:
    """Describe the three commonest causes after a colon, with counts and examples; ""
    without failures. failures: by default the latest ones of this process."""
    failures = list(RECENT_FAILURES if failures is None else failures)
    examples = dict(reversed(failures))  # the first of each cause
    counts = Counter(cause for cause, _ in failures).most_common(3)
    parts = [
        f"{n} × {cause} ({shorten(' '.join(examples[cause].split()), 120)})"
        for cause, n in counts
    ]
    return f": {'; '.join(parts)}".replace(" ()", "") if parts else ""


def check_failures(values: Sequence[object], name: str) -> float:
    """Return the share of None among the values. Raises ValueError above 5 %."""
    share = list(values).count(None) / max(len(values), 1)
    if share > MOST_JUDGE_FAILURES:
        raise ValueError(
            f"{name}: {share:.1%} of {len(values)}, at most {MOST_JUDGE_FAILURES:.0%} "
            f"may fail{describe_failures()}. Check the judge's endpoint and run again"
        )
    return share


def shorten(text: str, length: int = 500) -> str:
    """Cut a text: a gateway's error can be a whole web page."""
    return text if len(text) <= length else f"{text[:length]} …"
