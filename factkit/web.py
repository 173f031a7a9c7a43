"""Building the per-prompt document cache from the web (Binary RAR App. C).

A search endpoint by URL and key gives addresses; of their pages trafilatura takes the
text. robots.txt is asked first, a host is asked one thing at a time, a page has a time
and a size, and no address of this machine or its network is asked at all. What was
found and read is kept on disk, so that a rerun asks nobody twice; what failed is not,
so that a rerun tries it again.
"""

import asyncio
import hashlib
import ipaddress
import json
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser

from factkit.corpus import Document
from factkit.datasets.examples import Example
from factkit.params import ParamError
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
from factkit.serving import environment_token

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "FACTKIT_SEARCH_KEY"
SEARCH_FAILED = "search failed"  # a prompt's fate, beside those in `evidence`
QUERY_CHARS = 2_000  # ours: search engines ignore or refuse what is longer
SEARCHES = 8  # at once
ATTEMPTS = 5  # at a search; a page has one
AGENT = "factkit"  # the name by which a robots.txt may address the kit
MOST_REDIRECTS = 5
PAGES_AT_ONCE = 32  # of one host one
DELAY_S = 1.0  # between two pages of a host; a robots.txt may ask for more …
LONGEST_DELAY_S = 60.0  # … but not for more than this
PAGE_S = 20.0  # for a search's reply, or a page, to arrive
PAGE_BYTES = 2_000_000  # read of a page, the rest is cut off
EXTRACT_S = 60.0  # that taking a page's text may last
HTML = ("text/html", "application/xhtml+xml")


class NotHad(Exception):
    """A search or a page failed; the message is the kind of reason, to be counted."""


