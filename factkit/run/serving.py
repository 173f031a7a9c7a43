"""What the kit's web services and their clients share: an address, a token, a queue, an
orderly end; one way to try again.

They speak plain HTTP: across a network that others listen to, put them behind TLS.
Clients follow no redirect: a token or a key goes to the address that was given.
"""

import asyncio
import hmac
import ipaddress
import json
import os
import random
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import httpx
import tenacity
from pydantic import Field

from factkit.run import connections
from factkit.run.failures import RunFailure, UserError
from factkit.run.params import ParamError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEAD_S = 10.0  # for a connection's first request to begin
DRAIN_S = 25  # for requests under way at the end; Kubernetes kills after 30
MOST = 512  # connections at once; more are sent away
ROWS = 512  # responses or queries of a request

HEALS = (408, 425, 429)  # and 5xx: statuses that another attempt may not meet
LONGEST_WAIT_S = 60.0  # between two attempts, whatever Retry-After says

T = TypeVar("T")
Texts = Annotated[list[str], Field(max_length=ROWS)]  # of a request


def app_of(
    path: str,
    request: type,
    work: Callable[[Any], Any],
    about: dict[str, Any],
    token: str,
    at_once: int = 1,
) -> "FastAPI":
    """Answers POST requests at a path, `at_once` at a time, the others in their turn.

    request: the pydantic model of what is sent; work: request → the reply's value; a
    UserError that it raises is the request's mistake (HTTP 422), another one the
    service's failure (500). about: what /health tells anyone. token: "" for none.
    """
    from fastapi import FastAPI, HTTPException
    from fastapi.responses import JSONResponse

    app, pool = FastAPI(openapi_url=None), ThreadPoolExecutor(at_once)
    app.get("/health")(lambda: about)
    app.add_middleware(Gate, path=path, token=token)

    def reply(content: Any) -> JSONResponse:
        try:
            return JSONResponse(work(content))
        except UserError as error:
            raise HTTPException(422, str(error)) from None
        except Exception as error:  # its text may hold what was asked
            why = f"{path[1:]} failed: {type(error).__name__}"
            print(f"factkit: {why}", file=sys.stderr, flush=True)
            raise HTTPException(500, why) from None

    @app.post(path)
    async def answer(content: request) -> JSONResponse:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(pool, reply, content)
        except asyncio.CancelledError:  # the time to drain is over
            raise HTTPException(503, "the service ends") from None

    return app


class Gate:
    """Middleware that refuses a request without the token (HTTP 401) before its body is
    read, and one with a body above `BODY_BYTES` (413) before more of it is read."""

    def __init__(self, app: "ASGIApp", path: str, token: str) -> None:
        self.app, self.path, self.token = app, path, token

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        from starlette.exceptions import HTTPException
        from starlette.responses import JSONResponse

        if scope["type"] != "http" or scope["path"] != self.path:
            return await self.app(scope, receive, send)
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"")
        length = int(headers.get(b"content-length", b"0"))
        status, why = 0, f"the body has more than {connections.BODY_BYTES} bytes"
        if self.token and not hmac.compare_digest(
            given, b"Bearer " + self.token.encode()
        ):
            status, why = 401, "no token or another one; set the service's token"
        elif length > connections.BODY_BYTES:
            status = 413
        if status:
            reply = JSONResponse({"detail": why}, status, {"Connection": "close"})
            return await reply(scope, receive, send)
        received = 0

        async def receive_bounded() -> "Message":
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > connections.BODY_BYTES:
                raise HTTPException(413, why, {"Connection": "close"})
            return message

        await self.app(scope, receive_bounded, send)


def server(app: "FastAPI") -> "uvicorn.Server":
    """uvicorn, of the same parts whatever else is installed."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        """Ends where no head comes, for which uvicorn would wait for ever."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.loop.call_later(HEAD_S, lambda: self.cycle or transport.abort())

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Connection,
            loop="asyncio",
            ws="none",
            log_config=None,
            log_level="critical",  # its errors come with stack traces
            access_log=False,
            limit_concurrency=MOST,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )


def run(app: "FastAPI", listening: socket.socket) -> None:
    """Serve until SIGTERM or an interrupt, drain, and exit with 0."""
    # uvicorn raises the signal that it drained for once more
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with suppress(KeyboardInterrupt):
            server(app).run(sockets=[listening])
    finally:
        sys.stdout.flush()
        os._exit(0)  # a thread that still works can't be ended, and would stay


def environment_token(variable: str) -> str:
    """The token in the environment, "" without; an error never spells it out."""
    token = os.environ.get(variable, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ParamError(f"{variable} holds a line break or is not ASCII")
    return token


def bound(host: str, port: int, token: str, variable: str) -> socket.socket:
    """A socket bound to the very address that was checked; port 0: any.

    Raises ParamError if the address can't be had, or needs a token of `variable`.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not (token or ipaddress.ip_address(address[0]).is_loopback):
            raise ParamError(
                f"--host {host}: other machines reach it, so it needs a token: set "
                f"{variable} here and for the training, or take --host 127.0.0.1"
            )
        return socket.create_server(address, family=family, backlog=MOST)
    except OSError as error:
        why = f"--host {host} --port {port}: {error}; take others"
        raise ParamError(why) from None


# ---- clients


class ServiceError(RunFailure):
    """A service gave no answer; the message names URL, reason and fix."""


def retrying(stop: Any, **more: Any) -> tenacity.Retrying:
    """What tries a call again where another attempt may succeed."""

    def may_heal(error: BaseException) -> bool:
        if isinstance(error, httpx.HTTPStatusError):
            status = error.response.status_code
            return status in HEALS or status >= 500
        return isinstance(error, TimeoutError | httpx.TransportError)

    retry, wait = tenacity.retry_if_exception(may_heal), lambda state: wait_s(state)
    return tenacity.Retrying(stop=stop, retry=retry, wait=wait, reraise=True, **more)


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
    a call may take. Raises ParamError on a bad URL.
    """

    def __init__(
        self,
        url: str,
        parameter: str,
        command: str,
        token_variable: str,
        call_s: float,
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
        self.token = environment_token(token_variable)
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        self.http = connections.client(url, call_s, headers=headers)

    def ask(self, content: Any, read: Callable[[Any], T], patience_s: float) -> T:
        """read(what the server replies), after as many attempts as `patience_s` takes.

        Raises ServiceError on the last attempt's failure, or if `read` raises.
        """
        body, stop = json.dumps(content), tenacity.stop_before_delay(patience_s)
        attempts = retrying(stop, before_sleep=self._tell)

        def post() -> httpx.Response:
            return self.http.post(self.url, content=body).raise_for_status()

        try:
            reply = attempts(post)
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
        told = error.response.text[:500].replace(self.token or "\0", "…")
        return f"HTTP {status}: {told}; {fix}"
