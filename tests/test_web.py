"""Evidence from the web: politely read, nothing private, nothing asked for twice."""

import itertools
import json
import logging
import multiprocessing
import signal
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from urllib.parse import urljoin

import pytest
from web_server import answering

from factkit.data import web
from factkit.data.evidence import read_evidence, write_evidence
from factkit.data.examples import Example
from factkit.data.web import run_online
from factkit.run import connections, serving
from factkit.run.params import ParamError

KEY = "very-secret-key-123"
HTML = {"Content-Type": "text/html; charset=utf-8"}


def html(about, title="", extra=""):
    """A page with a title and a few sentences on its subject."""
    text = "".join(
        f"<p>{about} was seen by witness number {i}, who told it to the others.</p>"
        for i in range(5)
    )
    head = f"<title>{title or about}</title>"
    return f"<html><head>{head}</head><body><article>{text}{extra}</article></body>"


def page(about, **more):
    return 200, html(about, **more), HTML


@dataclass
class FakeWeb:
    """A search endpoint and web sites on one port.

    pages: path → (status, body, headers), or None to hang. results: query → addresses
    or paths; a query not in it finds every page.
    """

    pages: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)
    search_errors: list = field(default_factory=list)  # status, headers of first calls
    search_body: object = None  # instead of results
    url: str = ""
    asked: list = field(default_factory=list)  # (path, headers, arrival, departure)
    bodies: list = field(default_factory=list)  # of searches

    def paths(self):
        return Counter(path for path, *_ in self.asked)

    def answer_search(self, body):
        self.bodies.append(body)
        if len(self.bodies) <= len(self.search_errors):
            status, headers = self.search_errors[len(self.bodies) - 1]
            return status, f"no, {KEY} is a bad key", headers
        every = [p for p in self.pages if "robots" not in p]
        links = [urljoin(self.url, p) for p in self.results.get(body["q"], every)]
        rows = [{"title": f"result {link}", "link": link} for link in links]
        return 200, json.dumps(self.search_body or {"organic": rows}), {}


@contextmanager
def serve(fake):
    """The fake, served on a free port in threads."""

    def reply(path, headers, body):
        begin = time.monotonic()
        if body:
            made = fake.answer_search(json.loads(body))
        else:
            made = fake.pages.get(path, (404, "no such page", HTML))
        if made:
            fake.asked.append((path, headers, begin, time.monotonic()))
        return made

    with answering(reply) as fake.url:
        yield fake


def example(i=0, answer="Ada Lovelace wrote the notes."):
    return Example(id=f"q{i}", question="Who?", answers=[answer], entity=str(i))


class Here:
    """A pool without the seconds that a process takes to start."""

    def Pool(self, workers):  # noqa: N802
        return self

    def apply_async(self, extract_page, arguments):
        page = extract_page(*arguments)
        return SimpleNamespace(get=lambda timeout: page)

    def terminate(self):
        pass


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds from a fake; the cache is the test's own, and no wait is long."""
    monkeypatch.setenv(web.SEARCH_KEY, KEY)
    monkeypatch.setattr(web, "ATTEMPTS", 3)
    monkeypatch.setattr(web, "DELAY_S", 0)
    monkeypatch.setattr(serving, "wait_s", lambda state: 0.01)
    # stands for an address of the public internet that the test can serve from
    monkeypatch.setattr(connections, "is_public", lambda a: a == "127.0.0.1")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: Here())

    def run(fake, examples=None, pages=10):
        endpoint, cache = f"{fake.url}/search", tmp_path / "cache"
        return run_online(examples or [example()], endpoint, cache, pages, 3)

    return run


def sites(n=4, **more):
    return FakeWeb({f"/p{i}": page(f"Subject {i}") for i in range(n)}, **more)


# What is built


def test_pages_come_in_the_order_of_the_results_with_title_text_and_host(
    build, tmp_path
):
    with serve(sites(9)) as fake:
        evidence, counts = build(fake, [example(answer="One\n long  answer")], pages=7)
    assert fake.bodies == [{"q": "One long answer", "num": 7}]  # without the prompt
    documents = evidence["q0"]
    assert [d.id for d in documents] == [f"{fake.url}/p{i}" for i in range(7)]
    assert [d.title for d in documents] == [f"Subject {i}" for i in range(7)]
    assert all(f"Subject {i} was seen" in d.text for i, d in enumerate(documents))
    assert {d.source for d in documents} == {fake.url.removeprefix("http://")}
    assert (counts["kept"], counts["page: read"]) == (1, 7)
    write_evidence(tmp_path / "evidence.jsonl", evidence)
    assert read_evidence(tmp_path / "evidence.jsonl") == evidence


