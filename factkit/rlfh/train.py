"""RLFH's arms: what each one trains, on what, and by which algorithm (§3.2.2, §4.1)."""

from collections.abc import Sequence
from pathlib import Path

from factkit.curate import drawn
from factkit.curate.drawn import Drawn
from factkit.datasets.examples import Example
from factkit.rlfh import rewards
from factkit.rlfh.arms import ARMS, Rlfh
from factkit.train import offline

JUDGES = {"world": "the fact world itself", "leads": "an exact reader of leads' facts"}


def deviations(p: Rlfh) -> list[str]:
    """What differs from the paper and is no parameter, as sentences."""
    judge = JUDGES.get(p.verifier, f"the annotator, {p.judge_model}")
    sentences = [
        "f, g, their weights and the trainer's values are not in the paper: ours, or "
        "its public code's",
        f"evaluation is by {judge}, not by GPT-4 (§4.1)",
        "claims and FactScore are of all responses that state something; the paper's "
        "pipeline leaves out those with words of refusal, too (§4.2)",
        "Fig 4 to 8 are of the test questions, not of 5,000 others of HotpotQA (§4.3)",
    ]
    if p.requests == "hotpotqa":
        sentences += [
            "which questions, and which pages of SQuADv2, is not stated: drawn"
        ]
    else:
        sentences += ["test sets of our own in place of SQuADv2 and Biography (§4.1)"]
    if p.verifier != "world":
        when = "once, before training (§3.1.2)"
        sentences += [f"a question's pages are searched for {when}"]
    if p.requests == "hotpotqa" and p.search_url:
        sentences += ["pages of the web, not of Wikipedia of April 2023 (§4.1)"]
    if p.verifier == "judge":
        sentences += ["prompts say in our own words what Tables 4 to 7 say"]
    if p.lora_rank:
        lora = f"LoRA of rank {p.lora_rank}"
        sentences += [f"{lora}; the public code trains all parameters"]
    if p.profile in ("tiny", "laptop"):
        sentences += ["learning rates and steps of a small model"]
    if p.arm == "dpo":
        sentences += ["FACT's hyper-parameters are not in the paper: ours"]
    elif p.arm == "statement_group":
        sentences += ["advantages relative to the group in place of a value head"]
    elif p.arm != "base":
        sentences += [
            f"{p.num_generations} responses a question in a rollout, and a value "
            "head on the policy; the public code: one, and a model of its own"
        ]
    return sentences


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
        rows = drawn.required(drawn.gap_pairs(train, answers, p), p)
        return offline.dpo(start, rows, folder, p)
    from factkit.rlfh.token_trainer import token_level

    rows = drawn.asked_rows(train, p)
    how = p.model_copy(update=ARMS[p.arm].changes)
    return token_level(start, rows, rewards.reward_function, folder, how)
