"""The reward service, for training that runs elsewhere, and its client.

The verifier's machines stand behind a web server, to which the training workers send
their responses (App. B). A reply holds what the client makes `rewards.scored`'s rows
of, so that a run by URL is the run in process.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, StrictBool, StrictFloat

from factkit import runs, serving
from factkit.datasets.examples import DataError, read_examples
from factkit.reason.rewards import WEIGHTS, Engine, Scored, engine_of, scored
from factkit.verify.outcome import Support
from factkit.verify.response import parts

if TYPE_CHECKING:
    from fastapi import FastAPI

    from factkit.reason.arms import ReasonParams, ReasonRlParams

TOKEN_VARIABLE = "FACTKIT_REWARD_TOKEN"
COLUMNS = ("ids", "prompts", "responses")  # of a request, beside its arm
RESPONSES = serving.ROWS  # of a request
CALL_S = 600.0  # a call's seconds: the service is silent until all is scored
PATIENCE_S = 900.0  # after which a request is not tried again


class Request(BaseModel):
    """Responses to be scored, with their prompts and the prompts' ids."""

    arm: Literal[tuple(WEIGHTS)]
    ids: serving.Texts
    prompts: serving.Texts
    responses: serving.Texts


class Row(BaseModel):
    """A response's rewards, as the service tells them."""

    reward: StrictFloat | None
    supports: list[Support | None] | None
    wins: StrictBool | None


def serve(p: "ReasonParams", host: str, port: int) -> None:
    """Serve the rewards of p's verifier until SIGTERM or an interrupt; port 0: any.

    Requests under way are answered before it ends. Raises ParamError on an address that
    can't be had or needs a token, DataError without the paper's data.
    """
    token = serving.environment_token(TOKEN_VARIABLE)
    listening = serving.bound(host, port, token, TOKEN_VARIABLE)
    data = runs.run_folder(p.data_notebook, p)
    ids = {e.id for s in p.splits for e in read_examples(data / f"{s}.jsonl")}
    about = {"paper": "reason", "profile": p.profile, "variant": p.variant}
    at_once = 4 if p.verifier == "judge" else 1  # exact readers take all cores
    rewards = service(engine_of(p), ids, about, token, at_once)
    print(f"rewards at {host}, port {listening.getsockname()[1]}", flush=True)
    serving.run(rewards, listening)


def service(
    engine: Engine,
    ids: Collection[str],
    about: dict[str, str],
    token: str,
    at_once: int = 1,
) -> "FastAPI":
    """Scores responses on an engine. ids: of the prompts that it knows."""

    def rewards(request: Request) -> list[dict[str, Any]]:
        columns = [request.ids, request.prompts, request.responses]
        if len(set(map(len, columns))) > 1:
            raise DataError("ids, prompts and responses: must be of one length")
        if unknown := [i for i in request.ids if i not in ids]:
            raise DataError(f"ids: {unknown[0][:100]!r} is not in the service's data")
        return [
            {"reward": s.reward, "supports": s.supports, "wins": s.wins}
            for s in scored(request.arm, engine, *columns)
        ]

    about = about | {"arms": list(WEIGHTS)}
    return serving.app_of("/rewards", Request, rewards, about, token, at_once)


def remote(p: "ReasonRlParams") -> Callable[..., list[Scored]]:
    """(ids, prompts, responses) → what `scored` gives, by p.reward_url.

    Asks in the order of the responses, no more at a time than the service takes; where
    it is busy or away, again for at most PATIENCE_S + CALL_S seconds. The token is that
    of the environment variable FACTKIT_REWARD_TOKEN, if it is set. Raises ParamError on
    a bad URL; what it returns raises ServiceError.
    """
    client = serving.Client(
        f"{p.reward_url.rstrip('/')}/rewards",
        "reward_url",
        "serve-rewards reason",
        TOKEN_VARIABLE,
        CALL_S,
        lasting=(500,),  # the verifier failed
    )

    def ask(columns: list[list[str]]) -> list[Scored]:
        def read(reply: Any) -> list[Scored]:
            pairs = zip(map(Row.model_validate, reply), columns[-1], strict=True)
            return [
                Scored(row.reward, parts(response), row.supports, row.wins)
                for row, response in pairs
            ]

        content = {"arm": p.arm} | dict(zip(COLUMNS, columns, strict=True))
        return client.ask(content, read, PATIENCE_S)

    def score(*columns: Sequence[str]) -> list[Scored]:
        starts = range(0, len(columns[0]), RESPONSES)
        requests = [[list(c[i : i + RESPONSES]) for c in columns] for i in starts]
        return [row for request in requests for row in ask(request)]

    return score