def test_what_is_no_document_of_its_own_and_prompts_with_too_few_are_dropped(build):
    fake = sites(3)
    fake.pages["/mirror"] = page("Subject 1", title="Another title")
    fake.pages["/empty"] = (200, "<html><body><script>x</script></body></html>", HTML)
    fake.pages["/paper"] = (200, html("x"), {"Content-Type": "application/pdf"})
    found = ["/p0#a", "/p0#b", "/p1", "/p2", "/mirror", "/empty", "/paper"]
    fake.results = {"x": found, "few": ["/p0", "/p1"]}
    with serve(fake):
        rows = [example(0, "x"), example(1, "few"), example(2, " ")]
        evidence, counts = build(fake, rows)
    assert list(evidence) == ["q0"]
    assert (counts["too few documents"], counts["no reference response"]) == (1, 1)
    assert [d.id for d in evidence["q0"]] == [f"{fake.url}/p{i}" for i in range(3)]
    assert (counts["page: duplicate"], counts["page: without text"]) == (1, 2)
    assert fake.paths()["/p0"] == 1


# Failures


def test_a_search_that_fails_in_passing_is_repeated_and_another_is_counted(build):
    with serve(sites(search_errors=[(429, {}), (503, {})])) as fake:
        assert len(build(fake)[0]) == 1
        assert len(fake.bodies) == 3
    for status, calls in ((503, 3), (307, 1)):
        answers = [example(answer=f"answer {status}")]  # no one has asked for
        errors = [(status, {"Location": "/elsewhere"})] * 9
        with serve(sites(search_errors=errors)) as fake:
            evidence, counts = build(fake, answers)
        assert (evidence, len(fake.bodies)) == ({}, calls)
        assert (counts["search failed"], counts[f"search: HTTP {status}"]) == (1, 1)
        assert "/elsewhere" not in fake.paths()  # the key does not follow a redirect


def test_a_refused_key_ends_the_search_for_all_prompts(build, monkeypatch):
    monkeypatch.setattr(web, "SEARCHES", 1)
    rows = [example(i, f"a{i}") for i in range(20)]
    with serve(sites(search_errors=[(403, {})] * 99)) as fake:
        with pytest.raises(ParamError, match=web.SEARCH_KEY) as error:
            build(fake, rows)
        assert len(fake.bodies) == 1
    assert KEY not in str(error.value)


def test_a_reply_that_is_no_result_list_is_a_failed_search(build):
    for reply in ([3], {"organic": [3]}):
        with serve(sites(search_body=reply)) as fake:
            _, counts = build(fake)
        assert counts["search: a reply without results"] == 1


def test_a_page_that_fails_costs_only_itself_and_is_counted_by_its_reason(
    build, monkeypatch
):
    monkeypatch.setattr(web, "PAGE_S", 1)
    bad = {
        "HTTP 503": (503, "later", HTML),
        "timeout": None,
        "too many redirects": (302, "", {"Location": "/bad2"}),
        "no plain web address": (302, "", {"Location": "ftp://127.0.0.1/x"}),
    }
    fake = sites(3)
    fake.pages |= {f"/bad{i}": reply for i, reply in enumerate(bad.values())}
    with serve(fake):
        evidence, counts = build(fake)
    assert [d.id for d in evidence["q0"]] == [f"{fake.url}/p{i}" for i in range(3)]
    assert [counts[f"page: {reason}"] for reason in bad] == [1] * len(bad)
    assert fake.paths()["/bad0"] == 1
    assert fake.paths()["/bad2"] == web.MAX_REDIRECTS + 1


def troubled(body, charset, limit_s):
    """A page's text, but of one that takes for ever."""
    if b"Long" in body:
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        while True:
            pass
    return {"title": "", "text": body.decode()}


