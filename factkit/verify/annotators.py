"""Annotators: statement-level feedback on responses (RLFH §3.1, Tables 4 to 7).

Two of one signature: a pipeline of a language model's calls, and one call a response.
A response of which one part failed is `None`: no statement of it gets a default, and
none is left out. Without passages a statement is vague by definition.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from factkit.retrieval.evidence import query_of
from factkit.verify import judge
from factkit.verify.claims import Claim
from factkit.verify.feedback import Annotator, Sentence, Statement, Truth
from factkit.verify.replies import Claimed, Form, Text, read, whole, word
from factkit.verify.sentences import sentences
from factkit.verify.statements import Stated, llm_statements
from factkit.verify.support import support_of

if TYPE_CHECKING:
    from factkit.llm import LLM, Reply

SCALE = range(1, 6)  # of informativeness
LABEL_TOKENS, RATING_TOKENS, RESPONSE_TOKENS = 32, 1024, 4096  # of a reply

# (prompt id, what to look for) → passages, best first
EvidenceOf = Callable[[str, str], Sequence[str]]
# (statement, passages, best first) → its label; None: failed
Verifier = Callable[[Sequence[tuple[str, Sequence[str]]]], list[Truth | None]]
# (prompts, responses, their statements) → a rating of each statement; None: failed
Rater = Callable[
    [Sequence[str], Sequence[str], Sequence[Sequence[str]]], list[list[int] | None]
]


class Label(Form):
    """The form of a statement's verification."""

    label: word(*Truth)


class Ratings(Form):
    """The form of the informativeness of a response's statements, in order."""

    ratings: list[whole(SCALE)]


class ToldStatement(Form):
    """A statement as a single pass tells it."""

    statement: Claimed
    truth: word(*Truth)
    informativeness: whole(SCALE)


class ToldSentence(Form):
    """A sentence as a single pass tells it."""

    sentence: Text
    statements: list[ToldStatement]


class Told(Form):
    """The form of a single pass. Table 4 maps sentences to statements; here they are
    lists, since a response may repeat both."""

    sentences: list[ToldSentence]


# A call for each part


