"""Annotators: whole feedback or None, each call once, repeats and order kept."""

import json

import pytest
from fake_endpoint import answer, prompt_of, refuse, serve
from fake_llm import FakeLLM, field, told
from hypothesis import given
from hypothesis import strategies as st

from factkit import prompts
from factkit.llm import LLM, Endpoint, Limits, Reply
from factkit.rlfh.annotators import (
    SCALE,
    Label,
    Statements,
    feedback,
    llm_annotator,
    ratings_of,
    single_pass_annotator,
)
from factkit.rlfh.feedback import Sentence, Statement, Truth
from factkit.verify.replies import (
    REFUSAL,
    read,
)
from factkit.verify.sentences import sentences

CORRECT, HEDGED_CORRECT, VAGUE, HEDGED_WRONG, WRONG = Truth


def extract(prompt):
    """A statement for each part of a sentence; none of one about "I"."""
    sentence = field(prompt, "Sentence")
    parts = sentence.removesuffix(".").split(" and ")
    return told(statements=[] if "I " in sentence else [f"{p}." for p in parts])


def verify(prompt):
    """The label that the statement ends with, or else correct."""
    last = field(prompt, "Statement").rpartition(" ")[2].removesuffix(".")
    label = last.replace("-", " ")
    return told(label=label if label in list(Truth) else "correct")


def rate(prompt):
    """5, 4, 3, 2, 1, 1, …"""
    n = len(field(prompt, "Statements"))
    return told(ratings=[max(5 - i, 1) for i in range(n)])


PIPELINE = {
    "extract_statements": extract,
    "verify_statement": verify,
    "rate_informativeness": rate,
}


def passages(prompt_id, text):
    return [f"of {prompt_id}", "more"]


def annotated(llm, *responses, evidence_of=passages):
    n = len(responses)
    ids, questions = [str(i) for i in range(n)], [f"Q{i}?" for i in range(n)]
    return llm_annotator(llm, evidence_of)(ids, questions, responses)


def statement(text, truth=CORRECT, informativeness=5):
    return Statement(text, truth, informativeness)


def pipeline(**rules):
    return FakeLLM(**PIPELINE | rules)


# The pipeline


def test_feedback_has_sentences_statements_and_labels_in_the_order_of_the_response():
    (found,) = annotated(pipeline(), "A is and B is wrong. I think so. C is vague.")
    assert found == [
        Sentence(
            "A is and B is wrong.",
            (statement("A is."), statement("B is wrong.", WRONG, 4)),
        ),
        Sentence("C is vague.", (statement("C is vague.", VAGUE, 3),)),
    ]


def test_each_part_is_one_batch_of_as_many_calls_as_it_needs():
    llm = pipeline()
    annotated(llm, "A is and B is. So I am. C is.", "So I am.", "", "D is.")
    assert llm.calls == {
        "extract_statements": 5,  # sentences
        "verify_statement": 4,  # statements
        "rate_informativeness": 2,  # responses with statements
    }
    assert [len(batch) for batch in llm.batches] == [5, 4, 2]


def test_equal_statements_with_equal_passages_are_verified_once():
    llm = pipeline()
    annotated(llm, "A is. A is.", "A is.", evidence_of=lambda i, text: ["same"])
    assert llm.calls["verify_statement"] == 1
    llm = pipeline()
    annotated(llm, "A is. A is.", "A is.")  # passages of each prompt
    assert llm.calls["verify_statement"] == 2


def test_a_repeated_statement_is_in_the_feedback_as_often_as_in_the_response():
    (found,) = annotated(pipeline(), "A is and A is. A is.")
    assert [(s.text, [t.text for t in s.statements]) for s in found] == [
        ("A is and A is.", ["A is.", "A is."]),
        ("A is.", ["A is."]),
    ]
    assert [t.informativeness for s in found for t in s.statements] == [5, 4, 3]


def test_a_response_without_statements_has_no_feedback_and_needs_no_labels():
    llm = pipeline()
    assert annotated(llm, "So I am. Who I am?", "", "```\nA is.\n```") == [[], [], []]
    assert llm.calls == {"extract_statements": 2}


