"""What the kit's HTTP clients share: bounded replies, strict JSON, one way to retry.

Redirects are not followed: a token or a key goes to the address that was given.
"""

import functools
import json
import math
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx

from factkit import retries
from factkit.params.files import ParamError
from factkit.serving import environment_token, strict_json

if TYPE_CHECKING:
    from tenacity import RetryCallState

REPLY_BYTES = 64 * 2**20
PLAIN = {"Accept-Encoding": "identity"}  # what is packed may unpack to anything


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


def service_client(variable: str, call_s: float) -> httpx.Client:
    """A client of a service whose token is the environment's `variable`, if it is set.

    call_s: how many seconds it may be silent, and its reply's body take.
    """
    token = environment_token(variable)
    headers = PLAIN | {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    timeout = httpx.Timeout(call_s, connect=10)
    return httpx.Client(headers=headers, timeout=timeout, **bounded(call_s))


def service_url(url: str, refusal: str) -> httpx.URL:
    """A service's address. Raises ParamError, which says `refusal`, if it is none."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    web = address.scheme in ("http", "https")
    if not web or not address.host or address.userinfo:
        raise ParamError(refusal)
    return address


def ask(
    client: httpx.Client,
    url: httpx.URL,
    content: dict[str, Any],
    patience_s: float,
    heals: Callable[[int], bool],
    tell: "Callable[[RetryCallState], None]",
) -> Any:
    """What a service replies, after as many attempts as it takes in `patience_s`.

    heals: whether another attempt may not meet an HTTP status; tell: is called before
    each wait. Raises httpx.HTTPError as the last attempt did, or BadReply.
    """
    from tenacity import Retrying, retry_if_exception, stop_before_delay

    def may_heal(error: BaseException) -> bool:
        if isinstance(error, httpx.HTTPStatusError):
            return heals(error.response.status_code)
        return isinstance(error, httpx.TransportError)

    body = json.dumps(content)
    attempts = Retrying(
        stop=stop_before_delay(patience_s),
        wait=lambda state: retries.wait_s(state, backoff_s=1.0),
        retry=retry_if_exception(may_heal),
        before_sleep=tell,
        reraise=True,
    )
    reply = attempts(lambda: client.post(url, content=body).raise_for_status())
    try:
        return strict_json(reply.content)
    except ValueError as error:
        raise BadReply(f"a reply that is no JSON: {str(error)[:100]}") from None


def warn_once(state: "RetryCallState", who: str, why: str) -> None:
    """Say why one waits for `who`, the first time."""
    if state.attempt_number == 1:
        warnings.warn(f"{who}: {why}; trying again", stacklevel=2)


def detail(response: httpx.Response) -> str:
    """What a service says of its refusal, shortened; "" if it says nothing."""
    try:
        return str(response.json()["detail"])[:500]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
