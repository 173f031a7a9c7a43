"""The reward service: Learning to Reason's rewards for training that runs elsewhere.

The verifier's machines stand behind a web server, to which the training workers send
their responses (App. B). A reply holds all that `reason.scored` gives, so that a run by
URL is the run in process. The server speaks plain HTTP: across a network that others
listen to, put it behind TLS.
"""

import asyncio
import json
import sys
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from factkit import runs, serving
from factkit.datasets.examples import DataError, read_examples
from factkit.rewards.reason import WEIGHTS, Scored, scored
from factkit.serving import refuse

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

    from factkit.reason.params import ReasonParams
    from factkit.verify.preference import Engine

TOKEN_VARIABLE = "FACTKIT_REWARD_TOKEN"
COLUMNS = ("ids", "prompts", "responses")  # of a request, beside its arm


@dataclass(frozen=True)
class Limits:
    """What the service takes: it holds at_once + waiting requests' bodies, no more.

    body_bytes, responses: of a request. at_once: requests scored at a time. waiting:
    requests whose turn comes later; more are sent away for retry_after_s. body_s:
    seconds for a body to arrive. drain_s: seconds for requests under way at the end.
    """

    body_bytes: int = 8 * 2**20
    responses: int = 512
    at_once: int = 1
    waiting: int = 64
    retry_after_s: int = 2
    body_s: float = 20.0
    drain_s: int = 25  # Kubernetes kills after 30


# The server


def serve(p: "ReasonParams", host: str, port: int) -> None:
    """Serve the rewards of p's verifier until SIGTERM or an interrupt; port 0: any.

    Requests under way are answered before it ends. Raises ParamError on an address that
    can't be had or needs a token, DataError without the paper's data.
    """
    from factkit.verify import preference

    secret = serving.environment_token(TOKEN_VARIABLE)
    listening = serving.bound(host, port, secret, TOKEN_VARIABLE)
    data = runs.run_folder(p.data_notebook, p)
    ids = {e.id for s in p.splits for e in read_examples(data / f"{s}.jsonl")[0]}
    # models in process take all cores for one request, and not all of them bear threads
    elsewhere = p.verifier == "judge" and p.judge_url != "local"
    engine = preference.engine_of(p)
    service = Service(engine, ids, Limits(at_once=4 if elsewhere else 1))
    about = {"paper": "reason", "profile": p.profile, "variant": p.variant}
    print(f"rewards at {host}, port {listening.getsockname()[1]}", flush=True)
    app, drain_s = web(service, about, secret), service.limits.drain_s
    serving.run(app, listening, drain_s, busy=lambda: service.busy)


def web(service: "Service", about: dict[str, str], token: str) -> "FastAPI":
    """The routes. about: what /health tells anyone; token: of /rewards, "" for none."""
    from fastapi import Depends, FastAPI, Request, Response

    app = FastAPI(openapi_url=None)
    check = Depends(serving.authorised(token, TOKEN_VARIABLE))

    @app.get("/health")
    async def health() -> dict[str, Any]:
        busy = service.busy
        counts = {"busy": busy, "queued": service.inside - busy}
        return about | {"arms": list(WEIGHTS)} | counts

    @app.post("/rewards", dependencies=[check])
    async def rewards(request: Request) -> Response:
        return Response(await service.answer(request), media_type="application/json")

    return app


class Service:
    """Scores requests on an engine, some at once, some more in their turn.

    ids: of the prompts that the engine knows. inside: requests taken, not yet answered.
    """

    def __init__(
        self, engine: "Engine", ids: Collection[str], limits: Limits = Limits()
    ) -> None:
        self.engine, self.ids, self.limits = engine, frozenset(ids), limits
        self.inside = 0
        self._slots = asyncio.Semaphore(limits.at_once)
        self._pool = ThreadPoolExecutor(limits.at_once)
        self._scoring: set[Future[bytes]] = set()

    @property
    def busy(self) -> int:
        """Requests that are being scored."""
        return len(self._scoring)

    async def answer(self, request: "Request") -> bytes:
        """The body of the reply to a request. Raises HTTPException."""
        away = {"Retry-After": str(self.limits.retry_after_s)}
        if self.inside >= self.limits.at_once + self.limits.waiting:
            refuse(503, "too many requests are waiting", away)  # its body is not read
        self.inside += 1
        try:
            most, within_s = self.limits.body_bytes, self.limits.body_s
            body = await serving.body_of(request, most, within_s, "responses")
            async with self._slots:
                if await request.is_disconnected():
                    refuse(400, "the client went away")
                future = self._pool.submit(self._score, body)
                self._scoring.add(future)
                future.add_done_callback(self._scoring.discard)
                return await asyncio.wrap_future(future)
        except asyncio.CancelledError:  # the time to drain is over
            refuse(503, "the service ends", away)
        finally:
            self.inside -= 1

    def _score(self, body: bytes) -> bytes:
        arm, columns = self._asked(body)
        try:
            found = scored(arm, self.engine, *columns)
        except DataError as error:  # a prompt without evidence
            refuse(422, str(error))
        except Exception as error:  # whatever an engine meets is that request's failure
            why = f"the verifier failed: {type(error).__name__}"
            print(f"factkit: arm={arm}: {why}", file=sys.stderr, flush=True)
            refuse(500, f"{why}; see to the service")
        try:
            return json.dumps([_row(of) for of in found], allow_nan=False).encode()
        except ValueError:
            refuse(500, "the verifier gave a reward that is no finite number")

    def _asked(self, body: bytes) -> tuple[str, list[list[str]]]:
        """A request's arm and columns, checked; of its text an error names an id."""
        content = serving.json_object(body)
        arm, columns = content.get("arm"), [content.get(name) for name in COLUMNS]
        if not isinstance(arm, str) or arm not in WEIGHTS:
            refuse(422, f"arm: must be one of {', '.join(WEIGHTS)}")
        for name, column in zip(COLUMNS, columns, strict=True):
            if not isinstance(column, list) or {type(v) for v in column} - {str}:
                refuse(422, f"{name}: must be a list of strings")
        lengths = [len(column) for column in columns]
        if len(set(lengths)) > 1:
            refuse(422, f"{', '.join(COLUMNS)}: must be of one length, not {lengths}")
        if lengths[0] > self.limits.responses:
            refuse(422, f"responses: at most {self.limits.responses} a request")
        if unknown := [i for i in columns[0] if i not in self.ids]:
            refuse(422, f"ids: {unknown[0][:100]!r} is not in the service's data")
        return arm, columns


def _row(of: Scored) -> dict[str, Any]:
    """A response's rewards in JSON's types; the client reads them back."""
    return {
        "reward": of.reward,
        "reasoning": of.parts.reasoning if of.parts else None,
        "answer": of.parts.answer if of.parts else None,
        "supports": of.supports,
        "wins": of.wins,
    }