def test_a_statement_without_passages_is_vague_and_makes_no_call():
    llm = pipeline()
    (found,) = annotated(
        llm, "A is. B is.", evidence_of=lambda i, text: ["e"] if "A" in text else []
    )
    assert [t.truth for s in found for t in s.statements] == [CORRECT, VAGUE]
    assert llm.calls["verify_statement"] == 1


def test_a_statement_is_verified_by_the_passages_found_for_it_by_its_prompts_id():
    llm = pipeline()
    annotated(llm, "A is and B is.", "C is.", evidence_of=lambda i, text: [i, text])
    shown = [field(p, "Passages") for p in llm.prompts("verify_statement")]
    assert shown == [["0", "A is."], ["0", "B is."], ["1", "C is."]]


def test_all_statements_of_a_response_are_numbered_and_rated_in_one_call():
    llm = pipeline()
    annotated(llm, "A is and B is. C is.")
    (prompt,) = llm.prompts("rate_informativeness")
    assert field(prompt, "Statements") == ["1. A is.", "2. B is.", "3. C is."]
    assert field(prompt, "Response") == "A is and B is. C is."
    assert field(prompt, "Question") == "Q0?"


def unless(marker, rule, failure):
    """The rule, but a failure where the filled part of the prompt has the marker."""

    def ruled(prompt):
        return failure if marker in prompt.rpartition("Your turn")[2] else rule(prompt)

    return ruled


@pytest.mark.parametrize("failure", [Reply(None, "timeout"), Reply(""), Reply("hm")])
@pytest.mark.parametrize("part", PIPELINE)
def test_a_response_of_which_one_part_failed_is_none_and_no_other_is(part, failure):
    rule = unless("bad", PIPELINE[part], failure)
    found = annotated(
        pipeline(**{part: rule}), "A is. C is.", "A is. B is bad.", "D is."
    )
    assert [of if of is None else len(of) for of in found] == [2, None, 1]


def test_what_failed_is_not_asked_about_any_further():
    failed = Reply(None, "timeout")
    llm = pipeline(extract_statements=unless("bad", extract, failed))
    annotated(llm, "A is. B is bad.")
    assert llm.calls == {"extract_statements": 2}
    llm = pipeline(verify_statement=unless("bad", verify, failed))
    annotated(llm, "A is. B is bad.", "C is.")
    assert llm.calls["rate_informativeness"] == 1


@pytest.mark.parametrize("ratings", [[5], [5, 4, 3], [], [5, 6], [5, "4"], [5, None]])
def test_ratings_that_are_not_one_for_each_statement_are_a_failure(ratings):
    llm = pipeline(rate_informativeness=lambda _: told(ratings=ratings))
    assert annotated(llm, "A is. B is.") == [None]


def test_with_a_tenth_of_the_calls_failing_feedback_is_whole_or_none():
    def behave(body, attempt):
        prompt = prompt_of(body)
        if prompt.startswith("List the factual"):
            sentence = field(prompt, "Sentence")
            bad = sentence.endswith("7 is here.")
            return refuse(400) if bad else answer(extract(prompt).text)
        rule = verify if prompt.startswith("Decide how") else rate
        return answer(rule(prompt).text)

    responses = [f"X{2 * i} is here. X{2 * i + 1} is here." for i in range(10)]
    with serve(behave) as server:
        limits = Limits(attempts=1, timeout_s=60)
        llm = LLM(Endpoint(server.url, "annotator"), None, limits)
        found = annotated(llm, *responses)
    assert [i for i, of in enumerate(found) if of is None] == [3, 8]
    known = [(of, r) for of, r in zip(found, responses, strict=True) if of is not None]
    assert all([s.text for s in of] == sentences(r) for of, r in known)


# A single pass

STATED = {"statement": "A is.", "truth": "correct", "informativeness": 5}
SAID = {"sentence": "A is, surely.", "statements": [STATED]}


def reply(*said):
    return json.dumps({"sentences": said})


def one(**changed):
    """A reply of one sentence with one statement, some fields of which are changed;
    `...` removes one."""
    kept = {k: v for k, v in (STATED | changed).items() if v is not ...}
    return reply({"sentence": "A is.", "statements": [kept]})


