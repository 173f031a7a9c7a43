"""Annotators: statement-level feedback on responses (RLFH §3.1, Tables 4 to 7).

Exact where every fact is known; by a language model in a pipeline of calls, or in one
call a response. A response of which one part failed is `None`: no statement of it gets
a default, and none is left out. Without passages a statement is vague by definition.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from factkit.datasets.examples import Example
from factkit.retrieval.evidence import query_of
from factkit.rlfh.feedback import Annotator, Sentence, Statement, Truth
from factkit.verify import judge
from factkit.verify.claims import Claim, read_sentences
from factkit.verify.exact import Reader
from factkit.verify.replies import Claimed, Form, Text, read, whole, word
from factkit.verify.response import answers
from factkit.verify.sentences import sentences
from factkit.verify.support import labeller, support_of
from factkit.verify.verifier import judge_llm
from factkit.world import facts as worlds

if TYPE_CHECKING:
    from factkit.llm import LLM, Reply
    from factkit.rlfh.arms import RlfhParams
    from factkit.verify.engine import ClaimEngine
    from factkit.verify.exact import ExactEngine

SCALE = range(1, 6)  # of informativeness
RATING_TOKENS, RESPONSE_TOKENS = 1024, 4096  # of a reply

# (prompt id, what to look for) → passages, best first
EvidenceOf = Callable[[str, str], Sequence[str]]
# sentences, and the statements of each, if any
Stated = list[tuple[str, list[str]]]
# (statement, passages, best first) → its label; None: failed
Verifier = Callable[[Sequence[tuple[str, Sequence[str]]]], list[Truth | None]]
# (prompts, responses, their statements) → a rating of each statement; None: failed
Rater = Callable[
    [Sequence[str], Sequence[str], Sequence[Sequence[str]]], list[list[int] | None]
]


def annotator(p: "RlfhParams", engine: "ExactEngine | ClaimEngine") -> Annotator:
    """Who gives RLFH's feedback, on the answers without reasoning: the exact one of the
    fact world or the leads, or a language model in steps or in a single pass, with the
    evidence of `engine`."""
    if p.verifier != "judge":
        annotate = exact_annotator(engine.facts, engine.examples)
    else:
        llm = judge_llm(p, p.judge_model, p.judge_url)
        single = p.annotation == "single_pass"
        make = single_pass_annotator if single else llm_annotator
        annotate = make(llm, engine.evidence_of)
    return lambda ids, prompts, responses: annotate(ids, prompts, answers(responses))


# Where every fact is known


def exact_annotator(facts: Reader, examples: Mapping[str, Example]) -> Annotator:
    """Feedback without a model.

    A statement is vague where the facts are silent. Informativeness (ours): 5, of the
    subject that was asked about; 2, of something else, or more than the number of facts
    that was asked for, or unread; 1, stated before in the same response.
    """

    def annotate(ids, prompts, responses) -> list[list[Sentence] | None]:
        return [
            _exact_feedback(facts, examples[i], response)
            for i, response in zip(ids, responses, strict=True)
        ]

    return annotate


def _exact_feedback(facts: Reader, asked: Example, response: str) -> list[Sentence]:
    seen: set[tuple[str, ...]] = set()
    wanted = asked.meta.get("wanted", float("inf"))
    feedback = []
    for sentence in facts.sentences(response, asked.entity):
        statements = []
        for text in facts.statements(sentence, asked.entity):
            fact, hedged = facts.parse(text) or (None, False)
            key = (fact.subject, fact.relation) if fact else (text,)
            if fact and fact.relation == "occupation":  # one may have several
                key = (*key, fact.object)
            useful = fact and fact.subject == asked.entity and len(seen) < wanted
            informative = 1 if key in seen else 5 if useful else 2
            seen.add(key)
            truth = _truth(facts.verify(text), hedged)
            statements.append(Statement(text, truth, informative))
        if statements:
            feedback.append(Sentence(sentence, tuple(statements)))
    return feedback


def _truth(verified: worlds.Verification, hedged: bool) -> Truth:
    match verified:
        case "supported":
            return Truth.HEDGED_CORRECT if hedged else Truth.CORRECT
        case "contradicted":
            return Truth.HEDGED_WRONG if hedged else Truth.WRONG
    return Truth.VAGUE


# A call for each part


class Statements(Form):
    """The form of RLFH's Table 5, of one sentence."""

    statements: list[Claimed]


