"""A fake endpoint of fixed latency that finds two claims in each sentence.

Run it with the latency in seconds: it prints its URL. GET <URL>/totals gives the
number of calls and the characters of their prompts since the last GET.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


def reply(body: dict) -> str:
    """Answer the kit by its schema, and the VeriScore package in its text format."""
    system, prompt = body["messages"][0]["content"], body["messages"][-1]["content"]
    words = prompt.rpartition("Sentence: ")[2].partition("\n")[0].strip('"').split()
    halves = words[: len(words) // 2], words[len(words) // 2 :]
    # the kit refuses one word, and a question
    claims = [" ".join(half).rstrip("?") for half in halves if len(half) > 1]
    if form := body.get("response_format"):
        fields = form["json_schema"]["schema"]["properties"]
        if "claims" in fields:
            return json.dumps({"claims": claims})
        if "answer" in fields:
            return json.dumps({"answer": "", "reason": "more", "label": "a"})
        if "label" in fields:
            return json.dumps({"label": "supported"})
        return json.dumps({"REASONING": "no contradiction found", "SCORE": 1})
    if "extract" in system:
        return "\n".join(f"- {claim}" for claim in claims)
    return "###Supported.###"


def serve(latency_s: float) -> None:
    """Serve on a free port and print the URL."""
    from aiohttp import web

    totals = {"calls": 0, "characters": 0}

    async def complete(request: web.Request) -> web.Response:
        arrived = time.perf_counter()
        body = await request.json()
        totals["calls"] += 1
        totals["characters"] += sum(len(m["content"]) for m in body["messages"])
        message = {"role": "assistant", "content": reply(body)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        head = {"id": "x", "object": "chat.completion", "created": 0, "model": "fake"}
        await asyncio.sleep(latency_s - (time.perf_counter() - arrived))
        return web.json_response({**head, "choices": [choice], "usage": usage})

    async def count(request: web.Request) -> web.Response:
        counted = dict(totals)
        totals.update(calls=0, characters=0)
        return web.json_response(counted)

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/totals", count)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", flush=True)
    web.run_app(app, sock=listening, backlog=1024, access_log=None, print=None)


@contextmanager
def endpoint(latency_s: float) -> Iterator[str]:
    """The URL of a running endpoint, in a process of its own."""
    command = [sys.executable, __file__, str(latency_s)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


def totals(url: str) -> dict[str, int]:
    """Calls and prompt characters since the last time; then they are 0."""
    with urllib.request.urlopen(f"{url}/totals") as answer:
        return json.load(answer)


if __name__ == "__main__":
    serve(float(sys.argv[1]))
