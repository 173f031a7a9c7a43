"""What the kit's services share: no request harms another, and none is lost."""

import json
import logging
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx
import pytest
from retriever import ENTRIES, INDEX, MANIFEST, Spy, serving_index, until

from factkit import search_client, serving
from factkit.params import ROOT, ParamError
from factkit.retrieval.bm25 import CorpusIndex

SECRET = "zq7secret"
FILES = 512  # that the service's process may open


def post(url, **headers):
    return httpx.post(url, json={"queries": ["fox"]}, headers=headers, timeout=90)


def health(url):
    return httpx.get(url.replace("/retrieve", "/health")).json()


def counts(url):
    now = health(url)
    return now["busy"], now["queued"]


@contextmanager
def held(**limits):
    """A service whose searches wait until they may go on: URL, index, event."""
    go = threading.Event()
    index = Spy(lambda query: go.wait(90))
    with serving_index(index, **limits) as url:
        try:
            yield url, index, go
        finally:
            go.set()


def half_sent(url, content=b"GET /health HTTP/1.1\r\nHost: x\r\n"):
    """A connection that has sent a request, or the start of it."""
    address = ("127.0.0.1", httpx.URL(url).port)
    connection = socket.create_connection(address, timeout=10)
    connection.sendall(content)
    return connection


REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{"


# Requests


def test_health_says_what_is_served():
    with serving_index() as url:
        assert health(url) == {"manifest": MANIFEST, "busy": 0, "queued": 0}


def test_what_is_no_json_or_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(serving, "BODY_BYTES", 200_000)
    with serving_index() as url:
        for content in (SECRET, "[" * 100_000, b"\xff\xfe" + SECRET.encode()):
            refused = httpx.post(url, content=content)
            assert (refused.status_code, "not JSON" in refused.text) == (422, True)
            assert SECRET not in refused.text
        for content in (b" " * 200_001, iter([b" " * 150_000] * 2)):
            refused = httpx.post(url, content=content)
            assert (refused.status_code, "200000 bytes" in refused.text) == (413, True)
        assert post(url).status_code == 200


def test_work_that_breaks_is_named_without_what_it_was_asked(capfd):
    def breaks(query):
        raise KeyError(SECRET)

    with serving_index(Spy(breaks)) as url:
        refused = post(url)
    assert refused.status_code == 500
    assert refused.json()["detail"] == "retrieve failed: KeyError"
    log = "".join(capfd.readouterr())
    assert "KeyError" in log
    assert SECRET not in log and "Traceback" not in log


def test_requests_are_worked_on_as_many_at_once_as_allowed_and_others_sent_away():
    with ThreadPoolExecutor(5) as pool, held(at_once=3, waiting=2) as (url, index, go):
        taken = [pool.submit(post, url) for _ in range(5)]
        until(lambda: counts(url) == (3, 2))
        assert len(index.queries) == 3
        refused = post(url)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        go.set()
        assert {future.result().status_code for future in taken} == {200}


def test_a_body_that_does_not_come_or_whose_client_leaves_gives_its_place():
    with serving_index(at_once=1, waiting=0, body_s=1) as url:
        with half_sent(url, BODY) as connection:
            until(lambda: counts(url) == (0, 1))
            assert post(url).status_code == 503
            assert b" 408 " in connection.recv(1000)
        assert post(url).status_code == 200
    with serving_index(at_once=1, waiting=0) as url:
        with half_sent(url, BODY):
            until(lambda: counts(url) == (0, 1))
        until(lambda: counts(url) == (0, 0))
        assert post(url).status_code == 200


def test_a_request_whose_client_went_away_is_not_worked_on():
    with ThreadPoolExecutor(1) as pool, held(at_once=1) as (url, index, go):
        first = pool.submit(post, url)
        until(lambda: counts(url) == (1, 0))
        with half_sent(url, BODY + b'"queries": ["fox"]}'):
            until(lambda: counts(url) == (1, 1))
        assert counts(url) == (1, 1)  # by now it has seen that the client left
        go.set()
        assert first.result().status_code == post(url).status_code == 200
    assert len(index.queries) == 2


# The token and the address


def test_without_the_token_nothing_is_worked_on():
    index = Spy()
    with serving_index(index, token=SECRET) as url:
        for wrong in ("other", f"{SECRET}x", SECRET[:-1], "ö"):
            for header in (f"Bearer {wrong}", f"Basic {SECRET}", SECRET, "Bearer", ""):
                refused = post(url, authorization=header.encode("latin-1"))
                assert refused.status_code == 401
                assert SECRET not in refused.text
        assert index.queries == []
        assert post(url, authorization=f"bearer {SECRET}").status_code == 200


def test_an_address_that_others_reach_needs_a_token():
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(ParamError, match=f"{host}.*THE_TOKEN"):
            serving.bound(host, 0, "", "THE_TOKEN")
    with serving.bound("0.0.0.0", 0, SECRET, "THE_TOKEN") as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


def test_an_address_that_cannot_be_had_is_named():
    with serving.bound("127.0.0.1", 0, "", "THE_TOKEN") as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ParamError, match=f"--port {port}: .*in use"):
            serving.bound("127.0.0.1", port, "", "THE_TOKEN")


