"""The search service: Search-R1's contract, what is refused, and its process."""

import json
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from retriever import ENTRIES, INDEX, MANIFEST, Spy, serving_index, until

from factkit import corpus, search_client, search_service, serving
from factkit.params.files import ROOT, ParamError
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.entry_index import EntryIndex, build
from factkit.search_client import QUERY_CHARS, TOKEN_VARIABLE, document_of, over_http
from factkit.search_service import Limits

SECRET = "zq7secret"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No token of the user's, and an end to retries where a test fails."""
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(search_client, "PATIENCE_S", 60)


@pytest.fixture(scope="module")
def url():
    with serving_index() as found:
        yield found


def post(url, headers=None, **content):
    return httpx.post(url, json={"queries": ["fox"]} | content, headers=headers)


def health(url):
    return httpx.get(url.replace("/retrieve", "/health")).json()


# ---- the contract


def test_the_reply_is_search_r1_s(url):
    found = post(url, queries=["fox jumps", "unheardof"], topk=1, return_scores=True)
    ((item,), nothing) = found.json()["result"]
    assert item["document"]["id"] == "Fox_sentences_0_2"
    assert item["document"]["contents"] == (
        '"Fox"\nThe red fox jumps.\nA fox sleeps in its den.'
    )
    assert item["score"] == INDEX.search("fox jumps", 1)[0].score
    assert nothing == []


def test_without_return_scores_the_documents_come_alone(url):
    documents = [document_of(hit.chunk) for hit in INDEX.search("fox", 3)]
    assert post(url, topk=3).json() == {"result": [documents]}
    assert post(url, topk=3, return_scores=False).json() == {"result": [documents]}


def test_three_entries_a_query_unless_said():
    index = CorpusIndex(ENTRIES * 2, cache=False)
    with serving_index(index) as url:
        assert len(post(url).json()["result"][0]) == 3
        assert len(post(url, topk=4).json()["result"][0]) == 4


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        *(("", []), (" \x00\n", []), ("\ud800", []), ("a\x00b", ["a b"])),
        ("<search>fox</search>", ["<search>fox</search>"]),
        ("x" * 10_000, ["x" * QUERY_CHARS]),
    ],
)
def test_any_client_s_queries_are_made_searchable(query, asked):
    index = Spy()
    with serving_index(index) as url:
        content = json.dumps({"queries": [query]})
        assert len(httpx.post(url, content=content).json()["result"]) == 1
    assert index.queries == asked


def test_health_says_what_is_served(url):
    until(lambda: health(url) == {"manifest": MANIFEST, "busy": 0})


# ---- what is refused


@pytest.fixture(scope="module")
def strict():
    index = Spy()
    with serving_index(index, queries=4, topk=9) as found:
        yield found, index


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (SECRET, "not JSON"),
        ("[" * 100_000, "not JSON"),
        (b"\xff\xfe" + SECRET.encode(), "not JSON"),
        ("[]", "queries: must be a list of strings"),
        ({}, "queries: must be a list of strings"),
        ({"queries": SECRET}, "queries: must be a list of strings"),
        ({"queries": [SECRET, None]}, "queries: must be a list of strings"),
        ({"queries": [[SECRET]]}, "queries: must be a list of strings"),
        ({"queries": [SECRET] * 5}, "queries: at most 4 a request"),
        *(
            ({"queries": [SECRET], "topk": k}, "topk: must be a whole number from 1 to")
            for k in (0, -1, 10, 2.0, "3", True, None, 10**30)
        ),
        ({"queries": [SECRET], "return_scores": 1}, "return_scores: must be true or"),
    ],
)
def test_a_bad_request_is_refused_without_being_echoed(strict, content, said):
    url, index = strict
    content = json.dumps(content) if isinstance(content, dict) else content
    found = httpx.post(url, content=content)
    assert found.status_code == 422
    assert said in found.json()["detail"]
    assert SECRET not in found.text
    assert index.queries == []


def test_a_body_beyond_the_limit_is_refused_with_or_without_its_length():
    with serving_index(body_bytes=1000) as url:
        for content in (b" " * 1001, iter([b" " * 600] * 2)):
            found = httpx.post(url, content=content)
            assert (found.status_code, "1000 bytes" in found.text) == (413, True)
        assert post(url).status_code == 200


def test_the_client_s_largest_request_is_within_the_limits():
    longest = json.dumps(["\U0001f98a" * QUERY_CHARS] * search_client.QUERIES)
    assert len(longest) + 1000 < Limits().body_bytes
    assert Limits().queries >= search_client.QUERIES


def test_a_body_that_does_not_come_is_not_waited_for():
    with serving_index(body_s=0.2) as url:
        port = httpx.URL(url).port
        head = "POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head.encode())
            assert b" 408 " in connection.recv(1000)
        assert post(url).status_code == 200


def test_an_index_that_breaks_is_named_without_what_it_was_asked(capfd):
    def breaks(query):
        raise KeyError(query)

    with serving_index(Spy(breaks)) as url:
        found = post(url, queries=[SECRET])
    assert found.status_code == 500
    assert found.json()["detail"] == "the search failed: KeyError"
    said = "".join(capfd.readouterr())
    assert "KeyError" in said
    assert SECRET not in said and "Traceback" not in said


