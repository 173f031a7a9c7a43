"""One interface to the language models that judge, extract and verify.

A call that fails is a reply without text, never an exception and never a score.
"""

import asyncio
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from factkit import UserError
from factkit.policy.decoding import Sampling
from factkit.run import connections
from factkit.run.cache import Cache
from factkit.run.progress import progress_bar

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# a server's words for what it does not take
SCHEMA = re.compile(r"(?i)response_format|schema|structured output|grammar|guided")
# of a schema, refused by OpenAI ('maxLength' is not permitted) and others
BOUNDS = frozenset({"maxLength", "pattern"})

# finish reasons, in lower case without marks; none at all is a normal end, too
NORMAL_ENDS = frozenset(
    "stop stopped stopsequence stoptoken stoppedeos stoppedword finishreasonstop eos "
    "eostoken endofsequence endoftext endturn endofturn end complete completed done "
    "finish finished normal none null".split()
) | {""}


@dataclass(frozen=True)
class Request:
    """A chat to complete.

    messages: mappings with role and content. template: name and version of the prompt
    template. sample: index among repeated samples of one prompt. schema: JSON schema
    of the answer, for servers with structured output. All of them, but of `sampling`
    only `decoding`, are part of the cache key.
    """

    messages: tuple[Mapping[str, str], ...]
    template: str = ""
    sampling: Sampling = Sampling(512)
    sample: int = 0
    schema: Mapping[str, Any] | None = None

    @property
    def decoding(self) -> tuple[int, float, float]:
        """What of `sampling` decides the answer: new tokens, temperature, top_p."""
        s = self.sampling
        return int(s.max_new_tokens), float(s.temperature), float(s.top_p)


@dataclass(frozen=True)
class Reply:
    """An answer; `text` is None if the call failed, and `error` says why.

    cached: it took no call. Tokens are those of the call that was made for it.
    finish_reason: as the server names it. Those of `NORMAL_ENDS`, in any letter case
    and spelling (end_turn, EndTurn), say that the model ended its text, and so does
    none at all; any other one, as length, max_tokens, content_filter, safety or
    tool_calls, that it did not.
    """

    text: str | None
    error: str = ""
    cached: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = "stop"

    @property
    def finished(self) -> bool:
        """Whether there is a text that ends where the model ended it."""
        reason = re.sub(r"[\W_]", "", self.finish_reason).lower()
        return self.text is not None and reason in NORMAL_ENDS


REPLY = TypeAdapter(Reply)


@dataclass(frozen=True)
class Limits:
    """What calls may take.

    concurrency: calls at once of a `run`. timeout_s: a call's, in seconds. attempts: at
    one request, over 15 seconds at least. max_calls: a cap on an LLM's `totals.calls`.
    """

    concurrency: int = 64
    timeout_s: float = 60.0
    attempts: int = 7
    max_calls: int | None = None


