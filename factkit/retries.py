"""How long to wait before a call over HTTP is tried again."""

import math
import random
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenacity import RetryCallState

LONGEST_WAIT_S = 60.0  # between two attempts, whatever Retry-After says


def wait_s(state: "RetryCallState", backoff_s: float) -> float:
    """Seconds to wait before the next attempt: what the server says, or twice the last.

    Both with jitter, so that calls that failed together do not return together.
    """
    from tenacity import wait_exponential_jitter

    error = state.outcome.exception() if state.outcome else None
    headers = getattr(getattr(error, "response", None), "headers", {})
    said = retry_after_s(headers.get("retry-after"), time.time())
    if said is not None:
        return said + random.uniform(0, backoff_s)
    return wait_exponential_jitter(
        multiplier=backoff_s, max=LONGEST_WAIT_S, jitter=backoff_s
    )(state)


def retry_after_s(header: str | None, now: float) -> float | None:
    """A Retry-After header (seconds or an HTTP date) in seconds from `now`.

    Within [0, LONGEST_WAIT_S]; None if it is absent or says nothing.
    """
    try:
        seconds = float(header or "nan")
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_WAIT_S)
