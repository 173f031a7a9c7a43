"""Statement-level feedback on responses, and who gives it (RLFH §3.1, Tables 4 to 7).

Exact where every fact is known; else by a language model in a pipeline of calls. A
response of which one part failed is `None`: no statement of it gets a default, and none
is left out. Without passages a statement is vague by definition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import TYPE_CHECKING

from pydantic import ValidationInfo, field_validator

from factkit.answers.verifier import judge_of
from factkit.data.examples import Example
from factkit.facts.source import FactReader
from factkit.verify import judge
from factkit.verify.claims import (
    Claim,
    Claimed,
    labeller,
    read_sentences,
    support_of,
)
from factkit.verify.judge import Form, up_to, whole, word
from factkit.verify.response import answers

if TYPE_CHECKING:
    from factkit.answers.engine import ClaimEngine, ExactEngine
    from factkit.papers.rlfh.arms import RlfhParams
    from factkit.verify.llm import LLM

SCALE = range(1, 6)  # of informativeness
RATING_TOKENS = 1024  # of a reply


class Truth(StrEnum):
    """How a statement stands to the materials (§3.1.2), and whether it is hedged."""

    CORRECT = "correct"
    HEDGED_CORRECT = "hedged correct"
    VAGUE = "vague"
    HEDGED_WRONG = "hedged wrong"
    WRONG = "wrong"


@dataclass(frozen=True)
class Statement:
    """An atomic statement, in its own words."""

    text: str
    truth: Truth
    informativeness: int  # 1 (useless) to 5 (answers the question), §3.1.3


@dataclass(frozen=True)
class Sentence:
    """A sentence of the response and its statements, at least one (§3.1.1)."""

    text: str
    statements: tuple[Statement, ...]


TRUTHS = {  # what the facts say of a statement, and whether it is hedged
    ("supported", False): Truth.CORRECT,
    ("supported", True): Truth.HEDGED_CORRECT,
    ("contradicted", False): Truth.WRONG,
    ("contradicted", True): Truth.HEDGED_WRONG,
}
Feedback = list[Sentence] | None  # on a response; [] if it states nothing, None: failed
# (ids, prompts, responses) → the feedback on each response
Annotator = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[Feedback]]
# (prompt id, what to look for) → passages, best first
EvidenceOf = Callable[[str, str], Sequence[str]]


def kinds(feedback: Sequence[Feedback]) -> dict[str, float]:
    """Statements of each kind of truth a response, and a statement's informativeness:
    means over the responses that the annotator did not fail on."""
    known = [row for row in feedback if row is not None]
    stated = [s for row in known for sentence in row for s in sentence.statements]
    truths = [s.truth for s in stated]
    means = {
        truth.replace(" ", "_"): truths.count(truth) / len(known)
        for truth in Truth
        if known
    }
    if stated:
        means["informativeness"] = fmean(s.informativeness for s in stated)
    return means


def annotator(p: "RlfhParams", engine: "ExactEngine | ClaimEngine") -> Annotator:
    """Who gives RLFH's feedback, on the answers without reasoning: the exact one of the
    fact world or the leads, or a language model with the evidence of `engine`."""
    if llm := judge_of(p):
        annotate = llm_annotator(llm, engine.evidence_of)
    else:
        annotate = exact_annotator(engine.facts, engine.examples)
    return lambda ids, prompts, responses: annotate(ids, prompts, answers(responses))


# Where every fact is known


def exact_annotator(facts: FactReader, examples: Mapping[str, Example]) -> Annotator:
    """Feedback without a model.

    A statement is vague where the facts are silent. Informativeness (ours): 5, of the
    subject that was asked about; 2, of something else, or more than the number of facts
    that was asked for, or unread; 1, stated before in the same response.
    """

    def on_response(example: Example, response: str) -> list[Sentence]:
        subject, seen = example.entity, set()
        wanted = example.meta.get("wanted", float("inf"))
        feedback = []
        for sentence in facts.sentences(response, subject):
            statements = []
            for text in facts.statements(sentence, subject):
                fact, hedged = facts.parse(text) or (None, False)
                key = (fact.subject, fact.relation) if fact else (text,)
                if fact and fact.relation == "occupation":  # one may have several
                    key = (*key, fact.object)
                useful = fact and fact.subject == subject and len(seen) < wanted
                informative = 1 if key in seen else 5 if useful else 2
                seen.add(key)
                truth = TRUTHS.get((facts.verify(text), hedged), Truth.VAGUE)
                statements.append(Statement(text, truth, informative))
            if statements:
                feedback.append(Sentence(sentence, tuple(statements)))
        return feedback

    return lambda ids, prompts, responses: [
        on_response(examples[i], text) for i, text in zip(ids, responses, strict=True)
    ]


# A call for each part


class Statements(Form):
    """The form of RLFH's Table 5, of one sentence."""

    statements: up_to(12, Claimed)


