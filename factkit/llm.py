"""One async interface to the language models that judge, extract and verify.

Backends: an OpenAI-compatible endpoint, vLLM in this process, transformers. A call that
fails is a reply without text, never an exception and never a score.
"""

import asyncio
import hashlib
import json
import math
import os
import random
import threading
import time
import warnings
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factkit import models

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from tenacity import RetryCallState

LONGEST_WAIT_S = 60.0  # between two attempts, whatever Retry-After says
HEALS = (408, 409, 429)  # and 5xx: statuses that another attempt may not meet


@dataclass(frozen=True)
class Request:
    """A chat to complete.

    messages: mappings with role and content. template: name and version of the prompt
    template. sample: index among repeated samples of one prompt. schema: JSON schema
    of the answer, for backends with structured output; the others ignore it. All of
    them, but not `sampling.batch_size`, are part of the cache key.
    """

    messages: tuple[Mapping[str, str], ...]
    template: str = ""
    sampling: models.Sampling = models.Sampling(512)
    sample: int = 0
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Reply:
    """An answer; `text` is None if the call failed, and `error` says why.

    cached: it took no call. Tokens are those of the call that was made for it.
    """

    text: str | None
    error: str = ""
    cached: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0


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


class LocalModel(Protocol):
    """A backend that batches by itself."""

    name: str  # part of the cache key: what determines the answers

    def generate(self, requests: Sequence[Request]) -> Iterator[Replies]:
        """Replies to all requests in any order, each batch as soon as it is done."""
        ...


