"""The search of rollouts: in process and by HTTP alike, and no failure unsaid."""

import json
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retriever import INDEX, Spy, serving_index, until

from factkit import http_client, search_client
from factkit.http_client import ServiceError
from factkit.params import ParamError
from factkit.retrieval.chunks import Chunk
from factkit.search_client import (
    QUERY_CHARS,
    document_of,
    entry_of,
    in_process,
    over_http,
    searchable,
)

SECRET = "zq7secret"
NOWHERE = "http://127.0.0.1:9/retrieve"
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
    monkeypatch.delenv(search_client.TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr(search_client, "PATIENCE_S", 60)


@pytest.fixture
def impatient(monkeypatch):
    """A request is tried once."""
    monkeypatch.setattr(search_client, "PATIENCE_S", 0)


@pytest.fixture
def retried(monkeypatch):
    """The seconds before each retry, as the client sets them; they go by at once."""
    waits, wait_s = [], http_client.wait_s

    def brief(state):
        waits.append(wait_s(state))
        return 0.02

    monkeypatch.setattr(http_client, "wait_s", brief)
    monkeypatch.setattr(http_client.Client, "_tell", lambda client, state: None)
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


def test_a_search_by_http_is_the_search_in_process(monkeypatch):
    monkeypatch.setattr(search_client, "QUERIES", 4)  # of a request
    with serving_index() as url:
        for k in (1, 3):
            expected = in_process(INDEX)(QUERIES, k)
            assert over_http(url)(QUERIES, k) == expected
        with pytest.raises(ServiceError, match="topk: must be a whole number from 1"):
            over_http(url)(["fox"], 0)
    assert expected[0][0].id.startswith("Fox")
    empty = [i for i, row in enumerate(expected) if not row]
    assert empty == [2, 3, 4]
    with pytest.raises(ValueError, match="k=0"):
        in_process(INDEX)(["fox"], 0)


def test_a_query_is_made_searchable():
    for query, sent in (
        ("fox", "fox"),
        ("  red\n\tfox ", "red fox"),
        ("a\x00b\x1bc\x85d", "a b c d"),
        ("\ud800fox\udfff", "fox"),
        ("<b>&amp;</b>", "<b>&amp;</b>"),
        ("x" * 10_000, "x" * QUERY_CHARS),
        ("\x00" * 10_000, ""),
    ):
        assert searchable(query) == sent


@given(st.text(st.characters()))
def test_whatever_the_query_what_is_sent_is_clean_and_stays_so(query):
    sent = searchable(query)
    sent.encode()
    assert len(sent) <= QUERY_CHARS
    assert len(sent.splitlines()) <= 1
    assert searchable(sent) == sent


def test_equal_queries_are_asked_once_and_answered_each():
    for by_http in (False, True):
        index = Spy()
        with serving_index(index) as url:
            search = over_http(url) if by_http else in_process(index)
            rows = search(["fox", "iron", " fox", "fox\n", "iron"], 2)
        assert index.queries == ["fox", "iron"]
        assert rows[0] == rows[2] == rows[3] != rows[1] == rows[4]
        rows[0].clear()
        assert rows[2]


def test_where_every_query_is_empty_nobody_is_asked(impatient):
    assert over_http(NOWHERE)(["", "\x00\n", "\ud800"], 3) == [[], [], []]
    assert over_http(NOWHERE)([], 3) == []


# Search-R1's contract


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
        ({"id": "7", "contents": "x\ud800"}, Chunk("7", "7", "x?", 1)),
    ):
        for item in (document, {"document": document, "score": 0.5}):
            search = replying({"result": [[item, item], []]})
            assert search(["fox", "wolf"], 1) == [[entry], []]


GOOD = {"id": "7", "contents": "A fox."}


def test_a_reply_that_is_no_entries_is_refused_and_not_asked_for_again(
    replying, retried, monkeypatch
):
    monkeypatch.setattr(http_client, "REPLY_BYTES", 1000)
    for reply in (
        *(None, 3, "text", [], {}, {"results": [[]]}, {"result": None}),
        *({"result": row} for row in ([None], [{}], [""], {"a": []}, [], [[], []])),
        *({"result": [[item]]} for item in (None, {}, "text", {"id": "7"})),
        {"result": [[{"contents": "A fox."}]]},
        {"result": [[{"document": None, "score": 1.0}]]},
        {"result": [[GOOD | {"id": None}]]},
        {"result": [[GOOD | {"contents": ["A fox."]}]]},
        httpx.Response(200, text="<html>"),
        httpx.Response(200, content=b'\xff{"result"'),
    ):
        with pytest.raises(ServiceError, match="http://there/retrieve: HTTP 200, but"):
            replying(reply)(["fox"], 3)
    long = iter([json.dumps({"result": [[GOOD | {"contents": "x" * 1000}]]}).encode()])
    for content, headers, why in (
        (long, {}, "more than 1000 bytes"),
        (iter([b"{}"]), {"Content-Encoding": "gzip"}, "a packed reply"),
    ):
        with pytest.raises(ServiceError, match=why):
            replying(httpx.Response(200, headers=headers, content=content))(["fox"], 3)
    assert retried == []


