"""Evidence from the web: politely read, nothing private, nothing asked for twice."""

import asyncio
import itertools
import json
import logging
import signal
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import diskcache
import pytest

from factkit import http_client, page_text, web_pages, web_search
from factkit.datasets.examples import DataError, Example
from factkit.retrieval.evidence import read_evidence, write_evidence
from factkit.web_search import SearchKeyError, WebLimits, build_online, run_online

KEY = "very-secret-key-123"
HTML = {"Content-Type": "text/html; charset=utf-8"}
HANG = object()
PRIVATE = frozenset({"127.0.0.1"})  # the fake's host; "localhost" stays forbidden
QUICK = WebLimits(
    delay_s=0, timeout_s=5, attempts=3, backoff_s=0.01, private_hosts=PRIVATE
)
HUGE_FILLER = "<!-- " + "x" * 20_000 + " -->"


def html(about, title="", extra=""):
    """A page with a title and a few sentences on its subject."""
    said = "".join(
        f"<p>{about} was seen by witness number {i}, who told it to the others.</p>"
        for i in range(5)
    )
    head = f"<title>{title or about}</title>"
    return f"<html><head>{head}</head><body><article>{said}{extra}</article></body>"


def page(about, **more):
    return 200, html(about, **more), HTML


@dataclass
class FakeWeb:
    """A search endpoint and web sites on one port.

    pages: path → (status, body, headers), or HANG, or a function that gives it.
    results: query → addresses or paths; a query not in it finds every page.
    """

    pages: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)
    search_errors: list = field(default_factory=list)  # status, headers of first calls
    search_body: object = None  # instead of results
    url: str = ""
    asked: list = field(default_factory=list)  # (path, headers, arrival, departure)
    bodies: list = field(default_factory=list)  # of searches
    now: int = 0
    most_at_once: int = 0

    def paths(self):
        return Counter(path for path, *_ in self.asked)

    def answer_search(self, body):
        self.bodies.append(body)
        if len(self.bodies) <= len(self.search_errors):
            status, headers = self.search_errors[len(self.bodies) - 1]
            return status, f"no, {KEY} is a bad key", headers
        if self.search_body is not None:
            return 200, json.dumps(self.search_body), {}
        paths = self.results.get(
            body["q"], [p for p in self.pages if "robots" not in p]
        )
        links = [p if "://" in p else self.url + p for p in paths]
        rows = [{"title": f"result {link}", "link": link} for link in links]
        return 200, json.dumps({"organic": rows, "credits": 1}), {}


@contextmanager
def serve(fake):
    """The fake, served on a free port in a thread."""
    from aiohttp import web

    async def handle(request):
        begin = time.monotonic()
        peer = request.transport.get_extra_info("peername")
        fake.now += 1
        fake.most_at_once = max(fake.most_at_once, fake.now)
        try:
            if request.path == "/search":
                done = fake.answer_search(await request.json())
                await asyncio.sleep(0.01)
            else:
                done = fake.pages.get(request.path, (404, "no such page", HTML))
                done = done() if callable(done) else done
                await asyncio.sleep(0.002)
            if done is HANG:
                await asyncio.sleep(3600)
        finally:
            fake.now -= 1
            headers = dict(request.headers) | {"peer": peer}
            fake.asked.append((request.path, headers, begin, time.monotonic()))
        status, body, headers = done
        body = body.encode() if isinstance(body, str) else body
        return web.Response(status=status, body=body, headers=headers)

    async def run(ready, stop):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await stop.wait()
        await runner.cleanup()

    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=[run(ready, stop)])
    thread.start()
    try:
        assert ready.wait(20)
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def example(i=0, answer="Ada Lovelace wrote the notes."):
    return Example(id=f"q{i}", question="Who?", answers=[answer], entity=str(i))


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds from a fake; the cache is the test's own."""
    monkeypatch.setenv(web_search.KEY_VARIABLE, KEY)

    def run(fake, examples=None, limits=QUICK, **more):
        return run_online(
            examples or [example()],
            f"{fake.url}/search",
            tmp_path / "cache",
            limits,
            **more,
        )

    return run


def sites(n=4, **more):
    return FakeWeb({f"/p{i}": page(f"Subject {i}") for i in range(n)}, **more)


# What is built


