"""Binary RAR's requests: to train on, to choose by, to test on; and their documents."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from factkit.answers.requests import embedded_sets, gather, keep_factual
from factkit.answers.verifier import judge_llm
from factkit.data import pages, sources
from factkit.data.corpus import Document
from factkit.data.examples import (
    BEST_GUESS,
    COUNTED,
    LONG_FORM,
    MAY_ABSTAIN,
    OPEN,
    Example,
)
from factkit.data.splits import in_set, split_by_entity, split_prompts
from factkit.facts.source import open_source
from factkit.papers.rar.arms import RarParams
from factkit.papers.rar.needs import SHORT_DEV, WILDCHAT_READ
from factkit.run.paths import from_root

KINDS = (OPEN, MAY_ABSTAIN, BEST_GUESS, COUNTED)
DEV_SHARE = 0.15  # of the fact world's people
Evidence = tuple[dict[str, list[Document]], Counter[str]]
Requests = tuple[dict[str, list[Example]], list[str], Counter]

ASKS = {  # how short questions are put outside the embedded sources
    MAY_ABSTAIN: 'Answer with a name or a number only, or say "I don\'t know".',
    BEST_GUESS: "Answer with a name or a number only. Give your best guess.",
}
OPTIONS = 'Answer with the letter of one option only, or say "I don\'t know".'


def request_sets(p: RarParams) -> Requests:
    """train, dev and test requests, held-out texts, and counts of what was dropped.

    dev and test hold requests of every kind of KINDS, p.dev_requests and
    p.test_requests of them open, and as many of each other kind (WildChat: SHORT_DEV
    times as many for dev); of a user's own requests all are open. No entity is in two
    of the three.
    """
    sizes = {n: getattr(p, f"{n}_requests") for n in ("train", "dev", "test")}
    if p.requests == "wildchat":
        return _wildchat_sets(p, sizes)
    source = open_source(p.requests, p)
    if p.has_own_data:
        own, dropped = embedded_sets(p)
        for name, rows in own.items():  # of no public test set
            own[name] = [e.model_copy(update={"meta": {"kind": OPEN}}) for e in rows]
        for name in p.test_sets.split():
            own["test"] += _public_requests(p, name)
        return own, source.held_out_texts([]), dropped
    parts = source.split(sizes, DEV_SHARE)
    sets = {"train": source.mixed_requests(parts["train"], sizes["train"])}
    for name in ("dev", "test"):
        sets[name] = []
        for kind in KINDS:
            requests = source.requests(parts[name], kind)
            n = min(sizes[name], len(requests))
            sets[name] += random.Random(f"some {source.seed}").sample(requests, n)
    return sets, source.held_out_texts(parts["test"]), Counter()


def _wildchat_sets(p: RarParams, sizes: dict[str, int]) -> Requests:
    """WildChat's requests that a judge finds factual; PopQA's short questions.

    Everything is loaded before the judge is called: some of it is gated on the hub.
    """
    limit = WILDCHAT_READ * sizes["train"]
    chats, dropped = sources.load("wildchat", from_root(p.requests_path), limit)
    questions, _ = sources.load("popqa")
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


def _public_requests(p: RarParams, name: str) -> list[Example]:
    """The requests of one of p.test_sets, p.test_requests at most, drawn by chance."""
    examples, _ = sources.load(name)
    short = any(e.label != LONG_FORM for e in examples)
    rng = random.Random(f"{name} {p.split_seed}")
    requests = []
    for e in rng.sample(examples, min(p.test_requests, len(examples))):
        update: dict[str, Any] = {"meta": {"kind": MAY_ABSTAIN if short else OPEN}}
        if short:
            update["question"] = f"{e.question}\n\n{OPTIONS}"
        requests.append(in_set(e.model_copy(update=update), name))
    return requests


def evidence_of(p: RarParams, examples: Sequence[Example]) -> Evidence:
    """The documents of each request, as `gather` has them. A person of Biography is
    searched for by the request; WildHallucinations comes with its pages."""
    wild = [e for e in examples if e.meta.get("set") == "wild_hallucinations"]
    others = [e for e in examples if e.meta.get("set") != "wild_hallucinations"]
    queries = {e.id: e.question for e in others if "set" in e.meta}
    documents, counts = gather(p, others, queries)
    if wild:
        by_entity = pages.wild_pages({e.entity for e in wild})
        known = [e for e in wild if by_entity.get(e.entity)]
        documents |= {e.id: by_entity[e.entity] for e in known}
        counts["with pages of their own"] = len(known)
    return documents, counts


def _short_request(example: Example, kind: str) -> Example:
    """A short question with leave to abstain or without, under an id of its own."""
    update = {
        "id": f"{example.id} {kind}",
        "question": f"{example.question} {ASKS[kind]}",
        "meta": {"kind": kind},
    }
    return example.model_copy(update=update)
