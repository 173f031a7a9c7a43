"""One async interface to the language models that judge, extract and verify.

A call that fails is a reply without text, never an exception and never a score. The
models themselves are in `factkit.backends`.
"""

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factkit import models, retries
from factkit.runs import progress_bar

if TYPE_CHECKING:
    from tenacity import RetryCallState


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

    concurrency: calls at once. timeout_s: a call's, in seconds. attempts: at one
    request. max_calls, max_tokens: caps on an LLM's `totals`, checked before each
    call, so that calls under way may end a little above max_tokens. backoff_s: the
    first wait before a retry, in seconds; each next one is twice as long.
    """

    concurrency: int = 64
    timeout_s: float = 60.0
    attempts: int = 5
    max_calls: int | None = None
    max_tokens: int | None = None
    backoff_s: float = 1.0

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

    calls: HTTP attempts made, or requests handed to a local model. retries: attempts
    after a request's first. cached, failed: requests answered without a call, and not
    at all. cost: in the currency of the prices.
    """

    calls: int = 0
    retries: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


Replies = list[tuple[int, Reply]]  # of a batch: (a request's index, its reply)
Settle = Callable[[str, Reply], None]  # takes a request's key and its reply


class Remote(ABC):
    """A backend that takes one request a call; LLM bounds, repeats and counts calls."""

    name: str  # part of the cache key: what determines the answers

    @abstractmethod
    def connect(self, limits: Limits) -> Any:
        """A client for the running event loop, with an async `close`."""

    @abstractmethod
    async def ask(self, client: Any, request: Request) -> Reply:
        """One call. Raises SchemaRefused if the next leaves the schema out."""

    @abstractmethod
    def may_heal(self, error: BaseException) -> bool:
        """Whether another attempt may fare better."""

    @abstractmethod
    def in_words(self, error: Exception, limits: Limits) -> str:
        """What went wrong with a call."""


class SchemaRefused(Exception):
    """The server does not take a schema, or not this one."""


class LocalModel(Protocol):
    """A backend that batches by itself."""

    name: str  # part of the cache key: what determines the answers

    def generate(self, requests: Sequence[Request]) -> Iterator[Replies]:
        """Replies to all requests in any order, each batch as soon as it is done."""