def test_pages_come_in_the_order_of_the_results_with_title_text_and_host(build):
    with serve(sites()) as fake:
        evidence, counts = build(fake)
    documents = evidence["q0"]
    assert [d.id for d in documents] == [f"{fake.url}/p{i}" for i in range(4)]
    assert [d.title for d in documents] == [f"Subject {i}" for i in range(4)]
    assert all(f"Subject {i} was seen" in d.text for i, d in enumerate(documents))
    assert {d.source for d in documents} == {fake.url.removeprefix("http://")}
    assert (counts["kept"], counts["page: read"]) == (1, 4)


def test_the_reference_response_is_searched_for_without_the_prompt(build):
    with serve(sites()) as fake:
        build(fake, [example(answer="One\n long  answer")], pages=7)
    assert fake.bodies == [{"q": "One long answer", "num": 7}]


def test_what_is_built_online_is_written_and_read_as_what_is_built_offline(
    build, tmp_path
):
    with serve(sites()) as fake:
        evidence, _ = build(fake)
    write_evidence(tmp_path / "evidence.jsonl", evidence)
    assert read_evidence(tmp_path / "evidence.jsonl") == evidence


def test_no_more_pages_than_asked_for_are_read_whatever_the_search_gives(build):
    with serve(sites(8)) as fake:
        evidence, _ = build(fake, pages=5)
    assert len(evidence["q0"]) == 5
    assert not {"/p5", "/p6", "/p7"} & fake.paths().keys()


def test_a_prompt_with_fewer_than_three_pages_is_discarded_and_counted(build):
    rows = [example(0, "many"), example(1, "few")]
    with serve(sites(results={"few": ["/p0", "/p1"]})) as fake:
        evidence, counts = build(fake, rows)
    assert list(evidence) == ["q0"]
    assert (counts["kept"], counts["too few documents"]) == (1, 1)


def test_equal_texts_and_pages_without_text_are_dropped_and_counted(build):
    fake = sites()
    fake.pages["/mirror"] = page("Subject 1", title="Another title")
    fake.pages["/empty"] = (200, "<html><body><script>x</script></body></html>", HTML)
    with serve(fake):
        evidence, counts = build(fake)
    assert [d.id for d in evidence["q0"]] == [f"{fake.url}/p{i}" for i in range(4)]
    assert (counts["page: duplicate"], counts["page: without text"]) == (1, 1)


def test_addresses_that_differ_in_the_fragment_are_one_page(build):
    with serve(sites(results={"x": ["/p0#a", "/p0#b", "/p1", "/p2"]})) as fake:
        evidence, _ = build(fake, [example(answer="x")])
    assert len(evidence["q0"]) == 3
    assert fake.paths()["/p0"] == 1


def test_a_prompt_without_reference_is_counted_and_not_searched_for(build):
    with serve(sites()) as fake:
        evidence, counts = build(fake, [example(answer=" ")])
    assert (evidence, counts["no reference response"], fake.asked) == ({}, 1, [])


def test_a_repeated_prompt_id_is_refused(build):
    with serve(sites()) as fake, pytest.raises(DataError, match="q0.*2 times"):
        build(fake, [example(), example()])


def test_a_charset_in_the_header_is_believed(build):
    fake = sites(3)
    latin = {"Content-Type": "text/html; charset=iso-8859-15"}
    fake.pages["/p0"] = (200, html("A coin of 5 €").encode("iso-8859-15"), latin)
    with serve(fake):
        evidence, _ = build(fake)
    assert evidence["q0"][0].title == "A coin of 5 €"


# Failures of the search


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_search_that_fails_in_passing_is_repeated(build, status):
    with serve(sites(search_errors=[(status, {})] * 2)) as fake:
        evidence, _ = build(fake)
    assert (len(evidence), len(fake.bodies)) == (1, 3)


def test_a_search_that_keeps_failing_is_counted_by_its_reason(build):
    with serve(sites(search_errors=[(503, {})] * 9)) as fake:
        evidence, counts = build(fake)
    assert (evidence, len(fake.bodies)) == ({}, QUICK.attempts)
    assert (counts["search failed"], counts["search: HTTP 503"]) == (1, 1)


def test_a_search_that_is_refused_is_not_repeated(build):
    with serve(sites(search_errors=[(400, {})])) as fake:
        _, counts = build(fake)
    assert (len(fake.bodies), counts["search: HTTP 400"]) == (1, 1)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_ends_the_search_for_all_prompts(build, status):
    rows = [example(i, f"a{i}") for i in range(20)]
    limits = replace(QUICK, searches=1)
    with serve(sites(search_errors=[(status, {})] * 99)) as fake:
        with pytest.raises(SearchKeyError, match=web_search.KEY_VARIABLE) as error:
            build(fake, rows, limits)
        assert len(fake.bodies) == 1
    assert KEY not in str(error.value)


