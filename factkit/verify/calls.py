"""The event loop, the connections and the limit that a process's calls share.

Loop and connections live as long as the process: a client that is made anew for each
batch connects anew, and loads the certificates of all authorities (35 ms).
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import cache
from typing import Any, TypeVar

import aiohttp
import httpx

from factkit.run.progress import progress_bar

T = TypeVar("T")
STARTING = threading.Lock()


def run_all(work: Iterable[Coroutine[Any, Any, T]], progress: str = "") -> list[T]:
    """Run coroutines at the same time and return their results, in their order.

    They run in the loop of this process's calls, in another thread, so that a notebook,
    whose own loop is running, can call this too. An interrupt or an error cancels them.
    progress: label of a progress bar, or "".
    """
    work = list(work)
    with progress_bar(len(work), progress) as bar:
        if not work:
            return []
        with STARTING:
            loop = _start_loop()
        everything = gather(work, bar.update)
        running = asyncio.run_coroutine_threadsafe(everything, loop)
        try:
            return running.result()
        finally:
            running.cancel()


async def gather(
    work: Iterable[Awaitable[T]], on_end: Callable[[], Any] = lambda: None
) -> list[T]:
    """Run coroutines at the same time; an error of one, or a cancellation, cancels all.

    on_end: called when one ends.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    for task in tasks:
        task.add_done_callback(lambda _: on_end())
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


@cache
def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="calls", daemon=True).start()
    for shared in (_start_loop, limit, open_session):  # a fork has no such thread
        os.register_at_fork(after_in_child=shared.cache_clear)
    return loop


@cache
def limit(concurrency: int) -> asyncio.Semaphore:
    """The limit that all calls of this process with this concurrency are under."""
    return asyncio.Semaphore(concurrency)


@cache
def open_session() -> aiohttp.ClientSession:
    """Open this process's HTTP connections; await its requests within `run_all`."""
    connector = aiohttp.TCPConnector(
        limit=0,  # `limit` has it
        ssl=httpx.create_ssl_context(),  # certifi's certificates, or SSL_CERT_FILE
        keepalive_timeout=4,  # servers by uvicorn, as vLLM's, close after 5 s
    )
    session = aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    loop, pid = asyncio.get_running_loop(), os.getpid()

    def close() -> None:
        if os.getpid() == pid:
            asyncio.run_coroutine_threadsafe(session.close(), loop).result(5)

    atexit.register(close)
    return session
