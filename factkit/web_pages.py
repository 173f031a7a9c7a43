"""Reading web pages politely, and only those that the public may read.

robots.txt is asked first, a host is asked one thing at a time, a page has a time and a
size, and no address of this machine or its network is ever connected to.
"""

import asyncio
import ipaddress
import os
import signal
import socket
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.robotparser import RobotFileParser

if TYPE_CHECKING:
    import httpx

AGENT = "factkit"  # the name by which a robots.txt may address the kit
ROBOTS_BYTES = 512_000  # read of a robots.txt (RFC 9309 §2.5)
MOST_REDIRECTS = 5
PAGES_AT_ONCE = 32  # of one host one
DELAY_S = 1.0  # between two pages of a host; a robots.txt may ask for more …
LONGEST_DELAY_S = 60.0  # … but not for more than this
PAGE_S = 20.0  # for a page to arrive
PAGE_BYTES = 2_000_000  # read of a page, the rest is cut off
EXTRACT_S = 10.0  # of processor time that taking a page's text may work
HTML = ("text/html", "application/xhtml+xml")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # IPv6 addresses that hold one of IPv4


@dataclass(frozen=True)
class Page:
    """A page that was read; `lack` says why there is no text."""

    title: str
    text: str
    lack: str = ""


class NotHad(Exception):
    """A search or a page failed; the message is the kind of reason, to be counted."""


@dataclass
class _Host:
    """Whose turn it is to ask a host, and when: `free_at` is in the loop's seconds."""

    delay_s: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    rules: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0


class Reader:
    """Reads pages: politely, and of public hosts only.

    A name is resolved here and the connection goes to the address that was checked, so
    that it can't lead elsewhere the second time. There are no proxies: they would
    resolve names themselves.
    """

    def __init__(self) -> None:
        import httpx
        from anyio import CapacityLimiter

        self._headers = {
            "User-Agent": f"{AGENT}/{version('factkit')} (evidence for research)",
            "Accept": ", ".join(HTML),
            "Accept-Encoding": "gzip",
        }
        # no client: it would keep cookies and follow redirects; no connection is kept,
        # for it might be another host's at the same address
        self._transport = httpx.AsyncHTTPTransport(
            trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )
        self._extracting = CapacityLimiter(min(4, os.cpu_count() or 1))
        self._slots = asyncio.Semaphore(PAGES_AT_ONCE)
        self._hosts: dict[str, _Host] = {}
        self._rules: dict[str, RobotFileParser | str] = {}

    async def aclose(self) -> None:
        """Close the connections that are open."""
        await self._transport.aclose()

    async def read(self, address: str) -> Page:
        """A page's title and text. Raises NotHad, or what the network meets."""
        import httpx
        from anyio import BrokenWorkerProcess, to_process

        response, body = await self._follow(httpx.URL(address))
        if response.status_code != 200:
            raise NotHad(f"HTTP {response.status_code}")
        if _media_type(response) not in HTML:
            return Page("", "", "not HTML")
        charset = response.charset_encoding
        try:  # there are pages of a few hundred kB on which a parser works for minutes
            return await to_process.run_sync(
                extract, body, charset, EXTRACT_S, limiter=self._extracting
            )
        except BrokenWorkerProcess:
            raise NotHad("extraction took too long or broke down") from None

    async def _follow(
        self, url: "httpx.URL", rules: bool = False
    ) -> "tuple[httpx.Response, bytes]":
        """What an address leads to. rules: it is a robots.txt, which all may read."""
        for _ in range(MOST_REDIRECTS + 1):
            if url.scheme not in ("http", "https") or url.userinfo or not url.host:
                raise NotHad("no plain web address")
            if not rules:
                await self._ask_robots(url)
            response, body = await self._get(url, rules)
            if not response.has_redirect_location:
                return response, body
            url = url.join(response.headers["location"])
        raise NotHad("too many redirects")

    async def _ask_robots(self, url: "httpx.URL") -> None:
        """Raise NotHad if the host's robots.txt does not let the kit read a page."""
        host, place = self._host(url), url.join("/robots.txt")
        async with host.rules:
            if str(place) not in self._rules:
                self._rules[str(place)] = await self._read_robots(place)
        rules = self._rules[str(place)]
        if isinstance(rules, str):
            raise NotHad(rules)
        wanted_s = float(rules.crawl_delay(AGENT) or 0)
        if wanted_s > LONGEST_DELAY_S or not rules.can_fetch(AGENT, str(url)):
            raise NotHad("robots.txt")
        host.delay_s = max(host.delay_s, wanted_s)

    async def _read_robots(self, url: "httpx.URL") -> RobotFileParser | str:
        """A host's rules, or why they can't be had, which forbids reading."""
        rules = RobotFileParser()
        try:
            response, body = await self._follow(url, rules=True)
        except Exception as error:
            return in_words(error)
        status = response.status_code
        if status >= 500:
            return f"robots.txt: HTTP {status}"
        if status in (401, 403):  # as urllib.robotparser, stricter than RFC 9309
            rules.disallow_all = True
        text = body.decode("utf-8-sig", "replace") if status == 200 else ""
        rules.parse(text.splitlines())
        return rules

    def _host(self, url: "httpx.URL") -> _Host:
        return self._hosts.setdefault(url.host, _Host(DELAY_S))

    async def _get(
        self, url: "httpx.URL", rules: bool
    ) -> "tuple[httpx.Response, bytes]":
        """One request, when it is its turn; the body of what is not 200 is not read."""
        import httpx

        host, clock = self._host(url), asyncio.get_running_loop().time
        async with host.turn:
            await asyncio.sleep(host.free_at - clock())
            try:
                async with self._slots, asyncio.timeout(PAGE_S):
                    *others, last = await self._addresses(url)
                    for address in others:
                        try:
                            return await self._get_from(address, url, rules)
                        except httpx.ConnectError:
                            continue
                    return await self._get_from(last, url, rules)
            finally:
                host.free_at = clock() + host.delay_s

    async def _addresses(self, url: "httpx.URL") -> list[str]:
        """A host's IP addresses. Raises NotHad if one is not public."""
        name = url.raw_host.decode("ascii")
        try:
            rows = await asyncio.get_running_loop().getaddrinfo(
                name, None, type=socket.SOCK_STREAM
            )
        except OSError:
            raise NotHad("unknown host") from None
        addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
        if not all(map(_is_public, addresses)):
            raise NotHad("private address")
        return addresses

    async def _get_from(
        self, address: str, url: "httpx.URL", rules: bool
    ) -> "tuple[httpx.Response, bytes]":
        """One request to an IP address; the certificate must still be the host's."""
        import httpx

        request = httpx.Request(
            "GET",
            url.copy_with(host=address),
            headers={"Host": url.netloc.decode("ascii"), **self._headers},
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )
        response = await self._transport.handle_async_request(request)
        try:
            wanted = rules or _media_type(response) in HTML
            if response.status_code != 200 or not wanted:
                return response, b""
            cut = (ROBOTS_BYTES, b"\n") if rules else (PAGE_BYTES, b">")
            return response, await _first_bytes(response, *cut)
        finally:
            await response.aclose()


