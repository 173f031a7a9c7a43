"""One interface to the language models that judge, extract and verify.

A call that fails is a reply without text, never an exception and never a score. The
models themselves are in `factkit.backends`.
"""

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

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
    """What calls may take. Raises ValueError on a value that would never end.

    concurrency: calls at once of a `run`. timeout_s: a call's, in seconds. attempts: at
    one request, over 15 seconds at least. max_calls: a cap on an LLM's `totals.calls`.
    """

    concurrency: int = 64
    timeout_s: float = 60.0
    attempts: int = 7
    max_calls: int | None = None

    def __post_init__(self) -> None:
        for name in ("concurrency", "attempts"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0, not {self.timeout_s}")


@dataclass
class Totals:
    """What an LLM has done so far.

    calls: HTTP attempts made, or requests handed to a local model. Tokens are as many
    as the server counts.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


Replies = list[tuple[int, Reply]]  # of a batch: (a request's index, its reply)
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


class LocalModel(Protocol):
    """A backend that batches by itself."""

    name: str  # part of the cache key: what determines the answers

    def generate(self, requests: Sequence[Request]) -> Iterator[Replies]:
        """Replies to all requests in any order, each batch as soon as it is done."""


class LLM:
    """A backend with a disk cache, limits, and totals over its lifetime.

    cache: folder, on a local disk; any number of processes may share it.
    """

    def __init__(
        self,
        backend: Remote | LocalModel,
        cache: Path | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.totals = Totals()
        self._cache = None
        if cache is not None:
            from factkit.cache import Cache

            self._cache = Cache(cache)

    def run(self, requests: Sequence[Request], progress: str = "") -> list[Reply]:
        """The replies, in the requests' order; requests with equal keys are sent once.

        progress: label of a progress bar; none without. An answer is cached as soon
        as it is there, so that a killed run repeats no finished call. Works in a
        notebook's running loop, too.
        """
        from anyio.from_thread import start_blocking_portal

        keys = [cache_key(self.backend.name, request) for request in requests]
        unique = dict(zip(keys, requests, strict=True))
        replies: dict[str, Reply] = {}
        bar = progress_bar(len(unique), progress, unit="call") if progress else None

        def settle(key: str, reply: Reply) -> None:
            replies[key] = reply
            self._keep(key, reply)
            if bar is not None:
                bar.update()

        try:
            for key in unique:
                if stored := self._cache and self._cache.kept(key, _kept_reply):
                    settle(key, stored)
            missing = {k: r for k, r in unique.items() if k not in replies}
            if missing and isinstance(self.backend, Remote):
                # a loop in a thread of its own; an interrupt cancels what runs there
                with start_blocking_portal() as portal:
                    portal.call(self._ask_all, self.backend, missing, settle)
            elif missing:
                self._generate_all(self.backend, missing, settle)
        finally:
            if bar is not None:
                bar.close()
        return _in_order(keys, replies)

    def _keep(self, key: str, reply: Reply) -> None:
        """Count the tokens of a new reply, and put an answer into the cache."""
        if reply.cached:
            return
        self.totals.prompt_tokens += reply.prompt_tokens
        self.totals.completion_tokens += reply.completion_tokens
        if self._cache is not None and reply.text is not None:
            stored = asdict(reply)
            del stored["cached"], stored["error"]
            self._cache.keep(key, stored)

    def _next_call(self) -> str:
        """Count a call; or why there is none to make any more."""
        most = self.limits.max_calls
        if most is not None and self.totals.calls >= most:
            return f"call cap of {most} reached"
        self.totals.calls += 1
        return ""

    def _generate_all(
        self, backend: LocalModel, missing: Mapping[str, Request], settle: Settle
    ) -> None:
        """Answer with a local model, as many requests as the cap allows."""
        why_not = {key: self._next_call() for key in missing}
        allowed = [key for key, why in why_not.items() if not why]
        for batch in backend.generate([missing[key] for key in allowed]):
            for index, reply in batch:
                settle(allowed[index], reply)
        for key, why in why_not.items():
            if why:
                settle(key, Reply(None, why))

    async def _ask_all(
        self, backend: Remote, missing: Mapping[str, Request], settle: Settle
    ) -> None:
        """Answer through a remote backend, `concurrency` calls at once."""
        waiting, refused = iter(missing.items()), []

        async def work() -> None:
            for key, request in waiting:
                try:
                    reply = (
                        refused[0] if refused else await backend.ask(client, request)
                    )
                except KeyRefused as why:
                    reply = Reply(None, str(why))
                    refused.append(Reply(None, f"not called: {why}"))
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


def _kept_reply(stored: dict[str, Any]) -> Reply:
    """The reply that a cache keeps. Raises TypeError if it is none."""
    reply = Reply(**stored, cached=True)
    counts = (reply.prompt_tokens, reply.completion_tokens)
    if not isinstance(reply.text, str) or {type(n) for n in counts} != {int}:
        raise TypeError("an entry that is no reply")
    return reply


def _in_order(keys: Sequence[str], replies: dict[str, Reply]) -> list[Reply]:
    """A reply for each key; where a key comes again, its answer took no call."""
    ordered = []
    for key in keys:
        ordered.append(replies[key])
        if replies[key].text is not None:
            replies[key] = replace(replies[key], cached=True)
    return ordered
