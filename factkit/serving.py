"""What the kit's web services share: an address, a token, bodies, an orderly end.

They speak plain HTTP: across a network that others listen to, put them behind TLS.
"""

import asyncio
import hmac
import ipaddress
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from factkit.params import ParamError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI, Request

HEAD_S = 10.0  # for a connection's first request to begin
AWAY = {"Retry-After": "2"}  # of those that are sent away
BODY_BYTES = 8 * 2**20  # of a request
ROWS = 512  # responses or queries of a request


@dataclass(frozen=True)
class Limits:
    """What a service takes: it holds at_once + waiting requests' bodies, no more.

    at_once: requests worked on at a time. waiting: requests whose turn comes later;
    more are sent away. body_s: seconds for a body to arrive. drain_s: seconds for
    requests under way at the end.
    """

    at_once: int = 1
    waiting: int = 512
    body_s: float = 20.0
    drain_s: int = 25  # Kubernetes kills after 30


class Service:
    """Answers POST requests at a path, some at once, some more in their turn.

    work: a request's JSON object → the reply's value; it may `refuse`, and what else it
    raises is that request's failure. about: what /health tells anyone. token: "" for
    none; variable: of the environment that holds it. inside: requests taken, not yet
    answered; worked_on: those whose turn it is.
    """

    def __init__(
        self,
        path: str,
        work: Callable[[dict[str, Any]], Any],
        about: dict[str, Any],
        token: str,
        variable: str,
        limits: Limits = Limits(),
    ) -> None:
        self.path, self.work, self.about, self.limits = path, work, about, limits
        self.token, self.variable = token, variable
        self.inside = 0
        self.worked_on: set[Future[bytes]] = set()
        self._slots = asyncio.Semaphore(limits.at_once)
        self._pool = ThreadPoolExecutor(limits.at_once)

    def app(self) -> "FastAPI":
        """The routes."""
        from fastapi import FastAPI, Request, Response

        app = FastAPI(openapi_url=None)

        @app.get("/health")
        async def health() -> dict[str, Any]:
            busy = len(self.worked_on)
            return self.about | {"busy": busy, "queued": self.inside - busy}

        @app.post(self.path)
        async def answer(request: Request) -> Response:
            self._check_token(request.headers.get("authorization", ""))
            if self.inside >= self.limits.at_once + self.limits.waiting:
                refuse(503, "too many requests are waiting", AWAY)  # body not read
            self.inside += 1
            try:
                body = await self._answer(request)
            except asyncio.CancelledError:  # the time to drain is over
                refuse(503, "the service ends", AWAY)
            finally:
                self.inside -= 1
            return Response(body, media_type="application/json")

        return app

    def _check_token(self, header: str) -> None:
        given = header.encode("latin-1", "replace")
        if self.token and not hmac.compare_digest(
            given, f"Bearer {self.token}".encode()
        ):
            why = f"no token or another one; set {self.variable} to the service's"
            refuse(401, why, {"WWW-Authenticate": "Bearer"})

    async def _answer(self, request: "Request") -> bytes:
        """The body of the reply to a request. Raises HTTPException."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_s):
                async for part in request.stream():
                    body += part
                    if len(body) > BODY_BYTES:
                        refuse(413, f"more than {BODY_BYTES} bytes; send fewer rows")
        except TimeoutError:
            refuse(408, f"the request took longer than {self.limits.body_s} s to come")
        async with self._slots:
            if await request.is_disconnected():
                refuse(400, "the client went away")
            future = self._pool.submit(self._reply_to, bytes(body))
            self.worked_on.add(future)
            future.add_done_callback(self.worked_on.discard)
            return await asyncio.wrap_future(future)

    def _reply_to(self, body: bytes) -> bytes:
        from fastapi import HTTPException

        try:
            content = strict_json(body)
        except ValueError:
            refuse(422, "the body is not JSON")
        try:
            reply = self.work(content if isinstance(content, dict) else {})
            return json.dumps(reply, allow_nan=False).encode()
        except HTTPException:
            raise
        except Exception as error:
            why = f"{self.path[1:]} failed: {type(error).__name__}"
            print(f"factkit: {why}", file=sys.stderr, flush=True)
            refuse(500, why)

    def server(self) -> "uvicorn.Server":
        """uvicorn, of the same parts whatever else is installed."""
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol

        class Connection(H11Protocol):
            """Ends where no head comes, for which uvicorn would wait for ever."""

            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                self.loop.call_later(HEAD_S, lambda: self.cycle or transport.abort())

        config = uvicorn.Config(
            self.app(),
            http=Connection,
            loop="asyncio",
            ws="none",
            log_config=None,
            log_level="critical",  # its errors come with stack traces
            access_log=False,
            timeout_graceful_shutdown=self.limits.drain_s,
        )
        return uvicorn.Server(config)

    def run(self, listening: socket.socket) -> None:
        """Serve until SIGTERM or an interrupt, and drain; SIGTERM exits with 0."""
        # uvicorn raises the signal that it drained for once more
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            with suppress(KeyboardInterrupt):
                self.server().run(sockets=[listening])
        finally:
            if self.worked_on:  # a thread can't be ended, and would keep the process
                sys.stdout.flush()
                os._exit(0)


def strings(content: dict[str, Any], name: str) -> list[str]:
    """A request's list of strings; of its text a refusal names nothing."""
    column = content.get(name)
    if not isinstance(column, list) or {type(v) for v in column} - {str}:
        refuse(422, f"{name}: must be a list of strings")
    if len(column) > ROWS:
        refuse(422, f"{name}: at most {ROWS} a request")
    return column


def refuse(status: int, why: str, headers: dict[str, str] | None = None) -> NoReturn:
    """Answer a request with an error. Raises HTTPException."""
    from fastapi import HTTPException

    raise HTTPException(status, why, headers) from None


def strict_json(text: bytes | str) -> Any:
    """JSON's value. Raises ValueError on none, too deep a one, NaN or infinity."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def environment_token(variable: str) -> str:
    """The token in the environment, "" without; an error never spells it out."""
    token = os.environ.get(variable, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ParamError(f"{variable} holds a line break or is not ASCII")
    return token


def bound(host: str, port: int, token: str, variable: str) -> socket.socket:
    """A socket bound to the very address that was checked, not listening yet.

    Raises ParamError if the address can't be had, or needs a token of `variable`.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not (token or ipaddress.ip_address(address[0]).is_loopback):
            raise ParamError(
                f"--host {host}: other machines reach it, so it needs a token: set "
                f"{variable} here and for the training, or take --host 127.0.0.1"
            )
        return socket.create_server(address, family=family, backlog=512)
    except OSError as error:
        why = f"--host {host} --port {port}: {error}; take others"
        raise ParamError(why) from None
