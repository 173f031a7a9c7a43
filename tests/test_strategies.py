"""Strategies of a reasoning: an annotator's own words or None, rules, structure."""

import json

from fake_llm import FakeLLM, told

from factkit.data.examples import Example
from factkit.papers.reason.evaluate import RULES, Steps, annotate, tag, tag_shares
from factkit.verify.llm import Reply
from factkit.verify.response import ResponseParts

# An annotator


def asking(question):
    return Example(id="q", question=question, answers=[], entity="e")


def annotated(reply):
    """The strategies that an annotator names by this reply."""
    return annotate(
        FakeLLM(lambda _: reply), [asking("Q?")], [ResponseParts("r", "A.")]
    )[0]


def steps(*names):
    return [{"step": "s", "strategies": list(group)} for group in names]


def test_strategies_are_those_of_the_steps_each_once_or_none_where_it_failed():
    two = steps(["Recall", "doubt"], ["Self-verification", "recall"])
    names = ["recall", "doubt", "self_verification"]
    assert annotated(told(steps=two, helpfulness=7)) == names
    assert annotated(told(steps=[], helpfulness=0)) == []
    for reply in (
        Reply(None, "timeout"),
        Reply("recall, doubt"),
        told(steps=two),
        told(steps=two, helpfulness=11),
        told(steps=steps(["recall", "…"]), helpfulness=7),
        told(steps=["recall"], helpfulness=7),
    ):
        assert annotated(reply) is None


def test_a_reasoning_takes_one_request_with_question_reasoning_and_answer():
    llm = FakeLLM(lambda _: told(steps=steps(["doubt"]), helpfulness=7))
    long = "r" * 50_000
    rows = [("Q?", long, "A."), ('"}', "<think>", "\n{reasoning}")]
    examples = [asking(question) for question, *_ in rows]
    responses = [ResponseParts(*two) for _, *two in rows]
    assert annotate(llm, examples, responses) == [["doubt"]] * 2
    shown = [r.messages[0]["content"].splitlines()[-3:] for r in llm.requests]
    values = [[json.loads(line.partition(": ")[2]) for line in p] for p in shown]
    assert values == [list(row) for row in rows]
    assert llm.requests[0].schema == Steps.model_json_schema()


# Rules

TOLD = {
    "recall": ["Let me recall what happened there."],
    "self_verification": ["Let me double-check the year.", "Is that right?"],
    "doubt": ["Perhaps it was built of brick.", "I'm not entirely sure of the height."],
    "backtracking": ["But wait, that was his brother."],
    "leaving_out": ["I'd better leave it out."],
}
# what has a strategy's word but not its sense; rows of plain statements
PLAIN = [
    "The recall of the car cost millions. He is remembered in Lima.",
    "The police check bags at the door. A confirmed report came in.",
    "He could not wait until noon. Leaves turn red in autumn.",
    "Ala Haskwood came into the world in 1916. The Aurion Prize went to Ala Haskwood.",
]


def test_a_strategy_is_told_by_its_wording_and_the_answer_plays_no_part():
    assert list(TOLD) == list(RULES)
    for name, sentences in TOLD.items():
        for sentence in sentences:
            assert name in tag(f"A plain one.\n{sentence}", ""), sentence
            assert not set(tag("", sentence)) & set(RULES), sentence
    assert [text for text in PLAIN if tag(text, text)] == []


# Structure

ONE, TWO, THREE = "Ann was a poet.", "Ann came from Lima.", "Ann won a prize."


def test_structure_is_told_by_the_sentences_of_both_parts():
    for reasoning, answer, shown in (
        ([ONE, TWO], [TWO, ONE], []),
        ([ONE, TWO], [ONE], ["left_out"]),
        ([ONE], [ONE, THREE], ["added"]),
        ([ONE], [ONE, ONE], ["repeated"]),
        ([ONE, ONE], [TWO, TWO], ["left_out", "added", "repeated"]),
    ):
        assert tag(" ".join(reasoning), " ".join(answer)) == shown
    assert tag("Perhaps Ann was a poet.", "- ANN was a poet!") == ["doubt"]


def test_shares_are_those_of_responses_the_most_frequent_first():
    tags = [["b", "a"], ["b", "b"], {"c", "b"}, []]
    assert list(tag_shares(tags).items()) == [("b", 0.75), ("a", 0.25), ("c", 0.25)]
    assert tag_shares([["a"], None, []]) == {"a": 0.5}  # None: the annotator failed