def test_a_token_that_no_header_holds_is_refused_unspoken(monkeypatch):
    for bad in (f"{SECRET}\n{SECRET}", f"{SECRET}ö"):
        monkeypatch.setenv("THE_TOKEN", bad)
        with pytest.raises(ParamError, match="line break or is not ASCII") as error:
            serving.environment_token("THE_TOKEN")
        assert SECRET not in str(error.value)


# Connections


def test_a_head_or_a_refused_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(serving, "HEAD_S", 0.5)
    with serving_index(token="x") as url:
        for content in (b"", b"GET", REQUEST[:-2], REQUEST + REQUEST[:-2], BODY):
            with half_sent(url, content) as connection:
                begin = time.monotonic()
                assert ends(connection)
                assert time.monotonic() - begin < 4  # an idle one is kept for 5


def ends(connection):
    """Whether the server ends a connection, without a word or after one."""
    try:
        while connection.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_head_that_goes_on_and_on_is_refused():
    head = REQUEST[:-2] + b"X: " + b"x" * serving.HEAD_BYTES
    with serving_index() as url, half_sent(url, head) as connection:
        assert b" 400 " in connection.recv(1000)


def test_a_body_under_way_gives_its_place_to_a_whole_request(monkeypatch):
    monkeypatch.setattr(serving, "MOST", 4)
    with serving_index() as url, ExitStack() as connections:
        for _ in range(8):
            connections.enter_context(half_sent(url, BODY))
        entries = search_client.over_http(url)(["fox"], 3)
    assert entries == search_client.in_process(INDEX)(["fox"], 3)


def test_a_reply_that_is_left_unread_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(serving, "STALL_S", 0.3)
    content = json.dumps({"queries": ["fox"] * 500, "topk": 100}).encode()
    request = BODY[:-1].replace(b"20", str(len(content)).encode()) + content
    index = CorpusIndex([replace(ENTRIES[0], text="fox " * 5000)] * 3, cache=False)
    with serving_index(index) as url, half_sent(url, request) as connection:
        start = connection.recv(1000)
        length = int(re.search(rb"content-length: (\d+)", start)[1])
        time.sleep(1)
        assert sum(iter(lambda: len(connection.recv(2**20)), 0)) < length / 2


def test_a_log_takes_a_line_a_minute_without_its_stack_trace():
    record = logging.LogRecord("asyncio", 40, "", 0, "no", (), (OSError, None, None))
    seldom = serving.Seldom()
    assert [seldom.filter(record) for _ in range(3)] == [True, False, False]
    assert record.exc_info is None


# The process

HELD = """
import sys, time
from pathlib import Path
from factkit import search_service, serving

folder = Path(sys.argv[1])

class Held:
    def search(self, query, k):
        (folder / "started").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        return []

search_service.opened = lambda entries: (Held(), {})
search_service.LIMITS = serving.Limits(at_once=1, drain_s=int(sys.argv[2]))
search_service.serve("held", "127.0.0.1", 0)
"""


@contextmanager
def process(folder, drain_s=90):
    """A service in a process that may open few files, and its URL."""

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-c", HELD, str(folder), str(drain_s)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=few_files,
        ) as started,
    ):
        try:
            port = started.stdout.readline().split()[-1]
            url = f"http://127.0.0.1:{port}/retrieve"
            until(lambda: not closed(url))
            yield started, url
        finally:
            started.kill()


def closed(url):
    try:
        health(url)
    except httpx.TransportError:
        return True
    return False


def test_half_sent_heads_keep_no_one_out_and_leave_the_log_small(tmp_path):
    with process(tmp_path) as (_, url), ExitStack() as connections:
        for _ in range(FILES + 100):
            connections.enter_context(half_sent(url))
        begin = time.monotonic()
        assert health(url)["busy"] == 0
        assert time.monotonic() - begin < serving.HEAD_S / 2
        time.sleep(1)
        assert (tmp_path / "log").stat().st_size < 10_000


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_ends_answers_what_is_under_way(tmp_path, ended_by):
    with process(tmp_path) as (service, url), ThreadPoolExecutor(2) as pool:
        # one is worked on, the other one waits for its turn
        replies = [pool.submit(post, url) for _ in range(2)]
        until((tmp_path / "started").exists)
        until(lambda: counts(url) == (1, 1))
        service.send_signal(ended_by)
        until(lambda: closed(url))
        (tmp_path / "go").touch()
        assert [r.result().json() for r in replies] == [{"result": [[]]}] * 2
        assert service.wait(90) == 0
        assert (tmp_path / "log").read_text() == ""


def test_work_that_hangs_does_not_keep_the_service_from_ending(tmp_path):
    with process(tmp_path, 1) as (service, url), ThreadPoolExecutor(1) as pool:
        reply = pool.submit(post, url)
        until((tmp_path / "started").exists)
        service.terminate()
        assert service.wait(90) == 0
        assert (tmp_path / "log").read_text() == ""
        assert reply.result().status_code == 503
        assert "Retry-After" in reply.result().headers
