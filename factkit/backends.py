"""The language models behind `factkit.llm`: an OpenAI-compatible endpoint, and
transformers in this process.
"""

import asyncio
import hashlib
import json
import math
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import models
from factkit.llm import KeyRefused, Limits, Remote, Replies, Reply, Request, cache_key

if TYPE_CHECKING:
    from openai import AsyncOpenAI

THINK = "<think>"
# a server's words for what it does not take
SCHEMA = re.compile(r"(?i)response_format|schema|structured output|grammar|guided")


class Endpoint(Remote):
    """An OpenAI-compatible endpoint.

    base_url: with its /v1. api_key: if None, that of the environment variable
    OPENAI_API_KEY.
    """

    def __init__(self, base_url: str, model: str, api_key: str | None = None) -> None:
        self.base_url = base_url
        self.model = model
        self.api_key = api_key
        self.name = f"{_address(base_url)} {model}"
        self._takes_schemas = True

    def connect(self, limits: Limits, next_call: Callable[[], str]) -> "AsyncOpenAI":
        """A client for the running event loop; redirects are refused.

        Raises ValueError on a key that no header can carry: the error of each call
        would spell the key out.
        """
        import httpx
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

        from factkit.http_client import PLAIN, bounded_async

        key = (self.api_key or os.environ.get("OPENAI_API_KEY") or "none").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the API key holds a line break or a non-ASCII character")

        class Attempts(DefaultAsyncHttpxClient):
            """Counts attempts and ends each in time; openai's client repeats them."""

            async def send(self, *request: Any, **options: Any) -> Any:
                if why := next_call():
                    raise OpenAIError(why)  # which it does not repeat
                try:
                    async with asyncio.timeout(limits.timeout_s):
                        return await super().send(*request, **options)
                except TimeoutError:
                    raise httpx.ReadTimeout("no answer in time") from None

        return AsyncOpenAI(
            base_url=self.base_url,
            api_key=key,
            timeout=limits.timeout_s,
            max_retries=limits.attempts - 1,
            default_headers=PLAIN,
            http_client=Attempts(timeout=limits.timeout_s, **bounded_async()),
        )

    async def ask(self, client: "AsyncOpenAI", request: Request) -> Reply:
        """The reply after as many attempts as it takes. Raises KeyRefused."""
        from openai import APIStatusError, APITimeoutError, OpenAIError
        from openai.types.chat import ChatCompletion

        body = {
            "model": self.model,
            "messages": [dict(message) for message in request.messages],
            "max_tokens": request.sampling.max_new_tokens,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
        }
        if with_schema := request.schema is not None and self._takes_schemas:
            schema = json.loads(json.dumps(request.schema, default=dict))
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
                if self._takes_schemas:
                    warnings.warn(f"asking without a schema: {error}", stacklevel=2)
                self._takes_schemas = False
                return await self.ask(client, request)
            if status in (401, 403):
                raise KeyRefused(_shorten(f"HTTP {status}: {why}")) from None
            return Reply(None, _shorten(f"HTTP {status}: {why}"))
        except Exception as error:  # whatever one call meets is that call's failure
            if type(error) is OpenAIError:  # there is no call to make any more
                return Reply(None, str(error))
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            return Reply(None, _shorten(f"{type(error).__name__}: {error}{cause}"))
        return _read(response)


class Transformers:
    """A model run by transformers; it has no structured output.

    path: folder or hub name (safetensors only). dtype: "float32" or "bfloat16". The
    prompt is the tokenizer's chat template where it has one, the messages' contents
    line by line otherwise. Samples differ with the batch they are in.
    """

    batch_size = 16

    def __init__(self, path: str, dtype: str = "float32") -> None:
        self.name = _with_weights(path)
        self.model, self.tokenizer = models.load_policy(path, dtype)
        self._lock = threading.Lock()

    def generate(self, requests: Sequence[Request]) -> Iterator[Replies]:
        """Replies in batches of equal sampling and like length: less padding."""
        decoding = [request.decoding for request in requests]
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
        asked = [self._prompt(request) for request in requests]
        inputs = tokenizer(
            asked,
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
                f"prompt of {ids.shape[1]} tokens: there is room for {room}"
            )
        ends = self._end_tokens()
        gpus = range(torch.cuda.device_count())
        keys = "".join(cache_key(self.name, request) for request in requests)
        with torch.inference_mode(), torch.random.fork_rng(devices=gpus):
            torch.manual_seed(int(hashlib.sha256(keys.encode()).hexdigest()[:12], 16))
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=sampling.max_new_tokens,
                eos_token_id=ends,
                pad_token_id=tokenizer.pad_token_id,
                **models.decoding(sampling),
            )
        new = output[:, ids.shape[1] :].cpu()  # (B, new tokens)
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        prompt_tokens = mask.sum(dim=1).tolist()
        new_tokens = (new != tokenizer.pad_token_id).sum(dim=1).tolist()
        ended = torch.isin(new, torch.tensor(ends, dtype=new.dtype)).any(dim=1).tolist()
        rows = zip(asked, texts, ended, prompt_tokens, new_tokens, strict=True)
        replies = []
        for prompt, text, end, before, after in rows:
            if prompt.rstrip().endswith(THINK):  # the chat template wrote the tag
                text = THINK + text
            replies.append(_reply(text, "stop" if end else "length", before, after))
        return replies

    def _prompt(self, request: Request) -> str:
        messages = [dict(message) for message in request.messages]
        if not self.tokenizer.chat_template:
            return "\n".join(message["content"] for message in messages)
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )

    def _end_tokens(self) -> list[int]:
        """The tokenizer's end of text and the model's own ends of turn."""
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return sorted({self.tokenizer.eos_token_id, *ends} - {None})


def _address(url: str) -> str:
    """An endpoint's address in one spelling, without user and password."""
    import httpx

    plain = httpx.URL(url).copy_with(username=None, password=None, fragment=None)
    return str(plain).rstrip("/")


def _with_weights(path: str) -> str:
    """A model's path, and which weights lie there: training may write new ones."""
    files = sorted(Path(path).glob("*.safetensors"))
    stats = [(file.name, file.stat()) for file in files]
    content = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
    return f"{path}@{digest}" if files else path


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


def _read(response: Any) -> Reply:
    """The reply in a server's answer, which may be anything."""
    try:
        choice = response.choices[0]
        text, reason = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, KeyError, TypeError):
        return Reply(None, "the answer has no choice")
    names = ("prompt_tokens", "completion_tokens")
    counts = (getattr(getattr(response, "usage", None), n, None) for n in names)
    return _reply(text, reason, *(n if type(n) is int else 0 for n in counts))


def _reply(text: Any, reason: str | None, before: int, after: int) -> Reply:
    """A reply of `before` prompt and `after` completion tokens; no text, no answer."""
    if isinstance(text, str) and text.strip():
        reason = str(reason or "")
        return Reply(text, "", False, before, after, finish_reason=reason)
    error = f"the answer is empty (finish reason: {reason})"
    return Reply(None, error, prompt_tokens=before, completion_tokens=after)


def _shorten(text: str, most: int = 500) -> str:
    """Text without its tail: a gateway's error can be a whole web page."""
    return text if len(text) <= most else f"{text[:most]} …"
