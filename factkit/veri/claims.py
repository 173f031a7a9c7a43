"""Veri-R1's claims: to train on, to choose by, to test on; what is searched for them.

No entity is in two splits. Labels are balanced. `meta["set"]` of a claim names the
benchmark that it is of.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import prompts, runs
from factkit.assets import write_atomically
from factkit.curate.requests import Sets, in_set, split_by_entity
from factkit.datasets.examples import Example
from factkit.leads import facts
from factkit.leads.claims import LeadClaims
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.chunks import Chunk, listed
from factkit.retrieval.entries import page_of, shown
from factkit.search import Search, in_process, over_http
from factkit.veri import benchmarks as claim_benchmarks
from factkit.veri import claim_filter
from factkit.veri import corpora as claim_corpora
from factkit.verify.verifier import judge_llm
from factkit.world import facts as world
from factkit.world.facts import LABELS
from factkit.world.trajectories import marked, marking, world_entries

if TYPE_CHECKING:
    from factkit.veri.arms import VeriParams

# in p.claims_path: the published training file; sets to train on without it, and how
# many claims a label of each (App. E); a set's training and development file
PUBLISHED = "train_online.parquet"
TRAINED_ON, POOL = ("feverous", "exfever"), 3_000
FILES = {
    "feverous": ("feverous_train_challenges.jsonl", "feverous_dev_challenges.jsonl"),
    "exfever": ("exfever_train.csv", "exfever_dev.csv"),
    "fever": ("train.jsonl", "paper_dev.jsonl"),
    "scifact": ("claims_train.jsonl", "claims_dev.jsonl"),
    "hover": ("hover_train_release_v1.1.json", "hover_dev_release_v1.1.json"),
}


def claim_sets(p: "VeriParams") -> tuple[Sets, list[Chunk], Counter]:
    """train, dev and test claims, what is searched, and counts of what was dropped."""
    sizes = {"train": p.train_claims, "dev": p.dev_claims, "test": p.test_claims}
    if p.claims == "feverous_exfever":
        return benchmark_sets(p)
    if p.claims == "leads":
        claims = LeadClaims(facts.load(), p.world_seed)
        return claims.sets(sizes), claims.entries(), Counter()
    made = world.build_world(people=p.world_people, seed=p.world_seed)
    return world_sets(made, sizes), world_entries(made), Counter()


def world_sets(made: world.World, sizes: Mapping[str, int]) -> Sets:
    """Claims about the fact world's people, labels and hops in turn in each split."""
    rng = random.Random(f"claim sets {made.seed}")
    people = rng.sample(made.people, len(made.people))
    sets, begin, total = {}, 0, 0
    for name, size in sizes.items():
        total += size
        end = round(len(people) * total / sum(sizes.values()))
        part = world.World(made.seed, tuple(people[begin:end]), made.facts)
        sets[name] = [in_set(e, "world") for e in world.claims(part, size, made.seed)]
        begin = end
    return sets


def benchmark_sets(p: "VeriParams") -> tuple[Sets, list[Chunk], Counter]:
    """The paper's claims, from the files of `FILES` in p.claims_path (App. E).

    The entries are those of the evidence's pages: what is searched is behind
    p.search_url. Training claims are the published ones, or, without that file, those
    of FEVEROUS and EX-FEVER that an LLM verifies offline without a fault. Test claims
    are the published ones, or as many of each label. What shares an entity with a test
    claim is not trained on.
    """
    folder, dropped = Path(p.claims_path), Counter()
    test = [e for name in p.eval_sets.split() for e in _test_set(folder, name, p)]
    held_out = {e.entity.casefold() for e in test}
    if (folder / PUBLISHED).exists():
        train, counts = claim_benchmarks.load("veri_r1", str(folder / PUBLISHED))
        entries = gold_entries(folder, [*train, *test])
    else:
        pool = []
        for name in TRAINED_ON:
            claims, counts = claim_benchmarks.load(name, str(folder / FILES[name][0]))
            pool += claim_benchmarks.balanced(claims, POOL)
            dropped += counts
        entries = gold_entries(folder, [*pool, *test])
        train, counts = _filtered(pool, entries, p)
    dropped += counts
    own = [e for e in train if e.entity.casefold() not in held_out]
    dropped["shares an entity with a test claim"] = len(train) - len(own)
    sizes = {"train": p.train_claims, "dev": p.dev_claims}
    return split_by_entity(own, sizes) | {"test": test}, entries, dropped


