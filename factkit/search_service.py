"""The retriever by HTTP, for rollouts elsewhere, with the contract of Search-R1.

POST /retrieve {"queries": ["…"], "topk": 3, "return_scores": true} gives {"result": …}:
for each query [{"document": {"id", "contents"}, "score"}, …], best first, or, without
return_scores, the documents alone. topk is 3 and return_scores false unless said. So
code that was written for Search-R1's server runs with this one, and
`search_client.over_http` with either.
"""

import asyncio
import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import serving
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.chunks import Hit, Index
from factkit.search_client import TOKEN_VARIABLE, document_of, searchable
from factkit.serving import refuse

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

LEADS = "leads"  # instead of an index's folder
TOPK = 3  # entries a query (Veri-R1 App. B)


@dataclass(frozen=True)
class Limits:
    """What the service takes.

    body_bytes, queries, topk: of a request. at_once: requests searched for at a time,
    the others wait for their turn. body_s: seconds for a body to arrive. drain_s:
    seconds for requests under way at the end.
    """

    body_bytes: int = 8 * 2**20
    queries: int = 512
    topk: int = 100
    at_once: int = 4
    body_s: float = 20.0
    drain_s: int = 25  # Kubernetes kills after 30


def serve(entries: str, host: str, port: int) -> None:
    """Serve an index's folder, or the leads' entries, until SIGTERM or an interrupt.

    entries: as `opened` takes it. port 0: any. Requests under way are answered before
    it ends. Raises ParamError on an address that can't be had or needs a token, and
    what `opened` raises.
    """
    secret = serving.environment_token(TOKEN_VARIABLE)
    listening = serving.bound(host, port, secret, TOKEN_VARIABLE)
    index, manifest = opened(entries)
    service = Service(index)
    print(f"search at {host}, port {listening.getsockname()[1]}", flush=True)
    app, drain_s = web(service, manifest, secret), service.limits.drain_s
    serving.run(app, listening, drain_s, busy=lambda: service.busy)


def opened(entries: str) -> tuple[Index, dict[str, Any]]:
    """An index and its manifest: a folder that `entry_index.build` wrote, or "leads".

    Raises DataError if the folder holds no such index, AssetError without the leads.
    """
    from factkit.corpus import load_leads
    from factkit.retrieval.entries import document_entries
    from factkit.retrieval.entry_index import EntryIndex

    if entries != LEADS:
        index = EntryIndex(Path(entries))
        return index, index.manifest
    found = [entry for lead in load_leads() for entry in document_entries(lead)]
    return CorpusIndex(found), {"name": LEADS, "entries": len(found)}


def web(service: "Service", manifest: dict[str, Any], token: str) -> "FastAPI":
    """The routes. manifest: what /health tells anyone; token: of /retrieve, or ""."""
    from fastapi import Depends, FastAPI, Request, Response

    app = FastAPI(openapi_url=None)
    check = Depends(serving.authorised(token, TOKEN_VARIABLE))

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"manifest": manifest, "busy": service.busy}

    @app.post("/retrieve", dependencies=[check])
    async def retrieve(request: Request) -> Response:
        return Response(await service.answer(request), media_type="application/json")

    return app


class Service:
    """Searches an index for requests, some at a time."""

    def __init__(self, index: Index, limits: Limits = Limits()) -> None:
        self.index, self.limits = index, limits
        self._pool = ThreadPoolExecutor(limits.at_once)
        self._searching: set[Future[bytes]] = set()

    @property
    def busy(self) -> int:
        """Requests that are searched for, or wait for their turn."""
        return len(self._searching)

    async def answer(self, request: "Request") -> bytes:
        """The body of the reply to a request. Raises HTTPException."""
        most, within_s = self.limits.body_bytes, self.limits.body_s
        body = await serving.body_of(request, most, within_s, "queries")
        future = self._pool.submit(self._search, body)
        self._searching.add(future)
        future.add_done_callback(self._searching.discard)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:  # the time to drain is over
            refuse(503, "the service ends", {"Retry-After": "2"})

    def _search(self, body: bytes) -> bytes:
        queries, topk, with_scores = self._asked(body)
        try:
            found = [self._hits(query, topk) for query in queries]
        except Exception as error:  # whatever an index meets is that request's failure
            why = f"the search failed: {type(error).__name__}"
            print(f"factkit: {why}", file=sys.stderr, flush=True)
            refuse(500, why)
        result = [[_row(hit, with_scores) for hit in hits] for hits in found]
        return json.dumps({"result": result}).encode()

    def _hits(self, query: str, topk: int) -> list[Hit]:
        query = searchable(query)
        return self.index.search(query, topk) if query else []

    def _asked(self, body: bytes) -> tuple[list[str], int, bool]:
        """A request's queries, topk and return_scores, checked."""
        content = serving.json_object(body)
        queries, topk = content.get("queries"), content.get("topk", TOPK)
        with_scores, limits = content.get("return_scores", False), self.limits
        if not isinstance(queries, list) or {type(q) for q in queries} - {str}:
            refuse(422, "queries: must be a list of strings")
        if len(queries) > limits.queries:
            refuse(422, f"queries: at most {limits.queries} a request")
        if type(topk) is not int or not 1 <= topk <= limits.topk:
            refuse(422, f"topk: must be a whole number from 1 to {limits.topk}")
        if type(with_scores) is not bool:
            refuse(422, "return_scores: must be true or false")
        return queries, topk, with_scores


def _row(hit: Hit, with_score: bool) -> dict[str, Any]:
    document = document_of(hit.chunk)
    return {"document": document, "score": hit.score} if with_score else document
