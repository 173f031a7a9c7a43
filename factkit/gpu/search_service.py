"""The search service, which serves indexes of entries to rollouts.

It speaks plain HTTP and does not limit slow connections or the size of requests: across
a network that others use, run it behind a proxy with TLS.
"""

import hmac
import ipaddress
import os
import signal
import socket
import sys
from asyncio import CancelledError
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Receive, Scope, Send

from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import Index, load_leads
from factkit.data.entries import entries_of_sentences
from factkit.data.entry_index import MANIFEST, EntryIndex
from factkit.data.search import TOKEN_VARIABLE, clean_query, document_of
from factkit.run.params import ParamError
from factkit.run.serving import read_token
from factkit.verify.response import split_sentences

MAX_QUERIES = 512  # per request
MAX_CONNECTIONS = 512  # uvicorn answers more with HTTP 503
SEARCHES = 4  # at once, of an index
DRAIN_S = 25  # for open requests at shutdown; Kubernetes kills after 30


class Request(BaseModel):
    """A request to the service (Search-R1's API)."""

    queries: list[str] = Field(max_length=MAX_QUERIES)
    topk: int = Field(3, ge=1, le=100, strict=True)  # entries a query (Veri-R1 App. B)
    return_scores: bool = Field(False, strict=True)


def serve(entries: str, host: str, port: int) -> None:
    """Serve an index at /retrieve, or several at /<name>/retrieve, until SIGTERM.

    entries: "leads", a folder written by `build_index`, or a folder of such folders.
    Raises ParamError if the address is not available or needs a token, DataError if a
    folder has no index.
    """
    token = read_token(TOKEN_VARIABLE)
    listening = bind_socket(host, port, token)
    folder = Path(entries)
    if entries == "leads":
        chunks = [
            entry
            for lead in load_leads()
            for entry in entries_of_sentences(lead.title, split_sentences(lead.text))
        ]
        manifest = {"name": "leads", "entries": len(chunks)}
        app = service(CorpusIndex(chunks), manifest, token)
    elif manifests := sorted(folder.glob(f"[!.]*/{MANIFEST}")):
        app = several([path.parent for path in manifests], token)
    else:
        index = EntryIndex(folder)
        app = service(index, index.manifest, token)
    print(f"search at {host}, port {listening.getsockname()[1]}", flush=True)
    run(app, listening)


def several(folders: Sequence[Path], token: str) -> FastAPI:
    """An app that searches each index at its folder's name; /health lists all."""
    app = FastAPI(openapi_url=None)
    about: dict[str, Any] = {}
    app.get("/health")(lambda: {"manifests": about})
    for folder in folders:
        index = EntryIndex(folder)
        about[folder.name] = index.manifest
        app.mount(f"/{folder.name}", service(index, index.manifest, token))
    return app


def service(index: Index, manifest: dict[str, Any], token: str) -> FastAPI:
    """An app that searches one index. manifest: what /health returns to anyone. token:
    required as a bearer token; "" for none. An error of a search is HTTP 500."""
    app, limiter = FastAPI(openapi_url=None), anyio.CapacityLimiter(SEARCHES)
    app.get("/health")(lambda: {"manifest": manifest})
    app.add_middleware(require_token, token=token)

    def documents(query: str, request: Request) -> list[dict[str, Any]]:
        query = clean_query(query)
        hits = index.search(query, request.topk) if query else []
        if not request.return_scores:
            return [document_of(hit.chunk) for hit in hits]
        return [{"document": document_of(h.chunk), "score": h.score} for h in hits]

    def reply(request: Request) -> JSONResponse:
        try:
            result = [documents(query, request) for query in request.queries]
            return JSONResponse({"result": result})
        except Exception as error:  # its text may hold parts of the request
            why = f"retrieve failed: {type(error).__name__}"
            print(f"factkit: {why}", file=sys.stderr, flush=True)
            raise HTTPException(500, why) from None

    @app.post("/retrieve")
    async def retrieve(request: Request) -> JSONResponse:
        try:
            return await anyio.to_thread.run_sync(
                reply, request, limiter=limiter, abandon_on_cancel=True
            )
        except CancelledError:  # the time to drain is over
            raise HTTPException(503, "the service is shutting down") from None

    return app


def require_token(app: ASGIApp, token: str) -> ASGIApp:
    """Middleware that refuses a POST without the token before its body is read."""

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if token and scope["type"] == "http" and scope["method"] != "GET":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                why = {"detail": "missing or wrong token; set the service's token"}
                reply = JSONResponse(why, 401, {"Connection": "close"})
                return await reply(scope, receive, send)
        await app(scope, receive, send)

    return check


def create_server(app: FastAPI) -> uvicorn.Server:
    """Create a uvicorn server with the same components whatever else is installed."""
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


def run(app: FastAPI, listening: socket.socket) -> None:
    """Serve until SIGTERM or an interrupt, finish open requests, and exit with 0."""
    # uvicorn raises the signal again after it has drained
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with suppress(KeyboardInterrupt):
            create_server(app).run(sockets=[listening])
    finally:
        sys.stdout.flush()
        os._exit(0)  # Python would wait for threads that still work


def bind_socket(host: str, port: int, token: str) -> socket.socket:
    """Bind a socket to an address; port 0: any free port.

    Raises ParamError if the address is not available, or if other machines reach it and
    there is no token.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not (token or ipaddress.ip_address(address[0]).is_loopback):
            raise ParamError(
                f"--host {host}: other machines reach it, so it needs a token: set "
                f"{TOKEN_VARIABLE} here and for the training, or take --host 127.0.0.1"
            )
        return socket.create_server(address, family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        why = f"--host {host} --port {port}: {error}; take others"
        raise ParamError(why) from None
