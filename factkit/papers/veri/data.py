"""Veri-R1's data: claims to train on, to choose by and to test on, what an offline
prompt gives, and the trajectories that SFT learns from.

No entity is in two splits. Labels are balanced but in the published training file, of
which each claim is taken once. `meta["set"]` of a claim names the
benchmark that it is of.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.answers.verifier import judge_llm, judge_of
from factkit.data import assets
from factkit.data.corpus import Chunk
from factkit.data.entries import page_of, shown
from factkit.data.examples import Example, read_rows, write_rows
from factkit.data.search import Search, over_http
from factkit.data.splits import Sets, split_by_entity
from factkit.facts.source import open_source
from factkit.papers.veri import benchmarks, search_rollout
from factkit.papers.veri.evaluate import Verified, of_examples
from factkit.papers.veri.search_rollout import asked
from factkit.policy.models import Sampling
from factkit.run.params import ROOT
from factkit.run.progress import progress_bar
from factkit.verify import judge
from factkit.verify.judge import failed_share
from factkit.verify.llm import LLM, Reply, Request
from factkit.verify.trajectory import NEI, Turn, answer_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from factkit.papers.veri.arms import VeriParams

# in p.claims_path: the published files, as their repository has them; sets to train on
# without the first, and how many claims a label of each (App. E); a set's training and
# development file
PUBLISHED = "example/train/train_online.parquet"
EVALUATION = "example/evaluation/{set}.parquet"
TRAINED_ON, POOL = ("feverous", "exfever"), 3_000
FILES = {
    "feverous": ("feverous_train_challenges.jsonl", "feverous_dev_challenges.jsonl"),
    "exfever": ("exfever_train.csv", "exfever_dev.csv"),
    "fever": ("train.jsonl", "paper_dev.jsonl"),
    "scifact": ("claims_train.jsonl", "claims_dev.jsonl"),
    "hover": ("hover_train_release_v1.1.json", "hover_dev_release_v1.1.json"),
}
REPLY_TOKENS = 512  # Table 4
MISSING = "evidence not in the corpus"


def claim_sets(p: "VeriParams") -> tuple[Sets, list[Chunk], Counter]:
    """train, dev and test claims, what is searched, and counts of what was dropped."""
    sizes = {"train": p.train_claims, "dev": p.dev_claims, "test": p.test_claims}
    if load := LOADERS.get(p.claims):
        return load(p)
    source = open_source(p.claims, p)
    return source.claim_sets(sizes), source.entries(), Counter()


# ---- the paper's


def benchmark_sets(p: "VeriParams") -> tuple[Sets, list[Chunk], Counter]:
    """The paper's claims, from the files of `FILES` in p.claims_path (App. E).

    The entries are those of the training evidence's pages: what is searched is behind
    p.search_url. Training claims are the published ones, or, without that file, those
    of FEVEROUS and EX-FEVER that an LLM verifies offline without a fault. Test claims
    are the published ones, or as many of each label. What shares an entity with a test
    claim is not trained on.
    """
    folder, dropped = ROOT / p.claims_path, Counter()
    test = [e for name in p.eval_sets.split() for e in _test_set(folder, name, p)]
    if (folder / PUBLISHED).exists():
        train, counts = benchmarks.load("veri_r1", str(folder / PUBLISHED))
        entries = _gold_entries(folder, train)
        settled = with_evidence(train, entries)
        counts[MISSING], train = len(train) - len(settled), settled
    else:
        pool = []
        for name in TRAINED_ON:
            claims, counts = benchmarks.load(name, str(folder / FILES[name][0]))
            pool += benchmarks.balanced(claims, POOL)
            dropped += counts
        entries = _gold_entries(folder, pool)
        llm = judge_llm(p, p.judge_model, p.judge_url)
        search = over_http(p.search_url)
        train, counts = keep_verified(pool, entries, search, llm, p)
    held_out = {e.entity.casefold() for e in test}
    own = [e for e in train if e.entity.casefold() not in held_out]
    dropped += counts
    dropped["shares an entity with a test claim"] = len(train) - len(own)
    sizes = {"train": p.train_claims, "dev": p.dev_claims}
    return split_by_entity(own, sizes) | {"test": test}, entries, dropped


LOADERS = {"feverous_exfever": benchmark_sets}  # of public data


def with_evidence(
    examples: Sequence[Example], entries: Sequence[Chunk]
) -> list[Example]:
    """The claims all of whose gold evidence is among the entries' pieces."""
    known = {piece.id for entry in entries for piece in shown(entry)}
    return [e for e in examples if known.issuperset(e.evidence)]


