"""The search of rollouts: in process and by HTTP alike, and no failure unsaid."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retriever import ENTRIES, INDEX, Spy, serving_index, until

from factkit import retries, search_client
from factkit.params.files import ParamError
from factkit.retrieval.chunks import Chunk
from factkit.search_client import (
    QUERY_CHARS,
    SearchError,
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


@pytest.fixture(scope="module")
def url():
    with serving_index() as found:
        yield found


@pytest.fixture
def impatient(monkeypatch):
    """A request is tried once."""
    monkeypatch.setattr(search_client, "PATIENCE_S", 0)


@pytest.fixture
def retried(monkeypatch):
    """The seconds before each retry, as the client sets them; they go by at once."""
    waits, wait_s = [], retries.wait_s

    def brief(state, backoff_s):
        waits.append(wait_s(state, backoff_s))
        return 0.02

    monkeypatch.setattr(retries, "wait_s", brief)
    monkeypatch.setattr(search_client, "_warn", lambda state: None)
    return waits


def replying(monkeypatch, *replies):
    """A search at http://there of a server that gives these replies in turn."""
    waiting = iter(replies)

    def answer(request):
        said = next(waiting)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, httpx.Response):
            return said
        return httpx.Response(200, content=json.dumps(said))

    transport, client = httpx.MockTransport(answer), httpx.Client
    monkeypatch.setattr(
        httpx, "Client", lambda **options: client(transport=transport, **options)
    )
    return over_http("http://there/retrieve")


def ids(rows):
    return [[entry.id for entry in row] for row in rows]


# ---- what is searched for


@pytest.mark.parametrize("k", [1, 3])
def test_a_search_by_http_is_the_search_in_process(url, k):
    expected = in_process(INDEX)(QUERIES, k)
    assert over_http(url)(QUERIES, k) == expected
    assert ids(expected)[0][0].startswith("Fox")
    assert [len(row) > 0 for row in expected] == [
        *(True, True, False, False, False, True, True, True, True, True, True)
    ]


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("fox", "fox"),
        ("  red\n\tfox ", "red fox"),
        ("a\x00b\x1bc\x85d", "a b c d"),
        ("\ud800fox\udfff", "fox"),
        ("<b>&amp;</b>", "<b>&amp;</b>"),
        ("x" * 10_000, "x" * QUERY_CHARS),
        ("\x00" * 10_000, ""),
    ],
)
def test_a_query_is_made_searchable(query, asked):
    assert searchable(query) == asked


@given(st.text(st.characters()))
def test_whatever_the_query_what_is_sent_is_clean_and_stays_so(query):
    asked = searchable(query)
    asked.encode()
    assert len(asked) <= QUERY_CHARS
    assert len(asked.splitlines()) <= 1
    assert searchable(asked) == asked


@pytest.mark.parametrize("by_http", [False, True])
def test_equal_queries_are_asked_once_and_answered_each(by_http):
    index = Spy()
    with serving_index(index) as url:
        search = over_http(url) if by_http else in_process(index)
        found = search(["fox", "iron", " fox", "fox\n", "iron"], 2)
    assert index.queries == ["fox", "iron"]
    assert found[0] == found[2] == found[3] != found[1] == found[4]
    found[0].clear()
    assert found[2]


def test_where_every_query_is_empty_nobody_is_asked(impatient):
    assert over_http(NOWHERE)(["", "\x00\n", "\ud800"], 3) == [[], [], []]
    assert over_http(NOWHERE)([], 3) == []


def test_many_queries_go_in_requests_of_some_in_order(url, monkeypatch):
    monkeypatch.setattr(search_client, "QUERIES", 4)
    queries = [f"{word} {i}" for i in range(5) for word in ("fox", "iron", "badger")]
    assert over_http(url)(queries, 2) == in_process(INDEX)(queries, 2)


def test_k_below_one_is_refused_by_value(url):
    with pytest.raises(ValueError, match="k=0"):
        in_process(INDEX)(["fox"], 0)
    with pytest.raises(SearchError, match="topk: must be a whole number from 1"):
        over_http(url)(["fox"], 0)


# ---- Search-R1's contract


TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['"a"', '"a"\nb', '"\nb', "\n", '""\n""\n', "a\r\nb"]
)


@given(TEXT, TEXT, TEXT, st.integers(0))
def test_an_entry_comes_back_as_it_was(name, page, text, n_tokens):
    entry = Chunk(name, page, text, n_tokens)
    assert entry_of(json.loads(json.dumps(document_of(entry)))) == entry


def test_contents_are_the_title_in_quotes_and_the_text():
    assert document_of(ENTRIES[1])["contents"] == '"Fox"\nNo fox is a wolf.'


FOX = Chunk("7", "Fox", "Fox\nA fox.\nIt runs.", 5)


@pytest.mark.parametrize("with_scores", [True, False])
@pytest.mark.parametrize(
    ("document", "entry"),
    [
        ({"id": "7", "contents": '"Fox"\nA fox.\nIt runs.'}, FOX),
        ({"id": 7, "contents": "Fox\nA fox.\nIt runs.", "title": "?"}, FOX),
        ({"id": "7", "contents": "A fox."}, Chunk("7", "7", "A fox.", 2)),
        ({"id": "7", "contents": "x\ud800"}, Chunk("7", "7", "x?", 1)),
    ],
)
def test_documents_of_search_r1_s_server_are_read(
    monkeypatch, document, entry, with_scores
):
    item = {"document": document, "score": 0.5} if with_scores else document
    search = replying(monkeypatch, {"result": [[item], []]})
    assert search(["fox", "wolf"], 3) == [[entry], []]


def test_of_more_entries_than_asked_for_the_first_are_taken(monkeypatch):
    documents = [document_of(entry) for entry in ENTRIES]
    search = replying(monkeypatch, {"result": [documents]})
    assert search(["fox"], 2) == [ENTRIES[:2]]


GOOD = {"id": "7", "contents": "A fox."}


@pytest.mark.parametrize(
    "reply",
    [
        *(None, 3, "text", [], {}, {"results": [[]]}, {"result": None}),
        *(
            {"result": [None]},
            {"result": [{}]},
            {"result": [""]},
            {"result": {"a": []}},
        ),
        *({"result": [[None]]}, {"result": [[{}]]}, {"result": [["text"]]}),
        {"result": [[{"id": "7"}]]},
        {"result": [[{"contents": "A fox."}]]},
        {"result": [[{"document": None, "score": 1.0}]]},
        {"result": [[GOOD | {"id": None}]]},
        {"result": [[GOOD | {"contents": ["A fox."]}]]},
        *({"result": []}, {"result": [[], []]}),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, content=b'\xff{"result"'),
    ],
)
def test_a_reply_that_is_no_entries_is_refused_and_not_asked_for_again(
    monkeypatch, reply, retried
):
    search = replying(monkeypatch, reply)
    with pytest.raises(SearchError, match="http://there/retrieve: HTTP 200, but"):
        search(["fox"], 3)
    assert retried == []


# ---- failures


@pytest.mark.parametrize(
    "failure",
    [
        *(httpx.ConnectError("x"), httpx.ReadTimeout("x"), httpx.ReadError("x")),
        httpx.RemoteProtocolError("x"),
        *(httpx.Response(status) for status in (408, 429, 500, 502, 503, 504)),
    ],
)
def test_what_may_heal_is_asked_for_again(monkeypatch, failure, retried):
    good = {"result": [[GOOD]]}
    search = replying(monkeypatch, failure, failure, good)
    assert ids(search(["fox"], 3)) == [["7"]]
    assert len(retried) == 2


def test_a_server_s_retry_after_is_waited_for(monkeypatch, retried):
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    replying(monkeypatch, busy, {"result": [[GOOD]]})(["fox"], 3)
    assert 7 <= retried[0] <= 8


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (httpx.ConnectError("x"), ["ConnectError", "factkit serve-search"]),
        (httpx.ReadTimeout("x"), ["ReadTimeout", "factkit serve-search"]),
        (httpx.Response(503), ["HTTP 503; see to the server"]),
        (httpx.Response(500, json={"detail": "no"}), ["HTTP 500: no; see to the"]),
        (httpx.Response(404, json={"detail": "no"}), ["HTTP 404: no; mend search_url"]),
        (httpx.Response(307, headers={"Location": "/"}), ["HTTP 307; mend search_url"]),
    ],
)
def test_an_error_names_url_status_and_fix(monkeypatch, failure, said, impatient):
    search = replying(monkeypatch, failure)
    with pytest.raises(SearchError) as error:
        search(["fox"], 3)
    for part in ("http://there/retrieve", *said):
        assert part in str(error.value)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413, 422])
