"""What the kit's HTTP clients share: bounded replies, strict JSON, one way to retry.

Redirects are not followed: a token or a key goes to the address that was given.
"""

import functools
import json
import math
import random
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx
import tenacity

from factkit.params import ParamError
from factkit.serving import environment_token, strict_json

T = TypeVar("T")

REPLY_BYTES = 64 * 2**20
PLAIN = {"Accept-Encoding": "identity"}  # what is packed may unpack to anything
HEALS = (408, 425, 429)  # and 5xx: statuses that another attempt may not meet
LONGEST_WAIT_S = 60.0  # between two attempts, whatever Retry-After says


class BadReply(ValueError):
    """A reply that is too long, packed, or no JSON; the message says which."""


@functools.cache
def _cut(kind: type) -> type:
    """Bodies of a kind (httpx's, openai's; sync, async) with a bound on them."""

    class Cut(kind):
        """Fails beyond `most` bytes, or after `within_s` seconds."""

        def __init__(self, body: Any, most: int, within_s: float) -> None:
            self._body, self._left, self._most = body, most, most
            self._end = time.monotonic() + within_s

        def _count(self, part: bytes) -> bytes:
            self._left -= len(part)
            if self._left < 0:
                raise BadReply(f"a reply of more than {self._most} bytes")
            if time.monotonic() > self._end:
                raise httpx.ReadTimeout("the reply's body took too long")
            return part

        def __iter__(self) -> Iterator[bytes]:
            return map(self._count, self._body)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in self._body:
                yield self._count(part)

        def close(self) -> None:
            self._body.close()

        async def aclose(self) -> None:
            await self._body.aclose()

    return Cut


def _bound(response: httpx.Response, within_s: float) -> None:
    """Bound the body of a response that is not read yet. Raises BadReply if packed."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise BadReply("a packed reply, which was not asked for")
    body = response.stream
    response.stream = _cut(type(body))(body, REPLY_BYTES, within_s)


def bounded(within_s: float) -> dict[str, Any]:
    """Arguments of an httpx.Client whose replies' bodies are bounded."""

    def bound(response: httpx.Response) -> None:
        _bound(response, within_s)

    return {"event_hooks": {"response": [bound]}, "follow_redirects": False}


def bounded_async() -> dict[str, Any]:
    """Those of an async client, of httpx or openai, whose calls have a timeout."""

    async def bound(response: httpx.Response) -> None:
        _bound(response, math.inf)

    return {"event_hooks": {"response": [bound]}, "follow_redirects": False}


# One way to retry


def retries(stop: Any, lasting: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    """Arguments of tenacity's Retrying or AsyncRetrying.

    lasting: of the statuses 5xx those that another attempt meets again.
    """

    def may_heal(error: BaseException) -> bool:
        if isinstance(error, httpx.HTTPStatusError):
            status = error.response.status_code
            return status in HEALS or status >= 500 and status not in lasting
        return isinstance(error, TimeoutError | httpx.TransportError)

    return {
        "stop": stop,
        "wait": lambda state: wait_s(state),
        "retry": tenacity.retry_if_exception(may_heal),
        "reraise": True,
        **more,
    }


def wait_s(state: tenacity.RetryCallState) -> float:
    """Seconds to wait before the next attempt: what the server says, or twice the last.

    Both with jitter, so that calls that failed together do not return together.
    """
    response = getattr(state.outcome.exception(), "response", None)
    header = response.headers.get("retry-after") if response else None
    seconds = retry_after_s(header, time.time())
    if seconds is not None:
        return seconds + random.random()
    return tenacity.wait_exponential_jitter(max=LONGEST_WAIT_S)(state)


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


# The kit's services


class ServiceError(RuntimeError):
    """A service gave no answer; the message names URL, reason and fix."""


@dataclass(frozen=True)
class Server:
    """A service that is asked by JSON, and waited for while it is away or busy.

    parameter: that holds its address; command: of `python -m factkit`, which starts
    one; token_variable: of the environment, with its token. call_s: how many seconds
    it may be silent, and its reply's body take. lasting: as `retries` takes it.
    """

    parameter: str
    command: str
    token_variable: str
    call_s: float
    lasting: tuple[int, ...] = ()

    def at(self, url: str) -> "Client":
        """A client of the one at a URL. Raises ParamError if that is none."""
        try:
            address = httpx.URL(url)
        except httpx.InvalidURL:
            address = httpx.URL()
        web = address.scheme in ("http", "https")
        if not web or not address.host or address.userinfo:
            raise ParamError(
                f"{self.parameter}: must be http://host:port…, without user or token"
            )
        token = environment_token(self.token_variable)
        headers = PLAIN | {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx.Timeout(self.call_s, connect=10)
        http = httpx.Client(headers=headers, timeout=timeout, **bounded(self.call_s))
        return Client(self, address, http)


@dataclass(frozen=True)
class Client:
    """Asks a server at its address."""

    server: Server
    url: httpx.URL
    http: httpx.Client

    def ask(self, content: Any, read: Callable[[Any], T], patience_s: float) -> T:
        """read(what the server replies), after as many attempts as `patience_s` takes.

        Raises ServiceError on the last attempt's failure, or if `read` raises.
        """
        body = json.dumps(content)
        stop = tenacity.stop_before_delay(patience_s)
        attempts = tenacity.Retrying(
            **retries(stop, self.server.lasting, before_sleep=self._tell)
        )
        try:
            reply = attempts(
                lambda: self.http.post(self.url, content=body).raise_for_status()
            )
            return read(strict_json(reply.content))
        except httpx.HTTPError as error:
            raise ServiceError(f"{self.url}: {self._in_words(error)}") from None
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            why = f"{type(error).__name__}: {str(error)[:300]}"
            raise ServiceError(
                f"{self.url}: HTTP 200, but no such reply as was asked for ({why}); is "
                "another server there?"
            ) from None

    def _tell(self, state: tenacity.RetryCallState) -> None:
        """Say why one waits, the first time."""
        if state.attempt_number == 1:
            why = self._in_words(state.outcome.exception())
            warnings.warn(f"{self.url}: {why}; trying again", stacklevel=2)

    def _in_words(self, error: BaseException) -> str:
        """What went wrong with a call, and the fix."""
        if not isinstance(error, httpx.HTTPStatusError):
            start = f"python -m factkit {self.server.command}"
            return f"{type(error).__name__}; is it running, by {start}?"
        status = error.response.status_code
        try:
            why = str(error.response.json()["detail"])[:500]
        except (ValueError, LookupError, TypeError, RecursionError):
            why = "no reason given"
        fix = (
            "see to the server"
            if status >= 500
            else f"is {self.server.parameter} right?"
        )
        return f"HTTP {status}: {why}; {fix}"