# Failures


def test_what_may_heal_is_asked_for_again_as_late_as_the_server_says(replying, retried):
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    for failure in (
        *(httpx.ConnectError("x"), httpx.ReadTimeout("x"), httpx.ReadError("x")),
        httpx.RemoteProtocolError("x"),
        *(httpx.Response(status) for status in (408, 500, 502, 503, 504)),
        busy,
    ):
        retried.clear()
        search = replying(failure, failure, {"result": [[GOOD]]})
        assert search(["fox"], 3)[0][0].id == "7"
        assert len(retried) == 2
    assert all(7 <= seconds <= 8 for seconds in retried)


def test_retry_after_is_seconds_or_a_date_and_never_more_than_a_minute():
    now = parsedate_to_datetime("Wed, 21 Oct 2015 07:28:00 GMT").timestamp()
    for header, seconds in {
        **{"7": 7, "0.5": 0.5, "-3": 0, "86400": 60, "inf": 60},
        "Wed, 21 Oct 2015 07:28:30 GMT": 30,
        "Wed, 21 Oct 2015 07:27:00 GMT": 0,
        "Thu, 22 Oct 2015 07:28:00 GMT": 60,
        **{"soon": None, "nan": None, "": None, None: None},
    }.items():
        assert http_client.retry_after_s(header, now) == seconds


def test_an_error_names_url_status_and_fix(replying, impatient):
    for failure, words in (
        (httpx.ConnectError("x"), ["ConnectError", "factkit serve-search"]),
        (httpx.Response(503), ["HTTP 503", "see to the server"]),
        (httpx.Response(500, json={"detail": "no"}), ["HTTP 500: no; see to the"]),
        (httpx.Response(404, json={"detail": "no"}), ["HTTP 404: no; is search_url"]),
        (httpx.Response(307, headers={"Location": "/"}), ["HTTP 307", "is search_url"]),
    ):
        with pytest.raises(ServiceError) as error:
            replying(failure)(["fox"], 3)
        for part in ("http://there/retrieve", *words):
            assert part in str(error.value)


def test_what_does_not_heal_is_not_asked_for_again(replying, retried):
    for status in (301, 400, 401, 404, 413, 422):
        with pytest.raises(ServiceError, match=f"HTTP {status}"):
            replying(httpx.Response(status))(["fox"], 3)
    assert retried == []


def test_the_first_retry_is_told(replying, monkeypatch):
    monkeypatch.setattr(http_client, "wait_s", lambda state: 0.01)
    down = httpx.Response(503)
    with pytest.warns(UserWarning, match="HTTP 503.*trying again") as warned:
        replying(down, down, {"result": [[GOOD]]})(["fox"], 3)
    assert len(warned) == 1


def test_a_server_that_comes_back_loses_nothing_and_one_that_does_not_is_named(
    monkeypatch, retried
):
    with serving_index() as url:
        search = over_http(url)
        assert search(["fox"], 3) == in_process(INDEX)(["fox"], 3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(search, ["badger", "fox"], 3)
        until(lambda: len(retried) > 2)
        with serving_index(port=httpx.URL(url).port):
            rows = waiting.result()
    assert rows == in_process(INDEX)(["badger", "fox"], 3)
    monkeypatch.setattr(search_client, "PATIENCE_S", 0.3)
    with pytest.raises(ServiceError, match=f"{url}: ConnectError"):
        search(["fox"], 3)


def test_a_bad_url_is_refused_at_once():
    for wrong in (
        *("127.0.0.1:8003", "ftp://host", "http://", "host", "http://host:port", ""),
        f"http://me:{SECRET}@host:8003/retrieve",
    ):
        with pytest.raises(ParamError, match="search_url") as error:
            over_http(wrong)
        assert SECRET not in str(error.value)


def test_the_token_opens_the_service_and_no_error_spells_it(monkeypatch, retried):
    name = search_client.TOKEN_VARIABLE
    with serving_index(token=SECRET) as url:
        monkeypatch.setenv(name, f" {SECRET}\n")
        assert over_http(url)(["fox"], 3) == in_process(INDEX)(["fox"], 3)
        monkeypatch.setenv(name, "other")
        with pytest.raises(ServiceError, match=f"HTTP 401: .*; set {name}") as error:
            over_http(url)(["fox"], 3)
    assert SECRET not in str(error.value) and retried == []