def _test_set(folder: Path, name: str, p: "VeriParams") -> list[Example]:
    published = folder / EVALUATION.format(set=name)
    if published.exists():
        claims, _ = benchmarks.load("veri_r1", str(published))
        drawn = random.Random(f"test {name}").sample(claims, len(claims))
        kept = {e.id for e in drawn[: p.test_claims]}
        return [e for e in claims if e.id in kept]
    claims, _ = benchmarks.load(name, str(folder / FILES[name][1]))
    counts = Counter(e.label for e in claims)
    each = min(p.test_claims // len(counts), *counts.values())
    return benchmarks.balanced(claims, each, list(counts))


def _gold_entries(folder: Path, examples: Sequence[Example]) -> list[Chunk]:
    """The entries of all pages that are evidence, each from its set's corpus.

    Of the sets that are trained on, ids say which: a sentence of FEVEROUS's, a page of
    EX-FEVER's. FEVER's are called as FEVEROUS's, with other texts.
    """
    pages: dict[str, set[str]] = {}
    for e in examples:
        own = pages.setdefault(benchmarks.CORPUS_OF[e.meta["set"]], set())
        own.update(map(page_of, e.evidence))
    return [
        entry
        for name, own in pages.items()
        for entry in benchmarks.entries(name, folder / name, own)
    ]


def keep_verified(
    examples: Sequence[Example],
    entries: Sequence[Chunk],
    search: Search,
    llm: LLM,
    p: "VeriParams",
) -> tuple[list[Example], Counter]:
    """The claims that an LLM verifies offline without a fault, and how many met which
    fate (App. E, Fig 3): about 70 % are kept, by GPT-4o.

    It is given what offline RL is (`given_offline`; ours). The label must be right and
    the evidence exactly the gold one, or for NOT ENOUGH INFO the label alone, as in
    §3.2's metrics (ours). A call that failed is no verdict: a rerun asks again. Raises
    ValueError if more than 5 % failed.
    """
    settled = with_evidence(examples, entries)
    given = given_offline(settled, entries, search, p)
    requests = [
        Request(
            ({"role": "user", "content": prompt},),
            template=p.offline_template,
            sampling=Sampling(REPLY_TOKENS),
        )
        for prompt in asked(settled, p, given)
    ]
    replies = llm.run(requests, progress="verifying")
    judge.RECENT_FAILURES.extend(
        judge.Failure("no reply", r.error) for r in replies if r.text is None
    )
    failed_share([reply.text for reply in replies], "failures of verifying")
    fates = {e.id: _fate(e, r) for e, r in zip(settled, replies, strict=True)}
    counts = Counter(fates.values())
    counts[MISSING] = len(examples) - len(settled)
    return [e for e in settled if fates[e.id] == "kept"], counts


def _fate(example: Example, reply: Reply) -> str:
    if reply.text is None:
        return "failed"
    answer = answer_of([Turn(reply.text, by_model=True)])
    if answer.label is None or not reply.finished:
        return "unreadable"
    if answer.label not in example.answers:
        return "wrong label"
    exact = set(answer.evidence) == set(example.evidence)
    return "kept" if exact or example.label == NEI else "wrong evidence"


# ---- what an offline prompt gives


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
        sets = [e.meta["set"] for e in examples]
        hits = search([e.question for e in examples], p.context_entries, sets)
    mark = open_source(p.claims, p).mark
    given = {}
    for example, others in zip(examples, hits, strict=True):
        gold = [pieces[i] for i in example.evidence]
        gold = [replace(c, text=mark(c.text, example.question)) for c in gold]
        context = [c for entry in others for c in shown(entry)]
        mixed = list({c.id: c for c in [*context, *gold]}.values())
        random.Random(f"given {example.id}").shuffle(mixed)
        given[example.id] = mixed
    return given


def shortened(
    given: dict[str, list[Chunk]],
    examples: Sequence[Example],
    tokenizer: "Tokenizer",
    p: "VeriParams",
) -> int:
    """Take texts beside the gold out of `given` until the prompt and a turn fit
    p.max_context_length; how many (an engine refuses what is longer)."""
    room, dropped = p.max_context_length - p.max_completion_length, 0
    for example in examples:
        while True:
            prompts = asked([example], p, given)
            (ids,) = search_rollout.prompt_tokens(prompts, tokenizer, p)
            texts = given[example.id]
            others = [c for c in texts if c.id not in example.evidence]
            if len(ids) <= room or not others:
                break
            given[example.id] = [c for c in texts if c is not others[-1]]
            dropped += 1
    return dropped


# ---- trajectories for SFT


def shown_to_sft(
    p: "VeriParams", train: Sequence[Example], search: Search, folder: Path
) -> list[list[Turn]]:
    """Trajectories for claims, by a model behind p.judge_url or by a script.

    A model's (App. H: GPT-4o's) are greedy rollouts like the policy's own,
    p.eval_batch_size at a time; those that there are lie in the folder, so that what
    was killed goes on.
    """
    llm = judge_of(p)
    if llm is None:
        return scripted(p, train, search)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(assets.policy_path(p.judge_model))
    generate = search_rollout.with_server(
        *(p.judge_url, p.judge_model, Sampling(p.max_completion_length)),
        *(llm.key, llm.headers, llm.extra),
    )
    path, size = folder / "trajectories.part.jsonl", p.eval_batch_size
    done = read_rows(path, Verified) if path.exists() else []
    with progress_bar(len(train), "trajectories", " claims") as bar:
        for start in range(0, len(train), size):
            part = train[start : start + size]
            if start >= len(done):
                ids = search_rollout.prompt_tokens(asked(part, p), tokenizer, p)
                sets = [e.meta["set"] for e in part]
                own = search_rollout.rollouts(ids, generate, search, tokenizer, p, sets)
                done += of_examples(part, [r.turns for r in own])
                write_rows(path, map(vars, done))
            bar.update(len(part))
    return [row.trajectory for row in done]


def scripted(
    p: "VeriParams", examples: Sequence[Example], search: Search
) -> list[list[Turn]]:
    """What SFT learns from on the small profiles: the trajectories of a script of the
    source of the claims (ours: the paper's are GPT-4o's, App. H)."""
    rng = random.Random(f"scripted {p.world_seed}")
    source, k = open_source(p.verifier, p), p.retrieved_entries

    def find(query: str, k: int) -> list[Chunk]:
        return search([query], k)[0]

    return [source.write_trajectory(e.question, find, k, rng) for e in examples]
