"""The search of rollouts: in process and by HTTP alike, and no failure unsaid."""

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retriever import ENTRIES, INDEX, serving_index, until

from factkit.data import search
from factkit.data.corpus import Chunk
from factkit.data.entry_index import EntryIndex, build_index
from factkit.data.search import (
    QUERY_CHARS,
    clean_query,
    document_of,
    entry_of,
    in_process,
    over_http,
)
from factkit.run import serving
from factkit.run.params import ROOT, ParamError
from factkit.run.serving import ServiceError

SECRET = "zq7secret"
QUERIES = [
    "fox",
    "the badger",
    "",
    " \n\t\x00",
    "unheardof",
    '<search>fox</search> [[Iron]] {json: "fox"} \'; DROP TABLE -- AND OR NOT *',
    "half a \ud800 fox \udfff",
    "fox\x00den\x1b[31m",
    "naïve 漢字 \u202e rtl ﬁ",
    "metal " * 1_700,  # 10 kB
    "fox",
]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No token of the user's, and an end to retries where a test fails."""
    monkeypatch.delenv(search.TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(search, "PATIENCE_S", 60)


@pytest.fixture
def impatient(monkeypatch):
    """A request is tried once."""
    monkeypatch.setattr(search, "PATIENCE_S", 0)


@pytest.fixture
def retried(monkeypatch):
    """The seconds before each retry, as the client sets them; they go by at once."""
    waits, wait_s = [], serving.wait_s

    def brief(state):
        waits.append(wait_s(state))
        return 0.02

    monkeypatch.setattr(serving, "wait_s", brief)
    monkeypatch.setattr(serving.Client, "_warn", lambda client, state: None)
    return waits


@pytest.fixture
def replying(monkeypatch):
    """Makes a search at http://there of a server that gives these replies in turn."""
    client = httpx.Client

    def make(*replies):
        waiting = iter(replies)

        def answer(request):
            reply = next(waiting)
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, httpx.Response):
                return reply
            return httpx.Response(200, content=json.dumps(reply))

        transport = httpx.MockTransport(answer)
        monkeypatch.setattr(
            httpx, "Client", lambda **options: client(transport=transport, **options)
        )
        return over_http("http://there/retrieve")

    return make


# What is searched for


def test_shuffled_results_are_the_same_entries_in_an_order_of_the_query():
    find = in_process(INDEX)
    found, mixed = find(QUERIES, 3), search.shuffled(find)(QUERIES, 3)
    assert [{e.id for e in row} for row in mixed] == [
        {e.id for e in row} for row in found
    ]
    assert mixed != found
    assert search.shuffled(find)(QUERIES[:2], 3) == mixed[:2]


def test_a_search_by_http_is_the_search_in_process(monkeypatch):
    monkeypatch.setattr(search, "QUERIES", 4)  # of a request
    with serving_index() as url:
        for k in (1, 3):
            expected = in_process(INDEX)(QUERIES, k)
            assert over_http(url)(QUERIES, k) == expected
        with pytest.raises(ServiceError, match="HTTP 422.*topk"):
            over_http(url)(["fox"], 0)
    assert expected[0][0].id.startswith("Fox")
    assert [i for i, row in enumerate(expected) if not row] == [2, 3, 4]


@given(st.text(st.characters()))
def test_whatever_the_query_what_is_sent_is_clean_and_stays_so(query):
    sent = clean_query(query)
    sent.encode()
    assert len(sent) <= QUERY_CHARS
    assert len(sent.splitlines()) <= 1
    assert clean_query(sent) == sent


# Search-R1's contract


def post(url, **content):
    return httpx.post(url, json={"queries": ["fox"]} | content)


def test_the_reply_is_search_r1_s():
    documents = [document_of(hit.chunk) for hit in INDEX.search("fox", 3)]
    with serving_index() as url:
        reply = post(url, queries=["fox jumps", "?"], topk=1, return_scores=True)
        assert post(url).json() == {"result": [documents]}
    ((item,), nothing) = reply.json()["result"]
    assert item["document"]["id"] == "Fox_sentences_0_2"
    assert item["document"]["contents"] == (
        '"Fox"\nThe red fox jumps.\nA fox sleeps in its den.'
    )
    assert item["score"] == INDEX.search("fox jumps", 1)[0].score
    assert nothing == []


TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['"a"', '"a"\nb', '"\nb', "\n", '""\n""\n', "a\r\nb"]
)


@given(TEXT, TEXT, TEXT, st.integers(0))
def test_an_entry_comes_back_as_it_was(name, page, text, n_tokens):
    entry = Chunk(name, page, text, n_tokens)
    assert entry_of(json.loads(json.dumps(document_of(entry)))) == entry


FOX = Chunk("7", "Fox", "Fox\nA fox.\nIt runs.", 5)


def test_documents_of_search_r1_s_server_are_read(replying):
    for document, entry in (
        ({"id": "7", "contents": '"Fox"\nA fox.\nIt runs.'}, FOX),
        ({"id": 7, "contents": "Fox\nA fox.\nIt runs.", "title": "?"}, FOX),
        ({"id": "7", "contents": "A fox."}, Chunk("7", "7", "A fox.", 2)),
    ):
        for item in (document, {"document": document, "score": 0.5}):
            find = replying({"result": [[item, item], []]})
            assert find(["fox", "wolf"], 1) == [[entry], []]


