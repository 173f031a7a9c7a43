"""The client for language models that judge, extract and verify.

A failed call is a reply without text, never an exception.
"""

import asyncio
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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

    @property
    def identity(self) -> str:
        """All that determines the endpoint's answers, for the cache; no secrets."""
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
        """Remove the key and header values, which a server's error may repeat."""
        for secret in filter(None, (self.key, *self.headers.values())):
            text = text.replace(secret, "…")
        return text


@dataclass(frozen=True)
class Limits:
    """Limits on calls: how many at once, seconds per attempt, attempts per request
    (over at least 15 seconds), and attempts in all."""

    concurrency: int = 64
    timeout_s: float = 60.0
    attempts: int = 7
    max_calls: int | None = None


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
        self.totals = SimpleNamespace(calls=0, prompt_tokens=0, completion_tokens=0)
        # keywords that the server refuses in a schema; None: it refuses all schemas
        self._refused: frozenset[str] | None = frozenset()
        self._key_error = ""  # why the server refuses the key

    def run(self, requests: Sequence[Request], progress: str = "") -> list[Reply]:
        """Return one reply per request; equal requests share a call.

        progress: label of a progress bar, or "". Each answer is cached when it arrives,
        so that a killed run repeats no call. Also works in a notebook's event loop.
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
        if self._cache is None or (stored := self._cache.get(key)) is None:
            return None
        try:
            return REPLY.validate_json(json.dumps(stored), strict=True)
        except ValidationError:
            problem = f"row {key} is not a reply: asked again"
            warnings.warn(f"{self._cache.folder}: {problem}", stacklevel=3)
            return None

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
                    self._cache.set(key, asdict(reply))
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
            """Counts attempts and limits the total time of each."""

            async def send(self, *args: Any, **options: Any) -> Any:
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

        endpoint, sampling = self.endpoint, request.sampling
        body = {
            "model": endpoint.model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": sampling.max_new_tokens + endpoint.thinking_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            **endpoint.extra,
        }
        refused, options = self._refused, {}
        if request.schema is not None and refused is not None:
            options["response_format"] = _response_format(request.schema, refused)
        try:
            # `chat.completions.create` checks the body's types: the slowest part
            response = await client.post(
                "/chat/completions", cast_to=ChatCompletion, body=body | options
            )
        except APITimeoutError:
            return Reply(None, f"no answer within {client.timeout:g} s")
        except APIStatusError as error:
            status, why = error.status_code, error.message
            if options and status in (400, 422) and NO_SCHEMA.search(why):
                if self._refused == refused:  # this call met the error first
                    self._refused = None if refused else BOUNDS
                    what = "a schema" if refused else "the bounds of a schema"
                    warnings.warn(f"asking without {what}: {error}", stacklevel=2)
                return await self._complete(client, request)
            why = shorten(endpoint.redact(f"HTTP {status}: {why}"))
            if status in (401, 403):
                self._key_error = why
            return Reply(None, why)
        except Exception as error:  # any failure concerns this call alone
            if type(error) is OpenAIError:  # the cap on calls
                return Reply(None, str(error))
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            why = f"{type(error).__name__}: {error}{cause}"
            return Reply(None, shorten(endpoint.redact(why)))
        return _read_response(response)


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
    allowed = json.loads(
        json.dumps(schema, default=dict),
        object_hook=lambda part: {k: part[k] for k in part if k not in refused},
    )
    answer = {"name": "answer", "schema": allowed, "strict": True}
    return {"type": "json_schema", "json_schema": answer}


def _read_response(response: Any) -> Reply:
    """Read a response of any shape; an empty text is a failure."""
    try:
        choice = response.choices[0]
        text, reason = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, KeyError, TypeError):
        return Reply(None, "the answer has no choice")
    usage = getattr(response, "usage", None)
    prompt_tokens, completion_tokens = (
        n if type(n := getattr(usage, name, 0)) is int else 0
        for name in ("prompt_tokens", "completion_tokens")
    )
    is_answer = isinstance(text, str) and text.strip()
    return Reply(
        text if is_answer else None,
        "" if is_answer else f"the answer is empty (finish reason: {reason})",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        finish_reason=str(reason or ""),
    )


def shorten(text: str, length: int = 500) -> str:
    """Cut a text: a gateway's error can be a whole web page."""
    return text if len(text) <= length else f"{text[:length]} …"
