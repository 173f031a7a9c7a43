"""One client for the language models that judge, extract and verify.

A call that fails gives a reply without text, never an exception and never a score.
"""

import asyncio
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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

# in errors of servers that do not support structured output
NO_SCHEMA = re.compile(r"(?i)response_format|schema|structured output|grammar|guided")
# keywords of a JSON schema that OpenAI and others refuse
BOUNDS = frozenset({"maxLength", "pattern"})

# finish reasons, in lower case without punctuation; a missing one is a normal end too
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
    of the answer, for servers with structured output. The cache key holds all of them,
    and the token limit, temperature and top_p of `sampling`.
    """

    messages: tuple[Mapping[str, str], ...]
    template: str = ""
    sampling: Sampling = Sampling(512)
    sample: int = 0
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Reply:
    """An answer; `text` is None if the call failed, and `error` says why.

    cached: read from the cache. prompt_tokens, completion_tokens: of the original call.
    finish_reason: as the server names it.
    """

    text: str | None
    error: str = ""
    cached: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str = "stop"

    @property
    def finished(self) -> bool:
        """Whether there is a text, and the model ended it: not a length limit, a
        content filter or a tool call. `NORMAL_ENDS` match in any case and spelling."""
        reason = re.sub(r"[\W_]", "", self.finish_reason).lower()
        return self.text is not None and reason in NORMAL_ENDS


REPLY = TypeAdapter(Reply)


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server and one of its models.

    url: with its /v1. key: API key; "" for none. headers, extra: fields added to the
    header and the body of each request. thinking_tokens: added to each request's token
    limit. Raises ValueError, without the key, if no HTTP header can carry it.
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

    @property
    def identity(self) -> str:
        """All that decides the endpoint's answers, for the cache key; no secrets."""
        import httpx

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
        """Remove key and header values from a server's error, which may repeat them."""
        for secret in filter(None, (self.key, *self.headers.values())):
            text = text.replace(secret, "…")
        return text


@dataclass(frozen=True)
class Limits:
    """Limits on calls.

    concurrency: simultaneous calls. timeout_s: for one attempt, in seconds. attempts:
    per request, over 15 seconds at least. max_calls: cap on an LLM's `totals.calls`.
    """

    concurrency: int = 64
    timeout_s: float = 60.0
    attempts: int = 7
    max_calls: int | None = None


