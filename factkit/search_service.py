"""The retriever by HTTP, for rollouts elsewhere, with the contract of Search-R1.

POST /retrieve {"queries": ["…"], "topk": 3, "return_scores": true} gives {"result": …}:
for each query [{"document": {"id", "contents"}, "score"}, …], best first, or, without
return_scores, the documents alone. topk is 3 and return_scores false unless said. So
code that was written for Search-R1's server runs with this one, and
`search_client.over_http` with either.
"""

from pathlib import Path
from typing import Any

from factkit import serving
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.chunks import Index
from factkit.search_client import TOKEN_VARIABLE, document_of, searchable
from factkit.serving import refuse

LEADS = "leads"  # instead of an index's folder
TOPK = 3  # entries a query (Veri-R1 App. B)
MOST_TOPK = 100
LIMITS = serving.Limits(at_once=4)


def serve(entries: str, host: str, port: int) -> None:
    """Serve an index's folder, or the leads' entries, until SIGTERM or an interrupt.

    entries: as `opened` takes it. port 0: any. Requests under way are answered before
    it ends. Raises ParamError on an address that can't be had or needs a token, and
    what `opened` raises.
    """
    token = serving.environment_token(TOKEN_VARIABLE)
    listening = serving.bound(host, port, token, TOKEN_VARIABLE)
    search = service(*opened(entries), token, LIMITS)
    print(f"search at {host}, port {listening.getsockname()[1]}", flush=True)
    search.run(listening)


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
    chunks = [entry for lead in load_leads() for entry in document_entries(lead)]
    return CorpusIndex(chunks), {"name": LEADS, "entries": len(chunks)}


def service(
    index: Index,
    manifest: dict[str, Any],
    token: str,
    limits: serving.Limits,
) -> serving.Service:
    """Searches an index. manifest: what /health tells anyone of it."""

    def retrieve(content: dict[str, Any]) -> dict[str, Any]:
        queries = serving.strings(content, "queries")
        topk, with_scores = (
            content.get("topk", TOPK),
            content.get("return_scores", False),
        )
        if type(topk) is not int or not 1 <= topk <= MOST_TOPK:
            refuse(422, f"topk: must be a whole number from 1 to {MOST_TOPK}")
        if type(with_scores) is not bool:
            refuse(422, "return_scores: must be true or false")
        return {"result": [hits(query, topk, with_scores) for query in queries]}

    def hits(query: str, topk: int, with_scores: bool) -> list[dict[str, Any]]:
        query = searchable(query)
        rows = [
            {"document": document_of(hit.chunk), "score": hit.score}
            for hit in (index.search(query, topk) if query else [])
        ]
        return rows if with_scores else [row["document"] for row in rows]

    about = {"manifest": manifest}
    return serving.Service("/retrieve", retrieve, about, token, TOKEN_VARIABLE, limits)
