"""Binary RAR's requests: to train on, to choose by, to test on; and their documents."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit.answers.requests import gather, keep_factual
from factkit.answers.verifier import judge_llm
from factkit.data import benchmarks, long_form_prompts
from factkit.data.corpus import Document
from factkit.data.examples import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN, Example
from factkit.data.splits import split_by_entity, split_prompts
from factkit.facts.source import open_source

if TYPE_CHECKING:
    from factkit.papers.rar.arms import RarParams

KINDS = (OPEN, MAY_ABSTAIN, BEST_GUESS, COUNTED)
DEV_SHARE = 0.15  # of the fact world's people
# short questions per request for dev: training ends when a tenth fewer are answered,
# which is four of 200 questions of which a fifth is known
SHORT_DEV = 10
WILDCHAT_READ = 20  # conversations per training request, of which a part is factual
Evidence = tuple[dict[str, list[Document]], Counter[str]]
Requests = tuple[dict[str, list[Example]], list[str], Counter]

ASKS = {  # how short questions are put outside the embedded sources
    MAY_ABSTAIN: 'Answer with a name or a number only, or say "I don\'t know".',
    BEST_GUESS: "Answer with a name or a number only. Give your best guess.",
}
OPTIONS = 'Answer with the letter of one option only, or say "I don\'t know".'


def request_sets(p: "RarParams") -> Requests:
    """train, dev and test requests, held-out texts, and counts of what was dropped.

    dev and test hold requests of every kind of KINDS, p.dev_requests and
    p.test_requests of them open, and as many of each other kind (WildChat: SHORT_DEV
    times as many for dev). No entity is in two of the three.
    """
    sizes = {n: getattr(p, f"{n}_requests") for n in ("train", "dev", "test")}
    load = LOADERS.get(p.requests, _embedded_sets)
    return load(p, sizes)


def _embedded_sets(p: "RarParams", sizes: dict[str, int]) -> Requests:
    source = open_source(p.requests, p)
    parts = source.split(sizes, DEV_SHARE)
    sets = {"train": source.mixed_requests(parts["train"], sizes["train"])}
    for name in ("dev", "test"):
        sets[name] = []
        for kind in KINDS:
            requests = source.requests(parts[name], kind)
            n = min(sizes[name], len(requests))
            sets[name] += random.Random(f"some {source.seed}").sample(requests, n)
    return sets, source.held_out_texts(parts["test"]), Counter()


def _wildchat_sets(p: "RarParams", sizes: dict[str, int]) -> Requests:
    """WildChat's requests that a judge finds factual; PopQA's short questions.

    Everything is loaded before the judge is called: some of it is gated on the hub.
    """
    limit = WILDCHAT_READ * sizes["train"]
    chats, dropped = long_form_prompts.load("wildchat", p.requests_path, limit)
    questions, _ = benchmarks.load("popqa")
    public = [e for name in p.test_sets.split() for e in _public_requests(p, name)]
    held_out = open_source(p.requests, p).held_out_texts([])
    factual, counts = keep_factual(judge_llm(p, p.judge_model, p.judge_url), chats)
    factual = [e.model_copy(update={"meta": e.meta | {"kind": OPEN}}) for e in factual]
    sets = split_prompts(factual, sizes, p.split_seed)
    short = {"dev": SHORT_DEV * sizes["dev"], "test": sizes["test"]}
    for name, rows in split_by_entity(questions, short, p.split_seed).items():
        sets[name] += [_short_request(e, kind) for kind in ASKS for e in rows]
    sets["test"] += public
    return sets, held_out, dropped + counts


LOADERS = {"wildchat": _wildchat_sets}  # of public data


def _public_requests(p: "RarParams", name: str) -> list[Example]:
    """A random sample of one of p.test_sets, p.test_requests at most."""
    loader, kind, suffix = long_form_prompts, OPEN, ""
    if name in benchmarks.BENCHMARKS:
        loader, kind, suffix = benchmarks, MAY_ABSTAIN, f"\n\n{OPTIONS}"
    examples, _ = loader.load(name)
    n = min(p.test_requests, len(examples))
    sample = random.Random(f"{name} {p.split_seed}").sample(examples, n)
    updates = [
        {"question": e.question + suffix, "meta": {"kind": kind, "set": name}}
        for e in sample
    ]
    return [e.model_copy(update=u) for e, u in zip(sample, updates, strict=True)]


def evidence_of(p: "RarParams", examples: Sequence[Example]) -> Evidence:
    """The documents of each request, by `gather`. A person of Biography is searched for
    by the request; WildHallucinations has pages of its own."""
    wild = [e for e in examples if e.meta.get("set") == "wild_hallucinations"]
    others = [e for e in examples if e.meta.get("set") != "wild_hallucinations"]
    queries = {e.id: e.question for e in others if "set" in e.meta}
    documents, counts = gather(p, others, queries)
    if wild:
        pages = long_form_prompts.wild_pages({e.entity for e in wild})
        documents |= {e.id: pages[e.entity] for e in wild if pages.get(e.entity)}
        counts["with pages of their own"] = sum(e.id in documents for e in wild)
    return documents, counts


def _short_request(example: Example, kind: str) -> Example:
    """A short question with leave to abstain or without, under an id of its own."""
    update = {
        "id": f"{example.id} {kind}",
        "question": f"{example.question} {ASKS[kind]}",
        "meta": {"kind": kind},
    }
    return example.model_copy(update=update)