class LLM:
    """A backend with a disk cache, limits, and totals over its lifetime.

    cache: folder, on a local disk; any number of processes may share it. prices: per
    million prompt and completion tokens. Concurrency is bounded per event loop.
    """

    def __init__(
        self,
        backend: "Endpoint | LocalModel",
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
            import diskcache

            # by default it would drop the oldest answers beyond 1 GB
            self._cache = diskcache.Cache(
                str(cache), eviction_policy="none", cull_limit=0
            )

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
        bar = None
        if progress:
            from factkit.runs import progress_bar

            bar = progress_bar(len(requests), progress, unit="call")

        def settle(key: str, reply: Reply) -> None:
            replies[key] = reply
            self._count(reply, wanted[key])
            if bar is not None:
                bar.update(wanted[key])

        try:
            for key in unique:
                if reply := self._stored(key):
                    settle(key, reply)
            missing = {k: r for k, r in unique.items() if k not in replies}
            if missing and isinstance(self.backend, Endpoint):
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
        found = None if self._cache is None else self._cache.get(key, retry=True)
        return Reply(**json.loads(found), cached=True) if found else None

    def _count(self, reply: Reply, requests: int) -> None:
        """Add a settled reply, and the requests that share it, to the totals."""
        if reply.text is None:
            self.totals.failed += requests
        else:
            self.totals.cached += requests if reply.cached else requests - 1

    def _keep(self, key: str, reply: Reply) -> None:
        """Count a call's tokens and put its answer into the cache."""
        totals = self.totals
        totals.prompt_tokens += reply.prompt_tokens
        totals.completion_tokens += reply.completion_tokens
        prompt_price, completion_price = self.prices
        totals.cost += reply.prompt_tokens * prompt_price / 1e6
        totals.cost += reply.completion_tokens * completion_price / 1e6
        if self._cache is None or reply.text is None:
            return
        stored = asdict(reply)
        del stored["cached"], stored["error"]
        try:  # as JSON: no pickles, and text that is no valid UTF-8 survives
            self._cache.set(key, json.dumps(stored), retry=True)
        except Exception as error:  # a full disk must not cost the answer
            warnings.warn(f"{self._cache.directory}: not cached: {error}", stacklevel=2)

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
        self,
        backend: LocalModel,
        missing: Mapping[str, Request],
        settle: Callable[[str, Reply], None],
    ) -> None:
        """Answer with a local model, batch by batch until a cap is reached."""
        keys = list(missing)
        most = self.limits.max_calls
        allowed = keys if most is None else keys[: max(0, most - self.totals.calls)]
        batches = iter(backend.generate([missing[key] for key in allowed]))
        done = set()
        while len(done) < len(allowed) and not self._cap():
            batch = await asyncio.to_thread(next, batches, None)
            if batch is None:
                break
            for index, reply in batch:
                self.totals.calls += 1
                self._keep(allowed[index], reply)
                settle(allowed[index], reply)
                done.add(allowed[index])
        for key in (key for key in keys if key not in done):
            settle(key, Reply(None, self._cap() or "the backend gave no answer"))

    async def _ask_all(
        self,
        endpoint: "Endpoint",
        missing: Mapping[str, Request],
        settle: Callable[[str, Reply], None],
    ) -> None:
        """Answer through an endpoint, `concurrency` calls at once."""
        waiting = iter(missing.items())

        async def work(session: _Session) -> None:
            for key, request in waiting:
                reply = await self._ask(endpoint, session, request)
                self._keep(key, reply)
                settle(key, reply)

        async with self._session(endpoint) as session, asyncio.TaskGroup() as group:
            for _ in range(min(self.limits.concurrency, len(missing))):
                group.create_task(work(session))

    @asynccontextmanager
    async def _session(self, endpoint: "Endpoint") -> "AsyncIterator[_Session]":
        """The running loop's client and call slots, shared by calls of `complete`."""
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            slots = asyncio.Semaphore(self.limits.concurrency)
            self._sessions[loop] = _Session(endpoint.connect(self.limits), slots)
        session = self._sessions[loop]
        session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            if not session.users:
                del self._sessions[loop]
                await session.client.close()

    async def _ask(
        self, endpoint: "Endpoint", session: "_Session", request: Request
    ) -> Reply:
        """One request's reply, after as many attempts as it takes and limits allow."""
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        def count(state: "RetryCallState") -> None:
            self.totals.retries += 1

        attempts = AsyncRetrying(
            stop=stop_after_attempt(self.limits.attempts),
            wait=lambda state: _wait_s(state, self.limits.backoff_s),
            retry=retry_if_exception(_may_heal),
            before_sleep=count,
            reraise=True,
        )
        try:
            return await attempts(self._attempt, endpoint, session, request)
        except _NotCalled as why:
            return Reply(None, str(why))
        except Exception as error:  # whatever one call meets is that call's failure
            return Reply(None, _in_words(error, self.limits))

    async def _attempt(
        self, endpoint: "Endpoint", session: "_Session", request: Request
    ) -> Reply:
        try:
            return await self._call(endpoint, session, request)
        except _SchemaRefused:  # the endpoint leaves it out from now on
            return await self._call(endpoint, session, request)

    async def _call(
        self, endpoint: "Endpoint", session: "_Session", request: Request
    ) -> Reply:
        """One HTTP call. Raises _NotCalled if there is none to make any more."""
        async with session.slots:
            if why := session.refused or self._cap():
                raise _NotCalled(why)
            self.totals.calls += 1
            try:
                async with asyncio.timeout(self.limits.timeout_s):
                    return await endpoint.ask(session.client, request)
            except Exception as error:
                if getattr(error, "status_code", None) in (401, 403):
                    session.refused = f"not called: {_in_words(error, self.limits)}"
                raise


