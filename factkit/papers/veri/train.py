"""Veri-R1's arms: what each one trains, on what, and from where (§2, App. B, H); and
what a policy then does with claims."""

import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.data.corpus import Chunk
from factkit.data.examples import LABELS, Example, read_rows, write_rows
from factkit.facts.policy import base_policy
from factkit.papers.veri import rewards, search_rollout
from factkit.papers.veri.arms import ARMS, Veri, VeriParams, VeriSftParams
from factkit.papers.veri.evaluate import Verified, of_examples
from factkit.papers.veri.search_rollout import Rollout, asked
from factkit.policy import models
from factkit.policy.vllm_engine import VllmEngine
from factkit.run import runs
from factkit.train import grpo, offline
from factkit.verify.trajectory import Turn, answer_of, forced

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

NOTEBOOK = "52_veri_train"
_LABELS = "|".join(LABELS).replace(" ", r"\s+")
LABEL_LINE = re.compile(rf"^[^\S\n]*label\s*:\s*({_LABELS})", re.I | re.M)

Shown = Sequence[tuple[str, list[Turn]]]  # prompts with their trajectories, for SFT
Given = Mapping[str, Sequence[Chunk]]  # claim id → what an offline prompt gives


# ---- the policies that training starts from, and what an arm changes


def policy_of(p: Veri) -> str:
    """Where the arm's untrained policy is loaded from: of the fact world, one that has
    read of claims, searches and entries; else the one that is named."""
    if p.arm == "larger":
        own = {"policy": p.larger_policy, "pretrain_hidden_size": p.larger_hidden_size}
        p = p.model_copy(update=own)
    return base_policy(p)


def start_of(p: Veri, shown: Shown, inputs: Sequence[Path]) -> str:
    """The model from which RL starts: the instruct model (App. H), or with
    `cold_start` the SFT model of the same seed, which is trained here if that run is
    not done: a small policy keeps no protocol by itself (ours)."""
    if not p.cold_start:
        return policy_of(p)
    cold = p.model_copy(update={"arm": "sft"})
    with runs.start(NOTEBOOK, cold, inputs, VeriSftParams, wait=True) as run:
        return str(_sft(policy_of(cold), shown, run.folder, cold))