def test_a_retry_comes_no_earlier_than_the_server_says(build):
    with serve(sites(search_errors=[(429, {"Retry-After": "1"})])) as fake:
        build(fake)
    first, second = [begin for path, _, begin, _ in fake.asked if path == "/search"]
    assert second - first >= 1


@pytest.mark.parametrize("body", [[], {"organic": 3}, {"organic": [3]}, {"answer": 1}])
def test_a_reply_that_is_no_result_list_is_a_failed_search(build, body):
    with serve(sites(search_body=body)) as fake:
        _, counts = build(fake)
    assert counts["search: a reply without results"] == 1


def test_a_reply_beyond_its_bound_is_a_failed_search_that_is_not_repeated(
    build, monkeypatch
):
    monkeypatch.setattr(http_client, "REPLY_BYTES", 10_000)
    with serve(sites(search_body={"organic": [], "more": "x" * 20_000})) as fake:
        _, counts = build(fake)
    assert counts["search: a reply of more than 10000 bytes"] == 1
    assert len(fake.bodies) == 1


def test_a_cache_of_another_kind_is_set_aside_and_the_web_asked(build, tmp_path):
    with diskcache.Cache(str(tmp_path / "cache")) as cache:
        cache["key"] = {"a": "pickle"}
    with serve(sites()) as fake, pytest.warns(UserWarning, match="another kind"):
        evidence, _ = build(fake)
    assert len(evidence["q0"]) == 4
    assert (tmp_path / "cache.damaged-1").is_dir()


def test_results_without_address_or_title_do_no_harm(build):
    with serve(sites()) as fake:
        links = [{"link": f"{fake.url}/p{i}", "title": "\ud800"} for i in range(3)]
        fake.search_body = {"organic": [{"title": "x"}, {"link": 3}, *links]}
        evidence, _ = build(fake)
    assert len(evidence["q0"]) == 3


def test_the_search_key_does_not_follow_a_redirect(build):
    with serve(sites(search_errors=[(307, {"Location": "/elsewhere"})])) as fake:
        _, counts = build(fake)
    assert counts["search: HTTP 307"] == 1
    assert "/elsewhere" not in fake.paths()


# Failures of pages


def bad_page(build, path, done, **more):
    """The counts of a build with three good pages and a bad one."""
    fake = sites(3)
    fake.pages[path] = done
    with serve(fake):
        evidence, counts = build(fake, **more)
    assert [d.id for d in evidence["q0"]] == [f"{fake.url}/p{i}" for i in range(3)]
    return counts, fake


def test_a_page_that_fails_is_counted_by_its_status_and_not_repeated(build):
    counts, fake = bad_page(build, "/bad", (503, "later", HTML))
    assert (counts["page: HTTP 503"], fake.paths()["/bad"]) == (1, 1)


def test_a_slow_page_is_given_up(build):
    limits = replace(QUICK, timeout_s=0.3)
    counts, _ = bad_page(build, "/slow", HANG, limits=limits)
    assert counts["page: timeout"] == 1


def test_what_is_not_html_is_not_read(build):
    pdf = (200, html("A paper"), {"Content-Type": "application/pdf"})
    counts, _ = bad_page(build, "/paper", pdf)
    assert counts["page: not HTML"] == 1


TROUBLED = """
import os
from factkit import page_text
extract = page_text.extract

def troubled(body, charset):
    if b"Trouble" in body:
        {trouble}
    return extract(body, charset)

page_text.extract = troubled
page_text.main()
"""


@pytest.mark.parametrize(
    ("trouble", "fate"),
    [
        ("raise RecursionError('secret')", "RecursionError"),
        ("os.abort()", "extraction broke down"),
        ("print('not a page' * 9999); raise KeyError", "KeyError"),
    ],
)
def test_a_page_that_no_one_can_parse_costs_only_itself(
    build, monkeypatch, trouble, fate
):
    command = (sys.executable, "-c", TROUBLED.format(trouble=trouble))
    monkeypatch.setattr(page_text.Extractor, "command", command)
    counts, _ = bad_page(build, "/bad", page("Trouble"))
    assert counts[f"page: {fate}"] == 1


