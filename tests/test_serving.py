"""What the kit's services share: no request harms another, and none is lost."""

import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from retriever import MANIFEST, Spy, serving_index, until

from factkit import serving
from factkit.params import ROOT, ParamError

SECRET = "zq7secret"


def post(url, **headers):
    return httpx.post(url, json={"queries": ["fox"]}, headers=headers, timeout=90)


def health(url):
    return httpx.get(url.replace("/retrieve", "/health")).json()


def closed(url):
    try:
        health(url)
    except httpx.TransportError:
        return True
    return False


def test_work_that_breaks_is_named_without_what_it_was_asked(capfd):
    def breaks(query):
        raise KeyError(SECRET)

    with serving_index(Spy(breaks)) as url:
        assert health(url) == {"manifest": MANIFEST}
        refused = post(url)
    assert refused.status_code == 500
    assert refused.json()["detail"] == "retrieve failed: KeyError"
    assert SECRET not in "".join(capfd.readouterr())


def test_requests_beyond_those_at_once_wait_for_their_turn():
    go = threading.Event()
    index = Spy(lambda query: go.wait(90))
    with ThreadPoolExecutor(9) as pool, serving_index(index) as url:
        replies = [pool.submit(post, url) for _ in range(9)]
        until(lambda: len(index.queries) == 4)
        assert health(url)  # answers meanwhile
        assert len(index.queries) == 4
        go.set()
        assert {reply.result().status_code for reply in replies} == {200}


def test_without_the_token_nothing_is_worked_on():
    index = Spy()
    with serving_index(index, token=SECRET) as url:
        for wrong in ("other", f"{SECRET}x", SECRET[:-1], "ö"):
            for header in (f"Bearer {wrong}", f"Basic {SECRET}", SECRET, "Bearer", ""):
                refused = post(url, authorization=header.encode("latin-1"))
                assert refused.status_code == 401
                assert SECRET not in refused.text
        assert index.queries == []
        assert post(url, authorization=f"Bearer {SECRET}").status_code == 200


def test_an_address_that_others_reach_needs_a_token():
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(ParamError, match=f"{host}.*THE_TOKEN"):
            serving.bound(host, 0, "", "THE_TOKEN")
    with serving.bound("0.0.0.0", 0, SECRET, "THE_TOKEN") as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ParamError, match=f"--port {port}: .*in use"):
            serving.bound("127.0.0.1", port, "", "THE_TOKEN")


def test_half_sent_heads_keep_no_one_out_for_long(monkeypatch):
    monkeypatch.setattr(serving, "HEAD_S", 0.5)
    monkeypatch.setattr(serving, "MOST", 5)
    with serving_index() as url:
        address = ("127.0.0.1", httpx.URL(url).port)
        connections = [socket.create_connection(address) for _ in range(8)]
        for connection in connections:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        until(lambda: httpx.get(url.replace("/retrieve", "/health")).is_success)
        assert not any(connection.recv(1) for connection in connections)


HELD = """
import sys, time
from pathlib import Path
from factkit import search_service, serving

folder = Path(sys.argv[1])
serving.DRAIN_S = int(sys.argv[2])

class Held:
    def search(self, query, k):
        (folder / "started").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        return []

listening = serving.bound("127.0.0.1", 0, "", "THE_TOKEN")
print(listening.getsockname()[1], flush=True)
serving.run(search_service.service(Held(), {}, ""), listening)
"""


@contextmanager
def process(folder, drain_s=90):
    """A service in a process of its own, and its URL."""
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-c", HELD, str(folder), str(drain_s)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as started,
    ):
        try:
            url = f"http://127.0.0.1:{started.stdout.readline().strip()}/retrieve"
            until(lambda: not closed(url))
            yield started, url
        finally:
            started.kill()


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_ends_answers_what_is_under_way(tmp_path, ended_by):
    with process(tmp_path) as (service, url), ThreadPoolExecutor(1) as pool:
        reply = pool.submit(post, url)
        until((tmp_path / "started").exists)
        service.send_signal(ended_by)
        until(lambda: closed(url))
        (tmp_path / "go").touch()
        assert reply.result().json() == {"result": [[]]}
        assert service.wait(90) == 0
        assert (tmp_path / "log").read_text("utf-8") == ""


def test_work_that_hangs_does_not_keep_the_service_from_ending(tmp_path):
    with process(tmp_path, 1) as (service, url), ThreadPoolExecutor(1) as pool:
        reply = pool.submit(post, url)
        until((tmp_path / "started").exists)
        begin = time.monotonic()
        service.terminate()
        assert service.wait(90) == 0
        assert time.monotonic() - begin < 60
        assert reply.result().status_code == 503
