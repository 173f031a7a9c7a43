"""Requests of profile `laptop`: to tell of people, places, works and elements.

Ours; in place of WildChat and Biography. What a request is about has three facts or
more. A part of the subjects is kept for the cold start, whichever the paper and split.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from factkit.datasets.examples import LONG_FORM, Example
from factkit.datasets.world_prompts import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN
from factkit.leads.facts import PERSON, Fact, Leads, Subject, inside, statement
from factkit.world import texts as world_text

LEAST_FACTS = 3
COLD_SHARE = 0.25  # of the subjects, told of in the cold start alone
ASK = "Tell me about {s}."
QUESTIONS = {
    "nationality": "What nationality was {s}?",
    "occupation": "What did {s} do for a living?",
    "birth_year": "In which year was {s} born?",
    "death_year": "In which year did {s} die?",
    "century": "In which century did {s} live?",
    "kind": "What is {s}?",
    "country": "In which country is {s}?",
    "continent": "On which continent is {s}?",
    "capital_of": "Of which country is {s} the capital?",
    "capital": "What is the capital of {s}?",
    "creator": "Who made {s}?",
    "work_year": "In which year did {s} come out?",
    "symbol": "What is the chemical symbol of {s}?",
    "atomic_number": "What is the atomic number of {s}?",
}
# those of which a subject has one object
SINGLE = [r for r in QUESTIONS if r not in ("occupation", "kind", "century")]


def of_cold_start(subject: Subject) -> bool:
    """Whether a subject is told of in the cold start, and so asked for nowhere."""
    return int(sha256(subject.name.encode()).hexdigest()[:8], 16) / 2**32 < COLD_SHARE


def split(
    leads: Leads, sizes: Mapping[str, int], seed: int
) -> dict[str, list[Subject]]:
    """The subjects of each split, as many as its share of `sizes`; no cold ones."""
    free = [
        s
        for _, s in sorted(leads.subjects.items())
        if len(s.facts) >= LEAST_FACTS and not of_cold_start(s)
    ]
    random.Random(f"leads {seed}").shuffle(free)
    return shares(free, sizes)


def shares(items: list, sizes: Mapping[str, int]) -> dict[str, list]:
    """Items cut into consecutive parts whose lengths are as the sizes."""
    parts, begin, total = {}, 0, 0
    for name, size in sizes.items():
        total += size
        end = round(len(items) * total / sum(sizes.values()))
        parts[name] = items[begin:end]
        begin = end
    return parts


def requests(subjects: Sequence[Subject], kind: str) -> list[Example]:
    """A request a subject, or for short questions one a fact of those with one answer.

    kind: as in `world_prompts`. `answers[0]` is a true reference, evidence is the lead,
    `meta["wanted"]` the facts that a counted request wants.
    """
    if kind in (MAY_ABSTAIN, BEST_GUESS):
        return [e for s in subjects for e in _short(s, kind)]
    return [_long(s, kind, i) for i, s in enumerate(subjects)]


def mixed(subjects: Sequence[Subject], n: int) -> list[Example]:
    """n requests, three of four open, the others counted, each of another subject."""
    kinds = (OPEN, OPEN, COUNTED, OPEN)
    return [_long(s, kinds[i % 4], i // 4) for i, s in enumerate(subjects[:n])]


def _long(subject: Subject, kind: str, i: int) -> Example:
    name, meta = inside(subject.name), {"kind": kind, "topic": topic(subject)}
    ask = ASK.format(s=name)
    if kind == COUNTED:
        meta["wanted"] = 1 + i % len(world_text.COUNTS)
        ask = world_text.request(name, meta["wanted"])
    return Example(
        id=f"lead:{subject.name} {kind}",
        question=ask,
        answers=[" ".join(map(statement, subject.facts))],
        entity=subject.name,
        label=LONG_FORM,
        evidence=[subject.title],
        meta=meta,
    )


def _short(subject: Subject, kind: str) -> Iterator[Example]:
    for fact in subject.facts:
        if fact.relation in SINGLE:
            ask = world_text.MAY_ABSTAIN if kind == MAY_ABSTAIN else "{question}"
            yield Example(
                id=f"lead:{subject.name} {fact.relation} {kind}",
                question=ask.format(question=question(fact)),
                answers=[fact.object, *fact.others],
                entity=subject.name,
                relation=fact.relation,
                evidence=[subject.title],
                meta={"kind": kind, "topic": topic(subject)},
            )


def question(fact: Fact) -> str:
    """A short question that a fact's object answers."""
    return QUESTIONS[fact.relation].format(s=inside(fact.subject))


def topic(subject: Subject) -> str:
    """people | places | works | elements."""
    relations = {f.relation for f in subject.facts}
    if relations & set(PERSON):
        return "people"
    if relations & {"creator", "work_year"}:
        return "works"
    return "elements" if "symbol" in relations else "places"
