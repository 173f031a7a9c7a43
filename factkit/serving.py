"""What the kit's web services share: an address, a token, a queue, an orderly end.

They speak plain HTTP: across a network that others listen to, put them behind TLS.
"""

import asyncio
import hmac
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from factkit import UserError
from factkit.params import ParamError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

HEAD_S = 10.0  # for a connection's first request to begin
DRAIN_S = 25  # for requests under way at the end; Kubernetes kills after 30
MOST = 512  # connections at once; more are sent away
ROWS = 512  # responses or queries of a request

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
    from fastapi import Depends, FastAPI, HTTPException, Request
    from fastapi.responses import JSONResponse

    app, pool = FastAPI(openapi_url=None), ThreadPoolExecutor(at_once)
    app.get("/health")(lambda: about)

    def check_token(http: Request) -> None:
        given = http.headers.get("authorization", "").encode()
        if token and not hmac.compare_digest(given, f"Bearer {token}".encode()):
            why = "no token or another one; set the variable with the service's token"
            raise HTTPException(401, why)

    def reply(content: Any) -> JSONResponse:
        try:
            return JSONResponse(work(content))
        except UserError as error:
            raise HTTPException(422, str(error)) from None
        except Exception as error:  # its text may hold what was asked
            why = f"{path[1:]} failed: {type(error).__name__}"
            print(f"factkit: {why}", file=sys.stderr, flush=True)
            raise HTTPException(500, why) from None

    @app.post(path, dependencies=[Depends(check_token)])
    async def answer(content: request) -> JSONResponse:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(pool, reply, content)
        except asyncio.CancelledError:  # the time to drain is over
            raise HTTPException(503, "the service ends") from None

    return app


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
