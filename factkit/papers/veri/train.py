"""Training and evaluating the arms of Veri-R1 (§2, §3.2, App. B, H)."""

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
from factkit.papers.veri.search_rollout import Rollout, format_prompts, tokenize_prompts
from factkit.policy import models
from factkit.policy.policy import load_policy
from factkit.run import runs
from factkit.train import grpo, offline
from factkit.verify.trajectory import Turn, is_forced, parse_answer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

NOTEBOOK = "52_veri_train"
_LABELS = "|".join(LABELS).replace(" ", r"\s+")
LABEL_LINE = re.compile(rf"^[^\S\n]*label\s*:\s*({_LABELS})", re.I | re.M)

# prompts with their trajectories, for SFT
Demonstrations = Sequence[tuple[str, list[Turn]]]
Evidence = Mapping[str, Sequence[Chunk]]  # claim id → the texts of its offline prompt


# ---- the policies that training starts from


def policy_of(p: Veri) -> str:
    """The path of the arm's untrained policy: in the fact world one that is pretrained
    on claims, searches and entries, else the policy that p names."""
    return base_policy(ARMS[p.arm].configure(p))


def start_of(p: Veri, demonstrations: Demonstrations, inputs: Sequence[Path]) -> str:
    """The path of the model from which RL starts: the instruct model (App. H).

    With p.cold_start it is the SFT model of the same seed, which is trained here if
    that run is not done: a small policy does not keep the protocol by itself (ours).
    """
    if not p.cold_start:
        return policy_of(p)
    cold = p.model_copy(update={"arm": "sft"})
    with runs.start(NOTEBOOK, cold, inputs, VeriSftParams, wait=True) as run:
        return str(_sft(policy_of(cold), demonstrations, run.folder, cold))


# ---- training


def train_arm(
    p: Veri,
    start: str,
    train: Sequence[Example],
    evidence: Evidence,
    demonstrations: Demonstrations,
    folder: Path,
) -> Path:
    """Train the arm `p.arm` from the policy `start`; returns the policy's folder."""
    if p.arm == "sft":
        return _sft(start, demonstrations, folder, p)
    arm_p = ARMS[p.arm].configure(p)
    rows = prompt_rows(train, evidence, arm_p)
    rollout = search_rollout.rollout_function if arm_p.online else None
    return grpo.grpo(start, rows, rewards.reward_function, folder, arm_p, rollout)


def prompt_rows(train: Sequence[Example], evidence: Evidence, p: Veri) -> list[dict]:
    """Rows for GRPO: prompts and what the reward needs. p: with the arm's changes."""
    if p.online:
        prompts = format_prompts(train, p.prompt_template)
    else:
        prompts = format_prompts(train, p.offline_template, evidence)
    return [
        {
            "prompt": [{"role": "user", "content": prompt}] if p.chat else prompt,
            "set": e.meta["set"],
            "label": e.label,
            "evidence": e.evidence,
        }
        for prompt, e in zip(prompts, train, strict=True)
    ]