def _media_type(response: "httpx.Response") -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _first_bytes(response: "httpx.Response", most: int, end: bytes) -> bytes:
    """A body, or as much of it as `most` bytes hold, cut after an `end`."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise NotHad("unknown encoding")  # not asked for: it might unpack to anything
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > most:
            return bytes(body[: body.rfind(end, 0, most) + 1 or most])
    return bytes(body)


def extract(body: bytes, charset: str | None, limit_s: float) -> Page:
    """`page_of` in a process of its own, which is ended after limit_s seconds of work,
    whatever it is in the midst of."""
    import trafilatura  # noqa: F401  takes longer than a page

    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        return page_of(body, charset)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def page_of(body: bytes, charset: str | None) -> Page:
    """A page's title and main text by trafilatura. charset: as its header says."""
    from trafilatura import bare_extraction

    try:
        html = body.decode(charset, "replace") if charset else body
    except LookupError:  # no such charset: let the page say
        html = body
    content = bare_extraction(html, with_metadata=True, include_comments=False)
    text = (content.text or "").strip() if content else ""
    return Page(content.title or "", text) if text else Page("", "", "without text")


def _is_public(address: str) -> bool:
    """Whether an IP address is of the public internet."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.sixtofour:
            return False  # it may hold any IPv4 address; hardly anyone serves there
        held = ipaddress.IPv4Address(ip.packed[-4:]) if ip in NAT64 else ip.ipv4_mapped
        ip = held or ip
    return ip.is_global and not ip.is_multicast


def in_words(error: Exception) -> str:
    """The kind of an error: no address in it, no key, so that it can be counted."""
    import httpx

    from factkit.http_client import BadReply

    if isinstance(error, NotHad | BadReply):
        return str(error)
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "timeout"
    return type(error).__name__