GOOD = {"id": "7", "contents": "A fox."}


def test_a_reply_that_is_no_entries_is_refused_and_not_asked_for_again(
    replying, retried
):
    for reply in (
        *(3, {}, {"result": None}, {"result": []}, {"result": [[{"id": "7"}]]}),
        {"result": [[GOOD | {"contents": ["A fox."]}]]},
        httpx.Response(200, text="<html>"),
    ):
        with pytest.raises(ServiceError, match="http://there/retrieve: HTTP 200, but"):
            replying(reply)(["fox"], 3)
    assert retried == []


# Failures


def test_what_may_heal_is_asked_for_again_as_late_as_the_server_says(replying, retried):
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    for failure in (httpx.ConnectError("x"), httpx.Response(503), busy):
        retried.clear()
        find = replying(failure, failure, {"result": [[GOOD]]})
        assert find(["fox"], 3)[0][0].id == "7"
        assert len(retried) == 2
    assert all(7 <= seconds <= 8 for seconds in retried)


def test_an_error_names_url_status_and_fix(replying, retried, impatient):
    for failure, words in (
        (httpx.ConnectError("x"), ["ConnectError", "factkit serve-search"]),
        (httpx.Response(503), ["HTTP 503", "factkit serve-search"]),
        (httpx.Response(404, text="no"), ["HTTP 404: no; is search_url right"]),
        (httpx.Response(307, headers={"Location": "/"}), ["HTTP 307", "is search_url"]),
    ):
        with pytest.raises(ServiceError) as error:
            replying(failure)(["fox"], 3)
        for part in ("http://there/retrieve", *words):
            assert part in str(error.value)


def test_a_bad_url_is_refused_at_once():
    for wrong in (
        *("127.0.0.1:8003", "ftp://host", "http://", "host", "http://host:port", ""),
        f"http://me:{SECRET}@host:8003/retrieve",
    ):
        with pytest.raises(ParamError, match="search_url") as error:
            over_http(wrong)
        assert SECRET not in str(error.value)


def test_the_token_opens_the_service_and_no_error_spells_it(monkeypatch, retried):
    with serving_index(token=SECRET) as url:
        monkeypatch.setenv(search.TOKEN_VARIABLE, f" {SECRET}\n")
        assert over_http(url)(["fox"], 3) == in_process(INDEX)(["fox"], 3)
        monkeypatch.setenv(search.TOKEN_VARIABLE, "other")
        with pytest.raises(ServiceError, match="HTTP 401: .*token") as error:
            over_http(url)(["fox"], 3)
    assert SECRET not in str(error.value) and retried == []


# The service


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "animals"
    return build_index(ENTRIES, path, "animals")


def up(address):
    try:
        return httpx.get(f"{address}/health").json()
    except httpx.TransportError:
        return None


COMMAND = [sys.executable, "-m", "factkit", "serve-search"]


@contextmanager
def serving_from_the_command_line(*words):
    """The address of what is served; it ends in order."""
    command = [*COMMAND, *map(str, words), "--port", "0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as service:
        try:
            port = service.stdout.readline().split()[-1]
            address = f"http://127.0.0.1:{port}"
            until(lambda: up(address))
            yield address
            service.terminate()
            assert service.wait(90) == 0
        finally:
            service.kill()


def test_from_the_command_line_an_index_is_served_and_a_mistake_exits_with_2(
    folder, tmp_path
):
    with serving_from_the_command_line(folder) as address:
        assert up(address)["manifest"] == EntryIndex(folder).manifest
        entries = over_http(f"{address}/retrieve")(["fox jumps"], 1)
    assert entries == [ENTRIES[:1]]
    done = subprocess.run(
        [*COMMAND, tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"{tmp_path}: no index" in done.stderr


def test_each_set_is_searched_in_its_own_corpus(folder, tmp_path):
    """One page is called alike in two corpora, with other texts."""
    own = [replace(ENTRIES[0], text="Fox\nA fox of another year jumps.")]
    build_index(own, tmp_path / "feverous", "foxes")
    (tmp_path / "fever").symlink_to(folder)
    with serving_from_the_command_line(tmp_path) as address:
        told = up(address)["manifests"]
        assert {k: v["name"] for k, v in told.items()} == {
            "fever": "animals",
            "feverous": "foxes",
        }
        assert up(f"{address}/fever")["manifest"] == told["fever"]
        search = over_http(f"{address}/{{set}}/retrieve")
        found = search(["fox jumps"] * 3, 1, ["fever", "feverous", "fever"])
        assert found == [ENTRIES[:1], own, ENTRIES[:1]]
        with pytest.raises(ServiceError, match="/hover/retrieve: HTTP 404"):
            search(["fox"], 1, ["hover"])
        with pytest.raises(ValueError, match="2 queries of 0 claims' sets"):
            search(["fox", "den"], 1)
