"""The client for language models that judge, extract and verify.

A failed call is a reply without text, never an exception.
"""

import asyncio
import hashlib
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import httpx
from pydantic import TypeAdapter, ValidationError

from factkit.policy.decoding import Sampling
from factkit.run import connections, serving
from factkit.run.cache import Cache
from factkit.verify import calls
from factkit.verify.failures import shorten

# In errors of servers without structured output
NO_SCHEMA = re.compile(r"(?i)response_format|schema|structured output|grammar|guided")
# Keywords of a JSON schema that OpenAI and others refuse
BOUNDS = frozenset({"maxLength", "pattern"})

# Finish reasons of complete texts, in lower case without punctuation
NORMAL_ENDS = frozenset(
    "stop stopped stopsequence stoptoken stoppedeos stoppedword finishreasonstop eos "
    "eostoken endofsequence endoftext endturn endofturn end complete completed done "
    "finish finished normal none null".split()
) | {""}


@dataclass(frozen=True)
class Request:
    """A chat to complete.

    messages: with role and content. template: name and version of the prompt template.
    sample: index among the samples of one prompt. schema: JSON schema of the answer.
    """

    messages: tuple[Mapping[str, str], ...]
    template: str = ""
    sampling: Sampling = Sampling(512)
    sample: int = 0
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Reply:
    """An answer; `text` is None if the call failed, for the reason in `error`."""

    text: str | None
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = "stop"

    @property
    def finished(self) -> bool:
        """Whether the model ended the text: no length limit, filter or tool call."""
        reason = re.sub(r"[\W_]", "", self.finish_reason).lower()
        return self.text is not None and reason in NORMAL_ENDS


REPLY = TypeAdapter(Reply)


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server and one of its models.

    url: up to /v1. key: API key, or "". headers, extra: added to the header and the
    body of each request. thinking_tokens: added to each request's token limit. Raises
    ValueError, without the key, if no HTTP header can carry the key.
    """

    url: str
    model: str
    key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    thinking_tokens: int = 0

    def __post_init__(self) -> None:
        if not (self.key.isascii() and self.key.isprintable()):
            raise ValueError("the API key holds a line break or a non-ASCII character")

    @cached_property
    def identity(self) -> str:
        """All that determines the endpoint's answers, for the cache; no secrets."""
        url = httpx.URL(self.url).copy_with(username=None, password=None, fragment=None)
        identity = f"{str(url).rstrip('/')} {self.model}"
        if self.extra or self.thinking_tokens:
            extra = json.dumps(self.extra, sort_keys=True)
            identity += f" {extra} {self.thinking_tokens}"
        if self.headers:  # which may route to another model
            content = json.dumps(self.headers, sort_keys=True).encode()
            identity += f" headers {hashlib.sha256(content).hexdigest()}"
        return identity

    def redact(self, text: str) -> str:
        """Remove the key and header values, which a server's error may repeat."""
        for secret in filter(None, (self.key, *self.headers.values())):
            text = text.replace(secret, "…")
        return text


@dataclass(frozen=True)
class Limits:
    """Limits on calls: how many at once in this process, seconds per attempt, attempts
    per request (over at least a minute), and attempts in all."""

    concurrency: int = 64
    timeout_s: float = 60.0
    attempts: int = 7
    max_calls: int | None = None


class CallCap(Exception):
    """No call is left of `Limits.max_calls`."""


class StatusError(Exception):
    """The server answered with another status than 200."""

    def __init__(self, response: aiohttp.ClientResponse, text: str) -> None:
        super().__init__(f"HTTP {response.status}: {text}")
        self.response, self.status, self.text = response, response.status, text


