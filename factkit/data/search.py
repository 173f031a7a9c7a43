"""Searching from rollouts: an index in this process, or a retriever by HTTP.

A query is a model's text, so it may be anything: `clean_query` cleans it, and an empty
one finds nothing without a request. A failure is raised and never an empty result.

The retriever has the contract of Search-R1: POST /retrieve {"queries": ["…"], "topk":
3, "return_scores": true} returns {"result": …}, for each query [{"document": {"id",
"contents"}, "score"}, …], best first, or, without return_scores, the documents only.
So clients of Search-R1's server work with ours (`search_service`), and `over_http`
works with either.
"""

import random
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from factkit import Check
from factkit.data.corpus import Chunk, Index
from factkit.run import serving
from factkit.run.params import ROOT

# queries, k, each query's claim set → the k best entries of each query, best first. The
# sets select the corpus; with a single corpus they may be left out
Search = Callable[..., list[list[Chunk]]]

SET = "{set}"  # in a search_url: the claim set whose corpus is behind it
TOKEN_VARIABLE = "FACTKIT_SEARCH_TOKEN"
QUERY_CHARS = 1_000  # of a query; the rest is cut off
QUERIES = 256  # of a request
CALL_S = 120.0  # seconds that a server may take
PATIENCE_S = 300.0  # after which a request is not tried again


def in_process(index: Index) -> Search:
    """A search of an index; it raises ValueError if k < 1."""

    def ask(queries: list[str], k: int) -> list[list[Chunk]]:
        return [[hit.chunk for hit in index.search(query, k)] for query in queries]

    return _unique(ask)


def over_http(url: str, patience_s: float | None = None) -> Search:
    """A search by a server with the contract of Search-R1; see `serving.Client`.

    A url with {set} has a corpus for each claim set. The search raises ServiceError if
    no valid reply comes within patience_s seconds, by default PATIENCE_S.
    """
    if SET in url:
        return _by_set(cache(lambda name: over_http(url.replace(SET, name))))
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
        patience = PATIENCE_S if patience_s is None else patience_s
        return client.ask(content, read, patience)

    return _unique(ask)


def checks(p: Any) -> list[Check]:
    """Check that the retrievers at p.search_url answer and p.claims_path has files."""
    sets = p.eval_sets.split() if SET in p.search_url else [""]
    urls = {name: p.search_url.replace(SET, name) for name in sets if p.search_url}
    rows = [_check_retriever(f"retriever {name}", url) for name, url in urls.items()]
    if p.claims_path and not p.has_own_data:
        folder = ROOT / p.claims_path
        number = sum(path.is_file() for path in folder.rglob("*"))
        files = f"claims_path {folder}", f"{number} files", number > 0
        rows.append((*files, "python -m factkit fetch veri"))
    return rows


def _check_retriever(what: str, url: str) -> Check:
    remedy = "python -m factkit serve-search … there (params/README.md)"
    try:
        (hits,) = over_http(url, patience_s=0)(["What is the capital of France?"], 1)
    except serving.ServiceError as error:
        return (what, str(error), False, remedy)
    names = ", ".join(hit.id for hit in hits) or "nothing"
    return (what, f"{url} finds {names}", bool(hits), remedy)


def shuffled(search: Search) -> Search:
    """Wrap a search so that each query's entries come in a random order, which depends
    on the query alone (ours)."""

    def ask(
        queries: Sequence[str], k: int, sets: Sequence[str] = ()
    ) -> list[list[Chunk]]:
        results = []
        for query, entries in zip(queries, search(queries, k, sets), strict=True):
            rng = random.Random(f"shuffled {clean_query(query)}")
            results.append(rng.sample(entries, len(entries)))
        return results

    return ask


def _by_set(search_of: Callable[[str], Search]) -> Search:
    """Search each query in the corpus of its claim's set."""
    search_of("set")  # reports a bad address early

    def search(
        queries: Sequence[str], k: int, sets: Sequence[str] = ()
    ) -> list[list[Chunk]]:
        if len(sets) != len(queries):
            raise ValueError(f"{len(queries)} queries of {len(sets)} claims' sets")
        results: list[list[Chunk]] = [[] for _ in queries]
        for name in dict.fromkeys(sets):
            indices = [i for i, other in enumerate(sets) if other == name]
            rows = search_of(name)([queries[i] for i in indices], k)
            for i, entries in zip(indices, rows, strict=True):
                results[i] = entries
        return results

    return search


def _unique(ask: Callable[[list[str], int], list[list[Chunk]]]) -> Search:
    """Search equal queries once, and no empty ones."""

    def search(
        queries: Sequence[str], k: int, sets: Sequence[str] = ()
    ) -> list[list[Chunk]]:
        cleaned = [clean_query(query) for query in queries]
        unique = [query for query in dict.fromkeys(cleaned) if query]
        rows = ask(unique, k) if unique else []
        entries = dict(zip(unique, rows, strict=True))
        return [list(entries.get(query, ())) for query in cleaned]

    return search


def clean_query(query: str) -> str:
    """A query on one line, of at most QUERY_CHARS characters.

    Control characters and lone surrogates become spaces.
    """
    characters = (
        " " if unicodedata.category(c) in ("Cc", "Cs") else c
        for c in query[:QUERY_CHARS]
    )
    return " ".join("".join(characters).split())


def document_of(entry: Chunk) -> dict[str, Any]:
    """An entry in Search-R1's format: its title, the first of several lines, in quotes.
    `doc_id` and `n_tokens` are ours."""
    title, line_break, rest = entry.text.partition("\n")
    contents = f'"{title}"\n{rest}' if line_break else title
    ours = {"doc_id": entry.doc_id, "n_tokens": entry.n_tokens}
    return {"id": entry.id, "contents": contents} | ours


def entry_of(document: dict[str, Any]) -> Chunk:
    """The entry of a document in Search-R1's format.

    If the server is not ours, doc_id is the title and n_tokens the number of words.
    Raises KeyError, TypeError or AttributeError if it is no document.
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
