"""One interface to the language models that judge, extract and verify.

A call that fails is a reply without text, never an exception and never a score. The
models themselves are in `factkit.backends`.
"""

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from factkit import models
from factkit.runs import progress_bar


@dataclass(frozen=True)
class Request:
    """A chat to complete.

    messages: mappings with role and content. template: name and version of the prompt
    template. sample: index among repeated samples of one prompt. schema: JSON schema
    of the answer, for backends with structured output; the others ignore it. All of
    them, but of `sampling` only `decoding`, are part of the cache key.
    """

    messages: tuple[Mapping[str, str], ...]
    template: str = ""
    sampling: models.Sampling = models.Sampling(512)
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
    finish_reason: as the server names it; all but "stop" means that the text was cut
    off, as "length" does, or was not the model's own.
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
        return self.text is not None and self.finish_reason == "stop"


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


@dataclass
class Totals:
    """What an LLM has done so far.

    calls: HTTP attempts made, or requests handed to a local model. Tokens are as many
    as the server counts.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


Settle = Callable[[str, Reply], None]  # takes a request's key and its reply


class KeyRefused(Exception):
    """The server does not take the key: no other call will fare better."""


class Remote(ABC):
    """A backend that takes one request a call; LLM bounds their number."""

    name: str  # part of the cache key: what determines the answers

    @abstractmethod
    def connect(
        self, limits: Limits, next_call: Callable[[], str]
    ) -> AbstractAsyncContextManager[Any]:
        """A client for the running event loop.

        next_call: to be asked before each attempt; it says why there may be none.
        """

    @abstractmethod
    async def ask(self, client: Any, request: Request) -> Reply:
        """The reply after as many attempts as it takes. Raises KeyRefused."""


class LLM:
    """A backend with a disk cache, limits, and totals over its lifetime.

    cache: folder, on a local disk; any number of processes may share it.
    """

    def __init__(
        self,
        backend: Remote,
        cache: Path | None = None,
        limits: Limits = Limits(),
    ) -> None:
        from factkit.cache import Cache

        self.backend, self.limits, self.totals = backend, limits, Totals()
        self._cache = Cache(cache) if cache is not None else None

    def run(self, requests: Sequence[Request], progress: str = "") -> list[Reply]:
        """The replies, in the requests' order; requests with equal keys are sent once.

        progress: label of a progress bar; none without. An answer is cached as soon
        as it is there, so that a killed run repeats no finished call. Works in a
        notebook's running loop, too.
        """
        keys = [cache_key(self.backend.name, request) for request in requests]
        missing = dict(zip(keys, requests, strict=True))
        bar = progress_bar(len(missing), progress, "call") if progress else None
        replies: dict[str, Reply] = {}

        def settle(key: str, reply: Reply) -> None:
            replies[key] = reply
            if not reply.cached:
                self._keep(key, reply)
            if bar is not None:
                bar.update()

        with bar or nullcontext():
            for key in list(missing) if self._cache else []:
                if (stored := self._cache.kept(key)) is not None:
                    settle(key, Reply(**stored, cached=True))
                    del missing[key]
            if missing:
                from anyio.from_thread import start_blocking_portal

                # a loop in a thread of its own; an interrupt cancels what runs there
                with start_blocking_portal() as portal:
                    portal.call(self._ask_all, self.backend, missing, settle)
        return [replies[key] for key in keys]

    def _keep(self, key: str, reply: Reply) -> None:
        """Count the tokens of a new reply, and put an answer into the cache."""
        self.totals.prompt_tokens += reply.prompt_tokens
        self.totals.completion_tokens += reply.completion_tokens
        if self._cache is not None and reply.text is not None:
            stored = asdict(reply)
            del stored["cached"]
            self._cache.keep(key, stored)

    def _next_call(self) -> str:
        """Count a call; or why there is none to make any more."""
        most = self.limits.max_calls
        if most is not None and self.totals.calls >= most:
            return f"call cap of {most} reached"
        self.totals.calls += 1
        return ""

    async def _ask_all(
        self, backend: Remote, missing: Mapping[str, Request], settle: Settle
    ) -> None:
        """Answer through a remote backend, `concurrency` calls at once."""
        waiting, refused = iter(missing.items()), ""

        async def work() -> None:
            nonlocal refused
            for key, request in waiting:
                try:
                    reply = Reply(None, refused)
                    if not refused:
                        reply = await backend.ask(client, request)
                except KeyRefused as why:
                    reply, refused = Reply(None, str(why)), f"not called: {why}"
                settle(key, reply)

        client = backend.connect(self.limits, self._next_call)
        async with client, asyncio.TaskGroup() as group:
            for _ in range(min(self.limits.concurrency, len(missing))):
                group.create_task(work())


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
