"""A proxy before `vllm serve`, for what a judge of a few million parameters cannot do.

    python tests/rehearsal/judge_proxy.py PORT http://127.0.0.1:8101

It never writes `<new_prompt>…</new_prompt>` by itself: these requests get a regex, by
vLLM's own `structured_outputs`. Where a schema is asked for, vLLM binds the reply to
it; here it also ends the texts in it soon. Claims of a sentence are parts of it: what
such a judge would write is none. And its verdicts would all be alike: they are drawn,
by the prompt's own seed. All else passes as it is.
"""

import json
import re
import sys
import zlib
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response

from factkit.verify.claims import is_claim_of

SENTENCE = r"[A-Z][a-z]+( [A-Za-z]{2,12}){8,24}"
FORMS = {  # what the prompt asks for → what the reply has to be
    "<new_prompt>the prompt</new_prompt>": rf"<new_prompt>{SENTENCE}\?</new_prompt>",
}
WORDS = r"[A-Z][a-z]+( [A-Za-z]{2,8}){1,5}"  # of a text in a schema
MOST = 3  # items of a list
CLAIMS = {"claims", "statements"}  # lists of what a sentence says
PASSED = ("content-type", "authorization")


def with_form(body: dict) -> dict:
    """A chat completion's body, with a regex where its prompt asks for a tag, and a
    schema's texts and lists made short."""
    prompt = str(body["messages"][0]["content"])  # the last may ask for it once more
    forms = [form for mark, form in FORMS.items() if mark in prompt]
    drawn = {"temperature": 1.0, "seed": zlib.crc32(prompt.encode())}
    if schema := body.get("response_format", {}).get("json_schema"):
        made = shortened(schema["schema"], items_of(prompt))
        if told := re.findall(r"^Sentence: (.+)$", prompt, re.MULTILINE):
            for name in CLAIMS & made["properties"].keys():
                made["properties"][name] = claims_of(json.loads(told[-1]))
        short = schema | {"schema": made}
        bound = {"type": "json_schema", "json_schema": short}
        return body | drawn | {"response_format": bound}
    if forms and "response_format" not in body:
        return body | drawn | {"structured_outputs": {"regex": forms[0]}}
    return body


def claims_of(sentence: str) -> dict:
    """The schema of a list of claims: parts of their sentence."""
    words = sentence.split()
    parts = (sentence, " ".join(words[:6]), " ".join(words[-6:]))
    claims = [part for part in dict.fromkeys(parts) if is_claim_of(part, sentence)]
    least = min(1, len(claims))
    items = {"type": "string", "enum": claims or [""]}
    return {"type": "array", "items": items, "minItems": least, "maxItems": len(claims)}


def items_of(prompt: str) -> int:
    """How many statements a prompt lists at its end, to be rated each; 0: none."""
    listed = re.findall(r"^(?:Statements|Claims): (\[.*\])$", prompt, re.MULTILINE)
    return len(re.findall(r'"(?:[^"\\]|\\.)*"', listed[-1])) if listed else 0


def shortened(schema: Any, items: int) -> Any:
    """A JSON schema whose texts and lists end soon; of numbers as many as `items`."""
    if isinstance(schema, list):
        return [shortened(part, items) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: shortened(part, items) for key, part in schema.items()}
    if made.get("type") == "string" and "enum" not in made:
        made["pattern"] = WORDS
    if made.get("type") == "array":
        made |= {"minItems": 1, "maxItems": MOST}
        if made["items"].get("type") == "integer" and items:
            made |= {"minItems": items, "maxItems": items}
    return made


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
    uvicorn.run(
        app(sys.argv[2]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning"
    )