def test_what_does_not_heal_is_not_asked_for_again(monkeypatch, status, retried):
    search = replying(monkeypatch, httpx.Response(status))
    with pytest.raises(SearchError, match=f"HTTP {status}"):
        search(["fox"], 3)
    assert retried == []


def test_the_first_retry_is_told(monkeypatch):
    monkeypatch.setattr(retries, "wait_s", lambda *_, **__: 0.01)
    down = httpx.Response(503)
    search = replying(monkeypatch, down, down, {"result": [[GOOD]]})
    with pytest.warns(UserWarning, match="HTTP 503.*trying again") as warned:
        search(["fox"], 3)
    assert len(warned) == 1


def test_a_server_that_goes_down_and_comes_back_loses_nothing(retried):
    with serving_index() as url:
        search = over_http(url)
        expected = search(["fox"], 3)
    port = int(url.split(":")[2].partition("/")[0])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(search, ["badger", "fox"], 3)
        until(lambda: len(retried) > 2)
        with serving_index(port=port):
            found = waiting.result()
    assert found == in_process(INDEX)(["badger", "fox"], 3)
    assert found[1] == expected[0]


def test_a_server_that_stays_down_is_an_error_after_its_time(monkeypatch, retried):
    with serving_index() as url:
        search = over_http(url)
        assert search(["fox"], 3) != [[]]
    monkeypatch.setattr(search_client, "PATIENCE_S", 0.3)
    with pytest.raises(SearchError, match="ConnectError") as error:
        search(["fox"], 3)
    assert url in str(error.value)
    assert retried


def test_16_clients_at_once_all_get_theirs(url):
    words = ["fox", "iron", "badger", "title", "gold", "metal", "den", "symbol"]
    asked = [[f"{w} {i}" for w in words] for i in range(48)]

    def client(number):
        search = over_http(url)
        return [search(queries, 3) for queries in asked[number::16]]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(client, range(16)))
    search = in_process(INDEX)
    for number in range(16):
        assert found[number] == [search(queries, 3) for queries in asked[number::16]]


@pytest.mark.parametrize(
    "wrong",
    [
        *("127.0.0.1:8003", "ftp://host", "http://", "host", "http://host:port", ""),
        f"http://me:{SECRET}@host:8003/retrieve",
    ],
)
def test_a_bad_url_is_refused_at_once(wrong):
    with pytest.raises(ParamError, match="search_url") as error:
        over_http(wrong)
    assert SECRET not in str(error.value)


# ---- the token


def test_with_the_token_entries_are_given(monkeypatch):
    monkeypatch.setenv(search_client.TOKEN_VARIABLE, f" {SECRET}\n")
    with serving_index(token=SECRET) as url:
        assert over_http(url)(["fox"], 3) == in_process(INDEX)(["fox"], 3)


def test_another_token_is_an_error_that_does_not_spell_it(monkeypatch, retried):
    monkeypatch.setenv(search_client.TOKEN_VARIABLE, "other")
    with serving_index(token=SECRET) as url, pytest.raises(SearchError) as error:
        over_http(url)(["fox"], 3)
    assert f"HTTP 401: no token or another one; set {search_client.TOKEN_VARIABLE}" in (
        str(error.value)
    )
    assert SECRET not in str(error.value) and retried == []


def test_a_token_that_no_header_holds_is_refused_unspoken(monkeypatch):
    monkeypatch.setenv(search_client.TOKEN_VARIABLE, f"{SECRET}\n{SECRET}")
    with pytest.raises(ParamError, match="line break or is not ASCII") as error:
        over_http(NOWHERE)
    assert SECRET not in str(error.value)