class Endpoint:
    """An OpenAI-compatible endpoint.

    base_url: with its /v1. api_key: if None, that of the environment variable
    OPENAI_API_KEY. extra_body: more fields for each call's body, as vLLM's
    {"chat_template_kwargs": {"enable_thinking": False}} for a Qwen3 judge.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self.base_url = base_url
        self.model = model
        self.api_key = api_key
        self.extra_body = extra_body
        self.name = _name(model, extra_body)
        self._refused: set[str] = set()  # schemas that the server does not take

    def connect(self, limits: Limits) -> "AsyncOpenAI":
        """A client for the running event loop; retries are ours.

        Raises ValueError on a key that no header can carry: the error of each call
        would spell the key out.
        """
        from openai import AsyncOpenAI

        key = (self.api_key or os.environ.get("OPENAI_API_KEY") or "none").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the API key holds a line break or a non-ASCII character")
        return AsyncOpenAI(
            base_url=self.base_url,
            api_key=key,
            timeout=limits.timeout_s,
            max_retries=0,
        )

    async def ask(self, client: "AsyncOpenAI", request: Request) -> Reply:
        """One call. Raises _SchemaRefused if the server refuses response_format."""
        from openai import BadRequestError

        body: dict[str, Any] = {}
        schema = json.dumps(request.schema, default=dict)
        if request.schema is not None and schema not in self._refused:
            answer = {"name": "answer", "schema": json.loads(schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": answer}
        try:
            response = await client.chat.completions.create(
                model=self.model,
                messages=[dict(message) for message in request.messages],
                max_tokens=request.sampling.max_new_tokens,
                temperature=request.sampling.temperature,
                top_p=request.sampling.top_p,
                extra_body=dict(self.extra_body or {}),
                **body,
            )
        except BadRequestError as error:
            if not body or not _is_about_schema(error.message):
                raise
            if schema not in self._refused:
                warnings.warn(f"asking without a schema: {error}", stacklevel=2)
            self._refused.add(schema)
            raise _SchemaRefused from error
        return _read(response)


class VLLM:
    """A model served by vLLM in this process; the schema is enforced.

    model: folder or hub name. chat_template_kwargs: as `Endpoint`'s extra_body.
    engine_arguments: vllm.LLM's.
    """

    at_once = 4096  # requests between two writes to the cache; vLLM batches these

    def __init__(
        self,
        model: str,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **engine_arguments: Any,
    ) -> None:
        import vllm

        self.name = _name(_with_weights(model), chat_template_kwargs)
        self.template_arguments = dict(chat_template_kwargs or {})
        self.engine = vllm.LLM(model=model, **engine_arguments)
        self._lock = threading.Lock()

    def generate(self, requests: Sequence[Request]) -> Iterator[Replies]:
        """Replies in batches of `at_once`."""
        for start in range(0, len(requests), self.at_once):
            batch = requests[start : start + self.at_once]
            with self._lock:
                replies = _in_halves(self._answer, batch)
            yield list(enumerate(replies, start))

    def _answer(self, requests: Sequence[Request]) -> list[Reply]:
        outputs = self.engine.chat(
            [[dict(message) for message in r.messages] for r in requests],
            [_vllm_sampling(r) for r in requests],
            use_tqdm=False,
            chat_template_kwargs=self.template_arguments,
        )
        return [
            _reply(
                output.outputs[0].text,
                output.outputs[0].finish_reason,
                len(output.prompt_token_ids),
                len(output.outputs[0].token_ids),
            )
            for output in outputs
        ]


class Transformers:
    """A model run by transformers; it has no structured output.

    path: folder or hub name (safetensors only). dtype: "float32" or "bfloat16". The
    prompt is the tokenizer's chat template where it has one, the messages' contents
    line by line otherwise. Samples differ with the batch they are in.
    """

    def __init__(
        self,
        path: str,
        dtype: str = "float32",
        batch_size: int = 16,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = _name(_with_weights(path), chat_template_kwargs)
        self.batch_size = batch_size
        self.template_arguments = dict(chat_template_kwargs or {})
        self.model, self.tokenizer = models.load_policy(path, dtype)
        self._lock = threading.Lock()

    def generate(self, requests: Sequence[Request]) -> Iterator[Replies]:
        """Replies in batches of equal sampling and like length: less padding."""
        decoding = [_sampling(request) for request in requests]
        length = [sum(len(m["content"]) for m in r.messages) for r in requests]
        order = sorted(range(len(requests)), key=lambda i: (decoding[i], length[i]))
        for _, group in groupby(order, key=lambda i: decoding[i]):
            rows = list(group)
            for start in range(0, len(rows), self.batch_size):
                batch = rows[start : start + self.batch_size]
                with self._lock:
                    replies = _in_halves(self._answer, [requests[i] for i in batch])
                yield list(zip(batch, replies, strict=True))

    def _answer(self, requests: Sequence[Request]) -> list[Reply]:
        """Replies to requests of one sampling. Raises ValueError on too long a prompt.

        Leaves torch's random state as it was: a cached reply must not change what a
        run draws next.
        """
        import torch

        tokenizer, device = self.tokenizer, self.model.device
        inputs = tokenizer(
            [self._prompt(request) for request in requests],
            return_tensors="pt",
            padding=True,
            add_special_tokens=not tokenizer.chat_template,  # the template has them
        ).to(device)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]  # (B, T)
        sampling = requests[0].sampling
        context = getattr(
            self.model.config.get_text_config(), "max_position_embeddings", math.inf
        )
        room = context - sampling.max_new_tokens
        if ids.shape[1] > room:
            raise ValueError(
                f"prompt of {ids.shape[1]} tokens: the model's context has room for "
                f"{room} and {sampling.max_new_tokens} new ones"
            )
        gpus = range(torch.cuda.device_count())
        with torch.inference_mode(), torch.random.fork_rng(devices=gpus):
            torch.manual_seed(_seed(self.name, requests))
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=sampling.max_new_tokens,
                eos_token_id=self._end_tokens(),
                pad_token_id=tokenizer.pad_token_id,
                **models._decoding(sampling),
            )
        new = output[:, ids.shape[1] :].cpu()  # (B, new tokens)
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        prompt_tokens = mask.sum(dim=1).tolist()
        new_tokens = (new != tokenizer.pad_token_id).sum(dim=1).tolist()
        rows = zip(texts, prompt_tokens, new_tokens, strict=True)
        return [_reply(text, "stop", before, after) for text, before, after in rows]

    def _prompt(self, request: Request) -> str:
        messages = [dict(message) for message in request.messages]
        if not self.tokenizer.chat_template:
            return "\n".join(message["content"] for message in messages)
        return self.tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=True,
            **self.template_arguments,
        )

    def _end_tokens(self) -> list[int]:
        """The tokenizer's end of text and the model's own ends of turn."""
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return sorted({self.tokenizer.eos_token_id, *ends} - {None})


@dataclass
class _Session:
    """An event loop's client and call slots; `refused` once the key was."""

    client: "AsyncOpenAI"
    slots: asyncio.Semaphore
    users: int = 0
    refused: str = ""


