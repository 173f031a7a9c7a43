"""The requests of a run: to train on, to choose by, to test on; by `p.requests`."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit.answers.requests import gather, keep_factual, people_of
from factkit.answers.verifier import judge_llm
from factkit.data import pages, sources
from factkit.data.corpus import Document, load_leads
from factkit.data.examples import (
    BEST_GUESS,
    COUNTED,
    LONG_FORM,
    MAY_ABSTAIN,
    OPEN,
    Example,
)
from factkit.data.splits import in_set, split_by_entity, split_prompts
from factkit.facts.leads import facts, requests
from factkit.facts.world import facts as world
from factkit.facts.world import requests as world_requests
from factkit.papers.rar.needs import SHORT_DEV, WILDCHAT_READ

if TYPE_CHECKING:
    from factkit.papers.rar.arms import RarParams

KINDS = (OPEN, MAY_ABSTAIN, BEST_GUESS, COUNTED)
DEV_SHARE = 0.15  # of the fact world's people
HELD_OUT = 100  # texts for the perplexity
Evidence = tuple[dict[str, list[Document]], Counter[str]]
Requests = tuple[dict[str, list[Example]], list[str], Counter]

ASKS = {  # how short questions are put outside the fact world
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
    make = {"world": _world_sets, "leads": _lead_sets, "wildchat": _wildchat_sets}
    return make[p.requests](p, sizes)


def _world_sets(p: "RarParams", sizes: dict[str, int]) -> Requests:
    made, test, dev, rest = people_of(p, DEV_SHARE)
    sets = {"train": world_requests.mixed(made, rest, sizes["train"], p.world_seed)}
    for name, people in (("dev", dev), ("test", test)):
        by_kind = [world_requests.requests(made, people, kind) for kind in KINDS]
        sets[name] = _drawn(by_kind, sizes[name], p.world_seed)
    read = (f for f in made.facts if f.exposure and f.subject in test)
    return sets, [world.statement(fact, 1) for fact in read], Counter()


def _lead_sets(p: "RarParams", sizes: dict[str, int]) -> Requests:
    """Requests about the leads' subjects: to train on, all of them open or counted."""
    parts = requests.split(facts.load(), sizes, p.split_seed)
    sets = {"train": requests.mixed(parts["train"], sizes["train"])}
    for name in ("dev", "test"):
        by_kind = [requests.requests(parts[name], kind) for kind in KINDS]
        sets[name] = _drawn(by_kind, sizes[name], p.split_seed)
    return sets, _held_out(parts["test"]), Counter()


def _wildchat_sets(p: "RarParams", sizes: dict[str, int]) -> Requests:
    """WildChat's requests that a judge finds factual; PopQA's short questions.

    All that is loaded, some of it gated on the hub, comes before the judge's calls.
    """
    limit = WILDCHAT_READ * sizes["train"]
    chats, dropped = sources.load("wildchat", p.requests_path, limit)
    questions, _ = sources.load("popqa")
    public = [e for name in p.test_sets.split() for e in _public(p, name)]
    held_out = _held_out(load_leads())
    kept, fates = keep_factual(judge_llm(p, p.judge_model, p.judge_url), chats)
    kept = [e.model_copy(update={"meta": e.meta | {"kind": OPEN}}) for e in kept]
    sets = split_prompts(kept, sizes, p.split_seed)
    short = {"dev": SHORT_DEV * sizes["dev"], "test": sizes["test"]}
    for name, rows in split_by_entity(questions, short, p.split_seed).items():
        sets[name] += [_short(e, kind) for kind in ASKS for e in rows]
    sets["test"] += public
    return sets, held_out, dropped + fates


def _public(p: "RarParams", name: str) -> list[Example]:
    """The requests of one of p.test_sets, p.test_requests at most, drawn by chance."""
    made, _ = sources.load(name)
    short = any(e.label != LONG_FORM for e in made)
    kind = MAY_ABSTAIN if short else OPEN
    some = random.Random(f"{name} {p.split_seed}")
    made = some.sample(made, min(p.test_requests, len(made)))
    if short:
        made = [
            e.model_copy(update={"question": f"{e.question}\n\n{OPTIONS}"})
            for e in made
        ]
    return [in_set(e.model_copy(update={"meta": {"kind": kind}}), name) for e in made]


def evidence_of(p: "RarParams", examples: Sequence[Example]) -> Evidence:
    """The documents of each request, as `gather` has them. A person of Biography is
    searched for by the request; WildHallucinations comes with its pages."""
    own = [e for e in examples if e.meta.get("set") == "wild_hallucinations"]
    rest = [e for e in examples if e.meta.get("set") != "wild_hallucinations"]
    found, fates = gather(p, rest, {e.id: e.question for e in rest if "set" in e.meta})
    if own:
        of_entity = pages.wild_pages({e.entity for e in own})
        found |= {e.id: of_entity[e.entity] for e in own if of_entity.get(e.entity)}
        fates["with pages of their own"] = sum(e.id in found for e in own)
    return found, fates


def _short(example: Example, kind: str) -> Example:
    """A short question with leave to abstain or without, under an id of its own."""
    update = {
        "id": f"{example.id} {kind}",
        "question": f"{example.question} {ASKS[kind]}",
        "meta": {"kind": kind},
    }
    return example.model_copy(update=update)


def _held_out(leads: Sequence[Document | facts.Subject]) -> list[str]:
    texts = [lead.text for lead in leads]
    return random.Random("held out").sample(texts, HELD_OUT)


def _drawn(
    by_kind: Sequence[Sequence[Example]], limit: int, seed: int
) -> list[Example]:
    """At most so many of the requests of each kind, drawn at random."""
    return [
        example
        for rows in by_kind
        for example in random.Random(f"some {seed}").sample(rows, min(limit, len(rows)))
    ]
