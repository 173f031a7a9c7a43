"""The requests of the embedded sources: long answers, counted facts, short questions.

Ours. They stand for WildChat, Biography, PopQA and IFEval (Binary RAR §4).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit.data.examples import COUNTED, MAY_ABSTAIN, OPEN, Example

if TYPE_CHECKING:
    from factkit.facts.source import FactSource

COUNTS = {1: "one fact", 2: "two facts", 3: "three facts"}
COUNTED_REQUEST = "Tell me {count} about {s}."
MAY_ABSTAIN_REQUEST = "{question} You may say that you don't know."


def make_requests(
    source: "FactSource", subjects: Sequence[str], kind: str
) -> list[Example]:
    """The requests of a kind about each subject; `answers[0]` is a true reference.

    kind: open (tell of a subject) | counted (tell one, two or three facts:
    `meta["wanted"]`) | may_abstain, best_guess (a short question per fact, with and
    without leave to abstain).
    """
    make = _long_requests if kind in (OPEN, COUNTED) else _short_requests
    return [
        request
        for number, subject in enumerate(subjects)
        for request in make(source, subject, kind, number)
    ]


def _long_requests(
    source: "FactSource", subject: str, kind: str, number: int
) -> list[Example]:
    name, meta = source.name_within(subject), {"kind": kind, **source.describe(subject)}
    texts = [text.format(s=name) for text in source.open_requests]
    if kind == COUNTED:
        meta["wanted"] = 1 + number % len(COUNTS)
        texts = [count_request(name, meta["wanted"])]
    several = len(source.open_requests) > 1
    return [
        Example(
            id=f"{source.request_prefix}{subject} {kind}" + f" {i}" * several,
            question=text,
            answers=[" ".join(map(source.statement, source.facts_of(subject)))],
            entity=subject,
            label=source.long_label,
            evidence=source.evidence(subject),
            meta=meta,
        )
        for i, text in enumerate(texts)
    ]


def _short_requests(
    source: "FactSource", subject: str, kind: str, number: int
) -> list[Example]:
    text = MAY_ABSTAIN_REQUEST if kind == MAY_ABSTAIN else "{question}"
    return [
        Example(
            id=f"{source.request_prefix}{subject} {fact.relation} {kind}",
            question=text.format(question=source.question(fact, number)),
            answers=[fact.object, *fact.others],
            entity=subject,
            relation=fact.relation,
            evidence=source.evidence(subject),
            meta={"kind": kind, **source.describe(subject, fact)},
        )
        for fact in source.asked_facts(subject)
    ]


def count_request(name: str, n: int) -> str:
    """The request for n facts about a subject; n is in `COUNTS`."""
    return COUNTED_REQUEST.format(count=COUNTS[n], s=name)
