"""RLFH's feedback: exact in the fact world; by models whole or None, each call once."""

import pytest
from fake_llm import FakeLLM, field, told

from factkit import prompts
from factkit.data.examples import Example
from factkit.facts.world import facts as worlds
from factkit.papers.rlfh import feedback
from factkit.papers.rlfh.feedback import (
    SCALE,
    Label,
    Sentence,
    Statement,
    Statements,
    Truth,
    exact_annotator,
    llm_annotator,
    mean_feedback,
)
from factkit.verify.calls import run_all
from factkit.verify.llm import Reply
from factkit.verify.replies import read_reply

CORRECT, HEDGED_CORRECT, VAGUE, HEDGED_WRONG, WRONG = Truth
WORLD = worlds.build_world(people=40)
PERSON = WORLD.people[0]
FACTS = WORLD.facts_of(PERSON)


def statement(text, truth=CORRECT, informativeness=5):
    return Statement(text, truth, informativeness)


# In the fact world


def exact(response, **meta):
    example = Example(id="q", question="?", answers=[], entity=PERSON, meta=meta)
    annotate = exact_annotator(WORLD, {"q": example})
    return annotate(["q"], ["?"], [response])[0]


def untrue(fact):
    value = next(o for o in worlds.OBJECTS[fact.relation] if o != fact.object)
    return worlds.Fact(fact.subject, fact.relation, value)


def test_truth_is_what_the_world_says_and_whether_it_is_hedged():
    known = {f.relation for f in FACTS}
    missing = next(r for r in worlds.PERSON_RELATIONS if r not in known)
    silent = worlds.Fact(PERSON, missing, worlds.OBJECTS[missing][0])
    response = " ".join(
        [
            worlds.join_statements(FACTS[0], untrue(FACTS[1])),
            f"Perhaps {worlds.statement(FACTS[2])}",
            f"Perhaps {worlds.statement(untrue(FACTS[3]))}",
            worlds.statement(silent),
        ]
    )
    found = exact(response)
    truths = [s.truth for sentence in found for s in sentence.statements]
    assert truths == [CORRECT, WRONG, HEDGED_CORRECT, HEDGED_WRONG, VAGUE]
    assert [sentence.text for sentence in found] == WORLD.sentences(response)
    assert exact(f"Perhaps {worlds.statement(silent)}")[0].statements[0].truth == VAGUE
    for response in ("", "I don't know.", "Ann won. Bob lost."):
        assert exact(response) == []


def test_repeats_are_useless_and_other_subjects_and_more_than_was_wanted_supplement():
    city = next(f for f in WORLD.facts if f.relation == "country")
    other = WORLD.facts_of(WORLD.people[1])[0]
    sentences = [worlds.statement(FACTS[0]), worlds.statement(FACTS[0], 1)]
    sentences += [worlds.statement(other), worlds.statement(city)]

    def ratings(response, **meta):
        found = exact(response, **meta)
        return [s.informativeness for row in found for s in row.statements]

    assert ratings(" ".join(sentences)) == [5, 1, 2, 2]
    every = " ".join(worlds.statement(f) for f in FACTS)
    assert ratings(every, wanted=2) == [5, 5, 2, 2]


# A call for each part


def extract(prompt):
    """A statement for each part of a sentence; none of one about "I"."""
    sentence = field(prompt, "Sentence")
    parts = sentence.removesuffix(".").split(" and ")
    return told(statements=[] if "I " in sentence else [f"{p}." for p in parts])


def verify(prompt):
    """The label that the statement ends with, or else correct."""
    last = field(prompt, "Statement").rpartition(" ")[2].removesuffix(".")
    return told(label=last if last in list(Truth) else "correct")


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


def pipeline(**rules):
    return FakeLLM(**PIPELINE | rules)


def annotated(llm, *responses, evidence_of=passages):
    n = len(responses)
    ids, questions = [str(i) for i in range(n)], [f"Q{i}?" for i in range(n)]
    return llm_annotator(llm, evidence_of)(ids, questions, responses)


def test_feedback_has_sentences_statements_and_labels_in_the_order_of_the_response():
    llm = pipeline()
    first, *rest = annotated(
        llm,
        "A is and B is wrong. I think so. A is. C is vague.",
        "So I am.",
        "",
        "D is.",
    )
    assert first == [
        Sentence(
            "A is and B is wrong.",
            (statement("A is."), statement("B is wrong.", WRONG, 4)),
        ),
        Sentence("A is.", (statement("A is.", CORRECT, 3),)),
        Sentence("C is vague.", (statement("C is vague.", VAGUE, 2),)),
    ]
    assert rest == [[], [], [Sentence("D is.", (statement("D is."),))]]
    # sentences, statements, responses with statements
    assert list(llm.calls.values()) == [6, 5, 2]
    rating = llm.prompts("rate_informativeness")[0]
    stated = ["1. A is.", "2. B is wrong.", "3. A is.", "4. C is vague."]
    assert field(rating, "Statements") == stated


def unless(marker, rule, failure):
    """The rule, but a failure where the filled part of the prompt has the marker."""

    def ruled(prompt):
        return failure if marker in prompt.rpartition("Your turn")[2] else rule(prompt)

    return ruled


def test_a_response_of_which_one_part_failed_is_none_and_no_other_is():
    """And nobody is asked about it any further."""
    later = {"extract_statements": 2, "verify_statement": 2, "rate_informativeness": 3}
    for part, rule in PIPELINE.items():
        for failure in (Reply(None, "timeout"), Reply(""), Reply("hm")):
            llm = pipeline(**{part: unless("bad", rule, failure)})
            found = annotated(llm, "A is. C is.", "A is. B is bad.", "D is.")
            assert [row if row is None else len(row) for row in found] == [2, None, 1]
            assert llm.calls["rate_informativeness"] == later[part]


def ratings_of(reply, n):
    """What a reply rates n statements."""
    llm = FakeLLM(lambda _: reply)
    return run_all([feedback.rate(llm, "q", "r", ["s"] * n)])[0]


def test_a_reply_has_a_rating_of_the_scale_for_each_statement():
    assert ratings_of(told(ratings=[5, 1]), 2) == [5, 1]
    for ratings in ([5], [5, 4, 3], [5, 6], [5, None]):
        assert ratings_of(told(ratings=ratings), 2) is None


def test_the_examples_of_the_templates_are_replies_that_can_be_read():
    def shown(template):
        lines = prompts.template(template).splitlines()
        return [Reply(line) for line in lines if line.startswith("{")]

    for reply in shown("extract_statements"):
        assert isinstance(read_reply(reply, Statements), Statements)
    labels = [read_reply(r, Label).label for r in shown("verify_statement")]
    assert sorted(labels) == sorted(Truth)
    six, one = shown("rate_informativeness")
    assert set(ratings_of(six, 6)) == set(SCALE) and ratings_of(one, 1) == [5]


# Counts


def of_truths(*truths):
    stated = tuple(Statement("s", truth, k) for k, truth in enumerate(truths, start=1))
    return [Sentence("s", stated)] if stated else []


def test_kinds_are_means_over_the_responses_that_did_not_fail():
    found = mean_feedback([of_truths(CORRECT, WRONG), of_truths(CORRECT), [], None])
    assert (found["correct"], found["wrong"]) == pytest.approx((2 / 3, 1 / 3))
    assert found["hedged_wrong"] == 0.0
    assert found["informativeness"] == pytest.approx((1 + 2 + 1) / 3)
    assert "informativeness" not in mean_feedback([[], []])
    assert mean_feedback([None]) == {}
