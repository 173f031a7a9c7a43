"""The reward service, for training that runs elsewhere, and its client.

The verifier's machines stand behind a web server, to which the training workers send
their responses (App. B). A reply holds what the client makes `rewards.scored`'s rows
of, so that a run by URL is the run in process.
"""

import json
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, StrictBool, StrictFloat

from factkit import http_client, runs, serving
from factkit.datasets.examples import DataError, read_examples
from factkit.reason.rewards import WEIGHTS, Engine, Scored, engine_of, scored
from factkit.serving import refuse
from factkit.verify.claims import Support
from factkit.verify.response import parts

if TYPE_CHECKING:
    from factkit.reason.arms import ReasonParams, ReasonRlParams

TOKEN_VARIABLE = "FACTKIT_REWARD_TOKEN"
COLUMNS = ("ids", "prompts", "responses")  # of a request, beside its arm
RESPONSES = 512  # of a request
BODY_BYTES = 8 * 2**20  # of a request
CALL_S = 600.0  # a call's seconds: the service is silent until all is scored
PATIENCE_S = 900.0  # after which a request is not tried again


def serve(p: "ReasonParams", host: str, port: int) -> None:
    """Serve the rewards of p's verifier until SIGTERM or an interrupt; port 0: any.

    Requests under way are answered before it ends. Raises ParamError on an address that
    can't be had or needs a token, DataError without the paper's data.
    """
    token = serving.environment_token(TOKEN_VARIABLE)
    listening = serving.bound(host, port, token, TOKEN_VARIABLE)
    data = runs.run_folder(p.data_notebook, p)
    ids = {e.id for s in p.splits for e in read_examples(data / f"{s}.jsonl")}
    # models in process take all cores for one request, and not all of them bear threads
    elsewhere = p.verifier == "judge" and p.judge_url != "local"
    limits = serving.Limits(at_once=4 if elsewhere else 1, waiting=64)
    about = {"paper": "reason", "profile": p.profile, "variant": p.variant}
    rewards = service(engine_of(p), ids, about, token, limits)
    print(f"rewards at {host}, port {listening.getsockname()[1]}", flush=True)
    rewards.run(listening)


def service(
    engine: Engine,
    ids: Collection[str],
    about: dict[str, str],
    token: str,
    limits: serving.Limits,
) -> serving.Service:
    """Scores responses on an engine. ids: of the prompts that it knows."""

    def rewards(content: dict[str, Any]) -> list[dict[str, Any]]:
        arm = content.get("arm")
        if not isinstance(arm, str) or arm not in WEIGHTS:
            refuse(422, f"arm: must be one of {', '.join(WEIGHTS)}")
        columns = [serving.strings(content, name) for name in COLUMNS]
        lengths = [len(column) for column in columns]
        if len(set(lengths)) > 1:
            refuse(422, f"{', '.join(COLUMNS)}: must be of one length, not {lengths}")
        if unknown := [i for i in columns[0] if i not in ids]:
            refuse(422, f"ids: {unknown[0][:100]!r} is not in the service's data")
        try:
            rows = scored(arm, engine, *columns)
        except DataError as error:  # a prompt without evidence
            refuse(422, str(error))
        return [
            {"reward": s.reward, "supports": s.supports, "wins": s.wins} for s in rows
        ]

    about = about | {"arms": list(WEIGHTS)}
    return serving.Service("/rewards", rewards, about, token, TOKEN_VARIABLE, limits)


class Row(BaseModel):
    """A response's rewards as the service tells them."""

    reward: StrictFloat | None
    supports: list[Support | None] | None
    wins: StrictBool | None


def remote(p: "ReasonRlParams") -> Callable[..., list[Scored]]:
    """(ids, prompts, responses) → what `scored` gives, by p.reward_url.

    Asks in the order of the responses, no more at a time than the service takes; where
    it is busy or away, again for at most PATIENCE_S + CALL_S seconds. The token is that
    of the environment variable FACTKIT_REWARD_TOKEN, if it is set. Raises ParamError on
    a bad URL; what it returns raises ServiceError.
    """
    server = http_client.Server(
        "reward_url",
        "serve-rewards reason",
        TOKEN_VARIABLE,
        CALL_S,
        lasting=(500,),  # the verifier failed
    )
    client = server.at(f"{p.reward_url.rstrip('/')}/rewards")

    def score(*columns: Sequence[str]) -> list[Scored]:
        responses = columns[-1]
        content = {"arm": p.arm} | dict(zip(COLUMNS, map(list, columns), strict=True))
        half = len(responses) // 2
        if half and (
            len(responses) > RESPONSES or len(json.dumps(content)) > BODY_BYTES
        ):
            first, second = ([c[:half] for c in columns], [c[half:] for c in columns])
            return score(*first) + score(*second)

        def read(reply: Any) -> list[Scored]:
            rows = map(Row.model_validate, reply)
            return [
                Scored(row.reward, parts(response), row.supports, row.wins)
                for row, response in zip(rows, responses, strict=True)
            ]

        return client.ask(content, read, PATIENCE_S) if responses else []

    return score
