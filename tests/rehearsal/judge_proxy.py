"""A proxy before `vllm serve`, for the two prompts that ask for tags and not for JSON.

    python tests/rehearsal/judge_proxy.py PORT http://127.0.0.1:8101

A judge of 135M parameters never writes `<new_prompt>…</new_prompt>` or ends with
`<answer>[[A]]</answer>` by itself; where a schema is asked for, vLLM already binds it.
So these two requests get a regex, by vLLM's own `structured_outputs`; all else passes
as it is.
"""

import sys

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response

SENTENCE = r"[A-Z][a-z]+( [A-Za-z]{2,12}){8,24}"
FORMS = {  # what the prompt asks for → what the reply has to be
    "<new_prompt>the prompt</new_prompt>": rf"<new_prompt>{SENTENCE}\?</new_prompt>",
    "<answer>[[A]]</answer>": rf"{SENTENCE}\.\n<answer>\[\[(A|B)\]\]</answer>",
}
PASSED = ("content-type", "authorization")


def with_form(body: dict) -> dict:
    """A chat completion's body, with a regex where its prompt asks for a tag."""
    prompt = str(body["messages"][-1]["content"])
    forms = [form for mark, form in FORMS.items() if mark in prompt]
    if forms and "response_format" not in body:
        body = body | {"structured_outputs": {"regex": forms[0]}}
    return body


def app(server: str) -> FastAPI:
    proxy, client = FastAPI(), httpx.AsyncClient(base_url=server, timeout=None)

    @proxy.api_route("/{path:path}", methods=["GET", "POST"])
    async def forward(path: str, request: Request) -> Response:
        headers = {k: v for k, v in request.headers.items() if k in PASSED}
        more = {"content": await request.body()}
        if path.endswith("chat/completions"):
            more = {"json": with_form(await request.json())}
        reply = await client.request(
            request.method, f"/{path}", headers=headers, **more
        )
        kind = reply.headers.get("content-type")
        return Response(reply.content, reply.status_code, media_type=kind)

    return proxy


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]))
