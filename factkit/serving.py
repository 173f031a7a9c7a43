"""What the kit's web services share: an address, a token, bodies, an orderly end.

They speak plain HTTP: across a network that others listen to, put them behind TLS.
"""

import asyncio
import hmac
import ipaddress
import json
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from factkit.params.files import ParamError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI, Request


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
        found = socket.socket(family)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError) as error:
        why = f"--host {host} --port {port}: {error}; take others"
        raise ParamError(why) from None
    return found


def run(
    app: "FastAPI", listening: socket.socket, drain_s: int, busy: Callable[[], int]
) -> None:
    """Serve until SIGTERM or an interrupt, and drain; SIGTERM exits with 0.

    drain_s: seconds for requests under way. busy: how many threads are still at work.
    """
    from factkit.connections import Seldom

    logging.getLogger("asyncio").addFilter(Seldom())
    # uvicorn raises the signal that it drained for once more
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with suppress(KeyboardInterrupt):
            server(app, drain_s).run(sockets=[listening])
    finally:
        if busy():  # a thread can't be ended, and would keep the process
            sys.stdout.flush()
            os._exit(0)


def server(app: "FastAPI", drain_s: int) -> "uvicorn.Server":
    """uvicorn, of the same parts whatever else is installed, and with bounds."""
    import uvicorn

    from factkit import connections

    most = connections.most_at_once()
    config = uvicorn.Config(
        app,
        http=connections.protocol(most),
        loop="asyncio",
        ws="none",
        backlog=max(most // 2, 1),  # so many are accepted in one turn of the loop
        h11_max_incomplete_event_size=connections.HEAD_BYTES,
        timeout_keep_alive=5,
        log_config=None,
        log_level="critical",  # its errors come with stack traces
        access_log=False,
        timeout_graceful_shutdown=drain_s,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for listening in sockets or ():
                listening.listen(2048)  # and so many wait for it

    return Server(config)


def authorised(token: str, variable: str) -> Callable[["Request"], Awaitable[None]]:
    """A check that a request bears the token; "" lets every request through."""
    from fastapi import Request

    async def check(request: Request) -> None:
        scheme, _, said = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(said.strip().encode(), token.encode())
        if token and not (same and scheme.lower() == "bearer"):
            why = f"no token or another one; set {variable} to the service's"
            refuse(401, why, {"WWW-Authenticate": "Bearer"})

    return check


def json_object(body: bytes) -> dict[str, Any]:
    """A request's JSON object; refused where it is no JSON, {} where it is another."""
    try:
        content = strict_json(body)
    except ValueError:
        refuse(422, "the body is not JSON")
    return content if isinstance(content, dict) else {}


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


async def body_of(request: "Request", most: int, within_s: float, what: str) -> bytes:
    """A request's body of `most` bytes at most; `what` it should hold fewer of."""
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    refuse(413, f"more than {most} bytes; send fewer {what}")
    except TimeoutError:
        refuse(408, f"the request took longer than {within_s} s to come")
    return bytes(body)


def refuse(status: int, why: str, headers: dict[str, str] | None = None) -> NoReturn:
    """Answer a request with an error. Raises HTTPException."""
    from fastapi import HTTPException

    raise HTTPException(status, why, headers) from None
