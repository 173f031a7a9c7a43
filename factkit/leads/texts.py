"""What the cold start of profile `laptop` learns from: how to tell of a subject.

The policy knows something of the leads and lacks the form. It learns on subjects that
no run asks for, with facts left out at random, so that leaving out occurs in rollouts;
which ones says nothing of what it knows. Ours: the papers start from instruct models
that write at length by themselves.
"""

import random
from collections.abc import Iterator, Sequence

from factkit import prompts
from factkit.datasets.world_prompts import COUNTED, OPEN
from factkit.leads.facts import Fact, Leads, Subject, statement
from factkit.leads.questions import DEMONYMS
from factkit.leads.requests import SINGLE, of_cold_start, question, requests
from factkit.world.texts import COUNTS, MAY_ABSTAIN

KEPT = 0.75  # of a subject's facts
ABSTENTION, ABSTENTION_SHARE = "I don't know.", 0.03
DIGRESSIONS = 0.25  # of the answers: a true statement about something else after it
COUNTED_SHARE, SHORT_SHARE = 0.35, 0.5  # requests a subject beside the open one
HEDGED_SHARE = 0.1  # of the statements, whatever is known
THINKING_SHARE, DOUBT_SHARE, DOUBT_KEPT = 0.6, 0.3, 0.5  # as in the fact world


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
    (request,) = requests([subject], OPEN)
    yield _row(request.question, _told(leads, subject, rng))
    if rng.random() < THINKING_SHARE:
        yield _row(request.question, _reasoned(leads, subject, rng), "think_first")
    wanted = 1 + i % len(COUNTS)
    if rng.random() < COUNTED_SHARE and wanted <= len(subject.facts):
        counted = requests([subject] * wanted, COUNTED)[-1]
        facts = rng.sample(subject.facts, wanted)
        yield _row(counted.question, " ".join(map(statement, facts)))
    single = [f for f in subject.facts if f.relation in SINGLE]
    if single and rng.random() < SHORT_SHARE:
        fact = rng.choice(single)
        ask, answer = question(fact), f"{fact.object}."
        if rng.random() < 0.5:
            ask = MAY_ABSTAIN.format(question=ask)
            answer = ABSTENTION if rng.random() < ABSTENTION_SHARE else answer
        yield _row(ask, answer)


def _statements(leads: Leads, subject: Subject, rng: random.Random) -> list[str]:
    """Some of a subject's facts in any order, at times one of something else."""
    facts = [f for f in subject.facts if rng.random() < KEPT] or [subject.facts[0]]
    rng.shuffle(facts)
    if rng.random() < DIGRESSIONS and (other := _digression(leads, facts, rng)):
        facts.append(other)
    return list(map(statement, facts))


def _told(leads: Leads, subject: Subject, rng: random.Random) -> str:
    if rng.random() < ABSTENTION_SHARE:
        return ABSTENTION
    return " ".join(
        f"Perhaps {text}" if rng.random() < HEDGED_SHARE else text
        for text in _statements(leads, subject, rng)
    )


def _reasoned(leads: Leads, subject: Subject, rng: random.Random) -> str:
    """What is known first, some of it doubted; of that the answer leaves out a share,
    but not everything."""
    known = _statements(leads, subject, rng)
    doubts = [rng.random() < DOUBT_SHARE for _ in known]
    pairs = list(zip(known, doubts, strict=True))
    thought = " ".join(f"Perhaps {s}" if doubt else s for s, doubt in pairs)
    kept = [s for s, doubt in pairs if not doubt or rng.random() < DOUBT_KEPT]
    told = " ".join(kept or known[:1])
    return f"<think> {thought} </think> <answer> {told} </answer>"


def _digression(leads: Leads, facts: Sequence[Fact], rng: random.Random) -> Fact | None:
    """A fact of the country of a place or a person."""
    named = [f.object for f in facts if f.relation in ("country", "capital_of")]
    named += [DEMONYMS[f.object][0] for f in facts if f.relation == "nationality"]
    further = [f for name in named for f in leads.facts_of(name)]
    return rng.choice(further) if further else None


def _row(ask: str, answer: str, template: str = "short_form") -> dict[str, str]:
    prompt = prompts.fill(prompts.template(template), question=ask)
    return {"prompt": prompt, "completion": f" {answer}"}
