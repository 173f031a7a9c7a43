"""What the kit's web services share: an address, a token, bodies, an orderly end.

They speak plain HTTP: across a network that others listen to, put them behind TLS.
Connections are bounded in number and in time. uvicorn waits for the rest of a request's
head as long as the client likes, and takes any number of such connections: half-sent
heads kept everyone else out.
"""

import asyncio
import hmac
import ipaddress
import json
import logging
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from factkit.params import ParamError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI, Request
    from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0  # for a request's head to arrive
STALL_S = 60.0  # that a client may leave a reply unread
HEAD_BYTES = 16 * 2**10
MOST = 512  # connections at once
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
    waiting: int = MOST
    body_s: float = 20.0
    drain_s: int = 25  # Kubernetes kills after 30


class Service:
    """Answers POST requests at a path, some at once, some more in their turn.

    work: a request's JSON object → the reply's value; it may `refuse`, and what else it
    raises is that request's failure. about: what /health tells anyone. token: "" for
    none; variable: of the environment that holds it. inside: requests taken, not yet
    answered.
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
        self._slots = asyncio.Semaphore(limits.at_once)
        self._pool = ThreadPoolExecutor(limits.at_once)
        self._worked_on: set[Future[bytes]] = set()

    @property
    def busy(self) -> int:
        """Requests that are worked on."""
        return len(self._worked_on)

    def app(self) -> "FastAPI":
        """The routes."""
        from fastapi import Depends, FastAPI, Request, Response

        app = FastAPI(openapi_url=None)

        @app.get("/health")
        async def health() -> dict[str, Any]:
            counts = {"busy": self.busy, "queued": self.inside - self.busy}
            return self.about | counts

        @app.post(self.path, dependencies=[Depends(self._check_token())])
        async def answer(request: Request) -> Response:
            return Response(await self._answer(request), media_type="application/json")

        return app

    def _check_token(self) -> "Callable[[Request], Awaitable[None]]":
        """A check that a request bears the token, if there is one."""
        from fastapi import Request

        async def check(request: Request) -> None:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.strip().encode(), self.token.encode())
            if self.token and not (same and scheme.lower() == "bearer"):
                why = f"no token or another one; set {self.variable} to the service's"
                refuse(401, why, {"WWW-Authenticate": "Bearer"})

        return check

    async def _answer(self, request: "Request") -> bytes:
        """The body of the reply to a request. Raises HTTPException."""
        if self.inside >= self.limits.at_once + self.limits.waiting:
            refuse(503, "too many requests are waiting", AWAY)  # its body is not read
        self.inside += 1
        try:
            body = await _body_of(request, self.limits.body_s)
            async with self._slots:
                if await request.is_disconnected():
                    refuse(400, "the client went away")
                future = self._pool.submit(self._reply_to, body)
                self._worked_on.add(future)
                future.add_done_callback(self._worked_on.discard)
                return await asyncio.wrap_future(future)
        except asyncio.CancelledError:  # the time to drain is over
            refuse(503, "the service ends", AWAY)
        finally:
            self.inside -= 1

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

    def run(self, listening: socket.socket) -> None:
        """Serve until SIGTERM or an interrupt, and drain; SIGTERM exits with 0."""
        logging.getLogger("asyncio").addFilter(Seldom())
        # uvicorn raises the signal that it drained for once more
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            with suppress(KeyboardInterrupt):
                server(self).run(sockets=[listening])
        finally:
            if self.busy:  # a thread can't be ended, and would keep the process
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


async def _body_of(request: "Request", within_s: float) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for part in request.stream():
                body += part
                if len(body) > BODY_BYTES:
                    refuse(413, f"more than {BODY_BYTES} bytes; send fewer rows")
    except TimeoutError:
        refuse(408, f"the request took longer than {within_s} s to come")
    return bytes(body)


def strict_json(text: bytes | str) -> Any:
    """JSON's value. Raises ValueError on none, too deep a one, NaN or infinity."""

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise ValueError(f"{number[:20]} is no finite number")
        return value

    try:
        return json.loads(text, parse_float=finite, parse_constant=finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# The address


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
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        why = f"--host {host} --port {port}: {error}; take others"
        raise ParamError(why) from None
    return listening


# The connections


def server(service: Service) -> "uvicorn.Server":
    """uvicorn, of the same parts whatever else is installed, and with bounds."""
    import uvicorn

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # that it may open
    unlimited = files == resource.RLIM_INFINITY
    most = MOST if unlimited else min(MOST, max(files // 4, 1))
    config = uvicorn.Config(
        service.app(),
        http=protocol(most),
        loop="asyncio",
        ws="none",
        backlog=max(most // 2, 1),  # so many are accepted in one turn of the loop
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=5,
        log_config=None,
        log_level="critical",  # its errors come with stack traces
        access_log=False,
        timeout_graceful_shutdown=service.limits.drain_s,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for listening in sockets or ():
                listening.listen(2048)  # and so many wait for it

    return Server(config)


def protocol(most: int) -> "type[H11Protocol]":
    """uvicorn's protocol for a server of `most` connections.

    One beyond them takes the place of the oldest whose request is not wholly there; if
    there is none, it is not kept itself.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    waiting: dict[H11Protocol, None] = {}  # connections without a whole request

    class Connection(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None
        _stall_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._see()
            if len(self.connections) > most:
                oldest = next(iter(waiting))
                oldest.transport.abort()
                oldest.connections.discard(oldest)
                waiting.pop(oldest)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._see()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._see()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            waiting.pop(self, None)
            self._head_timer = _stop(self._head_timer)
            self._stall_timer = _stop(self._stall_timer)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stall_timer = self.loop.call_later(STALL_S, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stall_timer = _stop(self._stall_timer)

        def _see(self) -> None:
            """Note whether a head is there, and its body."""
            head = self.cycle is not None and not self.cycle.response_complete
            if head and not self.cycle.more_body:
                waiting.pop(self, None)
            elif not self.transport.is_closing():
                waiting.setdefault(self)
            if head:
                self._head_timer = _stop(self._head_timer)
            elif self._head_timer is None:
                abort = self.transport.abort
                self._head_timer = self.loop.call_later(HEAD_S, abort)

    return Connection


def _stop(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer; what takes its place."""
    if timer is not None:
        timer.cancel()


class Seldom(logging.Filter):
    """Lets a record a minute through, without its stack trace."""

    next_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if time.monotonic() < self.next_at:
            return False
        self.next_at = time.monotonic() + 60
        record.exc_info = None
        return True
