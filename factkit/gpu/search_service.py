"""The search service, which serves indexes of entries to rollouts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import Index, load_leads
from factkit.data.entries import entries_of_sentences
from factkit.data.entry_index import MANIFEST, EntryIndex
from factkit.data.search import TOKEN_VARIABLE, clean_query, document_of
from factkit.run import serving
from factkit.verify.response import split_sentences

if TYPE_CHECKING:
    from fastapi import FastAPI


class Request(BaseModel):
    """A request to the service (Search-R1's API)."""

    queries: serving.Texts
    topk: int = Field(3, ge=1, le=100, strict=True)  # entries a query (Veri-R1 App. B)
    return_scores: bool = Field(False, strict=True)


def serve(entries: str, host: str, port: int) -> None:
    """Serve an index at /retrieve, or several at /<name>/retrieve, until SIGTERM.

    entries: "leads", a folder written by `build_index`, or a folder of such folders.
    Raises ParamError if the address is not available or needs a token, DataError if a
    folder has no index.
    """
    token = serving.read_token(TOKEN_VARIABLE)
    listening = serving.bind_socket(host, port, token, TOKEN_VARIABLE)
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
    serving.run(app, listening)


def several(folders: Sequence[Path], token: str) -> "FastAPI":
    """An app that searches each index at its folder's name; /health lists all."""
    from fastapi import FastAPI

    app = FastAPI(openapi_url=None)
    about: dict[str, Any] = {}
    app.get("/health")(lambda: {"manifests": about})
    for folder in folders:
        index = EntryIndex(folder)
        about[folder.name] = index.manifest
        app.mount(f"/{folder.name}", service(index, index.manifest, token))
    return app


def service(index: Index, manifest: dict[str, Any], token: str) -> "FastAPI":
    """An app that searches one index. manifest: what /health returns to anyone."""

    def retrieve(request: Request) -> dict[str, Any]:
        return {"result": [documents(q, request) for q in request.queries]}

    def documents(query: str, request: Request) -> list[dict[str, Any]]:
        query = clean_query(query)
        hits = index.search(query, request.topk) if query else []
        if not request.return_scores:
            return [document_of(hit.chunk) for hit in hits]
        return [{"document": document_of(h.chunk), "score": h.score} for h in hits]

    about = {"manifest": manifest}
    return serving.create_app("/retrieve", Request, retrieve, about, token, workers=4)