def run_online(
    examples: Iterable[Example],
    endpoint: str,
    cache: Path,
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
    Raises ParamError if the key is absent, unusable or refused, or the endpoint is no
    web address; DataError for an id that repeats.
    """
    from anyio.from_thread import start_blocking_portal

    if not endpoint.startswith(("https://", "http://")):
        raise ParamError(f"search_url={endpoint!r}; it must begin with https://")
    key = environment_token(KEY_VARIABLE)
    if not key:
        raise ParamError(f"no search key: set {KEY_VARIABLE} in the environment")
    work = _Web(endpoint, key, cache), unrepeated(examples), pages, at_least, progress
    # a loop in a thread of its own, as a notebook's has one already; an interrupt
    # cancels what runs there
    with start_blocking_portal() as portal:
        return portal.call(_build, *work)


async def _build(
    web: "_Web", examples: Sequence[Example], pages: int, at_least: int, progress: str
) -> tuple[dict[str, list[Document]], Counter[str]]:
    kept: dict[str, list[Document]] = {}
    counts = Counter({KEPT: 0, TOO_FEW: 0, NO_REFERENCE: 0, SEARCH_FAILED: 0})
    bar = progress_bar(len(examples), progress, "prompt") if progress else None
    waiting = iter(examples)

    async def work() -> None:
        for example in waiting:
            documents, fate = await _documents(web, example, pages, counts)
            if fate == KEPT and len(documents) < at_least:
                fate = TOO_FEW
            if fate == KEPT:
                kept[example.id] = documents
            counts[fate] += 1
            if bar is not None:
                bar.update()

    async with web.client:
        with bar or nullcontext():
            workers = range(min(len(examples), SEARCHES + PAGES_AT_ONCE))
            await asyncio.gather(*(work() for _ in workers))
    if web.refused:
        raise ParamError(f"{web.refused}; set {KEY_VARIABLE} to a valid key")
    return {e.id: kept[e.id] for e in examples if e.id in kept}, counts


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
    read = await asyncio.gather(*map(web.page, titles), return_exceptions=True)
    documents: dict[str, Document] = {}  # by text
    for (address, title), page in zip(titles.items(), read, strict=True):
        if isinstance(page, Exception):
            outcome = str(page)
        elif not page["text"]:
            outcome = "without text"
        elif (words := " ".join(page["text"].split())) in documents:
            outcome = "duplicate"
        else:
            outcome, host = "read", urlsplit(address).netloc
            documents[words] = Document(
                address, page["title"] or title, page["text"], host
            )
        counts[f"page: {outcome}"] += 1
    return list(documents.values()), KEPT


@dataclass
class _Host:
    """Whose turn it is to ask a host, and when: `free_at` is in the loop's seconds."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading_rules: asyncio.Lock = field(default_factory=asyncio.Lock)
    rules: RobotFileParser | str = ""  # or why there are none
    free_at: float = 0.0


class _Web:
    """Searches and pages, through the disk cache."""

    def __init__(self, endpoint: str, key: str, cache: Path) -> None:
        import httpx

        from factkit.cache import Cache

        self.endpoint, self.refused = endpoint, ""  # why no search is made any more
        self._key, self._cache = key, Cache(cache)
        self._searches = asyncio.Semaphore(SEARCHES)
        self._slots = asyncio.Semaphore(PAGES_AT_ONCE)
        self._extracting = asyncio.Semaphore(min(4, os.cpu_count() or 1))
        self._hosts: defaultdict[str, _Host] = defaultdict(_Host)
        self._pages: dict[str, asyncio.Task[dict[str, str]]] = {}
        agent = f"{AGENT}/{version('factkit')} (evidence for research)"
        self.client = httpx.AsyncClient(
            headers={"User-Agent": agent, "Accept-Encoding": "gzip"},
            timeout=None,  # each call has one for the whole
        )

    # Searches

    async def search(self, query: str, n: int) -> list[list[str]]:
        """The results of a query, best first: title, address. Raises NotHad."""
        from tenacity import AsyncRetrying, stop_after_attempt

        from factkit.http_client import retries

        key = _digest(["search", self.endpoint, query, n])
        if (stored := self._cache.kept(key)) is not None:
            return stored
        attempts = AsyncRetrying(**retries(stop_after_attempt(ATTEMPTS)))
        try:
            results = await attempts(self._post, query, n)
        except Exception as error:  # whatever one search meets is that search's failure
            raise NotHad(_in_words(error)) from None
        self._cache.keep(key, results)
        return results

    async def _post(self, query: str, n: int) -> list[list[str]]:
        """One call of the endpoint."""
        async with self._searches, asyncio.timeout(PAGE_S):
            if self.refused:
                raise NotHad("not made")
            response = await self.client.post(
                self.endpoint,
                json={"q": query, "num": n},
                headers={"X-API-KEY": self._key},
            )
        status = response.status_code
        if status in (401, 403):
            self.refused = f"{response.url.host} refuses the search key (HTTP {status})"
        response.raise_for_status()  # also for a redirect: the key goes nowhere else
        try:
            rows = [(r.get("title"), r.get("link")) for r in response.json()["organic"]]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise NotHad("a reply without results") from None
        return [[_text(title), _text(link)] for title, link in rows if _text(link)]

    # Pages

    async def page(self, address: str) -> dict[str, str]:
        """A page's title and text; asked for once, whoever wants it. Raises NotHad."""
        if address not in self._pages:
            self._pages[address] = asyncio.create_task(self._page(address))
        return await self._pages[address]

    async def _page(self, address: str) -> dict[str, str]:
        parser = f"trafilatura {version('trafilatura')}"
        key = _digest(["page", parser, PAGE_BYTES, address])
        if (stored := self._cache.kept(key)) is not None:
            return stored
        try:
            page = await self._read(address)
        except Exception as error:  # whatever one page meets is that page's failure
            raise NotHad(_in_words(error)) from None
        self._cache.keep(key, page)
        return page

    async def _read(self, address: str) -> dict[str, str]:
        import httpx
        from anyio import BrokenWorkerProcess, to_process

        response, body = await self._follow(httpx.URL(address))
        if response.status_code != 200:
            raise NotHad(f"HTTP {response.status_code}")
        kind = response.headers.get("content-type", "").partition(";")[0]
        if kind.strip().lower() not in HTML:
            return {"title": "", "text": ""}
        charset = response.charset_encoding
        try:  # there are pages of a few hundred kB on which a parser works for minutes
            async with self._extracting, asyncio.timeout(EXTRACT_S):
                return await to_process.run_sync(
                    page_of, body, charset, cancellable=True
                )
        except (TimeoutError, BrokenWorkerProcess):
            raise NotHad("extraction took too long or broke down") from None

    async def _follow(
        self, url: "httpx.URL", rules: bool = False
    ) -> "tuple[httpx.Response, bytes]":
        """What an address leads to. rules: it is a robots.txt, which all may read."""
        for _ in range(MOST_REDIRECTS + 1):
            if url.scheme not in ("http", "https") or url.userinfo or not url.host:
                raise NotHad("no plain web address")
            pause_s = DELAY_S if rules else await self._allowed_pause_s(url)
            response, body = await self._get(url, pause_s)
            if not response.has_redirect_location:
                return response, body
            url = url.join(response.headers["location"])
        raise NotHad("too many redirects")

    async def _allowed_pause_s(self, url: "httpx.URL") -> float:
        """Seconds that robots.txt wants after a page; NotHad where it forbids it."""
        host = self._hosts[url.netloc.decode()]
        async with host.reading_rules:
            if not host.rules:
                host.rules = await self._rules(url.join("/robots.txt"))
        if isinstance(host.rules, str):
            raise NotHad(host.rules)
        pause_s = max(DELAY_S, float(host.rules.crawl_delay(AGENT) or 0))
        if pause_s > LONGEST_DELAY_S or not host.rules.can_fetch(AGENT, str(url)):
            raise NotHad("robots.txt")
        return pause_s

    async def _rules(self, url: "httpx.URL") -> RobotFileParser | str:
        """A host's rules, or why they can't be had, which forbids reading."""
        rules = RobotFileParser()
        try:
            response, body = await self._follow(url, rules=True)
        except Exception as error:
            return _in_words(error)
        if response.status_code >= 500:
            return f"robots.txt: HTTP {response.status_code}"
        # as urllib.robotparser, stricter than RFC 9309
        rules.disallow_all = response.status_code in (401, 403)
        text = body.decode("utf-8-sig", "replace")
        rules.parse(text.splitlines() if response.status_code == 200 else [])
        return rules

    async def _get(
        self, url: "httpx.URL", pause_s: float
    ) -> "tuple[httpx.Response, bytes]":
        """One request, when it is its turn, and at most PAGE_BYTES of the body."""
        host, clock = self._hosts[url.netloc.decode()], asyncio.get_running_loop().time
        async with host.turn:
            await asyncio.sleep(host.free_at - clock())
            try:
                async with self._slots, asyncio.timeout(PAGE_S):
                    await _check_public(url)
                    async with self.client.stream("GET", url) as response:
                        body = bytearray()
                        async for part in response.aiter_bytes():
                            body += part
                            if len(body) > PAGE_BYTES:
                                break
                        return response, bytes(body[:PAGE_BYTES])
            finally:
                host.free_at = clock() + pause_s


def page_of(body: bytes, charset: str | None) -> dict[str, str]:
    """A page's title and main text by trafilatura. charset: as its header says."""
    from trafilatura import bare_extraction

    try:
        html = body.decode(charset, "replace") if charset else body
    except LookupError:  # no such charset: let the page say
        html = body
    content = bare_extraction(html, with_metadata=True, include_comments=False)
    text = (content.text or "").strip() if content else ""
    return {"title": (content.title or "") if text else "", "text": text}


async def _check_public(url: "httpx.URL") -> None:
    """Raise NotHad unless all addresses of a host are of the public internet."""
    loop, name = asyncio.get_running_loop(), url.raw_host.decode("ascii")
    try:
        rows = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        raise NotHad("unknown host") from None
    if not all(is_public(row[4][0]) for row in rows):
        raise NotHad("private address")


def is_public(address: str) -> bool:
    """Whether an IP address is of the public internet."""
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_global and not ip.is_multicast


def _in_words(error: Exception) -> str:
    """The kind of an error: no address in it, no key, so that it can be counted."""
    import httpx

    if isinstance(error, NotHad):
        return str(error)
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "timeout"
    return type(error).__name__


def _text(value: object) -> str:
    """A text that UTF-8 can hold; "" if it is none."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
