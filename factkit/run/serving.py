"""Web services of the kit and the clients that call them.

Services speak plain HTTP and do not limit slow connections or the size of requests:
across a network that others use, run them behind a proxy with TLS. Clients follow no
redirect: a token or a key goes only to the given address.
"""

import hmac
import ipaddress
import json
import os
import random
import signal
import socket
import sys
import warnings
from asyncio import CancelledError
from collections.abc import Callable
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
    from starlette.types import ASGIApp, Receive, Scope, Send

MAX_ROWS = 512  # responses or queries per request
MAX_CONNECTIONS = 512  # uvicorn answers more with HTTP 503
DRAIN_S = 25  # for open requests at shutdown; Kubernetes kills after 30

RETRIED_STATUSES = (408, 425, 429)  # and 5xx
MAX_WAIT_S = 60.0  # between two attempts, whatever Retry-After says

T = TypeVar("T")
Texts = Annotated[list[str], Field(max_length=MAX_ROWS)]  # of a request


def create_app(
    path: str,
    request_model: type,
    handle: Callable[[Any], Any],
    info: dict[str, Any],
    token: str,
    workers: int = 1,
) -> "FastAPI":
    """Create an app that answers POST requests at `path`.

    request_model: pydantic model of the body. handle: body → value of the reply; run in
    up to `workers` threads at once. A UserError that it raises becomes HTTP 422, any
    other error 500. info: reply of GET /health, for anyone. token: required as a bearer
    token; "" for none.
    """
    import anyio
    from fastapi import FastAPI, HTTPException
    from fastapi.responses import JSONResponse

    app, limiter = FastAPI(openapi_url=None), anyio.CapacityLimiter(workers)
    app.get("/health")(lambda: info)
    app.add_middleware(require_token, token=token)

    def reply(body: Any) -> JSONResponse:
        try:
            return JSONResponse(handle(body))
        except UserError as error:
            raise HTTPException(422, str(error)) from None
        except Exception as error:  # its text may hold parts of the request
            why = f"{path[1:]} failed: {type(error).__name__}"
            print(f"factkit: {why}", file=sys.stderr, flush=True)
            raise HTTPException(500, why) from None

    @app.post(path)  # FastAPI checks the body by its hint, whose class varies
    async def answer(body: request_model) -> JSONResponse:  # type: ignore[valid-type]
        try:
            return await anyio.to_thread.run_sync(
                reply, body, limiter=limiter, abandon_on_cancel=True
            )
        except CancelledError:  # the time to drain is over
            raise HTTPException(503, "the service is shutting down") from None

    return app


def require_token(app: "ASGIApp", token: str) -> "ASGIApp":
    """Middleware that refuses a POST without the token before its body is read."""
    from starlette.responses import JSONResponse

    async def check(scope: "Scope", receive: "Receive", send: "Send") -> None:
        if token and scope["type"] == "http" and scope["method"] != "GET":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                why = {"detail": "missing or wrong token; set the service's token"}
                reply = JSONResponse(why, 401, {"Connection": "close"})
                return await reply(scope, receive, send)
        await app(scope, receive, send)

    return check


def create_server(app: "FastAPI") -> "uvicorn.Server":
    """Create a uvicorn server with the same components whatever else is installed."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http="h11",
        loop="asyncio",
        ws="none",
        log_config=None,
        log_level="critical",  # its errors come with stack traces
        access_log=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=DRAIN_S,
    )
    return uvicorn.Server(config)


def run(app: "FastAPI", listening: socket.socket) -> None:
    """Serve until SIGTERM or an interrupt, finish open requests, and exit with 0."""
    # uvicorn raises the signal again after it has drained
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with suppress(KeyboardInterrupt):
            create_server(app).run(sockets=[listening])
    finally:
        sys.stdout.flush()
        os._exit(0)  # Python would wait for threads that still work


def read_token(variable: str) -> str:
    """Read a token from an environment variable; "" if it is not set.

    Raises ParamError, without the token, if no HTTP header can carry it.
    """
    token = os.environ.get(variable, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ParamError(f"{variable} holds a line break or is not ASCII")
    return token


def bind_socket(host: str, port: int, token: str, variable: str) -> socket.socket:
    """Bind a socket to an address; port 0: any free port.

    Raises ParamError if the address is not available, or if other machines reach it and
    there is no token. variable: of the environment, that holds the token.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not (token or ipaddress.ip_address(address[0]).is_loopback):
            raise ParamError(
                f"--host {host}: other machines reach it, so it needs a token: set "
                f"{variable} here and for the training, or take --host 127.0.0.1"
            )
        return socket.create_server(address, family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        why = f"--host {host} --port {port}: {error}; take others"
        raise ParamError(why) from None


# ---- clients


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
