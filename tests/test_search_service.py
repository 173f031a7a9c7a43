"""The search service: Search-R1's contract, what is refused, and its command."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from retriever import ENTRIES, INDEX, Spy, serving_index, until

from factkit import corpus, search_client, search_service, serving
from factkit.params import ROOT
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.entry_index import EntryIndex, build
from factkit.search_client import QUERY_CHARS, document_of, over_http

SECRET = "zq7secret"


@pytest.fixture(scope="module")
def url():
    with serving_index() as address:
        yield address


def post(url, **content):
    return httpx.post(url, json={"queries": ["fox"]} | content)


def test_the_reply_is_search_r1_s(url):
    reply = post(url, queries=["fox jumps", "unheardof"], topk=1, return_scores=True)
    ((item,), nothing) = reply.json()["result"]
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


def test_any_client_s_queries_are_made_searchable():
    index = Spy()
    queries = ["", " \x00\n", "\ud800", "a\x00b", "<b>fox</b>", "x" * 10_000]
    with serving_index(index) as url:
        reply = httpx.post(url, content=json.dumps({"queries": queries}))
    assert len(reply.json()["result"]) == 6
    assert index.queries == ["a b", "<b>fox</b>", "x" * QUERY_CHARS]


def test_a_bad_request_is_refused_without_being_echoed(monkeypatch):
    monkeypatch.setattr(serving, "ROWS", 4)
    index = Spy()
    with serving_index(index) as url:
        for content, why in (
            ([], "queries: must be a list of strings"),
            ({}, "queries: must be a list of strings"),
            ({"queries": SECRET}, "queries: must be a list of strings"),
            ({"queries": [SECRET, None]}, "queries: must be a list of strings"),
            ({"queries": [[SECRET]]}, "queries: must be a list of strings"),
            ({"queries": [SECRET] * 5}, "queries: at most 4 a request"),
            *(
                ({"queries": [SECRET], "topk": k}, "topk: must be a whole number from")
                for k in (0, -1, 101, 2.0, "3", True, None, 10**30)
            ),
            ({"queries": [SECRET], "return_scores": 1}, "return_scores: must be true"),
        ):
            refused = httpx.post(url, json=content)
            assert (refused.status_code, why in refused.text) == (422, True)
            assert SECRET not in refused.text
    assert index.queries == []


def test_the_client_s_largest_request_is_within_the_limits():
    longest = json.dumps(["\U0001f98a" * QUERY_CHARS] * search_client.QUERIES)
    assert len(longest) + 1000 < serving.BODY_BYTES
    assert serving.ROWS >= search_client.QUERIES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(ENTRIES, tmp_path_factory.mktemp("index") / "animals", "animals")


def test_16_clients_of_an_entry_index_get_what_it_finds(folder):
    index = EntryIndex(folder)
    words = ["fox", "iron", "badger", "title", "gold", "metal", "naïve", "symbol"]
    batches = [[f"{word} {i}" for word in words] for i in range(48)]
    together = threading.Barrier(16)

    def client(number):
        search = over_http(url)
        together.wait(90)
        return [search(queries, 3) for queries in batches[number::16]]

    with serving_index(index) as url, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(client, range(16)))
    search = search_client.in_process(index)
    for number in range(16):
        expected = [search(queries, 3) for queries in batches[number::16]]
        assert answers[number] == expected


@pytest.mark.assets
def test_the_leads_are_opened_as_entries_of_three_sentences(monkeypatch):
    leads = corpus.load_leads()[:20]
    monkeypatch.setattr(corpus, "load_leads", lambda: leads)
    index, manifest = search_service.opened("leads")
    hit = index.search(leads[7].text[:100], 1)[0]
    assert hit.chunk.doc_id == leads[7].title
    assert hit.chunk.id.endswith("_sentences_0_2")
    assert (manifest["name"], manifest["entries"]) == ("leads", len(index.chunks))


def up(address):
    try:
        return httpx.get(f"{address}/health").json()
    except httpx.TransportError:
        return None


def test_from_the_command_line_an_index_is_served(folder):
    command = [sys.executable, "-m", "factkit", "serve-search", str(folder)]
    with subprocess.Popen(
        [*command, "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as service:
        try:
            port = service.stdout.readline().split()[-1]
            address = f"http://127.0.0.1:{port}"
            until(lambda: up(address))
            assert up(address)["manifest"] == EntryIndex(folder).manifest
            entries = over_http(f"{address}/retrieve")(["fox jumps"], 1)
            service.terminate()
            assert service.wait(90) == 0
        finally:
            service.kill()
    assert entries == [ENTRIES[:1]]


def test_from_the_command_line_a_mistake_exits_with_2(tmp_path):
    command = [sys.executable, "-m", "factkit", "serve-search", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"{tmp_path}: no index" in done.stderr