class LLM:
    """A language model behind an endpoint, with a disk cache, limits and totals.

    cache: folder on a local disk, which any number of processes may share; None for no
    cache. `totals`: HTTP attempts (`calls`), and tokens as the server counts them.
    """

    def __init__(
        self, endpoint: Endpoint, cache: Path | None = None, limits: Limits = Limits()
    ) -> None:
        self.endpoint, self.limits = endpoint, limits
        self._cache = Cache(cache) if cache is not None else None
        self.totals = SimpleNamespace(calls=0, prompt_tokens=0, completion_tokens=0)
        # keywords that the server refuses in a schema; None: it refuses all schemas
        self._refused: frozenset[str] | None = frozenset()
        self._key_error = ""  # why the server refuses the key

    def run(self, requests: Sequence[Request], progress: str = "") -> list[Reply]:
        """Return the replies in the order of the requests; equal requests share a call.

        progress: label of a progress bar; "" for no bar. Each answer is cached when it
        arrives, so that a killed run repeats no finished call. Also works inside a
        notebook's event loop.
        """
        identity = self.endpoint.identity
        keys = [cache_key(identity, request) for request in requests]
        missing = dict(zip(keys, requests, strict=True))
        replies: dict[str, Reply] = {}
        with progress_bar(len(missing), progress, "call") as bar:

            def add(key: str, reply: Reply) -> None:
                replies[key] = reply
                bar.update()

            for key in list(missing):
                if reply := self._read_cache(key):
                    add(key, reply)
                    del missing[key]
            if missing:
                from anyio.from_thread import start_blocking_portal

                # the loop runs in another thread; an interrupt cancels its tasks
                with start_blocking_portal() as portal:
                    portal.call(self._complete_all, missing, add)
        return [replies[key] for key in keys]

    def _read_cache(self, key: str) -> Reply | None:
        stored = self._cache.get(key) if self._cache else None
        if stored is None:
            return None
        try:
            reply = REPLY.validate_json(json.dumps(stored), strict=True)
        except ValidationError:
            why = f"{self._cache.folder}: row {key} is not a reply: asked again"
            warnings.warn(why, stacklevel=3)
            return None
        return replace(reply, cached=True)

    async def _complete_all(
        self, missing: Mapping[str, Request], add: Callable[[str, Reply], None]
    ) -> None:
        """Complete the requests, `concurrency` at once, until the key is refused."""
        waiting, self._key_error = iter(missing.items()), ""

        async def work() -> None:
            for key, request in waiting:
                reply = Reply(None, f"not called: {self._key_error}")
                if not self._key_error:
                    reply = await self._complete(client, request)
                self.totals.prompt_tokens += reply.prompt_tokens
                self.totals.completion_tokens += reply.completion_tokens
                if self._cache and reply.text is not None:
                    stored = asdict(reply)
                    del stored["cached"]
                    self._cache.set(key, stored)
                add(key, reply)

        async with self._client() as client, asyncio.TaskGroup() as group:
            for _ in range(min(self.limits.concurrency, len(missing))):
                group.create_task(work())

    def _client(self) -> "AsyncOpenAI":
        """Create a client for the running event loop; it follows no redirect."""
        import httpx
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

        endpoint, limits, totals = self.endpoint, self.limits, self.totals

        class HttpClient(DefaultAsyncHttpxClient):
            """Counts attempts and bounds the total time of each."""

            async def send(self, *args: Any, **options: Any) -> httpx.Response:
                if limits.max_calls is not None and totals.calls >= limits.max_calls:
                    # openai's client does not retry its own errors
                    raise OpenAIError(f"call cap of {limits.max_calls} reached")
                totals.calls += 1
                try:
                    async with asyncio.timeout(limits.timeout_s):
                        return await super().send(*args, **options)
                except TimeoutError:
                    raise httpx.ReadTimeout("no answer in time") from None

        proxy = connections.uses_proxy(endpoint.url)
        try:
            http_client = HttpClient(
                timeout=limits.timeout_s, follow_redirects=False, trust_env=proxy
            )
        except ImportError as error:  # a SOCKS proxy
            raise UserError(f"the proxy in the environment: {error}") from None
        return AsyncOpenAI(
            base_url=endpoint.url,
            api_key=endpoint.key or "none",
            default_headers=endpoint.headers,
            timeout=limits.timeout_s,
            max_retries=limits.attempts - 1,
            http_client=http_client,
        )

    async def _complete(self, client: "AsyncOpenAI", request: Request) -> Reply:
        """Complete one request; openai's client repeats attempts that fail."""
        from openai import APIStatusError, APITimeoutError, OpenAIError
        from openai.types.chat import ChatCompletion

        tokens = request.sampling.max_new_tokens + self.endpoint.thinking_tokens
        body = {
            "model": self.endpoint.model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": tokens,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            **self.endpoint.extra,
        }
        refused, options = self._refused, {}
        if request.schema is not None and refused is not None:
            options["response_format"] = _response_format(request.schema, refused)
        try:
            # `chat.completions.create` would walk through the types of the body, which
            # takes longer than the rest of a call
            response = await client.post(
                "/chat/completions", cast_to=ChatCompletion, body=body | options
            )
        except APITimeoutError:
            return Reply(None, f"no answer within {client.timeout:g} s")
        except APIStatusError as error:
            status, why = error.status_code, error.message
            if options and status in (400, 422) and NO_SCHEMA.search(why):
                if self._refused == refused:  # no other call has met the error before
                    self._refused = None if refused else BOUNDS
                    what = "a schema" if refused else "the bounds of a schema"
                    warnings.warn(f"asking without {what}: {error}", stacklevel=2)
                return await self._complete(client, request)
            why = shorten(self.endpoint.redact(f"HTTP {status}: {why}"))
            if status in (401, 403):
                self._key_error = why
            return Reply(None, why)
        except Exception as error:  # any failure concerns this call alone
            if type(error) is OpenAIError:  # the cap on calls
                return Reply(None, str(error))
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            why = f"{type(error).__name__}: {error}{cause}"
            return Reply(None, shorten(self.endpoint.redact(why)))
        return _read_response(response)


def cache_key(endpoint: str, request: Request) -> str:
    """Hash all that determines the answer to a request: sha256, in hex.

    endpoint: its `identity`.
    """
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
    """The request field for a JSON schema, without the keywords that are refused."""
    allowed = json.loads(
        json.dumps(schema, default=dict),
        object_hook=lambda part: {k: part[k] for k in part if k not in refused},
    )
    answer = {"name": "answer", "schema": allowed, "strict": True}
    return {"type": "json_schema", "json_schema": answer}


def _read_response(response: Any) -> Reply:
    """Read a server's response, which may be anything; an empty text is a failure."""
    try:
        choice = response.choices[0]
        text, reason = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, KeyError, TypeError):
        return Reply(None, "the answer has no choice")
    usage = getattr(response, "usage", None)
    names = ("prompt_tokens", "completion_tokens")
    counts = {name: getattr(usage, name, None) for name in names}
    tokens = {name: n if type(n) is int else 0 for name, n in counts.items()}
    if isinstance(text, str) and text.strip():
        return Reply(text, finish_reason=str(reason or ""), **tokens)
    return Reply(None, f"the answer is empty (finish reason: {reason})", **tokens)


def shorten(text: str, length: int = 500) -> str:
    """Cut a text: a gateway's error can be a whole web page."""
    return text if len(text) <= length else f"{text[:length]} …"
