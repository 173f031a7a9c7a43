"""What the kit's services share: no request harms another, and none is lost."""

import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpcore
import httpx
import pytest
from fastapi import FastAPI
from retriever import MANIFEST, Spy, served, serving_index, until

from factkit.gpu import search_service
from factkit.run import connections
from factkit.run.params import ROOT, ParamError

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
        with pytest.raises(ParamError, match=f"{host}.*FACTKIT_SEARCH_TOKEN"):
            search_service.bind_socket(host, 0, "")
    with search_service.bind_socket("0.0.0.0", 0, SECRET) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ParamError, match=f"--port {port}: .*in use"):
            search_service.bind_socket("127.0.0.1", port, "")


HELD = """
import sys, time
from pathlib import Path
from factkit.gpu import search_service

folder = Path(sys.argv[1])
search_service.DRAIN_S = int(sys.argv[2])

class Held:
    def search(self, query, k):
        (folder / "started").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        return []

listening = search_service.bind_socket("127.0.0.1", 0, "")
print(listening.getsockname()[1], flush=True)
search_service.run(search_service.service(Held(), {}, ""), listening)
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


# ---- what services refuse before they read it


def status_of(url, head):
    """The status of a reply to a request's head alone."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port), timeout=30) as sent:
        sent.sendall(head.replace("{path}", address.path).encode())
        return int(sent.recv(1000).split()[1])


def test_a_body_is_read_only_with_the_token():
    head = "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n"
    with serving_index(Spy(), token=SECRET) as url:
        assert status_of(url, head) == 401
        assert post(url, Authorization=f"Bearer {SECRET}").status_code == 200


def test_the_token_guards_an_index_among_several_too():
    app = FastAPI()
    app.mount("/animals", search_service.service(Spy(), MANIFEST, SECRET))
    with served(app) as address:
        url = f"{address}/animals/retrieve"
        assert post(url).status_code == 401
        assert health(url) == {"manifest": MANIFEST}
        assert post(url, Authorization=f"Bearer {SECRET}").status_code == 200


# ---- what clients refuse


@contextmanager
def scripted(*pieces, pause=0.0):
    """A server that sends these bytes to whoever connects, and what it was sent."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        received.append(connection.recv(10_000))
                        for piece in pieces:
                            connection.sendall(piece)
                            time.sleep(pause)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", received


def test_the_address_that_was_checked_is_the_one_connected_to(monkeypatch):
    """A second look-up of the name might lead into this machine's network."""
    looked_up, connected = [], []

    def look_up(host, *_, **__):
        looked_up.append(host)
        address = "8.8.8.8" if len(looked_up) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))]

    def connect(self, host, *_, **__):
        connected.append(host)
        raise httpcore.ConnectError("as far as this")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    with connections.create_client("", 10, public=True) as client:
        with pytest.raises(httpx.ConnectError, match="as far"):
            client.get("http://rebinds.example/")
        assert (looked_up, connected) == (["rebinds.example"], ["8.8.8.8"])
        with pytest.raises(connections.AddressError, match="private"):
            client.get("http://rebinds.example/")
    inside = "64:ff9b::7f00:1 2002:7f00:1::1 ::ffff:10.0.0.1 ::10.0.0.1 fec0::1"
    assert not any(map(connections.is_public, inside.split()))


def test_a_proxy_is_used_for_https_to_other_machines_alone(monkeypatch):
    urls = ("http://127.0.0.1:1/v1", "https://localhost/v1", "http://judge.example/v1")
    with scripted() as (proxy, seen):
        for name in ("http_proxy", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        for url in urls:
            assert not connections.create_client(url, 1)._mounts
        assert connections.create_client("https://judge.example/v1", 1)._mounts
        with (
            connections.create_client(proxy, 5) as client,
            suppress(httpx.TransportError),
        ):
            client.get(urls[0])
        assert not seen
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    assert connections.create_client(urls[0], 1)
    with pytest.raises(ParamError, match="the proxy in the environment"):
        connections.create_client("https://judge.example/v1", 1)