def test_a_page_that_a_parser_works_on_for_minutes_costs_no_more_than_the_limit(build):
    quotes = '\\"name' * 30_000  # over a minute on the machine that found it
    script = f'<script type="application/ld+json">{{"author":"{quotes}</script>'
    begin = time.monotonic()
    limits = replace(QUICK, extract_s=2)
    counts, _ = bad_page(build, "/long", page("Long", extra=script), limits=limits)
    assert counts["page: extraction took too long"] == 1
    assert time.monotonic() - begin < 25


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_huge_page_is_cut_off_after_the_byte_limit(build, gzipped):
    import gzip

    body = html("Subject big", extra=HUGE_FILLER + "<p>The far end of it.</p>").encode()
    headers = HTML | ({"Content-Encoding": "gzip"} if gzipped else {})
    fake = sites(2)
    fake.pages["/big"] = (200, gzip.compress(body) if gzipped else body, headers)
    with serve(fake):
        evidence, _ = build(fake, limits=replace(QUICK, page_bytes=10_000))
    text = evidence["q0"][-1].text
    assert "Subject big was seen" in text and "far end" not in text


def test_a_page_in_an_encoding_not_asked_for_is_not_unpacked(build):
    packed = (200, html("Bomb"), HTML | {"Content-Encoding": "deflate, gzip"})
    counts, _ = bad_page(build, "/bomb", packed)
    assert counts["page: unknown encoding"] == 1


def test_a_chain_of_redirects_without_end_is_given_up(build):
    loop = (302, "", {"Location": "/loop"})
    counts, fake = bad_page(build, "/loop", loop)
    assert counts["page: too many redirects"] == 1
    assert fake.paths()["/loop"] == web_pages.MOST_REDIRECTS + 1


def test_a_redirect_is_followed(build):
    fake = sites(3, results={"x": ["/old", "/p1", "/p2"]})
    fake.pages["/old"] = (301, "", {"Location": "/p0"})
    with serve(fake):
        evidence, _ = build(fake, [example(answer="x")])
    assert evidence["q0"][0].title == "Subject 0"


# Where the kit does not go


def test_a_page_on_this_machine_is_refused_without_a_request(build):
    with serve(sites()) as fake:
        _, counts = build(fake, limits=replace(QUICK, private_hosts=frozenset()))
    assert counts["page: private address"] == 4
    assert set(fake.paths()) == {"/search"}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "[::1]", "0.0.0.0"])
def test_a_redirect_to_this_machine_is_refused(build, host):
    fake = sites(3)
    fake.pages["/out"] = lambda: (
        302,
        "",
        {"Location": f"http://{host}:{fake.url.rsplit(':')[-1]}/inside"},
    )
    fake.pages["/inside"] = page("The secret")
    with serve(fake):
        links = ["/p0", "/p1", "/p2", "/out"]
        fake.results = {"x": links}
        _, counts = build(fake, [example(answer="x")])
    assert counts["page: private address"] == 1
    assert "/inside" not in fake.paths()


@pytest.fixture
def name_server(monkeypatch):
    """Answers for names that end in .example; (names asked for, addresses to give)."""
    asked, addresses, ask = [], [], socket.getaddrinfo

    def answer(host, port, *args, **kwargs):
        if not str(host).endswith(".example"):
            return ask(host, port, *args, **kwargs)
        asked.append(host)
        address = addresses[min(len(asked), len(addresses)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    # stands for an address of the public internet that the test can serve from
    monkeypatch.setattr(web_pages, "_is_public", lambda a: a == "127.0.0.1")
    return asked, addresses


def named(fake, path):
    return f"http://site.example:{fake.url.rsplit(':')[-1]}{path}"


def test_a_name_is_resolved_once_a_request_so_that_what_was_checked_is_used(
    build, name_server
):
    asked, addresses = name_server
    addresses.append("127.0.0.1")
    with serve(sites()) as fake:
        fake.results = {"x": [named(fake, f"/p{i}") for i in range(3)]}
        evidence, _ = build(fake, [example(answer="x")])
    hosts = {h["Host"] for path, h, *_ in fake.asked if path != "/search"}
    assert len(evidence["q0"]) == 3
    assert hosts == {named(fake, "").removeprefix("http://")}
    assert len(asked) == 4  # robots.txt and three pages


def test_no_connection_is_used_twice_as_it_may_be_another_hosts(build):
    with serve(sites()) as fake:
        build(fake)
    peers = [h["peer"] for path, h, *_ in fake.asked if path != "/search"]
    assert len(peers) == len(set(peers)) == 5


def test_a_name_that_turns_private_is_refused(build, name_server):
    _, addresses = name_server
    addresses += ["127.0.0.1", "10.0.0.1"]
    with serve(sites()) as fake:
        fake.results = {"x": [named(fake, "/p0")]}
        _, counts = build(fake, [example(answer="x")])
    assert counts["page: private address"] == 1
    assert "/robots.txt" in fake.paths() and "/p0" not in fake.paths()


def test_a_name_that_does_not_exist_is_counted(build, monkeypatch):
    def fail(*args, **kwargs):
        raise socket.gaierror("no such name")

    ask = socket.getaddrinfo
    with serve(sites(results={"x": ["http://nowhere.example/"]})) as fake:
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda h, *a, **k: (fail if "nowhere" in str(h) else ask)(h, *a, **k),
        )
        _, counts = build(fake, [example(answer="x")])
    assert counts["page: unknown host"] == 1


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)
def test_an_address_that_is_not_of_the_public_internet_is_known(address):
    assert not web_pages._is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_public_address_is_known(address):
    assert web_pages._is_public(address)


