"""Feedback on the statements of responses (RLFH §3.1, Tables 4 to 7).

An annotator gives it: an exact one where every fact is known, else a language model by
a pipeline of calls. If one call for a response fails, its feedback is None: statements
get no default, and none is left out. A statement without passages is vague.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Annotated

from pydantic import ValidationInfo, field_validator

from factkit.answers.engine import ClaimEngine, ExactEngine
from factkit.answers.verifier import Texts, judge_llm
from factkit.data.examples import Example
from factkit.facts.source import FactReader
from factkit.papers.rlfh.arms import RlfhParams
from factkit.verify import judge
from factkit.verify.calls import gather
from factkit.verify.claims import ClaimText, LabelPrompt, extract_texts, label_text
from factkit.verify.llm import LLM
from factkit.verify.replies import Form, limit_integer, limit_items, match_word
from factkit.verify.response import extract_answers

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


TRUTHS = {  # (support by the facts, whether the statement is hedged) → truth
    ("supported", False): Truth.CORRECT,
    ("supported", True): Truth.HEDGED_CORRECT,
    ("contradicted", False): Truth.WRONG,
    ("contradicted", True): Truth.HEDGED_WRONG,
}
Feedback = list[Sentence] | None  # on a response; [] if it states nothing, None: failed
# (ids, prompts, responses) → the feedback on each response
Annotator = Callable[[Texts, Texts, Texts], Sequence[Feedback]]
ExactAnnotator = Callable[[Texts, Texts, Texts], list[list[Sentence]]]


def mean_feedback(feedback: Sequence[Feedback]) -> dict[str, float]:
    """Statements of each kind of truth per response, and informativeness per statement,
    of the responses that the annotator did not fail on."""
    known = [sentences for sentences in feedback if sentences is not None]
    statements = [s for row in known for sentence in row for s in sentence.statements]
    truths = [s.truth for s in statements]
    means = {
        truth.replace(" ", "_"): truths.count(truth) / len(known)
        for truth in Truth
        if known
    }
    if statements:
        means["informativeness"] = fmean(s.informativeness for s in statements)
    return means


def annotator(p: RlfhParams, engine: ExactEngine | ClaimEngine) -> Annotator:
    """The annotator of `p`: a language model with the evidence of `engine`, or the
    exact facts. It sees the answers without reasoning."""
    if isinstance(engine, ClaimEngine):
        llm = judge_llm(p, p.judge_model, p.judge_url)
        annotate = llm_annotator(llm, engine.evidence_of)
    else:
        annotate = exact_annotator(engine.facts, engine.examples)
    return lambda ids, prompts, responses: annotate(
        ids, prompts, extract_answers(responses)
    )


# ---- where every fact is known


def exact_annotator(
    facts: FactReader, examples: Mapping[str, Example]
) -> ExactAnnotator:
    """Feedback without a model.

    A statement on which the facts are silent is vague. Informativeness (ours) is 5 for
    the subject that was asked about; 2 for another subject, for more facts than wanted,
    and for what cannot be read; 1 for a repetition within the response.
    """

    def annotate(example: Example, response: str) -> list[Sentence]:
        subject = example.entity
        seen: set[tuple[str, ...]] = set()
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
                informativeness = 1 if key in seen else 5 if useful else 2
                seen.add(key)
                truth = TRUTHS.get((facts.verify(text), hedged), Truth.VAGUE)
                statements.append(Statement(text, truth, informativeness))
            if statements:
                feedback.append(Sentence(sentence, tuple(statements)))
        return feedback

    return lambda ids, prompts, responses: [
        annotate(examples[i], text) for i, text in zip(ids, responses, strict=True)
    ]


# ---- by a language model, one call for each part


class Statements(Form):
    """The form of RLFH's Table 5, of one sentence."""

    statements: Annotated[list[ClaimText], limit_items(12)]


class Label(Form):
    """The form of a statement's verification."""

    label: Annotated[Truth, match_word(*Truth)]


STATEMENT_LABEL = LabelPrompt("verify_statement", "statement", Label, Truth.VAGUE)


class Ratings(Form):
    """The form of the informativeness of a response's statements, in order."""

    ratings: Annotated[list[Annotated[int, limit_integer(SCALE)]], limit_items(300)]

    @field_validator("ratings")
    @classmethod
    def _one_per_statement(cls, ratings: list[int], info: ValidationInfo) -> list[int]:
        if info.context and len(ratings) != len(info.context["statements"]):
            raise ValueError("not one rating per statement")
        return ratings


def llm_annotator(llm: LLM, evidence_of: Callable[[str, str], Texts]) -> Annotator:
    """The pipeline of §3.1: one call per sentence to extract its statements, one per
    statement to verify it, one per response to rate them. All responses are annotated
    at the same time; one on which a call failed gets no further calls.

    evidence_of: (prompt id, statement) → passages, best first. Unlike claims,
    statements keep their hedges, as these change the reward, and their repetitions, as
    each has its place. Verification has the five labels of Table 4: Table 6 asks for
    three and leaves open who tells the hedged ones apart.
    """

    async def annotate(prompt_id: str, prompt: str, response: str) -> Feedback:
        sentences = await extract_texts(
            llm, "extract_statements", Statements, prompt, response
        )
        if any(texts is None for _, texts in sentences):
            return None
        statements = [text for _, texts in sentences for text in texts or ()]
        if not statements:
            return []
        truths = await gather(
            label_text(llm, text, evidence_of(prompt_id, text), STATEMENT_LABEL)
            for text in statements
        )
        if None in truths:
            return None
        ratings = await rate(llm, prompt, response, statements)
        if ratings is None:
            return None
        labels = zip(truths, ratings, strict=True)
        return [
            Sentence(text, tuple(Statement(s, *next(labels)) for s in texts))
            for text, texts in sentences
            if texts
        ]

    return lambda ids, prompts, responses: judge.run_all(
        map(annotate, ids, prompts, responses), "annotating"
    )


async def rate(
    llm: LLM, prompt: str, response: str, statements: Texts
) -> list[int] | None:
    """The informativeness of each statement of a response, by one call: what one adds
    depends on the others (§3.1.3; Table 7 asks about one)."""
    row = {  # with numbers, so that the model need not count
        "question": prompt,
        "response": response,
        "statements": [f"{n}. {text}" for n, text in enumerate(statements, start=1)],
    }
    template = "rate_informativeness"
    reply = await judge.ask(llm, template, row, Ratings, RATING_TOKENS)
    return None if reply is None else reply.ratings
