"""The reward service: Learning to Reason's rewards for training that runs elsewhere.

The verifier's machines stand behind a web server, to which the training workers send
their responses (App. B). A reply holds what `reward_client` makes `reason.scored` of,
so that a run by URL is the run in process.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from factkit import runs, serving
from factkit.datasets.examples import DataError, read_examples
from factkit.reason import reward_client
from factkit.reason.reward_client import COLUMNS, TOKEN_VARIABLE
from factkit.reason.rewards import WEIGHTS, scored
from factkit.serving import refuse

if TYPE_CHECKING:
    from factkit.reason.arms import ReasonParams
    from factkit.reason.preference import Engine


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
    # models in process take all cores for one request, and not all of them bear threads
    elsewhere = p.verifier == "judge" and p.judge_url != "local"
    limits = serving.Limits(at_once=4 if elsewhere else 1, waiting=64)
    about = {"paper": "reason", "profile": p.profile, "variant": p.variant}
    rewards = service(preference.engine_of(p), ids, about, token, limits)
    print(f"rewards at {host}, port {listening.getsockname()[1]}", flush=True)
    rewards.run(listening)


def service(
    engine: "Engine",
    ids: Collection[str],
    about: dict[str, str],
    token: str,
    limits: serving.Limits,
) -> serving.Service:
    """Scores responses on an engine. ids: of the prompts that it knows."""
    known = frozenset(ids)

    def rewards(content: dict[str, Any]) -> list[dict[str, Any]]:
        arm = content.get("arm")
        if not isinstance(arm, str) or arm not in WEIGHTS:
            refuse(422, f"arm: must be one of {', '.join(WEIGHTS)}")
        columns = [serving.strings(content, name) for name in COLUMNS]
        lengths = [len(column) for column in columns]
        if len(set(lengths)) > 1:
            refuse(422, f"{', '.join(COLUMNS)}: must be of one length, not {lengths}")
        if unknown := [i for i in columns[0] if i not in known]:
            refuse(422, f"ids: {unknown[0][:100]!r} is not in the service's data")
        try:
            return [reward_client.row(s) for s in scored(arm, engine, *columns)]
        except DataError as error:  # a prompt without evidence
            refuse(422, str(error))

    about = about | {"arms": list(WEIGHTS)}
    return serving.Service("/rewards", rewards, about, token, TOKEN_VARIABLE, limits)