@pytest.mark.parametrize("wrong", ["other", f"{SECRET}x", SECRET[:-1], "ö"])
def test_without_the_token_nothing_is_searched_for(wrong):
    index = Spy()
    with serving_index(index, token=SECRET) as url:
        for header in (f"Bearer {wrong}", f"Basic {SECRET}", SECRET, "Bearer", ""):
            found = post(url, headers={"authorization": header.encode("latin-1")})
            assert found.status_code == 401
            assert SECRET not in found.text
        assert post(url, {"authorization": f"bearer {SECRET}"}).status_code == 200
        assert health(url)["manifest"] == MANIFEST
    assert index.queries == ["fox"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_loopback_the_service_does_not_start_without_a_token(host):
    with pytest.raises(ParamError, match=f"{host}.*{TOKEN_VARIABLE}"):
        search_service.serve("leads", host, 0)


def test_an_address_that_cannot_be_had_is_named():
    with serving.bound("127.0.0.1", 0, "", TOKEN_VARIABLE) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ParamError, match=f"--port {port}: .*in use"):
            search_service.serve("leads", "127.0.0.1", port)


# ---- several at a time


def test_requests_are_searched_for_as_many_at_once_as_allowed():
    go = threading.Event()
    index = Spy(lambda query: go.wait(90))
    with ThreadPoolExecutor(5) as pool, serving_index(index, at_once=2) as url:
        try:
            replies = [pool.submit(post, url) for _ in range(5)]
            until(lambda: health(url)["busy"] == 5)
            assert len(index.queries) == 2
        finally:
            go.set()
        assert {reply.result().status_code for reply in replies} == {200}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(ENTRIES, tmp_path_factory.mktemp("index") / "animals", "animals")


def test_16_clients_of_an_entry_index_get_what_it_finds(folder):
    index = EntryIndex(folder)
    words = ["fox", "iron", "badger", "title", "gold", "metal", "naïve", "symbol"]
    asked = [[f"{word} {i}" for word in words] for i in range(48)]
    together = threading.Barrier(16)

    def client(number):
        search = over_http(url)
        together.wait(90)
        return [search(queries, 3) for queries in asked[number::16]]

    with serving_index(index) as url, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(client, range(16)))
    search = search_client.in_process(index)
    for number in range(16):
        assert found[number] == [search(queries, 3) for queries in asked[number::16]]


# ---- what is opened


def test_a_folder_is_opened_with_its_manifest(folder):
    index, manifest = search_service.opened(str(folder))
    assert manifest["name"] == "animals"
    assert [hit.chunk.id for hit in index.search("gold", 3)] == ["alone"]


@pytest.mark.assets
def test_the_leads_are_opened_as_entries_of_three_sentences(monkeypatch):
    some = corpus.load_leads()[:20]
    monkeypatch.setattr(corpus, "load_leads", lambda: some)
    index, manifest = search_service.opened("leads")
    hit = index.search(some[7].text[:100], 1)[0]
    assert hit.chunk.doc_id == some[7].title
    assert hit.chunk.id.endswith("_sentences_0_2")
    assert (manifest["name"], manifest["entries"]) == ("leads", len(index.chunks))


# ---- the process


@contextmanager
def process(*command):
    """A service in a process of its own; it and its URL."""
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            words = started.stdout.readline().split()
            assert words[:2] == ["search", "at"], started.stderr.read()
            yield started, f"http://127.0.0.1:{words[-1]}/retrieve"
        finally:
            started.kill()


HELD = """
import sys, time
from pathlib import Path
from factkit import search_service

folder = Path(sys.argv[1])

class Held:
    def search(self, query, k):
        (folder / "started").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        return []

search_service.opened = lambda entries: (Held(), {})
search_service.serve("held", "127.0.0.1", 0)
"""


def closed(url):
    try:
        health(url)
    except httpx.TransportError:
        return True
    return False


def test_a_service_that_ends_answers_what_is_under_way(tmp_path):
    with (
        process("-c", HELD, str(tmp_path)) as (service, url),
        ThreadPoolExecutor(1) as pool,
    ):
        until(lambda: not closed(url))
        reply = pool.submit(over_http(url), ["fox"], 3)
        until((tmp_path / "started").exists)
        service.send_signal(signal.SIGTERM)
        until(lambda: closed(url))
        (tmp_path / "go").touch()
        assert reply.result() == [[]]
        assert service.wait(90) == 0
        assert service.stderr.read() == ""


def test_from_the_command_line_an_index_is_served(folder):
    cli = ("-m", "factkit", "serve-search", str(folder), "--port", "0")
    with process(*cli) as (service, url):
        until(lambda: not closed(url))
        assert health(url)["manifest"] == EntryIndex(folder).manifest
        found = over_http(url)(["fox jumps"], 1)
        service.terminate()
        assert service.wait(90) == 0
    assert found == [ENTRIES[:1]]


def test_from_the_command_line_a_mistake_exits_with_2(tmp_path):
    command = [sys.executable, "-m", "factkit", "serve-search", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"{tmp_path}: no index" in done.stderr
