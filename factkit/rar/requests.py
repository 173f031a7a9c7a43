"""The requests of a run: to train on, to choose by, to test on; by `p.requests`."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit.corpus import Document, load_leads
from factkit.curate.requests import keep_factual, split_by_entity, split_prompts
from factkit.datasets import benchmarks, long_form_prompts, world_prompts
from factkit.datasets.examples import Example
from factkit.datasets.world_prompts import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN
from factkit.leads import facts, requests
from factkit.verify.verifier import judge_llm
from factkit.world import facts as world

if TYPE_CHECKING:
    from factkit.rar.arms import RarParams

KINDS = (OPEN, MAY_ABSTAIN, BEST_GUESS, COUNTED)
TEST_SHARE, DEV_SHARE = 0.3, 0.15  # of the fact world's people
HELD_OUT = 100  # texts for the perplexity
WILDCHAT_READ = 20  # conversations a training request, of which a part is factual
Requests = tuple[dict[str, list[Example]], list[str], Counter]

ASKS = {  # how short questions are put outside the fact world
    MAY_ABSTAIN: 'Answer with a name or a number only, or say "I don\'t know".',
    BEST_GUESS: "Answer with a name or a number only. Give your best guess.",
}


def request_sets(p: "RarParams") -> Requests:
    """train, dev and test requests, held-out texts, and counts of what was dropped.

    dev and test hold requests of every kind of KINDS, p.dev_requests and
    p.test_requests of them open. No entity is in two of the three.
    """
    match p.requests:
        case "world":
            return _world_sets(p)
        case "leads":
            return _lead_sets(p)
    return _wildchat_sets(p)


def _world_sets(p: "RarParams") -> Requests:
    made = world.build_world(people=p.world_people, seed=p.world_seed)
    people = list(made.people)
    random.Random(f"people {p.world_seed}").shuffle(people)
    n_test, n_dev = (round(s * len(people)) for s in (TEST_SHARE, DEV_SHARE))
    parts = {"test": people[:n_test], "dev": people[n_test : n_test + n_dev]}
    rest, seed = people[n_test + n_dev :], p.world_seed
    sets = {"train": world_prompts.mixed(made, rest, p.train_requests, seed)}
    for name in ("dev", "test"):
        every = [world_prompts.requests(made, parts[name], kind) for kind in KINDS]
        sets[name] = _some_of_each(every, _sizes(p)[name], seed)
    read = (f for f in made.facts if f.exposure and f.subject in parts["test"])
    return sets, [world.statement(fact, 1) for fact in read], Counter()


def _lead_sets(p: "RarParams") -> Requests:
    """Requests about the leads' subjects: to train on, all of them open or counted."""
    sizes = _sizes(p)
    parts = requests.split(facts.load(), sizes, p.split_seed)
    sets = {"train": requests.mixed(parts["train"], p.train_requests)}
    for name in ("dev", "test"):
        every = [requests.requests(parts[name], kind) for kind in KINDS]
        sets[name] = _some_of_each(every, sizes[name], p.split_seed)
    return sets, _held_out(parts["test"]), Counter()


def _wildchat_sets(p: "RarParams") -> Requests:
    """WildChat's requests that a judge finds factual; PopQA's short questions."""
    limit = WILDCHAT_READ * p.train_requests
    chats, dropped = long_form_prompts.load("wildchat", p.requests_path, limit)
    kept, fates = keep_factual(judge_llm(p, p.judge_model, p.judge_url), chats)
    sizes = _sizes(p)
    sets = split_prompts([_of_kind(e, OPEN) for e in kept], sizes, p.split_seed)
    questions, _ = benchmarks.load("popqa")
    del sizes["train"]
    for name, rows in split_by_entity(questions, sizes, p.split_seed).items():
        sets[name] += [_short(e, kind) for kind in ASKS for e in rows]
    return sets, _held_out(load_leads()), dropped + fates


def _sizes(p: "RarParams") -> dict[str, int]:
    return {"train": p.train_requests, "dev": p.dev_requests, "test": p.test_requests}


def _held_out(leads: Sequence[Document | facts.Subject]) -> list[str]:
    texts = [lead.text for lead in leads]
    return random.Random("held out").sample(texts, HELD_OUT)


def _of_kind(example: Example, kind: str) -> Example:
    return example.model_copy(update={"meta": example.meta | {"kind": kind}})


def _short(example: Example, kind: str) -> Example:
    """A short question with leave to abstain or without, under an id of its own."""
    update = {
        "id": f"{example.id} {kind}",
        "question": f"{example.question} {ASKS[kind]}",
        "meta": {"kind": kind},
    }
    return example.model_copy(update=update)


def _some_of_each(
    every: Sequence[Sequence[Example]], limit: int, seed: int
) -> list[Example]:
    """At most so many of the requests of each kind, drawn at random."""
    return [
        example
        for rows in every
        for example in random.Random(f"some {seed}").sample(rows, min(limit, len(rows)))
    ]
