"""What a rollout searches with: an index in process, or a retriever by HTTP.

A query is a model's own text, so it may be anything. `searchable` makes of it what is
sent; where nothing is left, nothing is found and nobody asked. A failure is never an
empty result: it is raised.
"""

import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from factkit.retrieval.chunks import Chunk, Index

if TYPE_CHECKING:
    import httpx
    from tenacity import RetryCallState

# queries, k → the k best entries of each query, best first
Search = Callable[[Sequence[str], int], list[list[Chunk]]]

TOKEN_VARIABLE = "FACTKIT_SEARCH_TOKEN"
QUERY_CHARS = 1_000  # of a query; what comes after them is not searched for
QUERIES = 256  # of a request; more go in several, one after the other
CALL_S = 120.0  # seconds that a server may be silent
PATIENCE_S = 300.0  # after which a request is not tried again


class SearchError(RuntimeError):
    """The retriever gave no entries; the message names URL, reason and fix."""


def in_process(index: Index) -> Search:
    """A search of an index: `CorpusIndex`, `EntryIndex`, `DenseIndex` …

    It raises ValueError if k < 1.
    """

    def ask(queries: list[str], k: int) -> list[list[Chunk]]:
        return [[hit.chunk for hit in index.search(query, k)] for query in queries]

    return _each_once(ask)


def over_http(url: str) -> Search:
    """A search by a server with the contract of Search-R1, such as `search_service`.

    POST url {"queries": […], "topk": k, "return_scores": true} gives {"result": …}, for
    each query [{"document": {"id", "contents"}, "score"}, …] or the documents alone.
    A server that is away or busy (HTTP 408, 429, 5xx) is asked again for at most
    PATIENCE_S + CALL_S seconds. The token is that of the environment variable
    FACTKIT_SEARCH_TOKEN, if it is set. Raises ParamError on a bad URL; the search
    raises SearchError if it gets no entries, or other than asked for.
    """
    from factkit import http_client

    address = http_client.service_url(
        url, "search_url: must be http://host:port/retrieve, without user or token"
    )
    client = http_client.service_client(TOKEN_VARIABLE, CALL_S)

    def ask(queries: list[str], k: int) -> list[list[Chunk]]:
        starts = range(0, len(queries), QUERIES)
        parts = [queries[start : start + QUERIES] for start in starts]
        return [found for part in parts for found in _ask(client, address, part, k)]

    return _each_once(ask)


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
    """An entry as Search-R1's servers reply with it, and `entry_of` reads it.

    The title, which is the text's first line if there are more, is in quotes. `doc_id`
    and `n_tokens` are ours.
    """
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


def _each_once(ask: Callable[[list[str], int], list[list[Chunk]]]) -> Search:
    """A search that asks for equal queries once, and for none that are empty."""

    def search(queries: Sequence[str], k: int) -> list[list[Chunk]]:
        wanted = [searchable(query) for query in queries]
        unique = [query for query in dict.fromkeys(wanted) if query]
        rows = ask(unique, k) if unique else []
        found = dict(zip(unique, rows, strict=True))
        return [list(found.get(query, ())) for query in wanted]

    return search


def _ask(
    client: "httpx.Client", url: "httpx.URL", queries: list[str], k: int
) -> list[list[Chunk]]:
    """One request's entries, after as many attempts as it takes in its time."""
    import httpx

    from factkit import http_client

    content = {"queries": queries, "topk": k, "return_scores": True}
    try:
        reply = http_client.ask(client, url, content, PATIENCE_S, _heals, _warn)
        found = [_entries(row)[:k] for row in reply["result"]]
    except httpx.HTTPError as error:
        raise SearchError(f"{url}: {_in_words(error)}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        why = error if isinstance(error, http_client.BadReply) else "no entries in it"
        raise SearchError(
            f"{url}: HTTP 200, but {why}; is it a server with Search-R1's contract?"
        ) from None
    if len(found) != len(queries):
        raise SearchError(
            f"{url}: HTTP 200, but {len(found)} results for {len(queries)} queries; "
            "see to the server"
        )
    return found


def _entries(row: list[dict[str, Any]]) -> list[Chunk]:
    """The entries of a query's result, with their scores or without."""
    if not isinstance(row, list):
        raise TypeError("a result that is no list")
    return [entry_of(item.get("document", item)) for item in row]


def _heals(status: int) -> bool:
    """Whether another attempt may not meet an HTTP status."""
    return status in (408, 429) or status >= 500


def _warn(state: "RetryCallState") -> None:
    """Say why the rollout waits, the first time that it does."""
    from factkit.http_client import warn_once

    warn_once(state, "search", _in_words(state.outcome.exception()))


def _in_words(error: Exception) -> str:
    """What went wrong with a call, and the fix."""
    import httpx

    from factkit.http_client import detail

    if not isinstance(error, httpx.HTTPStatusError):
        start = "python -m factkit serve-search"
        return f"{type(error).__name__}; is a retriever there, as {start} starts one?"
    status, why = error.response.status_code, detail(error.response)
    fix = "mend search_url: it is the address of /retrieve" if status < 500 else ""
    return f"HTTP {status}{why and f': {why}'}; {fix or 'see to the server'}"