class Label(Form):
    """The form of a statement's verification."""

    label: word(*Truth)


class Ratings(Form):
    """The form of the informativeness of a response's statements, in order."""

    ratings: list[whole(SCALE)]


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
        claims = [
            None
            if of is None
            else [Claim(text, s) for s, texts in of for text in texts]
            for _, of in zip(ids, stated, strict=True)
        ]
        truths = support_of(claims, lambda i, c: evidence_of(ids[i], c.text), verify)
        known = [
            [claim.text for claim in of] if of and None not in true else []
            for of, true in zip(claims, truths, strict=True)
        ]
        ratings = rate(prompts, responses, known)
        return list(map(_feedback, stated, truths, ratings))

    return annotate


def _feedback(
    stated: Stated | None,
    truths: Sequence[Truth | None] | None,
    ratings: Sequence[int] | None,
) -> list[Sentence] | None:
    """A response's feedback, None if one part of it failed."""
    if stated is None or None in truths or ratings is None:
        return None
    labels = zip(truths, ratings, strict=True)
    return [
        Sentence(sentence, tuple(Statement(text, *next(labels)) for text in texts))
        for sentence, texts in stated
    ]


def llm_statements(
    llm: "LLM", template: str = "extract_statements"
) -> Callable[[Sequence[str], Sequence[str]], list[Stated | None]]:
    """A language model, asked once for each sentence of each response, in one batch;
    sentences that state nothing are left out (§3.1.1).

    As `claims.llm_extractor`, but statements keep their hedges, since a hedged one is
    rewarded otherwise, and come again where a response repeats them, since each place
    has its reward. The paper has all sentences of a response in one call (Table 5).
    """

    def extract(
        prompts: Sequence[str], responses: Sequence[str]
    ) -> list[Stated | None]:
        rows = read_sentences(llm, template, Statements, prompts, responses)
        return [
            None
            if any(texts is None for _, texts in split)
            else [(sentence, texts) for sentence, texts in split if texts]
            for split in rows
        ]

    return extract


def llm_verifier(llm: "LLM", template: str = "verify_statement") -> Verifier:
    """A language model, asked once a statement with all its passages (§3.1.2).

    It is asked for one of the five labels at once, as in Table 4. Table 6 asks for
    three, of a statement that keeps its hedge, and leaves open who tells the hedged
    ones apart: a model that reads the statement can, a list of words can't always.
    A statement without passages is vague and makes no call.
    """
    return labeller(llm, template, Label, "statement", Truth.VAGUE)


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
        replies = iter(
            judge.ask(llm, template, fields, Ratings, RATING_TOKENS, "rating")
        )
        return [ratings_of(next(replies), len(of)) if of else [] for _, _, of in rows]

    return rate


def ratings_of(reply: "Reply", n: int) -> list[int] | None:
    """The n ratings that a reply ends with, None without exactly n."""
    told = read(reply, Ratings)
    return told.ratings if told and len(told.ratings) == n else None


# One call a response


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
        asked = [
            (i, prompt, response) if sentences(response) else None
            for i, prompt, response in zip(ids, prompts, responses, strict=True)
        ]
        fields = [
            {
                "evidence": list(evidence_of(i, query_of(prompt, response))),
                "question": prompt,
                "response": response,
            }
            for i, prompt, response in filter(None, asked)
        ]
        replies = judge.ask(llm, template, fields, Told, RESPONSE_TOKENS, "annotating")
        rows = zip(replies, fields, strict=True)
        told = iter([feedback(reply, bool(of["evidence"])) for reply, of in rows])
        return [next(told) if row else [] for row in asked]

    return annotate


def feedback(reply: "Reply", passages: bool = True) -> list[Sentence] | None:
    """The feedback that a single pass ends with, None without exactly one. A sentence
    without statements is left out; without passages all of them are vague."""
    told = read(reply, Told)
    if told is None:
        return None
    return [
        Sentence(
            sentence.sentence,
            tuple(
                Statement(
                    of.statement,
                    Truth(of.truth) if passages else Truth.VAGUE,
                    of.informativeness,
                )
                for of in sentence.statements
            ),
        )
        for sentence in told.sentences
        if sentence.statements
    ]
