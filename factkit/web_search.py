"""Building the per-prompt document cache from the web (Binary RAR App. C).

A search endpoint by URL and key gives addresses, `factkit.web_pages` reads them. What
was found and read is kept on disk, so that a rerun asks nobody twice; what failed is
not, so that a rerun tries it again.
"""

import asyncio
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from factkit.corpus import Document
from factkit.datasets.examples import Example
from factkit.retries import wait_s
from factkit.retrieval.evidence import (
    KEPT,
    LEAST_PAGES,
    MOST_PAGES,
    NO_REFERENCE,
    TOO_FEW,
    reference_of,
    unrepeated,
)
from factkit.runs import progress_bar
from factkit.serving import strict_json
from factkit.web_pages import (
    DEFAULT_LIMITS,
    NotHad,
    Page,
    Reader,
    WebLimits,
    in_words,
)

KEY_VARIABLE = "FACTKIT_SEARCH_KEY"
SEARCH_FAILED = "search failed"  # a prompt's fate, beside those in `evidence`
QUERY_CHARS = 2_000  # ours: search engines ignore or refuse what is longer

Result = tuple[str, str]  # of a search: title, address


class SearchKeyError(ValueError):
    """The search key is absent, unusable, or refused by the endpoint."""


async def build_online(
    examples: Iterable[Example],
    endpoint: str,
    cache: Path,
    limits: WebLimits = DEFAULT_LIMITS,
    pages: int = MOST_PAGES,
    at_least: int = LEAST_PAGES,
    progress: str = "",
) -> tuple[dict[str, list[Document]], Counter[str]]:
    """Each prompt's web pages, and how many prompts and pages had which fate.

    The reference response (`answers[0]`) is searched for, without the prompt; of the
    first `pages` results those that can be read are kept, equal texts once. A prompt
    with fewer than `at_least` is left out. endpoint: the URL of a search that takes
    POST JSON {q, num} with header X-API-KEY and replies {organic: [{title, link}]};
    the key is that of the environment variable FACTKIT_SEARCH_KEY. cache: a folder on
    a local disk. progress: label of a progress bar; none without.
    counts: prompts by fate as `evidence.build_offline`, and "search failed"; besides,
    what became of searches and pages, as "search: HTTP 400" or "page: robots.txt".
    Raises SearchKeyError if the key is absent, unusable or refused, ValueError if the
    endpoint is no web address, DataError for an id that repeats.
    """
    examples, web = unrepeated(examples), _Web(endpoint, cache, limits)
    found: dict[str, list[Document]] = {}
    counts = Counter({KEPT: 0, TOO_FEW: 0, NO_REFERENCE: 0, SEARCH_FAILED: 0})
    bar = progress_bar(len(examples), progress, unit="prompt") if progress else None
    waiting = iter(examples)

    async def work() -> None:
        for example in waiting:
            if web.refused:
                return
            documents, fate = await _documents(web, example, pages, counts)
            if fate == KEPT and len(documents) < at_least:
                fate = TOO_FEW
            if fate == KEPT:
                found[example.id] = documents
            counts[fate] += 1
            if bar is not None:
                bar.update()

    try:
        async with web, asyncio.TaskGroup() as web.group:
            for _ in range(min(len(examples), limits.searches + limits.pages)):
                web.group.create_task(work())
    finally:
        if bar is not None:
            bar.close()
    if web.refused:
        raise SearchKeyError(f"{web.refused}; set {KEY_VARIABLE} to a valid key")
    return {e.id: found[e.id] for e in examples if e.id in found}, counts


def run_online(*args, **kwargs) -> tuple[dict[str, list[Document]], Counter[str]]:
    """`build_online` for code that is not async, also in a notebook's running loop."""
    from anyio.from_thread import start_blocking_portal

    # a loop in a thread of its own; an interrupt cancels what runs there
    with start_blocking_portal() as portal:
        return portal.call(partial(build_online, *args, **kwargs))


async def _documents(
    web: "_Web", example: Example, pages: int, counts: Counter[str]
) -> tuple[list[Document], str]:
    """An example's documents and its fate, if their number does not matter."""
    reference = " ".join(reference_of(example).split())
    if not reference:
        return [], NO_REFERENCE
    try:
        results = await web.search(reference[:QUERY_CHARS], pages)
    except NotHad as why:
        counts[f"search: {why}"] += 1
        return [], SEARCH_FAILED
    titles: dict[str, str] = {}
    for title, address in results[:pages]:
        titles.setdefault(address.partition("#")[0], title)
    read = await asyncio.gather(*map(web.page, titles))
    documents: dict[str, Document] = {}  # by a hash of the text
    for (address, title), page in zip(titles.items(), read, strict=True):
        outcome = page if isinstance(page, str) else page.lack
        if not outcome and (key := _digest(page.text.split())) in documents:
            outcome = "duplicate"
        elif not outcome:
            documents[key] = Document(
                address, page.title or title, page.text, urlsplit(address).netloc
            )
        counts[f"page: {outcome or 'read'}"] += 1
    return list(documents.values()), KEPT