class LLM:
    """A language model behind an endpoint, with a cache, limits and totals.

    cache: folder on a local disk, which processes may share. `totals`: HTTP attempts
    (`calls`), and tokens as the server counts them.
    """

    def __init__(
        self, endpoint: Endpoint, cache: Path | None = None, limits: Limits = Limits()
    ) -> None:
        self.endpoint, self.limits = endpoint, limits
        self._cache = None if cache is None else Cache(cache)
        self._proxy = connections.find_proxy(endpoint.url)
        self.totals = SimpleNamespace(calls=0, prompt_tokens=0, completion_tokens=0)
        self._under_way: dict[str, asyncio.Task[Reply]] = {}  # by key
        # keywords that the server refuses in a schema; None: it refuses all schemas
        self._refused: frozenset[str] | None = frozenset()
        self._key_error = ""  # why the server refuses the key

    def run(self, requests: Sequence[Request], progress: str = "") -> list[Reply]:
        """Return one reply per request. progress: label of a progress bar, or ""."""
        return calls.run_all(map(self.complete, requests), progress)

    async def complete(self, request: Request) -> Reply:
        """Return the reply to a request, to await within `calls.run_all`.

        Equal requests under way at the same time share a call. Each answer is cached
        when it arrives, so that a killed run repeats no call. After a refusal of the
        key, nothing that is under way is called any more.
        """
        if not self._under_way:
            self._key_error = ""
        key = cache_key(self.endpoint.identity, request)
        if key not in self._under_way:
            task = asyncio.create_task(self._answer(key, request))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key))
        return await self._under_way[key]

    async def _answer(self, key: str, request: Request) -> Reply:
        if reply := self._read_cache(key):
            return reply
        async with calls.limit(self.limits.concurrency):
            if self._key_error:
                return Reply(None, f"not called: {self._key_error}")
            try:
                reply = await self._call(request)
            except Exception as error:  # any failure concerns this call alone
                why = self.endpoint.redact(f"{type(error).__name__}: {error}")
                return Reply(None, shorten(why))
        self.totals.prompt_tokens += reply.prompt_tokens
        self.totals.completion_tokens += reply.completion_tokens
        if self._cache and reply.text is not None:
            self._cache.set(key, vars(reply))
        return reply

    def _read_cache(self, key: str) -> Reply | None:
        if self._cache is None or (stored := self._cache.get(key)) is None:
            return None
        try:
            return REPLY.validate_json(json.dumps(stored), strict=True)
        except ValidationError:
            problem = f"row {key} is not a reply: asked again"
            warnings.warn(f"{self._cache.folder}: {problem}", stacklevel=3)
            return None

    async def _call(self, request: Request) -> Reply:
        endpoint, sampling = self.endpoint, request.sampling
        body = {
            "model": endpoint.model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": sampling.max_new_tokens + endpoint.thinking_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            **endpoint.extra,
        }
        refused = self._refused
        if constrained := request.schema is not None and refused is not None:
            body["response_format"] = _response_format(request.schema, refused)
        try:
            return _read_response(
                await self._post(json.dumps(body, default=dict).encode())
            )
        except TimeoutError:
            return Reply(None, f"no answer within {self.limits.timeout_s:g} s")
        except CallCap as error:
            return Reply(None, str(error))
        except StatusError as error:
            if (
                constrained
                and error.status in (400, 422)
                and NO_SCHEMA.search(error.text)
            ):
                if self._refused == refused:  # this call met the error first
                    self._refused = None if refused else BOUNDS
                    what = "a schema" if refused else "the bounds of a schema"
                    warnings.warn(f"asking without {what}: {error}", stacklevel=2)
                return await self._call(request)
            why = shorten(endpoint.redact(str(error)))
            if error.status in (401, 403):
                self._key_error = why
            return Reply(None, why)

    async def _post(self, body: bytes) -> Any:
        """Return the JSON of the answer; attempts that may succeed later are repeated.

        Raises CallCap, and the last attempt's TimeoutError, StatusError or other error.
        """
        endpoint, limits = self.endpoint, self.limits
        url = f"{endpoint.url.rstrip('/')}/chat/completions"
        headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {endpoint.key or 'none'}",
            **{name.lower(): value for name, value in endpoint.headers.items()},
        }

        async def attempt() -> Any:
            if limits.max_calls is not None and self.totals.calls >= limits.max_calls:
                raise CallCap(f"call cap of {limits.max_calls} reached")
            self.totals.calls += 1
            async with (
                asyncio.timeout(limits.timeout_s),
                calls.open_session().post(
                    url,
                    data=body,
                    headers=headers,
                    proxy=self._proxy,
                    allow_redirects=False,
                ) as response,
            ):
                content = await response.read()
            if response.status != 200:
                raise StatusError(response, content.decode(errors="replace"))
            return json.loads(content)

        def may_pass(error: BaseException) -> bool:
            if isinstance(error, StatusError):
                return error.status in (408, 409, 429) or error.status >= 500
            return isinstance(error, TimeoutError | aiohttp.ClientError)

        for number in range(1, limits.attempts):  # tenacity takes 0.1 ms per call
            try:
                return await attempt()
            except Exception as error:
                if not may_pass(error):
                    raise
                await asyncio.sleep(serving.pause_s(error, number))
        return await attempt()


def cache_key(endpoint: str, request: Request) -> str:
    """Hash all that determines the answer: sha256, in hex. endpoint: its `identity`."""
    sampling = request.sampling
    decoding = float(sampling.temperature), float(sampling.top_p)
    content = [
        endpoint,
        request.template,
        [sorted(message.items()) for message in request.messages],
        [int(sampling.max_new_tokens), *decoding],
        request.sample,
        request.schema,  # the order of its keys counts: models answer in it
    ]
    return hashlib.sha256(json.dumps(content, default=dict).encode()).hexdigest()


def _response_format(schema: Mapping, refused: frozenset[str]) -> dict[str, Any]:
    """Make the field for a JSON schema, without the refused keywords."""
    allowed = schema
    if refused:
        allowed = json.loads(
            json.dumps(schema, default=dict),
            object_hook=lambda part: {k: part[k] for k in part if k not in refused},
        )
    answer = {"name": "answer", "schema": allowed, "strict": True}
    return {"type": "json_schema", "json_schema": answer}


def _read_response(response: Any) -> Reply:
    """Read a response of any shape; an empty text is a failure."""
    try:
        choice = response["choices"][0]
        text, reason = choice["message"].get("content"), choice.get("finish_reason")
        usage = response.get("usage") or {}
        prompt_tokens, completion_tokens = (
            n if type(n := usage.get(name)) is int else 0
            for name in ("prompt_tokens", "completion_tokens")
        )
    except (AttributeError, IndexError, KeyError, TypeError):
        return Reply(None, "the answer has no choice")
    is_answer = isinstance(text, str) and text.strip()
    return Reply(
        text if is_answer else None,
        "" if is_answer else f"the answer is empty (finish reason: {reason})",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        finish_reason=str(reason or ""),
    )
