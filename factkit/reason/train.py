"""Learning to Reason's arms: what each one trains, on what, and from where (§2, §3)."""

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from factkit import prompts, runs
from factkit.curate import drawn
from factkit.curate.drawn import Drawn
from factkit.datasets.examples import Example
from factkit.leads.policy import base_policy
from factkit.reason import reward_service, rewards
from factkit.reason.arms import Reason, ReasonSftParams
from factkit.train import grpo, offline
from factkit.verify import response

NOTEBOOK = "32_reason_train"


def deviations(p: Reason) -> list[str]:
    """What in a run differs from the paper that no parameter of its set-up says, as
    sentences."""
    of_data = {
        "synthetic": [
            f"training prompts are written by {p.judge_model} (§2.1: Llama-4-Maverick) "
            "after LongFact's concepts, and near duplicates are left out",
            "LongFact's 250, FAVA's 141 and AlpacaFarm's 241 prompts are drawn by us, "
            "the last two from those that the judge finds fact-seeking: the paper's "
            "choice is not published",
        ],
        "world": [
            "requests about people that the policy read of, whose texts it was "
            "pre-trained on together with how to think"
        ],
        "leads": ["requests about the entities of Wikipedia leads"],
    }
    sentences = of_data[p.requests]
    if prompts.template(p.reasoning_template).endswith(response.OPEN):
        sentences.append("the tags of drawn responses are written for the policy")
    if p.verifier == "world":
        sentences.append(
            "claims are exact: compared with the fact world, without evidence"
        )
    else:
        query = "the reference" if p.requests == "leads" else "the base policy's answer"
        sentences.append(
            f"evidence is searched once a request, by {query}, before training "
            f"(§3.1.2: once a claim), at most {p.pages} documents; a request with "
            f"fewer than {p.least_pages} is left out"
        )
    if p.verifier == "judge":
        wins = (
            f"win rates by {p.judge_model} in both orders, with a prompt that names "
            "its criteria, correctness among them (§4.1: GPT-4o, AlpacaEval's prompt)"
        )
        strategies = f"strategies by {p.judge_model} (§5.2: Llama-3.1-70B-Instruct)"
    else:
        sentences.append(
            "relevance in the reward is a stand-in's: at least as much about what was "
            "asked as the base policy's answer (App. G: a judge)"
        )
        wins = "win rates by the reward's own stand-in for relevance (§4.1: GPT-4o)"
        strategies = "strategies by rules (§5.2: Llama-3.1-70B-Instruct)"
    return [
        *sentences,
        "claims are read and verified as in training (App. B: by VeriScore's models)",
        "an answer without a claim has no precision, and detail 0 (not stated)",
        wins,
        strategies,
        "lengths and strategies of reasoning are those of the test requests, in words "
        "(§5.2, App. C: of 3,920 training prompts)",
        "no SFT on a response without a supported claim",
        "malformed: unless each tag stands once, in order, with nothing outside "
        "(§3.1.1 does not say how strict it is)",
        "the prompts of models and judges are ours, after the paper's rules (App. E–H)",
    ]


def sft_start(
    p: Reason,
    examples: Sequence[Example],
    answers: Sequence[Drawn],
    inputs: Iterable[Path],
) -> Path:
    """The SFT model of the same seed, from which DPO and RL start (§2.2); trained here
    if its run is not done.

    answers: responses that reason, drawn from the base policy for the examples.
    Raises DataError if none of them can be a target.
    """
    first = p.model_copy(update={"arm": "sft"})
    rows = drawn.required(drawn.best_rows(examples, answers, p), p)
    with runs.start(NOTEBOOK, first, inputs, ReasonSftParams, wait=True) as run:
        return offline.sft(base_policy(p), rows, run.folder, first)


def train_arm(
    p: Reason,
    start: Path,
    train: Sequence[Example],
    answers: Sequence[Drawn],
    folder: Path,
) -> Path:
    """Train sft_dpo or an RL arm from the SFT model `start`; the policy's folder.

    answers: responses that reason, drawn from the base policy for `train`.
    Raises DataError if they leave no pair for DPO.
    """
    if p.arm == "sft_dpo":
        rows = drawn.required(drawn.margin_pairs(train, answers, p), p)
        return offline.dpo(str(start), rows, folder, p)
    rows = drawn.asked_rows(train, p)
    return grpo.grpo(str(start), rows, reward_function, folder, p)


def reward_function(p: Reason, folder: Path) -> Callable[..., list[float | None]]:
    """The reward of `p.arm` with TRL's `reward_funcs` signature: on the engine of p, or
    by the reward service at p.reward_url."""
    if p.reward_url:
        return rewards.trl_reward(p.arm, reward_service.remote(p))
    engine = rewards.engine_of(p)
    score = functools.partial(rewards.scored, p.arm, engine)
    return rewards.trl_reward(p.arm, score)
