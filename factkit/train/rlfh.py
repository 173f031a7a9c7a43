"""RLFH's arms: what each one trains, on what, and by which algorithm (§3.2.2, §4.1)."""

from collections.abc import Sequence
from pathlib import Path

from factkit.curate import drawn
from factkit.curate.drawn import Drawn
from factkit.curate.probing import turn
from factkit.datasets.examples import Example
from factkit.params import Rlfh, RlfhDpoParams, RlfhParams, RlfhRlParams
from factkit.rewards import rlfh as rewards
from factkit.train import dpo, token_level

NOTEBOOK = "42_rlfh_train"


def depends_on(arm: str) -> type[RlfhParams]:
    """The parameter class whose values a run of the arm depends on."""
    match arm:
        case "base":
            return RlfhParams
        case "dpo":
            return RlfhDpoParams
    return RlfhRlParams


def deviations(p: Rlfh) -> list[str]:
    """What in a run's method differs from the paper, as sentences."""
    said = ["f, g and their weights are not in the paper: ours, or its public code's"]
    if p.requests != "hotpotqa":
        said.append(f"requests={p.requests} in place of HotpotQA")
    if p.verifier == "world":
        said.append("exact feedback of the fact world in place of Mixtral-8x7B")
    if p.verifier == "embedded":
        said.append("feedback by the kit's NLI model and rules, not Mixtral-8x7B")
    if p.arm == "statement_group":
        said.append("advantages relative to the group in place of a value head")
    if p.profile in ("tiny", "laptop"):
        said.append("learning rates and steps of a small model")
    return said


def train_arm(
    p: Rlfh,
    start: str,
    train: Sequence[Example],
    answers: Sequence[Drawn],
    folder: Path,
) -> Path:
    """Train the arm `p.arm` from the policy `start`; the policy's folder.

    answers: responses drawn from `start`, scored with FactScore, for dpo (FACT: of a
    prompt the most and the least factual one). Raises DataError if they leave no pair.
    """
    if p.arm == "dpo":
        rows = drawn.required(drawn.furthest_pairs(train, answers, p), p)
        return dpo.dpo(start, rows, folder, p)
    rows = [{"prompt": turn(e, p), "id": e.id, "question": e.question} for e in train]
    by_group = p.model_copy(update={"method": "group"})
    how = by_group if p.arm == "statement_group" else p
    return token_level.token_level(start, rows, rewards.reward_function, folder, how)
