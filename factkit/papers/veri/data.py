"""Veri-R1's data: claims to train on, to choose by and to test on, the texts of an
offline prompt, and the trajectories that SFT learns from.

No entity is in two splits. Labels are balanced, except in the published training file,
of which each claim is used once. `meta["set"]` of a claim names its benchmark.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.answers.verifier import judge_of
from factkit.data import assets
from factkit.data.corpus import Chunk
from factkit.data.entries import page_of, split_entry
from factkit.data.examples import Example, read_rows, write_rows
from factkit.data.search import Search
from factkit.data.splits import Sets, split_by_entity
from factkit.facts.source import open_source
from factkit.papers.veri import benchmarks, search_rollout
from factkit.papers.veri.arms import VeriParams
from factkit.papers.veri.evaluate import Verified, of_examples
from factkit.papers.veri.search_rollout import format_prompts, tokenize_prompts
from factkit.policy.decoding import Sampling
from factkit.policy.models import apply_chat_template
from factkit.policy.policy import Policy
from factkit.run.params import ROOT
from factkit.run.progress import progress_bar
from factkit.verify.trajectory import Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

# the published files in p.claims_path, at the paths of their repository
PUBLISHED = "example/train/train_online.parquet"
EVALUATION = "example/evaluation/{set}.parquet"


def claim_sets(p: VeriParams) -> tuple[Sets, list[Chunk], Counter]:
    """train, dev and test claims, what is searched, and counts of dropped claims."""
    sizes = {"train": p.train_claims, "dev": p.dev_claims, "test": p.test_claims}
    if p.claims == "feverous_exfever":
        return published_sets(ROOT / p.claims_path, p.eval_sets.split(), sizes)
    source = open_source(p.claims, p)
    return source.claim_sets(sizes), source.entries(), source.dropped()


def published_sets(
    folder: Path, eval_sets: Sequence[str], sizes: Mapping[str, int]
) -> tuple[Sets, list[Chunk], Counter]:
    """The paper's claims, from its published files in `folder` (App. E).

    A claim that shares an entity with a test claim, or whose evidence is not in the
    corpus, is not trained on. Each evaluation set gives sizes["test"] claims at most.
    The entries are those of the pages that the training evidence is from.
    """
    test = []
    for name in eval_sets:
        claims, _ = benchmarks.load(folder / EVALUATION.format(set=name))
        shuffled = random.Random(f"test {name}").sample(claims, len(claims))
        ids = {e.id for e in shuffled[: sizes["test"]]}
        test += [e for e in claims if e.id in ids]
    train, dropped = benchmarks.load(folder / PUBLISHED)
    entries = _gold_entries(folder, train)
    known = {piece.id for entry in entries for piece in split_entry(entry)}
    settled = [e for e in train if known.issuperset(e.evidence)]
    held_out = {e.entity.casefold() for e in test}
    separate = [e for e in settled if e.entity.casefold() not in held_out]
    dropped["evidence not in the corpus"] = len(train) - len(settled)
    dropped["shares an entity with a test claim"] = len(settled) - len(separate)
    splits = split_by_entity(separate, {k: sizes[k] for k in ("train", "dev")})
    return splits | {"test": test}, entries, dropped


def _gold_entries(folder: Path, examples: Sequence[Example]) -> list[Chunk]:
    """The entries of all pages that are evidence, each from its set's corpus."""
    pages: dict[str, set[str]] = {}
    for e in examples:
        corpus = benchmarks.CORPUS_OF[e.meta["set"]]
        pages.setdefault(corpus, set()).update(map(page_of, e.evidence))
    return [
        entry
        for name, wanted in pages.items()
        for entry in benchmarks.entries(name, folder / name, wanted)
    ]


def training_prompts(
    p: VeriParams, examples: Sequence[Example], policy: Policy
) -> list[str]:
    """The prompts of training claims, for a policy that searches."""
    prompts = format_prompts(examples, p.prompt_template)
    return apply_chat_template(policy.tokenizer, prompts) if p.chat else prompts


