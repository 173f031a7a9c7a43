"""Half-sent requests: they keep no one out, and fill no log."""

import json
import logging
import re
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx
import pytest
from retriever import ENTRIES, INDEX, serving_index, until

from factkit import connections, search_client
from factkit.params.files import ROOT
from factkit.retrieval.bm25 import CorpusIndex

FILES = 512  # that the service's process may open

SERVICES = {
    "search": """
from factkit import search_service
from factkit.search_service import Service
class Nothing:
    def search(self, query, k):
        return []
app, name = search_service.web(Service(Nothing()), {}, ""), "FACTKIT_SEARCH_TOKEN"
""",
    "rewards": """
from factkit import reward_service
from factkit.reward_service import Service
app, name = reward_service.web(Service(None, []), {}, ""), "FACTKIT_REWARD_TOKEN"
""",
}
SERVE = """
from factkit import serving
listening = serving.bound("127.0.0.1", 0, "", name)
print(listening.getsockname()[1], flush=True)
serving.run(app, listening, 1, busy=lambda: 0)
"""


@contextmanager
def process(service, log):
    """The port of a service in a process that may open few files."""

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    with (
        log.open("wb") as f,
        subprocess.Popen(
            [sys.executable, "-c", SERVICES[service] + SERVE],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=f,
            preexec_fn=few_files,
        ) as started,
    ):
        try:
            port = int(started.stdout.readline())
            until(lambda: answers(port))
            yield port
        finally:
            started.kill()


def answers(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def half_sent(port, content=b"GET /health HTTP/1.1\r\nHost: x\r\n"):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(content)
    return connection


@pytest.mark.parametrize("service", SERVICES)
def test_half_sent_heads_keep_no_one_out_and_leave_the_log_small(service, tmp_path):
    log = tmp_path / "log"
    with process(service, log) as port, ExitStack() as held:
        for _ in range(FILES + 100):
            held.enter_context(half_sent(port))
        begin = time.monotonic()
        reply = httpx.get(f"http://127.0.0.1:{port}/health", timeout=10)
        assert (reply.status_code, time.monotonic() - begin < 5) == (200, True)
        time.sleep(1)
        assert log.stat().st_size < 10_000


@pytest.fixture
def hasty(monkeypatch):
    """A head may take half a second."""
    protocol = connections.protocol
    monkeypatch.setattr(connections, "protocol", lambda most: protocol(most, 0.5))


def closes(connection):
    """Whether the server ends a connection, without a word or after one."""
    try:
        while connection.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
NO_TOKEN = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"


@pytest.mark.parametrize(
    "content", [b"", b"GET", REQUEST[:-2], REQUEST + REQUEST[:-2], NO_TOKEN]
)
def test_a_head_or_a_refused_body_that_does_not_come_is_not_waited_for(hasty, content):
    with serving_index(token="x") as url, half_sent(httpx.URL(url).port, content) as c:
        begin = time.monotonic()
        assert closes(c)
        assert time.monotonic() - begin < 4  # an idle connection is kept for 5


def test_a_head_that_goes_on_and_on_is_refused():
    head = REQUEST[:-2] + b"X: " + b"x" * connections.HEAD_BYTES
    with serving_index() as url, half_sent(httpx.URL(url).port, head) as connection:
        assert b" 400 " in connection.recv(1000)


def test_a_body_under_way_gives_its_place_to_a_whole_request(monkeypatch):
    monkeypatch.setattr(connections, "MOST", 4)
    start = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
    with serving_index() as url, ExitStack() as held:
        for _ in range(8):
            held.enter_context(half_sent(httpx.URL(url).port, start))
        found = search_client.over_http(url)(["fox"], 3)
    assert found == search_client.in_process(INDEX)(["fox"], 3)


def test_a_reply_that_is_left_unread_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    content = json.dumps({"queries": ["fox"] * 500, "topk": 100}).encode()
    head = "POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: "
    request = f"{head}{len(content)}\r\n\r\n".encode() + content
    index = CorpusIndex([replace(ENTRIES[0], text="fox " * 5000)] * 3, cache=False)
    with serving_index(index) as url, half_sent(httpx.URL(url).port, request) as c:
        start = c.recv(1000)
        length = int(re.search(rb"content-length: (\d+)", start)[1])
        time.sleep(1)
        assert sum(iter(lambda: len(c.recv(2**20)), 0)) < length / 2


def test_a_log_takes_a_line_a_minute_without_its_stack_trace():
    record = logging.LogRecord("asyncio", 40, "", 0, "no", (), (OSError, None, None))
    seldom = connections.Seldom()
    assert [seldom.filter(record) for _ in range(3)] == [True, False, False]
    assert record.exc_info is None
