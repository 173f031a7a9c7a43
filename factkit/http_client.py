"""What the kit's HTTP clients share: one way to retry, and a client of its services.

Redirects are not followed: a token or a key goes to the address that was given.
"""

import json
import random
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import tenacity

from factkit.params import ParamError
from factkit.serving import environment_token

T = TypeVar("T")

HEALS = (408, 425, 429)  # and 5xx: statuses that another attempt may not meet
LONGEST_WAIT_S = 60.0  # between two attempts, whatever Retry-After says


class ServiceError(RuntimeError):
    """A service gave no answer; the message names URL, reason and fix."""


def retries(stop: Any, lasting: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    """Arguments of tenacity's Retrying or AsyncRetrying.

    lasting: of the statuses 5xx those that another attempt meets again.
    """

    def may_heal(error: BaseException) -> bool:
        if isinstance(error, httpx.HTTPStatusError):
            status = error.response.status_code
            return status in HEALS or status >= 500 and status not in lasting
        return isinstance(error, TimeoutError | httpx.TransportError)

    retry = tenacity.retry_if_exception(may_heal)
    wait = {"wait": lambda state: wait_s(state)}
    return {"stop": stop, "retry": retry, "reraise": True} | wait | more


def wait_s(state: tenacity.RetryCallState) -> float:
    """Seconds to wait before the next attempt: what the server says, or twice the last.

    Both with jitter, so that calls that failed together do not return together.
    """
    response = getattr(state.outcome.exception(), "response", None)
    header = response.headers.get("retry-after", "") if response is not None else ""
    if header.isdecimal():
        return min(float(header), LONGEST_WAIT_S) + random.random()
    return tenacity.wait_exponential_jitter(max=LONGEST_WAIT_S)(state)


class Client:
    """Asks a service of the kit by JSON, and waits while it is away or busy.

    parameter: that holds its address; command: of `python -m factkit`, which starts
    one; token_variable: of the environment, with its token. call_s: how many seconds
    it may be silent. lasting: as `retries` takes it. Raises ParamError on a bad URL.
    """

    def __init__(
        self,
        url: str,
        parameter: str,
        command: str,
        token_variable: str,
        call_s: float,
        lasting: tuple[int, ...] = (),
    ) -> None:
        try:
            self.url = httpx.URL(url)
        except httpx.InvalidURL:
            self.url = httpx.URL()
        web = self.url.scheme in ("http", "https")
        if not web or not self.url.host or self.url.userinfo:
            raise ParamError(
                f"{parameter}: must be http://host:port…, without user or token"
            )
        self.parameter, self.command, self.lasting = parameter, command, lasting
        token = environment_token(token_variable)
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(
            headers=headers, timeout=httpx.Timeout(call_s, connect=10)
        )

    def ask(self, content: Any, read: Callable[[Any], T], patience_s: float) -> T:
        """read(what the server replies), after as many attempts as `patience_s` takes.

        Raises ServiceError on the last attempt's failure, or if `read` raises.
        """
        body, stop = json.dumps(content), tenacity.stop_before_delay(patience_s)
        attempts = tenacity.Retrying(
            **retries(stop, self.lasting, before_sleep=self._tell)
        )
        try:
            reply = attempts(
                lambda: self.http.post(self.url, content=body).raise_for_status()
            )
        except httpx.HTTPError as error:
            raise ServiceError(f"{self.url}: {self._in_words(error)}") from None
        try:
            value = reply.json()
            json.dumps(value, allow_nan=False)  # neither NaN nor infinity comes in
            return read(value)
        except Exception as error:  # whatever is not as it should be
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
            start = f"python -m factkit {self.command}"
            return f"{type(error).__name__}; is it running, by {start}?"
        status = error.response.status_code
        fix = "see to the server" if status >= 500 else f"is {self.parameter} right?"
        return f"HTTP {status}: {error.response.text[:500]}; {fix}"