class _NotCalled(Exception):
    """No call was made, and none will be: the key was refused or a cap is reached."""


class _SchemaRefused(Exception):
    """The server does not take response_format, or not this schema."""


def cache_key(model: str, request: Request) -> str:
    """sha256, in hex, of all that determines the answer to a request."""
    content = [
        model,
        request.template,
        [sorted(message.items()) for message in request.messages],
        _sampling(request),
        request.sample,
        request.schema,  # in its own order: models answer in it
    ]
    return hashlib.sha256(json.dumps(content, default=dict).encode()).hexdigest()


def _sampling(request: Request) -> tuple[int, float, float]:
    sampling = request.sampling
    return (
        int(sampling.max_new_tokens),
        float(sampling.temperature),
        float(sampling.top_p),
    )


def _name(model: str, extra: Mapping[str, Any] | None) -> str:
    """A model's name and what else is in each of its calls."""
    return f"{model} {json.dumps(extra, sort_keys=True)}" if extra else model


def _with_weights(path: str) -> str:
    """A model's path, and which weights lie there: training may write new ones."""
    files = sorted(Path(path).glob("*.safetensors"))
    stats = [(file.name, file.stat()) for file in files]
    content = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
    return f"{path}@{digest}" if files else path


def _seed(model: str, requests: Iterable[Request]) -> int:
    keys = "".join(cache_key(model, request) for request in requests)
    return int(hashlib.sha256(keys.encode()).hexdigest()[:12], 16)


