"""What a policy does with claims when it searches: greedy rollouts, for evaluation."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit import models
from factkit.rewards import token_mapping
from factkit.train import launch
from factkit.veri.claims import searcher
from factkit.veri.evaluate import Verified, write_verified
from factkit.veri.search_rollout import Rollout, encode_prompts, rollouts
from factkit.veri.search_sampling import Generate, with_engine, with_model
from factkit.verify.trajectory import LABELS, answer_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from factkit.veri.arms import VeriParams

ANSWER = "<answer>"
_LABELS = "|".join(LABELS).replace(" ", r"\s+")
LABEL = re.compile(rf"^[^\S\n]*label\s*:\s*({_LABELS})", re.IGNORECASE | re.MULTILINE)


@launch.distributed
def play(
    policy: str, rows: Sequence[dict[str, Any]], folder: Path, p: "VeriParams"
) -> Path:
    """The greedy trajectories of the policy in the folder `policy`, in a file.

    rows: `prompt` and the fields of `Verified` that a claim has. Returns
    folder/verified.jsonl, as `read_verified` reads it; skipped if it is there.
    """
    path = folder / "verified.jsonl"
    if path.exists():
        return path
    search = searcher(p)
    with _player(policy, p) as (tokenizer, generate, model):
        ids = encode_prompts([row["prompt"] for row in rows], tokenizer, p)
        made = rollouts(ids, generate, search, tokenizer, p)
        if model is not None:
            add_logprobs(made, model, tokenizer, p.eval_batch_size)
    claims = [{k: v for k, v in row.items() if k != "prompt"} for row in rows]
    write_verified(
        path,
        [
            Verified(
                **claim,
                trajectory=r.turns,
                label_probability=label_probability(r, tokenizer),
            )
            for claim, r in zip(claims, made, strict=True)
        ],
    )
    return path


@contextmanager
def _player(
    policy: str, p: "VeriParams"
) -> Iterator[tuple["PreTrainedTokenizerBase", Generate, "PreTrainedModel | None"]]:
    """The policy's tokenizer, who samples greedily, and the model if that is none of
    vLLM's, which gives log-probabilities itself."""
    sampling = models.sampling_of(p)
    if sampling.vllm is None:
        model, tokenizer = models.load_policy(policy, p.dtype)
        yield tokenizer, with_model(model, tokenizer, sampling), model
        return
    with models.engine(policy, 0, sampling.vllm) as (llm, adapter):
        yield llm.get_tokenizer(), with_engine(llm, sampling, adapter), None


def add_logprobs(
    made: Sequence[Rollout],
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    batch_size: int,
) -> None:
    """Fill in the log-probabilities of sampled tokens, at temperature 1, in place."""
    prompts, completions = [r.prompt for r in made], [r.ids for r in made]
    logps = models.token_logps(model, tokenizer, prompts, completions, batch_size)
    for rollout, row in zip(made, logps, strict=True):
        both = zip(row.tolist(), rollout.env_mask, strict=True)
        rollout.logprobs = [p if mask else 0.0 for p, mask in both]


def label_probability(
    rollout: Rollout, tokenizer: "PreTrainedTokenizerBase"
) -> float | None:
    """The probability of the label that the policy wrote, given all before it (§4.3).

    The product over the label's tokens; None if there is no readable label.
    """
    label = answer_of(rollout.turns).label
    if label is None:
        return None
    text, offsets = token_mapping.offsets_of(rollout.ids, tokenizer)
    begin = text.rfind(ANSWER) + len(ANSWER)
    written = LABEL.search(text[begin:])
    if not written:
        return None
    start, end = (begin + at for at in written.span(1))
    steps = zip(rollout.logprobs, offsets, strict=True)
    own = [p for p, (a, b) in steps if a < end and b > start]
    return math.exp(sum(own))