# ---- the texts of an offline prompt


def offline_evidence(
    examples: Sequence[Example],
    entries: Sequence[Chunk],
    search: Search,
    context_entries: int,
) -> dict[str, list[Chunk]]:
    """Claim id → its gold evidence and what a search for the claim finds, shuffled:
    "contextual sentences" (§2.2).

    context_entries: how many entries are searched for beside the gold.
    """
    wanted = {i for e in examples for i in e.evidence}
    pieces = {
        c.id: c for entry in entries for c in split_entry(entry) if c.id in wanted
    }
    hits: list[list[Chunk]] = [[] for _ in examples]
    if context_entries:
        sets = [e.meta["set"] for e in examples]
        hits = search([e.question for e in examples], context_entries, sets)
    evidence = {}
    for example, others in zip(examples, hits, strict=True):
        gold = [pieces[i] for i in example.evidence]
        context = [c for entry in others for c in split_entry(entry)]
        mixed = list({c.id: c for c in [*context, *gold]}.values())
        random.Random(f"given {example.id}").shuffle(mixed)
        evidence[example.id] = mixed
    return evidence


def fit_evidence(
    evidence: dict[str, list[Chunk]],
    examples: Sequence[Example],
    tokenizer: "Tokenizer",
    p: VeriParams,
) -> int:
    """Remove texts beside the gold from `evidence` until each prompt and a turn fit
    p.max_context_length: an engine refuses longer ones. Returns how many."""
    room, removed = p.max_context_length - p.max_completion_length, 0
    for example in examples:
        while True:
            prompts = format_prompts([example], p.offline_template, evidence)
            (ids,) = tokenize_prompts(prompts, tokenizer, p.chat)
            texts = evidence[example.id]
            others = [c for c in texts if c.id not in example.evidence]
            if len(ids) <= room or not others:
                break
            evidence[example.id] = [c for c in texts if c is not others[-1]]
            removed += 1
    return removed


# ---- trajectories for SFT


def sft_trajectories(
    p: VeriParams, train: Sequence[Example], search: Search, folder: Path
) -> list[list[Turn]]:
    """Trajectories for claims, by a model behind p.judge_url or by a script.

    A model's (App. H: GPT-4o's) are greedy rollouts like the policy's own,
    p.eval_batch_size at a time, kept in `folder`: a killed run continues.
    """
    llm = judge_of(p)
    if llm is None:
        return script_trajectories(p, train, search)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(p.judge_model))
    sampling = Sampling(p.max_completion_length)
    generate = search_rollout.with_server(llm.endpoint, sampling)
    limits = search_rollout.limits_of(p)
    path, size = folder / "trajectories.part.jsonl", p.eval_batch_size
    done = read_rows(path, Verified) if path.exists() else []
    with progress_bar(len(train), "trajectories", " claims") as bar:
        for start in range(0, len(train), size):
            batch = train[start : start + size]
            if start >= len(done):
                prompts = format_prompts(batch, p.prompt_template)
                ids = tokenize_prompts(prompts, tokenizer, p.chat)
                sets = [e.meta["set"] for e in batch]
                rollouts = search_rollout.run_rollouts(
                    ids, generate, search, tokenizer, limits, sets
                )
                done += of_examples(batch, [r.turns for r in rollouts])
                write_rows(path, map(vars, done))
            bar.update(len(batch))
    return [row.trajectory for row in done]


def script_trajectories(
    p: VeriParams, examples: Sequence[Example], search: Search
) -> list[list[Turn]]:
    """The trajectories of the source's script (ours: the paper's are GPT-4o's)."""
    rng = random.Random(f"scripted {p.world_seed}")
    source = open_source(p.verifier, p)

    def find(query: str) -> list[Chunk]:
        return search([query], p.retrieved_entries)[0]

    return [source.write_trajectory(e.question, find, rng) for e in examples]