@pytest.mark.parametrize(
    "link",
    ["ftp://127.0.0.1/x", "file:///etc/passwd", "//x", "http://a:b@127.0.0.1/x", "x"],
)
def test_only_plain_web_addresses_are_read(build, link):
    with serve(sites(results={"x": [link]})) as fake:
        fake.search_body = {"organic": [{"title": "t", "link": link}]}
        _, counts = build(fake, [example(answer="x")])
    assert counts["page: no plain web address"] == 1


# Politeness


def rules(text, status=200):
    return status, text, {"Content-Type": "text/plain"}


def test_robots_txt_is_asked_once_and_before_any_page_of_the_host(build):
    with serve(sites()) as fake:
        build(fake)
    paths = [path for path, *_ in fake.asked if path != "/search"]
    assert paths[0] == "/robots.txt"
    assert paths.count("/robots.txt") == 1


@pytest.mark.parametrize("agent", ["*", "factkit"])
def test_what_robots_txt_forbids_is_not_asked_for(build, agent):
    fake = sites()
    fake.pages["/robots.txt"] = rules(f"User-agent: {agent}\nDisallow: /p3")
    with serve(fake):
        evidence, counts = build(fake)
    assert (len(evidence["q0"]), counts["page: robots.txt"]) == (3, 1)
    assert "/p3" not in fake.paths()


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_robots_txt_that_is_refused_or_broken_forbids_everything(build, status):
    fake = sites()
    fake.pages["/robots.txt"] = rules("", status)
    with serve(fake):
        evidence, counts = build(fake)
    assert set(fake.paths()) == {"/search", "/robots.txt"}
    assert evidence == {}
    assert sum(n for why, n in counts.items() if "robots.txt" in why) == 4


def test_robots_txt_is_asked_for_a_page_that_a_redirect_leads_to(build):
    fake = sites(3)
    fake.pages["/way"] = (302, "", {"Location": "/closed/x"})
    fake.pages["/robots.txt"] = rules("User-agent: *\nDisallow: /closed")
    with serve(fake):
        _, counts = build(fake)
    assert counts["page: robots.txt"] == 1
    assert "/closed/x" not in fake.paths()


def test_a_crawl_delay_beyond_a_minute_means_no(build):
    fake = sites()
    fake.pages["/robots.txt"] = rules("User-agent: *\nCrawl-delay: 3600")
    with serve(fake):
        _, counts = build(fake)
    assert counts["page: robots.txt"] == 4


def turns(fake):
    """Arrival and departure of each request to the web site, in order."""
    rows = [row[2:] for row in fake.asked if row[0] != "/search"]
    return sorted(rows)


def test_a_host_is_asked_one_thing_at_a_time_with_a_pause_between(build):
    rows = [example(i, f"a{i}") for i in range(4)]
    with serve(sites(6)) as fake:
        build(fake, rows, replace(QUICK, delay_s=0.05))
    for (_, end), (begin, _) in itertools.pairwise(turns(fake)):
        assert begin - end >= 0.045  # the fake's clock starts a little later


def test_a_longer_pause_in_robots_txt_is_kept(build):
    fake = sites(2)
    fake.pages["/robots.txt"] = rules("User-agent: factkit\nCrawl-delay: 1")
    with serve(fake):
        build(fake)
    (_, first_end), (second, _), *_ = turns(fake)[1:]
    assert second - first_end >= 0.95


def test_the_user_agent_names_the_kit_and_the_contact(build):
    with serve(sites()) as fake:
        build(fake, limits=replace(QUICK, contact="mail@lab.example"))
    agents = {h["User-Agent"] for path, h, *_ in fake.asked if path != "/search"}
    assert len(agents) == 1
    assert agents.pop().startswith("factkit/")


