"""The language model behind `factkit.llm`: any OpenAI-compatible endpoint."""

import asyncio
import json
import os
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from factkit.llm import KeyRefused, Limits, Remote, Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI

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
            http_client=Attempts(timeout=limits.timeout_s, follow_redirects=False),
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


def _address(url: str) -> str:
    """An endpoint's address in one spelling, without user and password."""
    import httpx

    plain = httpx.URL(url).copy_with(username=None, password=None, fragment=None)
    return str(plain).rstrip("/")


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
