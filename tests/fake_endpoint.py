"""An OpenAI-compatible endpoint in a thread, which behaves as badly as a test asks."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

HANG, TRICKLE = None, object()  # no reply, or one whose bytes come one by one
Behaviour = Callable[[dict[str, Any], int], tuple[int, Any, dict[str, str]] | None]


@dataclass
class FakeEndpoint:
    """What the server saw: bodies, headers, arrival times in seconds, calls at once,
    connections."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    now: int = 0
    most_at_once: int = 0
    connections: set[Any] = field(default_factory=set)

    def prompts(self) -> list[str]:
        return [prompt_of(body) for body in self.bodies]


def prompt_of(body: dict[str, Any]) -> str:
    return (
        body["messages"][-1]["content"] if "messages" in body else str(body["prompt"])
    )


def answer(text: str | None, finish_reason: str = "stop") -> tuple[int, Any, dict]:
    """A chat completion of 10 prompt and 5 completion tokens."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "fake"}
    return 200, {**body, "choices": [choice], "usage": usage}, {}


def refuse(status: int, message: str = "no", **headers: str) -> tuple[int, Any, dict]:
    """An error; headers with _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"error": {"message": message, "type": "x"}}, named


def echo(body: dict[str, Any], attempt: int) -> tuple[int, Any, dict]:
    """Behave well: answer with the prompt."""
    return answer(f"echo {prompt_of(body)}")


@contextmanager
def serve(behave: Behaviour = echo) -> Iterator[FakeEndpoint]:
    """Serve on a free port.

    behave: body of a call and number of earlier calls with this prompt → status, JSON
    (or text) and headers, or HANG, or TRICKLE.
    """
    from aiohttp import web

    seen = FakeEndpoint()
    earlier: Counter[str] = Counter()

    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        seen.bodies.append(body)
        seen.headers.append({k.lower(): v for k, v in request.headers.items()})
        seen.arrivals.append(time.monotonic())
        seen.connections.add(request.transport.get_extra_info("peername"))
        seen.now += 1
        seen.most_at_once = max(seen.most_at_once, seen.now)
        attempt = earlier[prompt_of(body)]
        earlier[prompt_of(body)] += 1
        try:
            await asyncio.sleep(0.005)
            done = behave(body, attempt)
            if done is HANG:
                await asyncio.sleep(3600)  # until the client goes away
            if done is TRICKLE:
                response = web.StreamResponse()
                await response.prepare(request)
                while True:
                    await response.write(b" ")
                    await asyncio.sleep(0.2)
        finally:
            seen.now -= 1
        status, content, headers = done
        if isinstance(content, str | bytes):
            content = content.encode() if isinstance(content, str) else content
            return web.Response(status=status, body=content, headers=headers)
        return web.json_response(content, status=status, headers=headers)

    async def start(ready: threading.Event, stop: asyncio.Event) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handle)
        app.router.add_post("/v1/completions", handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        seen.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()
        await stop.wait()
        await runner.cleanup()

    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    work = start(ready, stop)
    thread = threading.Thread(target=loop.run_until_complete, args=[work])
    thread.start()
    try:
        assert ready.wait(20)
        yield seen
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