def test_searches_at_once_are_bounded(build):
    rows = [example(i, f"a{i}") for i in range(30)]
    with serve(FakeWeb()) as fake:
        build(fake, rows, replace(QUICK, searches=2))
    assert (len(fake.bodies), fake.most_at_once) == (30, 2)


# Reruns


def test_a_rerun_asks_nobody_and_builds_the_same(build):
    rows = [example(i, f"a{i}") for i in range(3)]
    fake = sites()
    fake.pages["/empty"] = (200, "<html></html>", HTML)
    fake.pages["/paper"] = (200, "x", {"Content-Type": "application/pdf"})
    with serve(fake):
        first = build(fake, rows)
        fake.asked.clear()
        assert build(fake, rows) == first
        assert fake.asked == []


def test_a_page_that_several_prompts_want_is_asked_for_once(build):
    fake = sites()
    fake.pages["/bad"] = (500, "", HTML)
    with serve(fake):
        build(fake, [example(i, f"a{i}") for i in range(5)])
    del fake.paths()["/search"]
    assert {fake.paths()[path] for path in fake.pages} == {1}


def test_what_failed_is_tried_again_by_a_rerun(build):
    fake = sites(3, search_errors=[(400, {})])
    fake.pages["/bad"] = (500, "", HTML)
    with serve(fake):
        build(fake)
        build(fake)
        fake.pages["/bad"] = page("Mended")
        evidence, _ = build(fake)
    assert len(evidence["q0"]) == 4


# The key


def test_the_key_is_sent_to_the_search_and_to_no_page(build):
    with serve(sites()) as fake:
        build(fake)
    for path, headers, *_ in fake.asked:
        assert (headers.get("X-API-KEY") == KEY) == (path == "/search")
        assert (KEY in str(headers)) == (path == "/search")


def test_the_key_is_in_no_output_log_or_file(build, tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    errors = [(429, {}), (500, {})]
    with serve(sites(search_errors=errors)) as fake:
        evidence, counts = build(fake, progress="evidence")
    write_evidence(tmp_path / "evidence.jsonl", evidence)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 1
    assert not any(KEY.encode() in content for content in files)
    assert KEY not in f"{caplog.text}{capsys.readouterr()}{counts}"


@pytest.mark.parametrize("key", [None, "", "  ", "a\nb", "clé"])
def test_a_key_that_is_absent_or_no_header_can_carry_is_refused_unspelt(
    monkeypatch, tmp_path, key
):
    monkeypatch.delenv(web_search.KEY_VARIABLE, raising=False)
    if key is not None:
        monkeypatch.setenv(web_search.KEY_VARIABLE, key)
    with pytest.raises(SearchKeyError, match=web_search.KEY_VARIABLE) as error:
        run_online([example()], "http://127.0.0.1:9/search", tmp_path)
    assert not (key or "").strip() or key not in str(error.value)


# How it runs


def test_the_sync_front_works_inside_a_running_loop(build):
    async def notebook(fake):
        return build(fake)

    with serve(sites()) as fake:
        evidence, _ = asyncio.run(notebook(fake))
    assert len(evidence) == 1


def test_the_async_function_can_be_awaited(monkeypatch, tmp_path):
    monkeypatch.setenv(web_search.KEY_VARIABLE, KEY)
    with serve(sites()) as fake:
        work = build_online([example()], f"{fake.url}/search", tmp_path, QUICK)
        evidence, _ = asyncio.run(work)
    assert len(evidence) == 1


def test_an_interrupt_ends_the_sync_front(build):
    fake = sites()
    fake.pages["/p0"] = HANG
    with serve(fake):
        main = threading.main_thread().ident
        wake = threading.Timer(0.7, signal.pthread_kill, (main, signal.SIGINT))
        wake.start()
        with pytest.raises(KeyboardInterrupt):
            build(fake, limits=replace(QUICK, timeout_s=3600))


@pytest.mark.parametrize(
    "wrong",
    [{"searches": 0}, {"pages": 0}, {"timeout_s": 0}, {"delay_s": -1}, {"attempts": 0}],
)
def test_limits_that_would_never_end_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WebLimits(**wrong)


def test_an_endpoint_that_is_no_web_address_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(web_search.KEY_VARIABLE, KEY)
    with pytest.raises(ValueError, match="https://"):
        run_online([example()], "google.serper.dev/search", tmp_path)