def _in_order(keys: Sequence[str], replies: Mapping[str, Reply]) -> list[Reply]:
    """A reply for each key; where a key comes again, its answer took no call."""
    seen: set[str] = set()
    ordered = []
    for key in keys:
        again = key in seen and replies[key].text is not None
        ordered.append(replace(replies[key], cached=True) if again else replies[key])
        seen.add(key)
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


def _in_halves(
    answer: Callable[[Sequence[Request]], list[Reply]], requests: Sequence[Request]
) -> list[Reply]:
    """answer(requests); if it fails, that of each half: the culprit fails alone."""
    try:
        return answer(requests)
    except Exception as error:
        if len(requests) == 1:
            return [Reply(None, _shorten(f"{type(error).__name__}: {error}"))]
    half = len(requests) // 2
    return _in_halves(answer, requests[:half]) + _in_halves(answer, requests[half:])


def _vllm_sampling(request: Request) -> Any:
    """A request's vllm.SamplingParams."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    schema = request.schema
    return SamplingParams(
        max_tokens=request.sampling.max_new_tokens,
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        structured_outputs=(
            None if schema is None else StructuredOutputsParams(json=dict(schema))
        ),
    )


def _read(response: Any) -> Reply:
    """The reply in a server's answer, which may be anything."""
    try:
        choice = response.choices[0]
        text, reason = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, KeyError, TypeError):
        return Reply(None, "the answer has no choice")
    usage = response.usage
    before = (usage and usage.prompt_tokens) or 0
    after = (usage and usage.completion_tokens) or 0
    return _reply(text, reason, before, after)


def _reply(text: Any, reason: str | None, before: int, after: int) -> Reply:
    """A reply of `before` prompt and `after` completion tokens; no text, no answer."""
    if isinstance(text, str) and text.strip():
        return Reply(text, prompt_tokens=before, completion_tokens=after)
    error = f"the answer is empty (finish reason: {reason})"
    return Reply(None, error, prompt_tokens=before, completion_tokens=after)


def _is_about_schema(message: str) -> bool:
    words = ("response_format", "json_schema", "json schema", "structured output")
    return any(word in message.lower() for word in words)


def _may_heal(error: BaseException) -> bool:
    """Whether another attempt may fare better."""
    from openai import APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        return error.status_code in HEALS or error.status_code >= 500
    return isinstance(error, APIConnectionError | TimeoutError)


def _wait_s(state: "RetryCallState", backoff_s: float) -> float:
    """Seconds to wait before the next attempt: what the server says, or twice the last.

    Both with jitter, so that calls that failed together do not return together.
    """
    from tenacity import wait_exponential_jitter

    error = state.outcome.exception() if state.outcome else None
    headers = getattr(getattr(error, "response", None), "headers", {})
    said = _retry_after_s(headers.get("retry-after"), time.time())
    if said is not None:
        return said + random.uniform(0, backoff_s)
    wait = wait_exponential_jitter(
        multiplier=backoff_s, max=LONGEST_WAIT_S, jitter=backoff_s
    )
    return wait(state)


def _retry_after_s(header: str | None, now: float) -> float | None:
    """A Retry-After header (seconds or an HTTP date) in seconds from `now`.

    Within [0, LONGEST_WAIT_S]; None if it is absent or says nothing.
    """
    try:
        seconds = float(header or "nan")
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_WAIT_S)


def _in_words(error: Exception, limits: Limits) -> str:
    from openai import APIStatusError, APITimeoutError

    if isinstance(error, APITimeoutError | TimeoutError):
        return f"no answer within {limits.timeout_s:g} s"
    if isinstance(error, APIStatusError):
        return _shorten(f"HTTP {error.status_code}: {error.message}")
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return _shorten(f"{type(error).__name__}: {error}{cause}")


def _shorten(text: str, most: int = 500) -> str:
    """Text without its tail: a gateway's error can be a whole web page."""
    return text if len(text) <= most else f"{text[:most]} …"