def _test_set(folder: Path, name: str, p: "VeriParams") -> list[Example]:
    published = folder / "evaluation" / f"{name}.parquet"
    if published.exists():
        return claim_benchmarks.load("veri_r1", str(published))[0]
    claims, _ = claim_benchmarks.load(name, str(folder / FILES[name][1]))
    labels = [label for label in LABELS if any(e.label == label for e in claims)]
    return claim_benchmarks.balanced(claims, p.test_claims // len(labels), 0, labels)


def _filtered(
    pool: Sequence[Example], entries: Sequence[Chunk], p: "VeriParams"
) -> tuple[list[Example], Counter]:
    """The claims that the judge verifies without a fault (App. E)."""
    pages: dict[str, list[Chunk]] = {}
    for entry in entries:
        pages.setdefault(entry.doc_id, []).append(entry)
    llm = judge_llm(p, p.judge_model, p.judge_url)
    return claim_filter.keep_verified(pool, claim_filter.in_context(pages), llm)


def gold_entries(folder: Path, examples: Sequence[Example]) -> list[Chunk]:
    """The entries of all pages that are evidence, from the corpora that there are."""
    pages = {page_of(i) for e in examples for i in e.evidence}
    return [
        entry
        for name in claim_corpora.CORPORA
        if (folder / name).exists()
        for entry in claim_corpora.entries(name, str(folder / name))
        if entry.doc_id in pages
    ]


# ---- what is searched


def write_entries(path: Path, entries: Sequence[Chunk]) -> None:
    """Write entries as JSON lines, byte-equal for equal entries."""
    _write_lines(path, map(asdict, entries))


def read_entries(path: Path) -> list[Chunk]:
    """The entries that `write_entries` wrote."""
    return [Chunk(**row) for row in _read_lines(path)]


def _write_lines(path: Path, rows: Iterable[dict]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomically(path, "".join(lines))


def _read_lines(path: Path) -> list[dict]:
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def searcher(p: "VeriParams") -> Search:
    """What a policy searches with: the service at p.search_url, or BM25 over the
    entries that the data run wrote."""
    if p.search_url:
        return over_http(p.search_url)
    folder = runs.run_folder(p.data_notebook, p)
    entries = read_entries(folder / "entries.jsonl")
    search = in_process(CorpusIndex(entries))
    return marking(search) if p.claims == "world" else search


# ---- prompts


def asked(examples: Sequence[Example], p: "VeriParams") -> list[str]:
    """Each claim's prompt for a policy that searches (Fig 9)."""
    text = prompts.template(p.prompt_template)
    return [prompts.fill(text, claim=e.question) for e in examples]


def asked_offline(
    examples: Sequence[Example], given: Mapping[str, Sequence[Chunk]], p: "VeriParams"
) -> list[str]:
    """Each claim's prompt with its evidence among other texts (Fig 10)."""
    text = prompts.template(p.offline_template)
    return [
        prompts.fill(text, claim=e.question, evidence=listed(given[e.id]))
        for e in examples
    ]


def given_offline(
    examples: Sequence[Example],
    entries: Sequence[Chunk],
    search: Search,
    p: "VeriParams",
) -> dict[str, list[Chunk]]:
    """Claim id → its gold evidence and what a search for the claim finds, in a random
    order: "contextual sentences" (§2.2). At least p.context_entries are searched for.
    """
    wanted = {i for e in examples for i in e.evidence}
    pieces = {c.id: c for entry in entries for c in shown(entry) if c.id in wanted}
    hits = [[] for _ in examples]
    if p.context_entries:
        hits = search([e.question for e in examples], p.context_entries)
    given = {}
    for example, others in zip(examples, hits, strict=True):
        gold = {i: pieces[i] for i in example.evidence}
        if p.claims == "world":
            texts = {i: marked(c.text, example.question) for i, c in gold.items()}
            gold = {i: replace(c, text=texts[i]) for i, c in gold.items()}
        context = {c.id: c for entry in others for c in shown(entry)}
        mixed = list((context | gold).values())
        random.Random(f"given {example.id}").shuffle(mixed)
        given[example.id] = mixed
    return given


def write_given(path: Path, given: Mapping[str, Sequence[Chunk]]) -> None:
    """Write JSON lines {id, texts}, a claim a line."""
    rows = ({"id": i, "texts": list(map(asdict, c))} for i, c in given.items())
    _write_lines(path, rows)


def read_given(path: Path) -> dict[str, list[Chunk]]:
    """What `write_given` wrote."""
    return {r["id"]: [Chunk(**c) for c in r["texts"]] for r in _read_lines(path)}
