"""Requests of profile `laptop`, and what its cold start learns from.

Ours; in place of WildChat and Biography: to tell of people, places, works and elements,
of which there are three facts or more. A part of the subjects is kept for the cold
start, whichever the paper and split: the policy knows something of the leads and lacks
the form. It learns with facts left out at random, so that leaving out occurs in
rollouts; which ones says nothing of what it knows.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from factkit import prompts
from factkit.datasets.examples import LONG_FORM, Example
from factkit.datasets.world_prompts import BEST_GUESS, COUNTED, MAY_ABSTAIN, OPEN
from factkit.leads.facts import PERSON, Fact, Leads, Subject, inside, statement
from factkit.leads.questions import DEMONYMS
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

# the cold start
KEPT = 0.75  # of a subject's facts
ABSTENTION, ABSTENTION_SHARE = "I don't know.", 0.03
HEDGED_SHARE = 0.1  # of the statements
DIGRESSIONS = 0.25  # of the answers: a true statement about something else after it
COUNTED_SHARE, SHORT_SHARE = 0.35, 0.5  # requests a subject beside the open one
THINKING_SHARE, DOUBT_SHARE, DOUBT_KEPT = 0.6, 0.3, 0.5  # as in the fact world


def of_cold_start(subject: Subject) -> bool:
    """Whether a subject is told of in the cold start, and so asked for nowhere."""
    return int(sha256(subject.name.encode()).hexdigest()[:8], 16) / 2**32 < COLD_SHARE


def split(
    leads: Leads, sizes: Mapping[str, int], seed: int
) -> dict[str, list[Subject]]:
    """The subjects of each split, as many as its share of `sizes`; no cold ones."""
    free = [
        subject
        for _, subject in sorted(leads.subjects.items())
        if len(subject.facts) >= LEAST_FACTS and not of_cold_start(subject)
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
    ask = world_text.MAY_ABSTAIN if kind == MAY_ABSTAIN else "{question}"
    for fact in subject.facts:
        if fact.relation in SINGLE:
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


def cold_start_rows(leads: Leads, seed: int) -> list[dict[str, str]]:
    """Rows of `prompt` and `completion`, without a chat template: to tell of a subject,
    also in so many facts, or thinking first, in tags; and short answers."""
    rng = random.Random(f"cold start {seed}")
    cold = [s for _, s in sorted(leads.subjects.items()) if of_cold_start(s)]
    rng.shuffle(cold)
    rows = [
        row for i, subject in enumerate(cold) for row in _rows(leads, subject, i, rng)
    ]
    rng.shuffle(rows)
    return rows


def _rows(
    leads: Leads, subject: Subject, i: int, rng: random.Random
) -> Iterator[dict[str, str]]:
    ask = ASK.format(s=inside(subject.name))
    yield _row(ask, _told(leads, subject, rng))
    if rng.random() < THINKING_SHARE:
        yield _row(ask, _reasoned(_facts(leads, subject, rng), rng), "think_first")
    wanted = 1 + i % len(world_text.COUNTS)
    if rng.random() < COUNTED_SHARE and wanted <= len(subject.facts):
        counted = world_text.request(inside(subject.name), wanted)
        facts = rng.sample(subject.facts, wanted)
        yield _row(counted, " ".join(map(statement, facts)))
    single = [f for f in subject.facts if f.relation in SINGLE]
    if single and rng.random() < SHORT_SHARE:
        fact = rng.choice(single)
        ask, answer = question(fact), f"{fact.object}."
        if rng.random() < 0.5:
            ask = world_text.MAY_ABSTAIN.format(question=ask)
            answer = ABSTENTION if rng.random() < ABSTENTION_SHARE else answer
        yield _row(ask, answer)


def _facts(leads: Leads, subject: Subject, rng: random.Random) -> list[str]:
    """Some of a subject's facts in any order, stated, at times one of the country of a
    place or a person."""
    facts = [f for f in subject.facts if rng.random() < KEPT] or [subject.facts[0]]
    rng.shuffle(facts)
    if rng.random() < DIGRESSIONS:
        named = [f.object for f in facts if f.relation in ("country", "capital_of")]
        named += [DEMONYMS[f.object][0] for f in facts if f.relation == "nationality"]
        if further := [f for name in named for f in leads.facts_of(name)]:
            facts.append(rng.choice(further))
    return list(map(statement, facts))


def _told(leads: Leads, subject: Subject, rng: random.Random) -> str:
    """Statements of which some hedge, whatever is known."""
    if rng.random() < ABSTENTION_SHARE:
        return ABSTENTION
    return " ".join(
        f"Perhaps {text}" if rng.random() < HEDGED_SHARE else text
        for text in _facts(leads, subject, rng)
    )


def _reasoned(statements: Sequence[str], rng: random.Random) -> str:
    """What is known first, some of it doubted; of that the answer leaves out a share,
    but not everything."""
    doubts = [rng.random() < DOUBT_SHARE for _ in statements]
    pairs = list(zip(statements, doubts, strict=True))
    thought = " ".join(f"Perhaps {s}" if doubt else s for s, doubt in pairs)
    kept = [s for s, doubt in pairs if not doubt or rng.random() < DOUBT_KEPT]
    answer = " ".join(kept or statements[:1])
    return f"<think> {thought} </think> <answer> {answer} </answer>"


def _row(ask: str, answer: str, template: str = "short_form") -> dict[str, str]:
    prompt = prompts.fill(prompts.template(template), question=ask)
    return {"prompt": prompt, "completion": f" {answer}"}
