"""The reward service's client: rewards by URL, for `rewards.reason.trl_reward`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from factkit.verify.claims import Support
from factkit.verify.response import Reasoned, parts

if TYPE_CHECKING:
    from factkit.reason.arms import ReasonRlParams

TOKEN_VARIABLE = "FACTKIT_REWARD_TOKEN"
COLUMNS = ("ids", "prompts", "responses")  # of a request, beside its arm
RESPONSES = 512  # of a request
BODY_BYTES = 8 * 2**20  # of a request
CALL_S = 600.0  # a call's seconds: the service is silent until all is scored
PATIENCE_S = 900.0  # after which a request is not tried again


@dataclass(frozen=True)
class Scored:
    """A response's reward and what it is made of.

    parts: None if malformed; supports: of the answer's claims, None if malformed or
    failed; wins: None if malformed, failed or not asked for (μ = 0).
    """

    reward: float | None
    parts: Reasoned | None
    supports: list[Support | None] | None
    wins: bool | None


def remote(p: "ReasonRlParams") -> Callable[..., list[Scored]]:
    """(ids, prompts, responses) → what `reason.scored` gives, by p.reward_url.

    Asks in the order of the responses, no more at a time than the service takes; where
    it is busy or away, again for at most PATIENCE_S + CALL_S seconds. The token is that
    of the environment variable FACTKIT_REWARD_TOKEN, if it is set. Raises ParamError on
    a bad URL; what it returns raises ServiceError.
    """
    from factkit.http_client import Client

    client = Client(
        f"{p.reward_url.rstrip('/')}/rewards",
        "reward_url",
        "serve-rewards reason",
        TOKEN_VARIABLE,
        CALL_S,
        lasting=(500,),  # the verifier failed
    )

    def score(*columns: Sequence[str]) -> list[Scored]:
        responses = columns[-1]
        content = {"arm": p.arm} | dict(zip(COLUMNS, map(list, columns), strict=True))
        size = len(json.dumps(content))
        half = len(responses) // 2
        if half and (len(responses) > RESPONSES or size > BODY_BYTES):
            first, second = ([c[:half] for c in columns], [c[half:] for c in columns])
            return score(*first) + score(*second)

        def read(rows: list[dict[str, Any]]) -> list[Scored]:
            return [_scored(*pair) for pair in zip(rows, responses, strict=True)]

        return client.ask(content, read, PATIENCE_S) if responses else []

    return score


def row(scored: Scored) -> dict[str, Any]:
    """A response's rewards in JSON's types; the client knows its parts."""
    return {"reward": scored.reward, "supports": scored.supports, "wins": scored.wins}


def _scored(row: dict[str, Any], response: str) -> Scored:
    """What `row` was made of. Raises KeyError, TypeError or ValueError.

    The reply is strict JSON: a reward that is a number is a finite one.
    """
    reward, supports, wins = row["reward"], row["supports"], row["wins"]
    for value, types in ((reward, (int, float)), (wins, (bool,))):
        if value is not None and type(value) not in types:
            raise TypeError("a field of another type")
    return Scored(
        None if reward is None else float(reward),
        parts(response),
        supports and [None if s is None else Support(s) for s in supports],
        wins,
    )