def llm_annotator(llm: "LLM", evidence_of: EvidenceOf) -> Annotator:
    """The pipeline of §3.1: three batches of calls, one a sentence to extract, one a
    statement to verify, one a response to rate.

    A statement is verified against the passages found for it alone; equal ones with
    equal passages once, also across responses. What failed already is not rated.
    """
    extract, verify, rate = llm_statements(llm), llm_verifier(llm), llm_rater(llm)

    def annotate(
        ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[list[Sentence] | None]:
        stated = extract(prompts, responses)
        truths = _verified(ids, stated, verify, evidence_of)
        return _rated(prompts, responses, stated, truths, rate)

    return annotate


def llm_verifier(llm: "LLM", template: str = "verify_statement") -> Verifier:
    """A language model, asked once a statement with all its passages (§3.1.2).

    It is asked for one of the five labels at once, as in Table 4. Table 6 asks for
    three, of a statement that keeps its hedge, and leaves open who tells the hedged
    ones apart: a model that reads the statement can, a list of words can't always.
    A statement without passages is vague and makes no call.
    """

    def verify(rows: Sequence[tuple[str, Sequence[str]]]) -> list[Truth | None]:
        fields = [{"evidence": list(e), "statement": text} for text, e in rows if e]
        replies = judge.ask(llm, template, fields, Label, LABEL_TOKENS, "verifying")
        labels = [read(reply, Label) for reply in replies]
        truths = iter([None if of is None else Truth(of.label) for of in labels])
        return [next(truths) if passages else Truth.VAGUE for _, passages in rows]

    return verify


def llm_rater(llm: "LLM", template: str = "rate_informativeness") -> Rater:
    """A language model, asked once a response for the ratings of all its statements:
    what one adds depends on the others (§3.1.3). Table 7 asks about one statement.

    A reply without exactly one rating for each statement is a failure; statements are
    numbered, so that the model need not count. A response without any makes no call.
    """

    def rate(
        prompts: Sequence[str],
        responses: Sequence[str],
        statements: Sequence[Sequence[str]],
    ) -> list[list[int] | None]:
        rows = list(zip(prompts, responses, statements, strict=True))
        fields = [
            {
                "question": prompt,
                "response": response,
                "statements": [f"{n}. {text}" for n, text in enumerate(of, start=1)],
            }
            for prompt, response, of in rows
            if of
        ]
        replies = judge.ask(llm, template, fields, Ratings, RATING_TOKENS, "rating")
        told = iter(replies)
        return [ratings_of(next(told), len(of)) if of else [] for _, _, of in rows]

    return rate


def ratings_of(reply: "Reply", n: int) -> list[int] | None:
    """The n ratings that a reply ends with, None without exactly n."""
    told = read(reply, Ratings)
    return told.ratings if told and len(told.ratings) == n else None


# One call a response


def single_pass_annotator(
    llm: "LLM", evidence_of: EvidenceOf, template: str = "annotate_response"
) -> Annotator:
    """A language model that does it all in one call a response (Table 4).

    The passages are those found for prompt and response. Sentences are as the model
    copied them, which may not be word for word. A response without any sentence states
    nothing and makes no call.
    """

    def annotate(
        ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[list[Sentence] | None]:
        rows = [
            (i, prompt, response) if sentences(response) else None
            for i, prompt, response in zip(ids, prompts, responses, strict=True)
        ]
        fields = [
            {
                "evidence": list(evidence_of(i, query_of(prompt, response))),
                "question": prompt,
                "response": response,
            }
            for i, prompt, response in filter(None, rows)
        ]
        replies = judge.ask(llm, template, fields, Told, RESPONSE_TOKENS, "annotating")
        found = iter(
            [
                _known(feedback(reply), by=of["evidence"])
                for reply, of in zip(replies, fields, strict=True)
            ]
        )
        return [next(found) if row else [] for row in rows]

    return annotate


def feedback(reply: "Reply") -> list[Sentence] | None:
    """The feedback that a single pass ends with, None without exactly one. A sentence
    without statements is left out."""
    told = read(reply, Told)
    if told is None:
        return None
    return [
        Sentence(
            sentence.sentence,
            tuple(
                Statement(of.statement, Truth(of.truth), of.informativeness)
                for of in sentence.statements
            ),
        )
        for sentence in told.sentences
        if sentence.statements
    ]


def _known(told: list[Sentence] | None, by: Sequence[str]) -> list[Sentence] | None:
    """The feedback, with all that it calls correct or wrong vague without passages."""
    if by or told is None:
        return told
    return [
        Sentence(s.text, tuple(replace(of, truth=Truth.VAGUE) for of in s.statements))
        for s in told
    ]


# Of both


def _texts(stated: Stated) -> list[str]:
    return [text for _, texts in stated for text in texts]


def _verified(
    ids: Sequence[str],
    stated: Sequence[Stated | None],
    verify: Verifier,
    evidence_of: EvidenceOf,
) -> list[list[Truth | None] | None]:
    """The label of each statement of each response, all verified in one batch."""
    claims = [
        None if of is None else [Claim(text, s) for s, texts in of for text in texts]
        for _, of in zip(ids, stated, strict=True)
    ]
    return support_of(claims, lambda i, c: evidence_of(ids[i], c.text), verify)


def _rated(
    prompts: Sequence[str],
    responses: Sequence[str],
    stated: Sequence[Stated | None],
    truths: Sequence[Sequence[Truth | None] | None],
    rate: Rater,
) -> list[list[Sentence] | None]:
    """The feedback on each response whose truths are known, once it is rated."""
    known = [
        of if of is not None and None not in true else None
        for of, true in zip(stated, truths, strict=True)
    ]
    ratings = rate(prompts, responses, [_texts(of or []) for of in known])
    return [
        None if of is None or rated is None else _sentences(of, true, rated)
        for of, true, rated in zip(known, truths, ratings, strict=True)
    ]


def _sentences(
    stated: Stated, truths: Sequence[Truth], ratings: Sequence[int]
) -> list[Sentence]:
    labels = zip(truths, ratings, strict=True)
    return [
        Sentence(sentence, tuple(Statement(text, *next(labels)) for text in texts))
        for sentence, texts in stated
    ]
