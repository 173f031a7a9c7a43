"""What a rollout searches with: an index in process, or a retriever by HTTP.

A query is a model's own text, so it may be anything. `searchable` makes of it what is
sent; where nothing is left, nothing is found and nobody asked. A failure is never an
empty result: it is raised.

The retriever has the contract of Search-R1: POST /retrieve {"queries": ["…"], "topk":
3, "return_scores": true} gives {"result": …}, for each query [{"document": {"id",
"contents"}, "score"}, …], best first, or, without return_scores, the documents alone.
So code that was written for Search-R1's server runs with `serve`, and `over_http` with
either.
"""

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from factkit import serving
from factkit.corpus import Chunk, Index
from factkit.retrieval.bm25 import CorpusIndex

if TYPE_CHECKING:
    from fastapi import FastAPI

# queries, k → the k best entries of each query, best first
Search = Callable[[Sequence[str], int], list[list[Chunk]]]

TOKEN_VARIABLE = "FACTKIT_SEARCH_TOKEN"
QUERY_CHARS = 1_000  # of a query; what comes after them is not searched for
QUERIES = 256  # of a request; more go in several, one after the other
CALL_S = 120.0  # seconds that a server may be silent
PATIENCE_S = 300.0  # after which a request is not tried again


def in_process(index: Index) -> Search:
    """A search of an index; it raises ValueError if k < 1."""

    def ask(queries: list[str], k: int) -> list[list[Chunk]]:
        return [[hit.chunk for hit in index.search(query, k)] for query in queries]

    return _each_once(ask)


def over_http(url: str) -> Search:
    """A search by a server with the contract of Search-R1; see `serving.Client`.

    It raises ServiceError if it gets no entries, or other than asked for.
    """
    service = ("search_url", "serve-search", TOKEN_VARIABLE)
    client = serving.Client(url, *service, CALL_S)

    def ask(queries: list[str], k: int) -> list[list[Chunk]]:
        if len(queries) > QUERIES:
            return ask(queries[:QUERIES], k) + ask(queries[QUERIES:], k)

        def read(reply: dict[str, Any]) -> list[list[Chunk]]:
            rows = reply["result"]
            if [type(row) for row in rows] != [list] * len(queries):
                raise TypeError("not a list of entries for each query")
            return [[entry_of(i.get("document", i)) for i in row[:k]] for row in rows]

        content = {"queries": queries, "topk": k, "return_scores": True}
        return client.ask(content, read, PATIENCE_S)

    return _each_once(ask)


def _each_once(ask: Callable[[list[str], int], list[list[Chunk]]]) -> Search:
    """A search that asks for equal queries once, and for none that are empty."""

    def search(queries: Sequence[str], k: int) -> list[list[Chunk]]:
        wanted = [searchable(query) for query in queries]
        unique = [query for query in dict.fromkeys(wanted) if query]
        rows = ask(unique, k) if unique else []
        entries = dict(zip(unique, rows, strict=True))
        return [list(entries.get(query, ())) for query in wanted]

    return search


def searchable(query: str) -> str:
    """A query as it is searched for: on one line, of QUERY_CHARS characters at most.

    Control characters and halves of surrogate pairs end a word, as a space does. Markup
    stays: for an index its signs are no words.
    """
    kept = (
        " " if unicodedata.category(c) in ("Cc", "Cs") else c
        for c in query[:QUERY_CHARS]
    )
    return " ".join("".join(kept).split())


def document_of(entry: Chunk) -> dict[str, Any]:
    """An entry as Search-R1's servers reply with it: its title, the first of several
    lines, in quotes. `doc_id` and `n_tokens` are ours."""
    title, line_break, rest = entry.text.partition("\n")
    contents = f'"{title}"\n{rest}' if line_break else title
    ours = {"doc_id": entry.doc_id, "n_tokens": entry.n_tokens}
    return {"id": entry.id, "contents": contents} | ours


def entry_of(document: dict[str, Any]) -> Chunk:
    """The entry that a document is made of: its title without quotes, and its text.

    Where the server is not ours, doc_id is the title and n_tokens counts words between
    spaces. Raises KeyError, TypeError or AttributeError if it is no document.
    """
    contents = document["contents"].encode("utf-8", "replace").decode()
    title, line_break, rest = contents.partition("\n")
    if line_break and len(title) > 1 and title[0] == title[-1] == '"':
        title = title[1:-1]
    text = f"{title}{line_break}{rest}"
    name = document["id"]
    if not isinstance(name, str | int):
        raise TypeError("an id that is no text")
    page = document.get("doc_id", title if line_break else name)
    n_tokens = document.get("n_tokens", len(text.split()))
    return Chunk(str(name), str(page), text, n_tokens)


# ---- the service


class Request(BaseModel):
    """What is asked of the service."""

    queries: serving.Texts
    topk: int = Field(3, ge=1, le=100, strict=True)  # entries a query (Veri-R1 App. B)
    return_scores: bool = Field(False, strict=True)


def serve(entries: str, host: str, port: int) -> None:
    """Serve an index's folder, or the leads' entries, until SIGTERM or an interrupt.

    entries: a folder that `build_index` wrote, or "leads". Raises ParamError on an
    address that can't be had or needs a token, DataError if the folder holds no index.
    """
    from factkit.corpus import load_leads
    from factkit.retrieval.entries import EntryIndex, document_entries

    token = serving.environment_token(TOKEN_VARIABLE)
    listening = serving.bound(host, port, token, TOKEN_VARIABLE)
    if entries == "leads":
        chunks = [entry for lead in load_leads() for entry in document_entries(lead)]
        index, manifest = CorpusIndex(chunks), {"name": entries, "entries": len(chunks)}
    else:
        index = EntryIndex(Path(entries))
        manifest = index.manifest
    print(f"search at {host}, port {listening.getsockname()[1]}", flush=True)
    serving.run(service(index, manifest, token), listening)


def service(index: Index, manifest: dict[str, Any], token: str) -> "FastAPI":
    """Searches an index. manifest: what /health tells anyone of it."""

    def retrieve(request: Request) -> dict[str, Any]:
        return {"result": [documents(q, request) for q in request.queries]}

    def documents(query: str, request: Request) -> list[dict[str, Any]]:
        query = searchable(query)
        hits = index.search(query, request.topk) if query else []
        if not request.return_scores:
            return [document_of(hit.chunk) for hit in hits]
        return [{"document": document_of(h.chunk), "score": h.score} for h in hits]

    about = {"manifest": manifest}
    return serving.app_of("/retrieve", Request, retrieve, about, token, at_once=4)
