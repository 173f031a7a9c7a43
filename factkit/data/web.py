"""Building the per-prompt document cache from the web (Binary RAR App. C).

A search endpoint returns addresses; trafilatura extracts the text of their pages. Pages
that robots.txt (read by protego) forbids are left out, a host gets one request at a
time, a page has limits of time and size, and private addresses get no request. Results
and pages are cached on disk, failures are not: a rerun repeats only what failed.
"""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from protego import Protego
from tenacity import stop_after_attempt

from factkit.data.corpus import Document
from factkit.data.evidence import KEPT, NO_REFERENCE, TOO_FEW, check_ids, reference_of
from factkit.data.examples import Example
from factkit.run import connections
from factkit.run.params import ParamError
from factkit.run.params.stages import SEARCH_KEY
from factkit.run.progress import progress_bar
from factkit.run.serving import create_retrying, read_token

SEARCH_FAILED = "search failed"  # a prompt's fate, beside those in `evidence`
QUERY_CHARS = 2_000  # ours: search engines ignore or refuse longer queries
SEARCHES = 8  # at once
ATTEMPTS = 5  # at a search; a page has one
AGENT = "factkit"  # the name by which a robots.txt may address the kit
MAX_REDIRECTS = 5
HOSTS_AT_ONCE = 32
DELAY_S = 1.0  # between two requests to a host, unless its robots.txt asks for more
MAX_DELAY_S = 60.0  # a host that asks for more is left out
PAGE_S = 20.0  # for a search's reply or a page to arrive
PAGE_BYTES = 2_000_000  # read of a page
EXTRACT_S = 10  # processor time for extracting the text of a page
HTML = ("text/html", "application/xhtml+xml")

Page = dict[str, str]  # title and text; no text if it is not HTML, or has none


class FetchError(Exception):
    """A search or a page failed; the message is the kind of reason, to be counted."""


def run_online(
    examples: Iterable[Example],
    endpoint: str,
    cache: Path,
    pages: int,
    at_least: int,
) -> tuple[dict[str, list[Document]], Counter[str]]:
    """Each prompt's web pages, and how many prompts and pages had which fate.

    The reference response (`answers[0]`) is searched for, without the prompt; of the
    first `pages` results those that can be read are kept, equal texts once. A prompt
    with fewer than `at_least` is left out. endpoint: takes POST JSON {q, num} with
    header X-API-KEY, the variable FACTKIT_SEARCH_KEY, and replies {organic: [{title,
    link}]}. cache: a folder on a local disk. Fates are those of `build_offline`,
    "search failed", "search: HTTP 400", "page: robots.txt" … Raises ParamError if the
    key is absent, unusable or refused, or the endpoint is no web address; DataError for
    an id that repeats.
    """
    if not endpoint.startswith(("https://", "http://")):
        raise ParamError(f"search_url={endpoint!r}; it must begin with https://")
    queries = {
        e.id: " ".join(reference_of(e).split())[:QUERY_CHARS]
        for e in check_ids(examples)
    }
    by_host: dict[str, dict[str, None]] = {}  # a thread reads a host's pages in turn
    with _Web(endpoint, pages, cache) as web:
        unique = list(dict.fromkeys(filter(None, queries.values())))
        replies = web.map(web.search, unique, SEARCHES)
        results = dict(zip(unique, replies, strict=True))
        if web.refused:
            raise ParamError(f"{web.refused}; set {SEARCH_KEY} to a valid key")
        for titles in results.values():
            for address in () if isinstance(titles, str) else titles:
                by_host.setdefault(urlsplit(address).netloc, {})[address] = None
        parts = web.map(web.pages, list(by_host.values()), HOSTS_AT_ONCE)
        read = {address: page for part in parts for address, page in part.items()}
    evidence: dict[str, list[Document]] = {}
    counts = Counter({KEPT: 0, TOO_FEW: 0, NO_REFERENCE: 0, SEARCH_FAILED: 0})
    for prompt_id, query in queries.items():
        titles = results[query] if query else {}
        if isinstance(titles, str):
            counts.update([SEARCH_FAILED, f"search: {titles}"])
            continue
        documents = _documents(titles, read, counts)
        enough = len(documents) >= at_least
        counts[(KEPT if enough else TOO_FEW) if query else NO_REFERENCE] += 1
        if query and enough:
            evidence[prompt_id] = documents
    return evidence, counts