texts = st.text(min_size=1).filter(lambda t: t.strip() and not REFUSAL.match(t))
feedbacks = st.lists(
    st.builds(
        Sentence,
        texts,
        st.lists(
            st.builds(
                Statement, texts, st.sampled_from(Truth), st.sampled_from(list(SCALE))
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
    ),
    max_size=3,
)


def written(sentences):
    return reply(
        *(
            {
                "sentence": sentence.text,
                "statements": [
                    {
                        "statement": s.text,
                        "truth": s.truth,
                        "informativeness": s.informativeness,
                    }
                    for s in sentence.statements
                ],
            }
            for sentence in sentences
        )
    )


@given(feedbacks)
def test_any_feedback_that_json_can_write_is_read_back(sentences):
    assert feedback(Reply(f"```json\n{written(sentences)}\n```")) == sentences


@given(feedbacks, st.data())
def test_feedback_cut_anywhere_is_none(sentences, data):
    whole = written(sentences)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert feedback(Reply(cut)) is None


def single(llm, *responses, evidence_of=passages):
    n = len(responses)
    annotate = single_pass_annotator(llm, evidence_of)
    return annotate([str(i) for i in range(n)], ["Q?"] * n, responses)


def test_a_single_pass_takes_one_call_a_response_in_their_order():
    llm = pipeline(
        annotate_response=lambda p: Reply(
            one(statement=field(p, "Response"), truth="wrong")
        )
    )
    found = single(llm, "B is.", "", "A is.")
    assert [len(batch) for batch in llm.batches] == [2]
    assert [[s.statements[0].text for s in of] for of in found] == [
        ["B is."],
        [],
        ["A is."],
    ]


def test_a_single_pass_shows_the_passages_found_for_prompt_and_response():
    llm = pipeline(annotate_response=lambda _: Reply(reply(SAID)))
    single(llm, "A is.", evidence_of=lambda i, text: [i, text])
    (prompt,) = llm.prompts("annotate_response")
    assert field(prompt, "Passages") == ["0", "Q?\nA is."]
    assert field(prompt, "Question") == "Q?"


def test_without_passages_a_single_pass_finds_nothing_correct_or_wrong():
    llm = pipeline(annotate_response=lambda _: Reply(one(truth="wrong")))
    (found,) = single(llm, "A is.", evidence_of=lambda i, text: [])
    assert found == [Sentence("A is.", (statement("A is.", VAGUE),))]


@pytest.mark.parametrize(
    "failure", [Reply(None, "timeout"), Reply(""), Reply(one()[1:])]
)
def test_a_failed_single_pass_is_none_and_no_other_is(failure):
    rule = unless("bad", lambda _: Reply(reply(SAID)), failure)
    llm = pipeline(annotate_response=rule)
    for evidence_of in (passages, lambda i, text: []):
        found = single(llm, "A is.", "A is bad.", "A.", evidence_of=evidence_of)
        assert [of is None for of in found] == [False, True, False]


# Ratings


@given(st.lists(st.sampled_from(list(SCALE))))
def test_any_ratings_are_read_back_and_only_for_as_many_statements(ratings):
    whole = told(ratings=ratings)
    assert ratings_of(whole, len(ratings)) == ratings
    assert ratings_of(whole, len(ratings) + 1) is None


def test_the_examples_of_the_templates_are_replies_that_can_be_read():
    def shown(template):
        lines = prompts.template(template).splitlines()
        return [Reply(line) for line in lines if line.startswith("{")]

    extracted = [read(r, Statements) for r in shown("extract_statements")]
    assert [len(of.statements) for of in extracted] == [4, 0]
    labels = [read(r, Label).label for r in shown("verify_statement")]
    assert sorted(labels) == sorted(Truth)
    rated = [
        ratings_of(r, n)
        for r, n in zip(shown("rate_informativeness"), (6, 1), strict=True)
    ]
    assert set(rated[0]) == set(SCALE) and rated[1] == [5]
    whole, nothing = map(feedback, shown("annotate_response"))
    response = prompts.template("annotate_response").partition('Response: "')[2]
    assert all(sentence.text in response.partition('"\n')[0] for sentence in whole)
    assert nothing == []