class LLM:
    """A backend with a disk cache, limits, and totals over its lifetime.

    cache: folder, on a local disk; any number of processes may share it. prices: per
    million prompt and completion tokens. Concurrency is bounded per event loop.
    """

    def __init__(
        self,
        backend: Remote | LocalModel,
        cache: Path | None = None,
        limits: Limits = Limits(),
        prices: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.prices = prices
        self.totals = Totals()
        self._cache = None
        self._sessions: dict[asyncio.AbstractEventLoop, _Session] = {}
        if cache is not None:
            from factkit.cache import Cache

            self._cache = Cache(cache)

    async def complete(
        self, requests: Sequence[Request], progress: str = ""
    ) -> list[Reply]:
        """The replies, in the requests' order; requests with equal keys are sent once.

        progress: label of a progress bar; none without. An answer is cached as soon
        as it is there, so that a killed run repeats no finished call.
        """
        keys = [cache_key(self.backend.name, request) for request in requests]
        wanted = Counter(keys)
        unique = dict(zip(keys, requests, strict=True))
        replies: dict[str, Reply] = {}
        bar = progress_bar(len(requests), progress, unit="call") if progress else None

        def settle(key: str, reply: Reply) -> None:
            replies[key] = reply
            self._count(reply, wanted[key])
            self._keep(key, reply)
            if bar is not None:
                bar.update(wanted[key])

        try:
            for key in unique:
                if reply := self._stored(key):
                    settle(key, reply)
            missing = {k: r for k, r in unique.items() if k not in replies}
            if missing and isinstance(self.backend, Remote):
                await self._ask_all(self.backend, missing, settle)
            elif missing:
                await self._generate_all(self.backend, missing, settle)
        finally:
            if bar is not None:
                bar.close()
            if self._cache is not None:
                self._cache.close()  # this thread's connection; it opens again
        return _in_order(keys, replies)

    def run(self, requests: Sequence[Request], progress: str = "") -> list[Reply]:
        """`complete` for code that is not async, also in a notebook's running loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.complete(requests, progress))
        return _run_in_thread(self.complete(requests, progress))

    def _stored(self, key: str) -> Reply | None:
        return None if self._cache is None else self._cache.kept(key, _kept_reply)

    def _count(self, reply: Reply, requests: int) -> None:
        """Add a reply, and the requests that share it, to the totals."""
        totals = self.totals
        if reply.text is None:
            totals.failed += requests
        else:
            totals.cached += requests if reply.cached else requests - 1
        if not reply.cached:
            totals.prompt_tokens += reply.prompt_tokens
            totals.completion_tokens += reply.completion_tokens
            prompt_price, completion_price = self.prices
            totals.cost += reply.prompt_tokens * prompt_price / 1e6
            totals.cost += reply.completion_tokens * completion_price / 1e6

    def _keep(self, key: str, reply: Reply) -> None:
        """Put a new answer into the cache."""
        if self._cache is None or reply.text is None or reply.cached:
            return
        stored = asdict(reply)
        del stored["cached"], stored["error"]
        self._cache.keep(key, stored)

    def _cap(self) -> str:
        """The cap that is reached, in words; empty if none is."""
        limits, totals = self.limits, self.totals
        if limits.max_calls is not None and totals.calls >= limits.max_calls:
            return f"call cap of {limits.max_calls} reached"
        spent = totals.prompt_tokens + totals.completion_tokens
        if limits.max_tokens is not None and spent >= limits.max_tokens:
            return f"token cap of {limits.max_tokens} reached"
        return ""

    async def _generate_all(
        self, backend: LocalModel, missing: Mapping[str, Request], settle: Settle
    ) -> None:
        """Answer with a local model, batch by batch until a cap is reached."""
        keys = list(missing)
        most = self.limits.max_calls
        allowed = keys if most is None else keys[: max(0, most - self.totals.calls)]
        batches = iter(backend.generate([missing[key] for key in allowed]))
        done: set[str] = set()
        while len(done) < len(allowed) and not self._cap():
            batch = await asyncio.to_thread(next, batches, None)
            if batch is None:
                break
            for index, reply in batch:
                self.totals.calls += 1
                settle(allowed[index], reply)
                done.add(allowed[index])
        for key in missing.keys() - done:
            settle(key, Reply(None, self._cap() or "the backend gave no answer"))

    async def _ask_all(
        self, remote: Remote, missing: Mapping[str, Request], settle: Settle
    ) -> None:
        """Answer through a remote backend, `concurrency` calls at once."""
        waiting = iter(missing.items())

        async def work(session: _Session) -> None:
            for key, request in waiting:
                settle(key, await self._ask(session, request))

        async with self._session(remote) as session, asyncio.TaskGroup() as group:
            for _ in range(min(self.limits.concurrency, len(missing))):
                group.create_task(work(session))

    @asynccontextmanager
    async def _session(self, remote: Remote) -> "AsyncIterator[_Session]":
        """The running loop's client and call slots, shared by calls of `complete`."""
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            slots = asyncio.Semaphore(self.limits.concurrency)
            self._sessions[loop] = _Session(remote, remote.connect(self.limits), slots)
        session = self._sessions[loop]
        session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            if not session.users:
                del self._sessions[loop]
                await session.client.close()

    async def _ask(self, session: "_Session", request: Request) -> Reply:
        """One request's reply, after as many attempts as it takes and limits allow."""
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        def count(state: "RetryCallState") -> None:
            self.totals.retries += 1

        attempts = AsyncRetrying(
            stop=stop_after_attempt(self.limits.attempts),
            wait=lambda state: retries.wait_s(state, self.limits.backoff_s),
            retry=retry_if_exception(session.remote.may_heal),
            before_sleep=count,
            reraise=True,
        )
        try:
            return await attempts(self._attempt, session, request)
        except _NotCalled as why:
            return Reply(None, str(why))
        except Exception as error:  # whatever one call meets is that call's failure
            return Reply(None, session.remote.in_words(error, self.limits))

    async def _attempt(self, session: "_Session", request: Request) -> Reply:
        with suppress(SchemaRefused):  # the backend leaves it out from now on
            return await self._call(session, request)
        return await self._call(session, request)

    async def _call(self, session: "_Session", request: Request) -> Reply:
        """One HTTP call. Raises _NotCalled if there is none to make any more."""
        async with session.slots:
            if why := session.refused or self._cap():
                raise _NotCalled(why)
            self.totals.calls += 1
            try:
                async with asyncio.timeout(self.limits.timeout_s):
                    return await session.remote.ask(session.client, request)
            except Exception as error:
                if getattr(error, "status_code", None) in (401, 403):
                    why = session.remote.in_words(error, self.limits)
                    session.refused = f"not called: {why}"
                raise


@dataclass
class _Session:
    """An event loop's client and call slots; `refused` once the key was."""

    remote: Remote
    client: Any
    slots: asyncio.Semaphore
    users: int = 0
    refused: str = ""


class _NotCalled(Exception):
    """No call was made, and none will be: the key was refused or a cap is reached."""


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


def _run_in_thread(work: Coroutine[Any, Any, list[Reply]]) -> list[Reply]:
    """Run a coroutine in a thread with a loop of its own; an interrupt ends it too."""
    started: Future = Future()

    async def run() -> list[Reply]:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(asyncio.run, run())
        try:
            return result.result()
        except KeyboardInterrupt:
            loop, task = started.result()
            with suppress(RuntimeError):  # it ended just now
                loop.call_soon_threadsafe(task.cancel)
            raise