def _documents(
    titles: dict[str, str], read: dict[str, Page | str], counts: Counter[str]
) -> list[Document]:
    """A prompt's documents. titles: address → title as the search found them."""
    documents: dict[str, Document] = {}  # by text
    for address, title in titles.items():
        page = read[address]
        if isinstance(page, str):
            outcome = page
        elif not page["text"]:
            outcome = "without text"
        elif (words := " ".join(page["text"].split())) in documents:
            outcome = "duplicate"
        else:
            outcome, host = "read", urlsplit(address).netloc
            title = page["title"] or title
            documents[words] = Document(address, title, page["text"], host)
        counts[f"page: {outcome}"] += 1
    return list(documents.values())


class _Web:
    """Searches and fetches pages through the disk cache; of each, or why it failed."""

    def __init__(self, endpoint: str, n_results: int, cache: Path) -> None:
        from factkit.run.cache import Cache

        self._key = read_token(SEARCH_KEY)
        if not self._key:
            raise ParamError(f"no search key: set {SEARCH_KEY} in the environment")
        self.endpoint, self.n_results, self._cache = endpoint, n_results, Cache(cache)
        self.refused = ""  # why the endpoint refuses the key
        self._ended = threading.Event()
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._robots: dict[str, Protego] = {}
        agent = f"{AGENT}/{version('factkit')} (evidence for research)"
        headers = {"User-Agent": agent}
        self._search = connections.create_client(endpoint, PAGE_S, headers=headers)
        # without a proxy, which would hide the address that replies
        self._http = connections.create_client("", PAGE_S, public=True, headers=headers)

    def __enter__(self) -> "_Web":
        workers = min(4, os.cpu_count() or 1)
        self._extractors = multiprocessing.get_context("spawn").Pool(workers)
        return self

    def __exit__(self, *error: Any) -> None:
        self._extractors.terminate()
        self._search.close()
        self._http.close()

    def map(self, work: Callable, items: list, threads: int) -> list:
        """Call `work` on each item; after an interrupt no further call begins."""
        results, bar = [], progress_bar(len(items), f"evidence: {work.__name__}")
        with ThreadPoolExecutor(threads) as pool, bar:
            try:
                for result in pool.map(work, items):
                    results.append(result)
                    bar.update()
            except BaseException:
                self._ended.set()
                pool.shutdown(cancel_futures=True)
                raise
        return results

    def _cached(self, key: list[Any], work: Callable[[str], Any], item: str) -> Any:
        """work(item), its cached result, or the reason why it failed."""
        digest = hashlib.sha256(json.dumps([*key, item]).encode()).hexdigest()
        stored = self._cache.get(digest)
        if stored is not None:
            return stored
        try:
            value = work(item)
        except (FetchError, connections.AddressError) as error:
            return str(error)
        except httpx.HTTPStatusError as error:
            return f"HTTP {error.response.status_code}"
        except (TimeoutError, httpx.TimeoutException):
            return "timeout"
        except Exception as error:  # not its text: it may hold an address or the key
            return type(error).__name__
        self._cache.set(digest, value)
        return value

    def search(self, query: str) -> dict[str, str] | str:
        """A query's results, address → title, best first."""
        attempts = create_retrying(stop_after_attempt(ATTEMPTS))
        key = ["search", self.endpoint, self.n_results]
        return self._cached(key, lambda query: attempts(self._post, query), query)

    def _post(self, query: str) -> dict[str, str]:
        if self.refused:
            raise FetchError("not made")
        response = self._search.post(
            self.endpoint,
            json={"q": query, "num": self.n_results},
            headers={"X-API-KEY": self._key},
        )
        status = response.status_code
        if status in (401, 403):
            self.refused = f"{response.url.host} refuses the search key (HTTP {status})"
        response.raise_for_status()  # also for a redirect: the key goes nowhere else
        try:
            rows = [(r.get("title"), r.get("link")) for r in response.json()["organic"]]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise FetchError("a reply without results") from None
        titles: dict[str, str] = {}
        for title, link in rows[: self.n_results]:
            if link := _text(link).partition("#")[0]:
                titles.setdefault(link, _text(title))
        return titles

    def pages(self, addresses: Iterable[str]) -> dict[str, Page | str]:
        """A host's pages, one after the other."""
        key = ["page", f"trafilatura {version('trafilatura')}", PAGE_BYTES]
        return {a: self._cached(key, self._page, a) for a in addresses}

    def _page(self, address: str) -> Page:
        response, body = self._fetch(httpx.URL(address))
        if response.status_code != 200:
            raise FetchError(f"HTTP {response.status_code}")
        kind = response.headers.get("content-type", "").partition(";")[0]
        if kind.strip().lower() not in HTML:
            return {"title": "", "text": ""}
        work = self._extractors.apply_async(
            extract_page, (body, response.charset_encoding, EXTRACT_S)
        )
        try:
            return work.get(6 * EXTRACT_S)
        except multiprocessing.TimeoutError:  # its worker may be dead
            raise FetchError("extraction took too long or broke down") from None

    def _fetch(
        self, url: httpx.URL, robots: bool = True
    ) -> tuple[httpx.Response, bytes]:
        """Fetch a URL and follow its redirects, each as robots.txt allows."""
        for _ in range(MAX_REDIRECTS + 1):
            if url.scheme not in ("http", "https") or url.userinfo or not url.host:
                raise FetchError("no plain web address")
            pause_s = self._allowed_pause_s(url) if robots else DELAY_S
            response, body = self._get(url, pause_s)
            if not response.has_redirect_location:
                return response, body
            url = url.join(response.headers["location"])
        raise FetchError("too many redirects")

    def _allowed_pause_s(self, url: httpx.URL) -> float:
        """Seconds to wait after a request; FetchError where robots.txt forbids it."""
        place = url.join("/robots.txt")
        if str(place) not in self._robots:
            response, body = self._fetch(place, robots=False)
            status = response.status_code
            text = body.decode("utf-8-sig", "replace") if status == 200 else ""
            if status in (401, 403) or status >= 500:  # stricter than RFC 9309
                text = "User-agent: *\nDisallow: /"
            self._robots[str(place)] = Protego.parse(text)
        rules = self._robots[str(place)]
        pause_s = max(DELAY_S, rules.crawl_delay(AGENT) or 0)
        if pause_s > MAX_DELAY_S or not rules.can_fetch(str(url), AGENT):
            raise FetchError("robots.txt")
        return pause_s

    def _get(self, url: httpx.URL, pause_s: float) -> tuple[httpx.Response, bytes]:
        """One request in the host's turn, and at most PAGE_BYTES of the reply."""
        with self._turns[url.host]:
            if self._ended.is_set():
                raise FetchError("interrupted")
            body, end = bytearray(), time.monotonic() + PAGE_S
            try:
                with self._http.stream("GET", url) as response:
                    for part in response.iter_bytes():
                        body += part
                        if len(body) > PAGE_BYTES:
                            break
                        if time.monotonic() > end:
                            raise httpx.ReadTimeout("the page takes too long")
                    return response, bytes(body[:PAGE_BYTES])
            finally:
                self._ended.wait(pause_s)


def extract_page(body: bytes, charset: str | None, limit_s: int) -> Page:
    """Extract a page's title and main text, in a process that is killed after limit_s
    seconds of work. charset: of the page's header.

    On some pages of a few hundred kB a parser works for minutes.
    """
    from trafilatura import bare_extraction

    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        html = body.decode(charset, "replace") if charset else body
    except LookupError:  # no such charset: trafilatura detects it
        html = body
    content = bare_extraction(html, with_metadata=True, include_comments=False)
    signal.setitimer(signal.ITIMER_PROF, 0)
    if content is None or isinstance(content, dict):  # a dict only where asked for
        return {"title": "", "text": ""}
    text = (content.text or "").strip()
    return {"title": (content.title or "") if text else "", "text": text}


def _text(value: object) -> str:
    """A string that UTF-8 can hold; "" for another value."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
