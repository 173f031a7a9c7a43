"""The reward service's client: rewards by URL, for `rewards.reason.trl_reward`."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from factkit.reward_service import COLUMNS, TOKEN_VARIABLE, Limits
from factkit.rewards.reason import Scored
from factkit.verify.claims import Support
from factkit.verify.response import Reasoned

if TYPE_CHECKING:
    import httpx
    from tenacity import RetryCallState

    from factkit.reason.params import ReasonRlParams

CALL_S = 600.0  # a call's seconds: the service is silent until all is scored
PATIENCE_S = 900.0  # after which a request is not tried again
MAY_HEAL = (408, 429, 502, 503, 504)  # too slow, too busy, or on its way up


class RewardServiceError(RuntimeError):
    """The reward service gave no rewards; the message names URL, reason and fix."""


def remote(p: "ReasonRlParams") -> Callable[..., list[Scored]]:
    """(ids, prompts, responses) → what `reason.scored` gives, by p.reward_url.

    Asks in the order of the responses, no more at a time than the service takes; where
    it is busy or away, again for at most PATIENCE_S + CALL_S seconds. The token is that
    of the environment variable FACTKIT_REWARD_TOKEN, if it is set. Raises ParamError on
    a bad URL; what it returns raises RewardServiceError.
    """
    from factkit import http_client

    refusal = "reward_url: must be http://host:port, without user or token"
    url = http_client.service_url(f"{p.reward_url.rstrip('/')}/rewards", refusal)
    client = http_client.service_client(TOKEN_VARIABLE, CALL_S)

    def score(
        ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[Scored]:
        rows = zip(ids, prompts, responses, strict=True)
        return [of for some in _chunks(rows) for of in _ask(client, url, p.arm, some)]

    return score


def _chunks(
    rows: Iterator[tuple[str, str, str]],
) -> Iterator[list[tuple[str, str, str]]]:
    """Rows in order, in as few requests as the service's limits allow."""
    limits = Limits()
    chunk, size = [], 1024  # bytes of what is around the rows
    for row in rows:
        more = len(json.dumps(row))
        full = size + more > limits.body_bytes or len(chunk) == limits.responses
        if chunk and full:
            yield chunk
            chunk, size = [], 1024
        chunk.append(row)
        size += more
    if chunk:
        yield chunk


def _ask(
    client: "httpx.Client", url: "httpx.URL", arm: str, rows: list[tuple[str, ...]]
) -> list[Scored]:
    """One request's rewards, after as many attempts as it takes in its time."""
    import httpx

    from factkit import http_client

    content = {"arm": arm} | dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    try:
        reply = http_client.ask(
            client, url, content, PATIENCE_S, MAY_HEAL.__contains__, _warn
        )
        found = [_scored(row) for row in reply]
    except httpx.HTTPError as error:
        raise RewardServiceError(f"{url}: {_in_words(error)}") from None
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        found, bad = [], isinstance(error, http_client.BadReply)
        why = f" ({error})" if bad else ""
    else:
        why = ""
    if len(found) != len(rows):
        why = f"no {len(rows)} rewards in the reply{why}; is another factkit there?"
        raise RewardServiceError(f"{url}: {why}")
    return found


def _scored(row: dict[str, Any]) -> Scored:
    """What `_row` was made of. Raises KeyError, TypeError or ValueError.

    The reply is strict JSON: a reward that is a number is a finite one.
    """
    said, supports = (row["reasoning"], row["answer"]), row["supports"]
    for value, types in (
        (row["reward"], (int, float)),
        (row["wins"], (bool,)),
        *((text, (str,)) for text in said),
    ):
        if value is not None and type(value) not in types:
            raise TypeError("a field of another type")
    return Scored(
        None if row["reward"] is None else float(row["reward"]),
        None if None in said else Reasoned(*said),
        supports and [None if s is None else Support(s) for s in supports],
        row["wins"],
    )


def _warn(state: "RetryCallState") -> None:
    """Say why training waits, the first time that it does."""
    from factkit.http_client import warn_once

    warn_once(state, "reward service", _in_words(state.outcome.exception()))


def _in_words(error: Exception) -> str:
    """What went wrong with a call; the service's refusals name the fix themselves."""
    import httpx

    from factkit.http_client import detail

    if not isinstance(error, httpx.HTTPStatusError):
        start = "python -m factkit serve-rewards reason"
        return f"{type(error).__name__}; is it running, by {start}?"
    why = detail(error.response) or "not a reward service; mend reward_url"
    return f"HTTP {error.response.status_code}: {why}"