@pytest.mark.slow
def test_a_page_on_which_the_parser_hangs_or_dies_costs_only_itself(build, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv(web.SEARCH_KEY, KEY)
    for name, value in (("DELAY_S", 0), ("EXTRACT_S", 2), ("extract_page", troubled)):
        monkeypatch.setattr(web, name, value)
    monkeypatch.setattr(connections, "is_public", lambda a: True)
    fake = sites(3)
    fake.pages["/long"] = page("Long")
    with serve(fake):
        evidence, counts = build(fake)
    assert len(evidence["q0"]) == 3
    assert counts["page: extraction took too long or broke down"] == 1


# Where the kit does not go


def test_no_private_address_is_asked_not_even_by_a_redirect(build, monkeypatch):
    fake = sites(3)
    fake.pages |= {"/old": (301, "", {"Location": "/p0"}), "/inside": page("A secret")}
    hosts = ("127.0.0.2", "[::1]", "0.0.0.0", "no-such-host.invalid")
    with serve(fake):
        port = fake.url.rsplit(":")[-1]
        for i, host in enumerate(hosts):
            there = {"Location": f"http://{host}:{port}/inside"}
            fake.pages[f"/out{i}"] = (302, "", there)
        outs = [f"/out{i}" for i in range(len(hosts))]
        fake.results = {"x": ["/old", "/p1", "/p2", *outs]}
        evidence, counts = build(fake, [example(answer="x")])
    assert evidence["q0"][0].title == "Subject 0"
    assert (counts["page: private address"], counts["page: unknown host"]) == (3, 1)
    assert "/inside" not in fake.paths()


def test_an_address_that_is_not_of_the_public_internet_is_known():
    private = "127.0.0.1 10.1.2.3 169.254.169.254 0.0.0.0 224.0.0.1 ::1 fe80::1%eth0"
    for address in f"{private} fd00::1 ff02::1 ::ffff:127.0.0.1".split():
        assert not connections.is_public(address)
    assert all(
        map(connections.is_public, ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
    )


# Politeness


def with_rules(text, n=4, status=200):
    """Sites with a robots.txt."""
    fake = sites(n)
    fake.pages["/robots.txt"] = status, text, {"Content-Type": "text/plain"}
    return fake


def test_what_robots_txt_forbids_is_not_asked_for_nor_redirected_to(build):
    rules = "User-agent: factkit\nDisallow: /p3\nDisallow: /closed"
    with serve(with_rules(rules)) as fake:
        fake.pages["/way"] = (302, "", {"Location": "/closed/x"})
        evidence, counts = build(fake)
    assert (len(evidence["q0"]), counts["page: robots.txt"]) == (3, 2)
    assert not {"/p3", "/closed/x"} & fake.paths().keys()
    pages = [row for row in fake.asked if row[0] != "/search"]
    assert pages[0][0] == "/robots.txt" and fake.paths()["/robots.txt"] == 1
    assert all(row[1]["User-Agent"].startswith("factkit/") for row in pages)


def test_a_host_is_asked_one_thing_at_a_time_with_the_pause_that_it_wants(
    build, monkeypatch
):
    monkeypatch.setattr(web, "DELAY_S", 0.05)
    for rules, n, least in (("", 6, 0.045), ("User-agent: *\nCrawl-delay: 1", 2, 0.95)):
        with serve(with_rules(rules, n)) as fake:
            build(fake, [example(i, f"{n} {i}") for i in range(4)])
        turns = sorted(row[2:] for row in fake.asked if row[0] != "/search")
        for (_, end), (begin, _) in itertools.pairwise(turns[1:]):
            assert begin - end >= least  # the fake's clock starts a little later
    with serve(with_rules("User-agent: *\nCrawl-delay: 3600")) as fake:
        assert build(fake, [example(answer="x")])[1]["page: robots.txt"] == 4


# Reruns, and the end


def test_a_rerun_asks_nobody_but_for_what_failed(build):
    rows = [example(i, f"a{i}") for i in range(3)]
    fake = sites(3, search_errors=[(400, {})])
    fake.pages |= {"/empty": (200, "<html></html>", HTML), "/bad": (500, "", HTML)}
    with serve(fake):
        assert build(fake, rows)[1]["search failed"] == 1
        first = build(fake, rows)
        assert {fake.paths()[f"/p{i}"] for i in range(3)} == {1}  # for all prompts
        fake.asked.clear()
        assert build(fake, rows) == first
        assert set(fake.paths()) == {"/bad", "/robots.txt"}
        fake.pages["/bad"] = page("Mended")
        assert len(build(fake, rows)[0]["q0"]) == 4


# The key


def test_the_key_goes_to_the_search_alone_and_into_no_output_log_or_file(
    build, tmp_path, caplog, capsys
):
    caplog.set_level(logging.DEBUG)
    with serve(sites(search_errors=[(429, {}), (500, {})])) as fake:
        evidence, counts = build(fake)
    for path, headers, *_ in fake.asked:
        assert (headers.get("X-API-KEY") == KEY) == (path == "/search")
        assert (KEY in str(headers)) == (path == "/search")
    write_evidence(tmp_path / "evidence.jsonl", evidence)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 1
    assert not any(KEY.encode() in content for content in files)
    assert KEY not in f"{caplog.text}{capsys.readouterr()}{counts}"


def test_a_key_that_is_absent_or_no_header_can_carry_is_refused_unspelt(
    monkeypatch, tmp_path
):
    for key in ("  ", "a\nb", "clé"):
        monkeypatch.setenv(web.SEARCH_KEY, key)
        with pytest.raises(ParamError, match=web.SEARCH_KEY) as error:
            run_online([example()], "http://127.0.0.1:9/search", tmp_path, 10, 3)
        assert key not in str(error.value)