def _sft(
    start: str, demonstrations: Demonstrations, folder: Path, p: VeriSftParams
) -> Path:
    """SFT on the policy's own turns: what a search returns is in no loss."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(start)
    prompts = tokenize_prompts([text for text, _ in demonstrations], tokenizer, p.chat)
    rows = [
        search_rollout.sft_row(ids, turns, tokenizer, p.max_observation_length)
        for ids, (_, turns) in zip(prompts, demonstrations, strict=True)
    ]
    return offline.sft(start, rows, folder, p)


def select_checkpoint(
    p: Veri, dev: Sequence[Example], evidence: Evidence, folder: Path
) -> tuple[Path, dict[int, float]]:
    """The offline RL policy with the highest validation accuracy (App. H), the last of
    equal ones; and the accuracy at each kept update.

    The accuracy is that of the labels, greedily and with the evidence given, as the
    policy is trained: the paper does not say, its public code does so. An answer that
    the system had to open, after a search, has no label. The other policies are
    deleted.
    """
    steps = ARMS[p.arm].configure(p).kept_steps
    paths = {step: folder / f"model-{step}" for step in steps[:-1]}
    paths[steps[-1]] = folder / "model"
    changes = {"max_searches": 0, "max_prompt_length": p.max_context_length}
    offline_p = p.model_copy(update=changes)
    prompts, accuracy = format_prompts(dev, p.offline_template, evidence), {}
    for step, path in paths.items():
        records = folder / f"validation_{step}"  # kept
        rows = evaluate_policy(path, dev, records, offline_p, prompts)
        correct = [
            r.right(r.answer.label) and not is_forced(r.trajectory) for r in rows
        ]
        accuracy[step] = sum(correct) / len(correct)
    best = max(accuracy, key=lambda step: (accuracy[step], step))
    for step in set(steps[:-1]) - {best}:
        shutil.rmtree(paths[step], ignore_errors=True)
    return paths[best], accuracy


# ---- evaluation


def evaluate_policy(
    policy: str | Path,
    examples: Sequence[Example],
    folder: Path,
    p: VeriParams,
    prompts: Sequence[str] = (),
) -> list[Verified]:
    """Verify claims with a policy, greedily and with the search (§3.2).

    The records are kept in folder/verified.jsonl. prompts: by default those of a policy
    that searches.
    """
    path = folder / "verified.jsonl"
    if path.exists():
        return read_rows(path, Verified)
    search, loaded = search_rollout.load_search(p), load_policy(str(policy), p)
    generate = search_rollout.with_policy(loaded, loaded.greedy)
    tokenizer = loaded.tokenizer
    prompts = prompts or format_prompts(examples, p.prompt_template)
    ids = tokenize_prompts(prompts, tokenizer, p.chat)
    sets, limits = [e.meta["set"] for e in examples], search_rollout.limits_of(p)
    batch = search_rollout.run_rollouts(ids, generate, search, tokenizer, limits, sets)
    probabilities = [label_probability(rollout, tokenizer) for rollout in batch]
    rows = of_examples(examples, [r.turns for r in batch], probabilities)
    write_rows(path, map(vars, rows))
    return read_rows(path, Verified)


def label_probability(rollout: Rollout, tokenizer: "Tokenizer") -> float | None:
    """The probability of the label that the policy wrote, given all before it (§4.3).

    The product over the label's tokens; None if there is no readable label.
    """
    if parse_answer(rollout.turns).label is None:
        return None
    text, offsets = models.decode_with_offsets(rollout.ids, tokenizer)
    begin = text.rfind("<answer>") + len("<answer>")
    label = LABEL_LINE.search(text[begin:])
    if not label:
        return None
    start, end = (begin + place for place in label.span(1))
    steps = zip(rollout.logprobs, offsets, strict=True)
    return math.exp(sum(p for p, (a, b) in steps if a < end and b > start))


# ---- files and rows between the notebooks


def sft_examples(
    train: Sequence[Example],
    records: Sequence[Verified],
    evidence: Evidence,
    p: VeriSftParams,
) -> list[tuple[str, list[Turn]]]:
    """The claims' prompts with their trajectories, for SFT. records: the trajectories.

    Where RL starts from the SFT model (`p.cold_start`), every other trajectory is made
    an offline one, since arm offline_rl starts from it, too (ours): its last thought
    and its answer, as for a prompt with the evidence (Fig 10), unless it cites what
    that prompt does not hold.
    """
    by_id = {row.id: row.trajectory for row in records}
    claims = [e for e in train if e.id in by_id]
    prompts = format_prompts(claims, p.prompt_template)
    rows = [(prompt, by_id[e.id]) for prompt, e in zip(prompts, claims, strict=True)]
    if not p.cold_start:
        return rows
    offline_prompts = format_prompts(claims, p.offline_template, evidence)
    for i in range(1, len(rows), 2):
        turns = rows[i][1]
        answer = parse_answer(turns)
        _, think, rest = turns[-1].text.rpartition("<think>")
        ids = {piece.id for piece in evidence[claims[i].id]}
        if think and answer.label and ids.issuperset(answer.evidence):
            rows[i] = (offline_prompts[i], [Turn(think + rest, by_model=True)])
    return rows


@dataclass(frozen=True)
class _EvidenceRow:
    id: str
    texts: list[Chunk]


def write_offline_evidence(path: Path, evidence: Evidence) -> None:
    """Write JSON lines {id, texts}, a claim a line."""
    rows = (_EvidenceRow(name, list(texts)) for name, texts in evidence.items())
    write_rows(path, map(asdict, rows))


def read_offline_evidence(path: Path) -> dict[str, list[Chunk]]:
    """Read what `write_offline_evidence` wrote."""
    return {row.id: row.texts for row in read_rows(path, _EvidenceRow)}