class Label(Form):
    """The form of a statement's verification."""

    label: word(*Truth)


class Ratings(Form):
    """The form of the informativeness of a response's statements, in order."""

    ratings: up_to(300, whole(SCALE))

    @field_validator("ratings")
    @classmethod
    def _one_per_statement(cls, ratings: list[int], info: ValidationInfo) -> list[int]:
        if info.context and len(ratings) != len(info.context["statements"]):
            raise ValueError("not one rating per statement")
        return ratings


def llm_annotator(llm: "LLM", evidence_of: EvidenceOf) -> Annotator:
    """The pipeline of §3.1: three batches of calls, one a sentence to extract, one a
    statement to verify, one a response to rate; what failed is not asked about further.

    Unlike claims, statements keep their hedges, since a hedged one is rewarded
    otherwise, and come again where a response repeats them, since each place has its
    reward. Each is held against the passages found for it, for one of Table 4's five
    labels: Table 6 asks for three and leaves open who tells the hedged ones apart.
    """
    verify = labeller(llm, "verify_statement", Label, "statement", Truth.VAGUE)

    def annotate(ids, prompts, responses) -> list[Feedback]:
        split = read_sentences(
            llm, "extract_statements", Statements, prompts, responses
        )
        claims = [
            None
            if any(texts is None for _, texts in row)
            else [Claim(text, sentence) for sentence, texts in row for text in texts]
            for row in split
        ]
        truths = support_of(claims, lambda i, c: evidence_of(ids[i], c.text), verify)
        known = [
            [claim.text for claim in row] if row and None not in labels else []
            for row, labels in zip(claims, truths, strict=True)
        ]
        ratings = rate(llm, prompts, responses, known)
        return list(map(_joined, split, truths, ratings))

    return annotate


def rate(
    llm: "LLM",
    prompts: Sequence[str],
    responses: Sequence[str],
    statements: Sequence[Sequence[str]],
) -> list[list[int] | None]:
    """A rating of each statement, by one call a response that has any: what one adds
    depends on the others (§3.1.3; Table 7 asks about one). They are numbered, so that
    the model need not count."""
    fields = [
        {
            "question": prompt,
            "response": response,
            "statements": [f"{n}. {text}" for n, text in enumerate(texts, start=1)],
        }
        for prompt, response, texts in zip(prompts, responses, statements, strict=True)
        if texts
    ]
    how = "rate_informativeness", fields, Ratings, RATING_TOKENS, "rating"
    replies = iter(judge.ask(llm, *how))
    return [getattr(next(replies), "ratings", None) if r else [] for r in statements]


def _joined(
    split: Sequence[tuple[str, list[str] | None]],
    truths: Sequence[Truth | None] | None,
    ratings: Sequence[int] | None,
) -> Feedback:
    """A response's feedback, None if one part of it failed."""
    if truths is None or None in truths or ratings is None:
        return None
    labels = zip(truths, ratings, strict=True)
    return [
        Sentence(sentence, tuple(Statement(text, *next(labels)) for text in texts))
        for sentence, texts in split
        if texts
    ]