class _Web:
    """Searches and pages, through the disk cache; open while used as a context."""

    group: asyncio.TaskGroup  # of the tasks that several prompts wait for

    def __init__(self, endpoint: str, cache: Path, limits: WebLimits) -> None:
        if not endpoint.startswith(("https://", "http://")):
            raise ValueError(f"endpoint={endpoint!r}; it must begin with https://")
        self.endpoint, self.folder, self.limits = endpoint, cache, limits
        self.refused = ""  # why no search is made any more
        self._key = _search_key()
        self._slots = asyncio.Semaphore(limits.searches)
        self._pages: dict[str, asyncio.Task[Page | str]] = {}

    async def __aenter__(self) -> "_Web":
        import httpx

        from factkit.cache import Cache
        from factkit.http_client import PLAIN, bounded_async

        self._cache = Cache(self.folder)
        # `_post` has a timeout for the whole
        self._client = httpx.AsyncClient(timeout=None, headers=PLAIN, **bounded_async())
        self._reader = Reader(self.limits)
        return self

    async def __aexit__(self, *error) -> None:
        await self._client.aclose()
        await self._reader.aclose()
        self._cache.close()

    async def search(self, query: str, n: int) -> list[Result]:
        """The results of a query, best first. Raises NotHad."""
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        key = _digest(["search", self.endpoint, query, n])
        if (stored := self._cache.kept(key, _kept_results)) is not None:
            return stored
        attempts = AsyncRetrying(
            stop=stop_after_attempt(self.limits.attempts),
            wait=lambda state: wait_s(state, self.limits.backoff_s),
            retry=retry_if_exception(_may_heal),
            reraise=True,
        )
        try:
            results = await attempts(self._post, query, n)
        except Exception as error:  # whatever one search meets is that search's failure
            raise NotHad(in_words(error)) from None
        self._cache.keep(key, results)
        return results

    async def _post(self, query: str, n: int) -> list[Result]:
        """One call of the endpoint."""
        async with self._slots, asyncio.timeout(self.limits.timeout_s):
            if self.refused:
                raise NotHad("not made")
            response = await self._client.post(
                self.endpoint,
                json={"q": query, "num": n},
                headers={"X-API-KEY": self._key},
            )
        status = response.status_code
        if status in (401, 403):
            self.refused = f"{response.url.host} refuses the search key (HTTP {status})"
        response.raise_for_status()  # also for a redirect: the key goes nowhere else
        try:
            rows = strict_json(response.content)["organic"]
            found = [(_plain(row.get("title")), row.get("link")) for row in rows]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise NotHad("a reply without results") from None
        return [(title, link) for title, link in found if isinstance(link, str)]

    async def page(self, address: str) -> Page | str:
        """A page, or why it could not be read; asked for once, whoever wants it."""
        if address not in self._pages:
            self._pages[address] = self.group.create_task(self._page(address))
        return await self._pages[address]

    async def _page(self, address: str) -> Page | str:
        parser = f"trafilatura {version('trafilatura')}"
        key = _digest(["page", parser, self.limits.page_bytes, address])
        if (stored := self._cache.kept(key, _kept_page)) is not None:
            return stored
        try:
            page = await self._reader.read(address)
        except Exception as error:  # whatever one page meets is that page's failure
            return in_words(error)
        self._cache.keep(key, vars(page))
        return page


def _kept_results(stored: list[list[str]]) -> list[Result]:
    return [(_text(title), _text(address)) for title, address in stored]


def _kept_page(stored: dict[str, str]) -> Page:
    return Page(**{name: _text(value) for name, value in stored.items()})


def _text(value: Any) -> str:
    """What a cache keeps as a text. Raises TypeError if it is none."""
    if not isinstance(value, str):
        raise TypeError("an entry that is no text")
    return value


def _search_key() -> str:
    """The key in the environment; an error never spells it out."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise SearchKeyError(f"no search key: set {KEY_VARIABLE} in the environment")
    if not (key.isascii() and key.isprintable()):
        raise SearchKeyError(f"{KEY_VARIABLE} holds a line break or is not ASCII")
    return key


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _plain(title: object) -> str:
    """A title as text that UTF-8 can hold; "" if there is none."""
    return title.encode("utf-8", "replace").decode() if isinstance(title, str) else ""


def _may_heal(error: BaseException) -> bool:
    """Whether another attempt at a search may fare better."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return status in (408, 425, 429) or status >= 500
    return isinstance(error, TimeoutError | httpx.TransportError)
