"""A web of the invented country's pages, with a search, in one process on one port.

    python tests/rehearsal/web.py PORT [LOG]

As the search API: POST /search {q, num} with header X-API-KEY gives {organic: [{title,
link, snippet, position}]}, the best pages by BM25. As each page's host: GET gives the
page that lives there, or its robots.txt.

Each page has a public address of its own: the kit refuses this machine's, and takes a
page a second from a host. Set for whoever searches and reads, with tests/site on the
path, which has those addresses answered at PORT:

    FACTKIT_SEARCH_KEY=rehearsal REHEARSAL_WEB=PORT
    and search_url: http://127.0.0.1:PORT/search

What was asked goes to LOG, a JSON line each.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import quote, urlsplit

from country import Country, Page
from question_sets import web_page

from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import Chunk

KEY = "rehearsal"
NETWORK = "11.0"  # public by its number, and routed nowhere: this server answers
FORBIDDEN = 3  # the place of the page whose robots.txt lets nobody in
PICTURE = 5  # of the page that is no HTML


class Web:
    """The pages by address, and the search among them."""

    def __init__(self, country: Country, log: Path | None = None) -> None:
        self.pages = {_host(i): page for i, page in enumerate(country.pages)}
        texts = [f"{page.title}\n{page.text}" for page in country.pages]
        chunks = [
            Chunk(host, host, text, 0)
            for host, text in zip(self.pages, texts, strict=True)
        ]
        self._index, self._log, self._lock = CorpusIndex(chunks), log, Lock()
        self.asked: list[dict[str, Any]] = []

    def note(self, **what: Any) -> None:
        with self._lock:
            self.asked.append(what)
            if self._log:
                with self._log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(what, ensure_ascii=False) + "\n")

    def search(self, query: str, num: int) -> list[dict[str, Any]]:
        """num results: those that share a word with the query, then any others, as a
        search engine hardly ever finds nothing."""
        hits = [h.chunk.id for h in self._index.search(query, num)]
        hosts = list(dict.fromkeys([*hits, *self.pages]))[:num]
        return [
            {
                "title": self.pages[host].title,
                "link": _link(host, self.pages[host]),
                "snippet": self.pages[host].sentences[0],
                "position": position,
            }
            for position, host in enumerate(hosts, start=1)
        ]

    def page(self, address: str) -> tuple[int, str, str]:
        """What an address holds: status, content type, text."""
        parts = urlsplit(address)
        page = self.pages.get(parts.hostname or "")
        if page is None:
            return 404, "text/plain", "no such host"
        place = list(self.pages).index(parts.hostname)
        if parts.path == "/robots.txt":
            rule = "Disallow: /" if place == FORBIDDEN else "Disallow: /private/"
            return 200, "text/plain", f"User-agent: *\n{rule}\n"
        if place == PICTURE:
            return 200, "image/png", "no picture"
        if address != _link(parts.hostname, page):
            return 404, "text/html; charset=utf-8", "<p>no such page</p>"
        return 200, "text/html; charset=utf-8", web_page(page)


def _host(place: int) -> str:
    return f"{NETWORK}.{place // 200}.{place % 200 + 1}"


def _link(host: str, page: Page) -> str:
    return f"http://{host}/{quote(page.title.replace(' ', '_'))}"


def _handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != "/search":
                return self._reply(404, "text/plain", "POST /search")
            if self.headers.get("X-API-KEY") != KEY:
                web.note(search=None, status=403)
                return self._reply(403, "application/json", '{"message": "bad key"}')
            asked = json.loads(body)
            web.note(search=asked["q"], num=asked["num"], status=200)
            rows = web.search(asked["q"], asked["num"])
            answer = {"searchParameters": asked, "organic": rows}
            self._reply(200, "application/json", json.dumps(answer))

        def do_GET(self) -> None:
            address = f"http://{self.headers['Host']}{self.path}"
            status, kind, text = web.page(address)
            web.note(page=address, status=status)
            self._reply(status, kind, text)

        def _reply(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    return Handler


@contextmanager
def serve(web: Web, port: int = 0) -> Iterator[str]:
    """Serve in threads, on a free port if none is given; the server's URL."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(web))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    log = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    own = ("127.0.0.1", int(sys.argv[1]))
    ThreadingHTTPServer(own, _handler(Web(Country(), log))).serve_forever()
