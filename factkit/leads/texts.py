"""What the cold start of profile `laptop` learns from: how to tell of a subject.

The policy knows something of the leads and lacks the form. It learns on subjects that
no run asks for, with facts left out at random, so that leaving out occurs in rollouts;
which ones says nothing of what it knows. Ours: the papers start from instruct models
that write at length by themselves.
"""

import random
from collections.abc import Iterator, Sequence

from factkit import prompts
from factkit.datasets.leads import DEMONYMS
from factkit.datasets.world_prompts import COUNTED, OPEN
from factkit.leads.facts import Fact, Leads, Subject, statement
from factkit.leads.requests import (
    ASKED,
    COUNTS,
    LEAVE,
    of_cold_start,
    question,
    requests,
)

KEPT = 0.75  # of a subject's facts
ABSTENTION, ABSTENTION_SHARE = "I don't know.", 0.03
DIGRESSIONS = 0.25  # of the answers: a true statement about something else after it
COUNTED_SHARE, SHORT_SHARE = 0.35, 0.5  # requests a subject beside the open one
HEDGED_SHARE = 0.2  # RLFH's: of the statements, whatever is known
THINKING_SHARE, DOUBT_SHARE, DOUBT_KEPT = 0.6, 0.3, 0.5  # as in the fact world
FORMS = ("long", "reasoned", "joined")


def cold_start_rows(
    leads: Leads, answer_format: str, seed: int
) -> list[dict[str, str]]:
    """Rows of `prompt` and `completion`, without a chat template.

    answer_format: long | reasoned (a part thinks first, in tags) | joined (a part of
    the statements is hedged).
    """
    rng = random.Random(f"cold start {seed}")
    cold = [s for _, s in sorted(leads.subjects.items()) if of_cold_start(s)]
    rng.shuffle(cold)
    rows = [
        row
        for i, subject in enumerate(cold)
        for row in _rows(leads, subject, answer_format, i, rng)
    ]
    rng.shuffle(rows)
    return rows


def _rows(
    leads: Leads, subject: Subject, answer_format: str, i: int, rng: random.Random
) -> Iterator[dict[str, str]]:
    (asked,) = requests([subject], OPEN)
    facts = [f for f in subject.facts if rng.random() < KEPT] or [subject.facts[0]]
    rng.shuffle(facts)
    yield _told(leads, asked.question, facts, answer_format, rng)
    if rng.random() < COUNTED_SHARE:
        wanted = 1 + i % len(COUNTS)
        some = rng.sample(subject.facts, min(wanted, len(subject.facts)))
        if len(some) == wanted:
            counted = requests([subject] * wanted, COUNTED)[wanted - 1]
            yield _row(counted.question, " ".join(map(statement, some)))
    single = [f for f in subject.facts if f.relation in ASKED]
    if single and rng.random() < SHORT_SHARE:
        fact = rng.choice(single)
        ask, answer = question(fact), f"{fact.object}."
        if rng.random() < 0.5:
            ask = LEAVE.format(question=ask)
            answer = ABSTENTION if rng.random() < ABSTENTION_SHARE else answer
        yield _row(ask, answer)


def _told(
    leads: Leads,
    ask: str,
    facts: Sequence[Fact],
    answer_format: str,
    rng: random.Random,
) -> dict[str, str]:
    """An open request and what is told."""
    if rng.random() < ABSTENTION_SHARE:
        return _row(ask, ABSTENTION)
    said = [statement(f) for f in facts]
    if answer_format == "joined":
        said = [f"Perhaps {s}" if rng.random() < HEDGED_SHARE else s for s in said]
    if rng.random() < DIGRESSIONS and (other := _digression(leads, facts, rng)):
        said.append(statement(other))
    if answer_format != "reasoned" or rng.random() > THINKING_SHARE:
        return _row(ask, " ".join(said))
    doubted = [rng.random() < DOUBT_SHARE for _ in said]
    thought = [f"Perhaps {s}" if d else s for s, d in zip(said, doubted, strict=True)]
    kept = [
        s
        for s, d in zip(said, doubted, strict=True)
        if not d or rng.random() < DOUBT_KEPT
    ]
    told = " ".join(kept or said[:1])
    response = f"<think> {' '.join(thought)} </think> <answer> {told} </answer>"
    return _row(ask, response, "think_first")


def _digression(leads: Leads, facts: Sequence[Fact], rng: random.Random) -> Fact | None:
    """A fact of the country of a place or a person."""
    named = [f.object for f in facts if f.relation in ("country", "capital_of")]
    named += [DEMONYMS[f.object][0] for f in facts if f.relation == "nationality"]
    further = [f for name in named for f in leads.facts_of(name)]
    return rng.choice(further) if further else None


def _row(ask: str, answer: str, template: str = "short_form") -> dict[str, str]:
    prompt = prompts.fill(prompts.template(template), question=ask)
    return {"prompt": prompt, "completion": f" {answer}"}