def reward_params(p: Veri) -> Veri:
    """The parameters with what the arm changes of reward and rollouts.

    Offline RL keeps its policy whenever a checkpoint is written, to be chosen from.
    """
    changes: dict[str, object] = dict(ARMS[p.arm].changes)
    if p.arm == "offline_rl":
        changes["kept_policies"] = -(-p.rl_steps // p.checkpoint_steps)
    return p.model_copy(update=changes)


# ---- training


def train_arm(
    p: Veri,
    start: str,
    train: Sequence[Example],
    given: Given,
    shown: Shown,
    folder: Path,
) -> Path:
    """Train the arm `p.arm` from the policy `start`; the policy's folder."""
    if p.arm == "sft":
        return _sft(start, shown, folder, p)
    how = reward_params(p)
    rows = prompt_rows(train, given, how)
    rollout = search_rollout.rollout_function if how.online else None
    return grpo.grpo(start, rows, rewards.reward_function, folder, how, rollout)


def prompt_rows(train: Sequence[Example], given: Given, how: Veri) -> list[dict]:
    """Rows for GRPO: the prompt and what the reward needs. how: of `reward_params`."""
    prompts = asked(train, how, None if how.online else given)
    return [
        {
            "prompt": [{"role": "user", "content": prompt}] if how.chat else prompt,
            "set": e.meta["set"],
            "label": e.label,
            "evidence": e.evidence,
        }
        for prompt, e in zip(prompts, train, strict=True)
    ]


def _sft(start: str, shown: Shown, folder: Path, p: VeriSftParams) -> Path:
    """SFT on what the policy itself is to write: what a search finds is in no loss."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(start)
    rows = [
        search_rollout.sft_row(prompt, turns, tokenizer, p) for prompt, turns in shown
    ]
    return offline.sft(start, rows, folder, p)


def chosen(
    p: Veri, dev: Sequence[Example], given: Given, folder: Path
) -> tuple[Path, dict[int, float]]:
    """The policy of offline RL with the highest validation accuracy (App. H), of equal
    ones the last; and the accuracy after each of the updates that it was kept at.

    The accuracy is that of the labels, greedily and with the evidence given, as the
    policy is trained: the paper does not say, its public code has it so. An answer that
    the system had to open, after a search, has no label. The others are removed.
    """
    steps = reward_params(p).kept_steps
    paths = {step: folder / f"model-{step}" for step in steps[:-1]}
    paths[steps[-1]] = folder / "model"
    alone = {"max_searches": 0, "max_prompt_length": p.max_context_length}
    how = p.model_copy(update=alone)
    prompts, accuracy = asked(dev, p, given), {}
    for step, path in paths.items():
        rows = played(path, dev, folder / f"validation_{step}", how, prompts)
        right = [r.right(r.answer.label) and not forced(r.trajectory) for r in rows]
        accuracy[step] = sum(right) / len(right)
    best = max(accuracy, key=lambda step: (accuracy[step], step))
    for step in set(steps[:-1]) - {best}:  # what they answered is kept
        shutil.rmtree(paths[step], ignore_errors=True)
    return paths[best], accuracy


# ---- what a policy does


def played(
    policy: str | Path,
    examples: Sequence[Example],
    folder: Path,
    p: VeriParams,
    prompts: Sequence[str] = (),
) -> list[Verified]:
    """What the policy does with the claims, greedily and with the search (§3.2); kept
    in folder/verified.jsonl. prompts: by default those of a policy that searches."""
    path = folder / "verified.jsonl"
    if path.exists():
        return read_rows(path, Verified)
    sampling, search = models.sampling_of(p), search_rollout.searcher(p)
    model, tokenizer = models.policy(str(policy), p)
    generate = (
        search_rollout.with_engine(model.generate, sampling)
        if isinstance(model, VllmEngine)
        else search_rollout.with_model(model, tokenizer, sampling)
    )
    prompts = prompts or asked(examples, p)
    ids = search_rollout.prompt_tokens(prompts, tokenizer, p)
    sets = [e.meta["set"] for e in examples]
    made = search_rollout.rollouts(ids, generate, search, tokenizer, p, sets)
    sure = [label_probability(rollout, tokenizer) for rollout in made]
    rows = of_examples(examples, [r.turns for r in made], sure)
    write_rows(path, map(vars, rows))
    return read_rows(path, Verified)


def label_probability(rollout: Rollout, tokenizer: "Tokenizer") -> float | None:
    """The probability of the label that the policy wrote, given all before it (§4.3).

    The product over the label's tokens; None if there is no readable label.
    """
    if answer_of(rollout.turns).label is None:
        return None
    text, offsets = models.offsets_of(rollout.ids, tokenizer)
    begin = text.rfind("<answer>") + len("<answer>")
    written = LABEL_LINE.search(text[begin:])
    if not written:
        return None
    start, end = (begin + place for place in written.span(1))
    steps = zip(rollout.logprobs, offsets, strict=True)
    return math.exp(sum(p for p, (a, b) in steps if a < end and b > start))


# ---- what SFT is shown, and an offline prompt gives


def shown_rows(
    train: Sequence[Example],
    taught: Sequence[Verified],
    given: Given,
    p: VeriSftParams,
) -> list[tuple[str, list[Turn]]]:
    """What SFT learns from: the claims' prompts with their trajectories.

    Where RL starts from the SFT model (`p.cold_start`), every other trajectory is told
    offline, for arm offline_rl starts from it, too (ours): its last thought and its
    answer, as one that is given the evidence would write them (Fig 10), unless it cites
    what is not given.
    """
    by_id = {row.id: row.trajectory for row in taught}
    claims = [e for e in train if e.id in by_id]
    prompts = asked(claims, p)
    rows = [(prompt, by_id[e.id]) for prompt, e in zip(prompts, claims, strict=True)]
    if not p.cold_start:
        return rows
    offline = asked(claims, p, given)
    for i in range(1, len(rows), 2):
        turns = rows[i][1]
        answer = answer_of(turns)
        _, think, rest = turns[-1].text.rpartition("<think>")
        known = {piece.id for piece in given[claims[i].id]}
        if think and answer.label and known.issuperset(answer.evidence):
            rows[i] = (offline[i], [Turn(think + rest, by_model=True)])
    return rows


@dataclass(frozen=True)
class _Given:
    id: str
    texts: list[Chunk]


def write_given(path: Path, given: Mapping[str, Sequence[Chunk]]) -> None:
    """Write JSON lines {id, texts}, a claim a line."""
    write_rows(path, (asdict(_Given(i, list(texts))) for i, texts in given.items()))


def read_given(path: Path) -> dict[str, list[Chunk]]:
    """What `write_given` wrote."""
    return {row.id: row.texts for row in read_rows(path, _Given)}
