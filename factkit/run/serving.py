"""Clients of web services: tokens, attempts, waits.

Clients follow no redirect: a token or a key goes only to the given address.
"""

import json
import os
import random
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import tenacity

from factkit.run import connections
from factkit.run.failures import RunFailure
from factkit.run.params import ParamError

RETRIED_STATUSES = (408, 425, 429)  # and 5xx
MAX_WAIT_S = 60.0  # between two attempts, whatever Retry-After says

T = TypeVar("T")


def read_token(variable: str) -> str:
    """Read a token from an environment variable; "" if it is not set.

    Raises ParamError, without the token, if no HTTP header can carry it.
    """
    token = os.environ.get(variable, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ParamError(f"{variable} holds a line break or is not ASCII")
    return token


class ServiceError(RunFailure):
    """A service did not answer; the message names URL, reason and fix."""


def create_retrying(stop: Any, **options: Any) -> tenacity.Retrying:
    """Create a caller that repeats calls after errors which may pass.

    stop, options: of tenacity.Retrying.
    """

    def may_pass(error: BaseException) -> bool:
        if isinstance(error, httpx.HTTPStatusError):
            status = error.response.status_code
            return status in RETRIED_STATUSES or status >= 500
        return isinstance(error, TimeoutError | httpx.TransportError)

    return tenacity.Retrying(
        stop=stop,
        retry=tenacity.retry_if_exception(may_pass),
        wait=lambda state: wait_s(state),
        reraise=True,
        **options,
    )


def wait_s(state: tenacity.RetryCallState) -> float:
    """`pause_s` for tenacity."""
    error = state.outcome.exception() if state.outcome else None
    return pause_s(error, state.attempt_number)


def pause_s(error: BaseException | None, attempts: int) -> float:
    """Seconds to wait after an error that ended so many attempts: Retry-After, or
    twice the last wait.

    Jitter keeps calls that failed together from returning together.
    """
    response = getattr(error, "response", None)
    header = response.headers.get("retry-after", "") if response is not None else ""
    if header.isdecimal():
        return min(float(header), MAX_WAIT_S) + random.random()
    return min(2.0 ** (attempts - 1) + random.random(), MAX_WAIT_S)


class Client:
    """A client of a service of the kit, which waits while the service is down or busy.

    parameter: name of the parameter that holds the URL. command: of `python -m
    factkit`, that starts the service. token_variable: of the environment, that holds
    the token. timeout_s: for each step of a call, in seconds. Raises ParamError on a
    bad URL.
    """

    def __init__(
        self,
        url: str,
        parameter: str,
        command: str,
        token_variable: str,
        timeout_s: float,
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
        self.parameter, self.command = parameter, command
        self.token = read_token(token_variable)
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        self.http = connections.create_client(url, timeout_s, headers=headers)

    def ask(self, content: Any, read: Callable[[Any], T], patience_s: float) -> T:
        """Send JSON content and return read(reply); attempts start within `patience_s`.

        Raises ServiceError if the last attempt fails, or if `read` raises.
        """
        body, stop = json.dumps(content), tenacity.stop_before_delay(patience_s)
        attempts = create_retrying(stop, before_sleep=self._warn)

        def post() -> httpx.Response:
            return self.http.post(self.url, content=body).raise_for_status()

        try:
            reply = attempts(post)
        except httpx.HTTPError as error:
            raise ServiceError(f"{self.url}: {self._describe(error)}") from None
        try:
            value = reply.json()
            json.dumps(value, allow_nan=False)  # refuses NaN and infinity
            return read(value)
        except Exception as error:
            why = f"{type(error).__name__}: {str(error)[:300]}"
            raise ServiceError(
                f"{self.url}: HTTP 200, but the reply does not fit the request ({why});"
                " is another server there?"
            ) from None

    def _warn(self, state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome:
            why = self._describe(state.outcome.exception())
            warnings.warn(f"{self.url}: {why}; trying again", stacklevel=2)

    def _describe(self, error: BaseException | None) -> str:
        """Describe an error of a call, and its fix."""
        cause = type(error).__name__
        if isinstance(error, httpx.HTTPStatusError):
            text = error.response.text[:500].replace(self.token or "\0", "…")
            cause = f"HTTP {error.response.status_code}: {text}"
        start = f"python -m factkit {self.command}"
        return f"{cause}; is {self.parameter} right, and does `{start}` run there?"