class LLM:
    """An OpenAI-compatible endpoint with a disk cache, limits, and totals.

    base_url: with its /v1. cache: folder, on a local disk; any number of processes may
    share it. api_key: none if None or empty.
    headers, extra: fields of each request's header and body; of these `extra` and
    thinking_tokens, which a reply may have beside those asked for, decide the answer.
    `totals`: HTTP attempts made (`calls`), and tokens as the server counts them.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        cache: Path | None = None,
        limits: Limits = Limits(),
        api_key: str | None = None,
        headers: Mapping[str, str] = {},
        extra: Mapping[str, Any] = {},
        thinking_tokens: int = 0,
    ) -> None:
        self.base_url, self.model, self.api_key = base_url, model, api_key
        self.headers, self.extra = dict(headers), dict(extra)
        self.thinking_tokens = thinking_tokens
        self.limits, self._cache = limits, Cache(cache) if cache is not None else None
        self.totals = SimpleNamespace(calls=0, prompt_tokens=0, completion_tokens=0)
        self._refused: frozenset | None = frozenset()  # None: any schema

    def run(self, requests: Sequence[Request], progress: str = "") -> list[Reply]:
        """The replies, in the requests' order; requests with equal keys are sent once.

        progress: label of a progress bar; none without. An answer is cached as soon
        as it is there, so that a killed run repeats no finished call. Works in a
        notebook's running loop, too. Raises ValueError on a key that no header can
        carry: the error of each call would spell it out.
        """
        name = f"{_address(self.base_url)} {self.model}"
        if self.extra or self.thinking_tokens:
            name += f" {json.dumps(self.extra, sort_keys=True)} {self.thinking_tokens}"
        if self.headers:  # which may route to another model
            content = json.dumps(self.headers, sort_keys=True).encode()
            name += f" headers {hashlib.sha256(content).hexdigest()}"
        keys = [cache_key(name, request) for request in requests]
        missing = dict(zip(keys, requests, strict=True))
        replies: dict[str, Reply] = {}

        def settle(key: str, reply: Reply) -> None:
            replies[key] = reply
            if not reply.cached:
                self._keep(key, reply)
            bar.update()

        with progress_bar(len(missing), progress, "call") as bar:
            for key in list(missing) if self._cache else []:
                if reply := self._cached(key):
                    settle(key, reply)
                    del missing[key]
            if missing:
                from anyio.from_thread import start_blocking_portal

                # a loop in a thread of its own; an interrupt cancels what runs there
                with start_blocking_portal() as portal:
                    portal.call(self._ask_all, missing, settle)
        return [replies[key] for key in keys]

    def _cached(self, key: str) -> Reply | None:
        """The reply in the cache; None, with a warning, if it holds something else."""
        if (stored := self._cache.kept(key)) is None:
            return None
        try:
            reply = REPLY.validate_json(json.dumps(stored), strict=True)
        except ValidationError:
            why = f"{self._cache.folder}: row {key} is not a reply: asked again"
            warnings.warn(why, stacklevel=3)
            return None
        return replace(reply, cached=True)

    def _keep(self, key: str, reply: Reply) -> None:
        """Count the tokens of a new reply, and put an answer into the cache."""
        self.totals.prompt_tokens += reply.prompt_tokens
        self.totals.completion_tokens += reply.completion_tokens
        if self._cache is not None and reply.text is not None:
            stored = asdict(reply)
            del stored["cached"]
            self._cache.keep(key, stored)

    async def _ask_all(
        self, missing: Mapping[str, Request], settle: Callable[[str, Reply], None]
    ) -> None:
        """Answer by `concurrency` calls at once, until the key is refused."""
        waiting, refused = iter(missing.items()), ""

        async def work() -> None:
            nonlocal refused
            for key, request in waiting:
                try:
                    reply = Reply(None, refused)
                    if not refused:
                        reply = await self._ask(client, request)
                except KeyRefused as why:
                    reply, refused = Reply(None, str(why)), f"not called: {why}"
                settle(key, reply)

        async with self._client() as client, asyncio.TaskGroup() as group:
            for _ in range(min(self.limits.concurrency, len(missing))):
                group.create_task(work())

    @property
    def key(self) -> str:
        """The key that requests bear, "none" without one. Raises ValueError if it can't
        be sent."""
        key = (self.api_key or "none").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the API key holds a line break or a non-ASCII character")
        return key

    def _client(self) -> "AsyncOpenAI":
        """A client for the running event loop; redirects are refused."""
        import httpx
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

        limits, totals = self.limits, self.totals

        class Attempts(DefaultAsyncHttpxClient):
            """Counts attempts and ends each in time; openai's client repeats them."""

            async def send(self, *request: Any, **options: Any) -> Any:
                if limits.max_calls is not None and totals.calls >= limits.max_calls:
                    # which it does not repeat
                    raise OpenAIError(f"call cap of {limits.max_calls} reached")
                totals.calls += 1
                try:
                    async with asyncio.timeout(limits.timeout_s):
                        options["stream"] = True
                        response = await super().send(*request, **options)
                        await _read_bounded(response)
                        return response
                except TimeoutError:
                    raise httpx.ReadTimeout("no answer in time") from None

        try:
            http_client = Attempts(
                timeout=limits.timeout_s,
                follow_redirects=False,
                trust_env=connections.uses_proxy(self.base_url),
                headers={"Accept-Encoding": "identity"},
            )
        except ImportError as error:  # a SOCKS proxy
            raise UserError(f"the proxy in the environment: {error}") from None
        return AsyncOpenAI(
            base_url=self.base_url,
            api_key=self.key,
            default_headers=self.headers,
            timeout=limits.timeout_s,
            max_retries=limits.attempts - 1,
            http_client=http_client,
        )

    async def _ask(self, client: "AsyncOpenAI", request: Request) -> Reply:
        """The reply after as many attempts as it takes. Raises KeyRefused."""
        from openai import APIStatusError, APITimeoutError, OpenAIError
        from openai.types.chat import ChatCompletion

        body = {
            "model": self.model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": request.sampling.max_new_tokens + self.thinking_tokens,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            **self.extra,
        }
        refused = self._refused
        if with_schema := request.schema is not None and refused is not None:
            schema = json.loads(
                json.dumps(request.schema, default=dict),
                object_hook=lambda part: {
                    key: part[key] for key in part if key not in refused
                },
            )
            answer = {"name": "answer", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": answer}
        try:
            # `create` would walk through types for longer than all else takes
            response = await client.post(
                "/chat/completions", cast_to=ChatCompletion, body=body
            )
        except APITimeoutError:
            return Reply(None, f"no answer within {client.timeout:g} s")
        except APIStatusError as error:
            status, why = error.status_code, error.message
            if with_schema and status in (400, 422) and SCHEMA.search(why):
                if self._refused == refused:  # no other call was told so before
                    self._refused = None if refused else BOUNDS
                    what = "a schema" if refused else "the bounds of a schema"
                    warnings.warn(f"asking without {what}: {error}", stacklevel=2)
                return await self._ask(client, request)
            why = shorten(self._without_secrets(f"HTTP {status}: {why}"))
            if status in (401, 403):
                raise KeyRefused(why) from None
            return Reply(None, why)
        except Exception as error:  # whatever one call meets is that call's failure
            if type(error) is OpenAIError:  # there is no call to make any more
                return Reply(None, str(error))
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            why = f"{type(error).__name__}: {error}{cause}"
            return Reply(None, shorten(self._without_secrets(why)))
        return _read(response)

    def _without_secrets(self, text: str) -> str:
        """A server's words without the key and the headers that it may repeat."""
        for secret in filter(None, (self.api_key and self.key, *self.headers.values())):
            text = text.replace(secret, "…")
        return text


class KeyRefused(Exception):
    """The server does not take the key: no other call will fare better."""


def cache_key(model: str, request: Request) -> str:
    """sha256, in hex, of all that determines the answer to a request."""
    content = [
        model,
        request.template,
        [sorted(message.items()) for message in request.messages],
        request.decoding,
        request.sample,
        request.schema,  # in its own order: models answer in it
    ]
    return hashlib.sha256(json.dumps(content, default=dict).encode()).hexdigest()


async def _read_bounded(response: Any) -> None:
    """Read a reply's body; OpenAIError if it is compressed, since a small one may hold
    gigabytes, or larger than a service's replies may be."""
    from openai import OpenAIError

    body = bytearray()
    try:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise OpenAIError("the reply is compressed, against the request")
        async for part in response.aiter_raw():
            body += part
            if len(body) > connections.BODY_BYTES:
                raise OpenAIError(
                    f"the reply has more than {connections.BODY_BYTES} bytes"
                )
    finally:
        await response.aclose()
    response._content = bytes(body)


def _address(url: str) -> str:
    """An endpoint's address in one spelling, without user and password."""
    import httpx

    plain = httpx.URL(url).copy_with(username=None, password=None, fragment=None)
    return str(plain).rstrip("/")


def _read(response: Any) -> Reply:
    """The reply in a server's answer, which may be anything; no text, no answer."""
    try:
        choice = response.choices[0]
        text, reason = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, KeyError, TypeError):
        return Reply(None, "the answer has no choice")
    names = ("prompt_tokens", "completion_tokens")
    counts = [getattr(getattr(response, "usage", None), n, None) for n in names]
    counts = [n if type(n) is int else 0 for n in counts]
    if isinstance(text, str) and text.strip():
        return Reply(text, "", False, *counts, finish_reason=str(reason or ""))
    why = f"the answer is empty (finish reason: {reason})"
    return Reply(None, why, False, *counts)


def shorten(text: str, most: int = 500) -> str:
    """Text without its tail: a gateway's error can be a whole web page."""
    return text if len(text) <= most else f"{text[:most]} …"
