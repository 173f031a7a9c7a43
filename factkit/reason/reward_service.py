"""The reward service: Learning to Reason's rewards for training that runs elsewhere.

The verifier's machines stand behind a web server, to which the training workers send
their responses (App. B). A reply holds what `reward_client` makes `reason.scored` of,
so that a run by URL is the run in process.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from factkit import runs, serving
from factkit.datasets.examples import DataError, read_examples
from factkit.reason import reward_client
from factkit.reason.reward_client import TOKEN_VARIABLE
from factkit.reason.rewards import WEIGHTS, scored

if TYPE_CHECKING:
    from fastapi import FastAPI

    from factkit.reason.arms import ReasonParams
    from factkit.reason.preference import Engine


class Request(BaseModel):
    """Responses to be scored, with their prompts and the prompts' ids."""

    arm: Literal[tuple(WEIGHTS)]
    ids: serving.Texts
    prompts: serving.Texts
    responses: serving.Texts


def serve(p: "ReasonParams", host: str, port: int) -> None:
    """Serve the rewards of p's verifier until SIGTERM or an interrupt; port 0: any.

    Requests under way are answered before it ends. Raises ParamError on an address that
    can't be had or needs a token, DataError without the paper's data.
    """
    from factkit.reason import preference

    token = serving.environment_token(TOKEN_VARIABLE)
    listening = serving.bound(host, port, token, TOKEN_VARIABLE)
    data = runs.run_folder(p.data_notebook, p)
    ids = {e.id for s in p.splits for e in read_examples(data / f"{s}.jsonl")}
    about = {"paper": "reason", "profile": p.profile, "variant": p.variant}
    at_once = 4 if p.verifier == "judge" else 1  # exact readers take all cores
    rewards = service(preference.engine_of(p), ids, about, token, at_once)
    print(f"rewards at {host}, port {listening.getsockname()[1]}", flush=True)
    serving.run(rewards, listening)


def service(
    engine: "Engine",
    ids: Collection[str],
    about: dict[str, str],
    token: str,
    at_once: int = 1,
) -> "FastAPI":
    """Scores responses on an engine. ids: of the prompts that it knows."""
    known = frozenset(ids)

    def rewards(request: Request) -> list[dict[str, Any]]:
        columns = [request.ids, request.prompts, request.responses]
        if len(set(map(len, columns))) > 1:
            raise DataError("ids, prompts and responses: must be of one length")
        if unknown := [i for i in request.ids if i not in known]:
            raise DataError(f"ids: {unknown[0][:100]!r} is not in the service's data")
        return [reward_client.row(s) for s in scored(request.arm, engine, *columns)]

    about = about | {"arms": list(WEIGHTS)}
    return serving.app_of("/rewards", Request, rewards, about, token, at_once)
