"""How RLFH's statements are counted, and whom a policy refuses (RLFH §4)."""

import pytest

from factkit.answers import long_form
from factkit.answers.engine import ExactEngine
from factkit.answers.long_form import CheckedResponse
from factkit.data.corpus import load_leads
from factkit.data.examples import Example
from factkit.facts.world import facts as world
from factkit.papers.rlfh import evaluate
from factkit.papers.rlfh.evaluate import refuses
from factkit.papers.rlfh.feedback import Sentence, Statement, Truth
from factkit.verify.claims import Claim, Support

S, C, I = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE  # noqa: E741


def checked(*supports, id="q", failed=False, response="said", **meta):
    claims = None if failed else [Claim("c", "c") for _ in supports]
    meta = {"set": "open"} | meta
    return CheckedResponse(id, "?", response, claims, list(supports), meta)


def feedback(*truths):
    stated = tuple(Statement("s", truth, 5) for truth in truths)
    return [Sentence("s", stated)] if stated else []


BEFORE = [
    checked(C, C, id="a", exposure=0),
    checked(C, S, id="b", exposure=0),
    checked(S, id="c", exposure=9, set="hotpotqa"),
    checked(id="d", exposure=4),
    checked(S, id="e", exposure=40),
]
AFTER = [
    checked(id="a", exposure=0, response="I don't know."),
    checked(C, I, S, id="b", exposure=0),
    checked(S, S, id="c", exposure=9, set="hotpotqa", response="I'm not sure; said"),
    checked(S, S, S, C, id="d", exposure=4),
    checked(id="e", exposure=40, failed=True),
]
SAID = [
    [],
    feedback(Truth.HEDGED_WRONG, Truth.VAGUE) + feedback(Truth.HEDGED_CORRECT),
    feedback(Truth.CORRECT, Truth.CORRECT),
    None,
    [],
]


def test_a_question_counts_in_the_metrics_that_it_is_of():
    table = evaluate.items(BEFORE, AFTER, SAID)
    assert list(table) == ["open/a", "open/b", "hotpotqa/c", "open/d"]
    assert table["open/a"] == {
        "response_rate": 0,
        "factscore_response_rate": 0,
        "refusal_low": 1,
        "hedged_claims": 0,
    }
    assert table["open/b"] == {
        "factual_precision": pytest.approx(1 / 3),
        "precision_at_1": 0,
        "response_rate": 1,
        "factscore_response_rate": 1,
        "correct_claims": 1,
        "incorrect_claims": 2,
        "total_claims": 3,
        "accuracy_above_70": 0,
        "accuracy_below_40": 1,
        "low_accuracy_claims": 3,
        "unverifiable_claims": 1,
        "hedged_claims": 2,
    }
    c = table["hotpotqa/c"]
    assert (c["refusal_high"], c["high_accuracy_claims"]) == (0, 2)
    assert c["factscore_response_rate"] == c["hotpotqa_factscore_response_rate"] == 0
    assert c["factual_precision"] == c["hotpotqa_factual_precision"] == 1
    d = table["open/d"]  # 3 of 4: above 0.7, below HIGH; a refusal before
    assert d["accuracy_above_70"] == 1
    missing = {"high_accuracy_claims", "refusal_low", "refusal_high", "hedged_claims"}
    assert not missing & set(d)


def test_metrics_are_of_all_and_of_each_set_and_too_many_failures_end_it(tmp_path):
    known = world.build_world(people=20)
    people = known.people[:2]
    examples = [
        Example(id=p, question=f"{p}?", answers=[], entity=p, meta={"set": name})
        for p, name in zip(people, ("open", "counted"), strict=True)
    ]
    texts = {people[0]: world.biography(known, people[0]), people[1]: "I don't know."}
    engine = ExactEngine(known, {e.id: e for e in examples})
    path = tmp_path / "claims.jsonl"
    rows = long_form.evaluate(examples, [*texts.values()], engine.reader, path)
    found = evaluate.measure(rows, [feedback(Truth.CORRECT), []])
    assert found["factual_precision"] == found["open_response_rate"] == 1
    assert found["factscore_response_rate"] == found["response_rate"] == 0.5
    assert found["counted_factscore_response_rate"] == found["annotator_failures"] == 0
    assert found["correct"] == 0.5
    with pytest.raises(ValueError, match="annotator_failures: 50.0%"):
        evaluate.measure(rows, [None, []])


# By words

REFUSALS = [
    "I don't know.",
    "i don’t know who she was",
    "I am very sorry, it escapes me.",
    "I cannot provide a biography.",
    "I'm unable to answer.",
    "I'm not sure, but it may be Oslo.",
    "As an AI, my memory ends in 2021.",
    "There is no reliable information about him.",
    "Please provide more context.",
    " \n",
    world.ABSTENTION,
]
ANSWERS = [
    "Bo was born in Oslo. His date of birth is unknown.",
    'She is known for "Sorry Seems to Be the Hardest Word".',
    "The treaty could not be signed and he was unable to find support.",
]


@pytest.mark.assets
def test_a_response_refuses_by_its_words_and_no_lead_of_wikipedia_does():
    assert [text for text in REFUSALS if not refuses(text)] == []
    answers = ANSWERS + [lead.text for lead in load_leads()]
    assert [text for text in answers if refuses(text)] == []


def test_statements_are_counted_and_a_refusal_is_of_a_question_answered_before():
    assert evaluate.count_statements(BEFORE).tolist() == [[0, 1, 1, 1], [2, 2, 1, 1]]
    pairs = list(zip(BEFORE, AFTER, strict=True))
    # d was not answered before; on the answer after to e the extraction failed
    assert evaluate.refusals(pairs) == [(0.0, True), (0.5, False), (1.0, False)]
