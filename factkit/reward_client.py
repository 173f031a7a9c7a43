"""The reward service's client: rewards by URL, for `rewards.reason.trl_reward`."""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from factkit import llm
from factkit.params import ParamError
from factkit.reward_service import COLUMNS, TOKEN_VARIABLE, Limits
from factkit.rewards.reason import Scored
from factkit.serving import environment_token
from factkit.verify.claims import Support
from factkit.verify.response import Reasoned

if TYPE_CHECKING:
    import httpx
    from tenacity import RetryCallState

    from factkit.params import ReasonRlParams

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
    import httpx

    secret = environment_token(TOKEN_VARIABLE)
    try:
        url = httpx.URL(f"{p.reward_url.rstrip('/')}/rewards")
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise ParamError("reward_url: must be http://host:port, without user or token")
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {secret}"} if secret else {}
    client = httpx.Client(headers=headers, timeout=httpx.Timeout(CALL_S, connect=10))

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
    from tenacity import Retrying, retry_if_exception, stop_before_delay

    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    body = json.dumps({"arm": arm} | columns)
    attempts = Retrying(
        stop=stop_before_delay(PATIENCE_S),
        wait=lambda state: llm.wait_s(state, backoff_s=1.0),
        retry=retry_if_exception(_may_heal),
        before_sleep=_warn,
        reraise=True,
    )
    try:
        reply = attempts(lambda: client.post(url, content=body).raise_for_status())
        found = [_scored(row) for row in reply.json()]
    except httpx.HTTPError as error:
        raise RewardServiceError(f"{url}: {_in_words(error)}") from None
    except (ValueError, LookupError, TypeError):
        found = []
    if len(found) != len(rows):
        why = f"no {len(rows)} rewards in the reply; is another factkit there?"
        raise RewardServiceError(f"{url}: {why}")
    return found


def _scored(row: dict[str, Any]) -> Scored:
    """What `_row` was made of. Raises KeyError, TypeError or ValueError."""
    said, supports = (row["reasoning"], row["answer"]), row["supports"]
    return Scored(
        row["reward"],
        None if None in said else Reasoned(*said),
        supports and [None if s is None else Support(s) for s in supports],
        row["wins"],
    )


def _may_heal(error: BaseException) -> bool:
    """Whether another attempt may fare better."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in MAY_HEAL
    return isinstance(error, httpx.TransportError)


def _warn(state: "RetryCallState") -> None:
    """Say why training waits, the first time that it does."""
    if state.attempt_number == 1:
        why = _in_words(state.outcome.exception())
        warnings.warn(f"reward service: {why}; trying again", stacklevel=2)


def _in_words(error: Exception) -> str:
    """What went wrong with a call; the service's refusals name the fix themselves."""
    import httpx

    if not isinstance(error, httpx.HTTPStatusError):
        start = "python -m factkit serve-rewards reason"
        return f"{type(error).__name__}; is it running, by {start}?"
    try:
        said = str(error.response.json()["detail"])
    except (ValueError, LookupError, TypeError):
        said = "not a reward service; mend reward_url"
    return f"HTTP {error.response.status_code}: {said[:500]}"
