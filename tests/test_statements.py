"""How statements are counted, and whom a policy refuses (RLFH §4.3)."""

import pytest

from factkit import params
from factkit.corpus import Document
from factkit.datasets.examples import Example, refuse_overlap
from factkit.evaluate import long_form
from factkit.evaluate.long_form import Checked
from factkit.rlfh import evaluate as statements
from factkit.rlfh import requests as rlfh_sets_module
from factkit.rlfh.feedback import Sentence, Statement, Truth
from factkit.rlfh.requests import rlfh_sets
from factkit.statistics import means
from factkit.verify.claims import Claim, Support

S, C, I = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE  # noqa: E741


def checked(*supports, id="q", failed=False, response="said", **meta):
    claims = None if failed else [Claim("c", "c") for _ in supports]
    meta = {"set": "open"} | meta
    return Checked(id, "?", response, claims, list(supports), meta)


# Accuracy


def test_accuracy_is_the_share_of_supported_claims_and_gives_the_bin():
    shares = {(S, S): 1.0, (S, C, I, I): 0.25, (C,): 0.0, (S, None): 1.0}
    for supports, share in shares.items():
        assert statements.accuracy(checked(*supports)) == share
    for row in (checked(), checked(None), checked(failed=True)):
        assert statements.accuracy(row) is None
    rows = [checked(), checked(C, C, S, S, S), checked(S, S), checked(C, C, C, C, S)]
    table = statements.by_accuracy(rows)
    assert [edges for edges, of in table.items() if of] == [
        *((0.2, 0.4), (0.6, 0.8), (0.8, 1.0))
    ]


# Refusals


def test_refusals_are_counted_by_the_accuracy_before():
    before = [checked(C), checked(C), checked(S), checked(S), checked()]
    after = [checked(), checked(S), checked(S), checked(S, C), checked()]
    table = statements.refusals_by_accuracy(before, after)
    assert table[0.0, 0.2] == (1, 2) and table[0.8, 1.0] == (0, 2)


def test_a_response_whose_claims_failed_is_no_refusal():
    before = [checked(C), checked(C), checked(S)]
    after = [checked(failed=True), checked(), checked(S)]
    assert statements.refusals_by_accuracy(before, after)[0.0, 0.2] == (1, 1)


# Items


def feedback(*truths):
    of = tuple(Statement("s", truth, k) for k, truth in enumerate(truths, start=1))
    return [Sentence("s", of)] if of else []


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
    table = statements.items(BEFORE, AFTER, SAID)
    assert list(table) == ["open/a", "open/b", "hotpotqa/c", "open/d"]
    assert table["open/a"] == {
        "response_rate": 0,
        "factscore_response_rate": 0,
        "refusal_low": 1,
        "exposure_0_response_rate": 0,
        "hedged_claims": 0,
    }
    assert table["open/b"] == {
        "factual_precision": pytest.approx(1 / 3),
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
        "exposure_0_response_rate": 1,
    }
    c = table["hotpotqa/c"]
    assert (c["refusal_high"], c["high_accuracy_claims"]) == (0, 2)
    assert c["factscore_response_rate"] == c["hotpotqa_factscore_response_rate"] == 0
    assert c["factual_precision"] == c["hotpotqa_factual_precision"] == 1
    d = table["open/d"]  # 3 of 4: above 0.7, below HIGH; a refusal before
    assert d["accuracy_above_70"] == 1
    missing = {"high_accuracy_claims", "refusal_low", "refusal_high", "hedged_claims"}
    assert not missing & set(d)


def test_the_means_of_items_are_the_scores_and_a_failure_counts_in_none():
    found = means(statements.items(BEFORE, AFTER, SAID).values())
    scores = long_form.scores(AFTER)
    for name in statements.COLUMNS:
        assert found[name] == pytest.approx(scores[name])
    assert found["refusal_low"] == 1.0  # e was answered well before: it failed after
    assert (found["refusal_high"], found["exposure_4_response_rate"]) == (0, 1)
    assert found["accuracy_below_40"] == pytest.approx(1 / 3)


# Kinds of truth


def test_kinds_are_means_a_response_and_failures_are_left_out():
    found = statements.kinds(
        [
            feedback(Truth.CORRECT, Truth.WRONG),
            *[feedback(Truth.CORRECT)] * 20,
            [],
            None,
        ]
    )
    assert found["correct"] == pytest.approx(21 / 22)
    assert found["wrong"] == pytest.approx(1 / 22)
    assert found["hedged_wrong"] == 0.0
    assert found["informativeness"] == pytest.approx((1 + 2 + 20) / 22)
    assert found["annotator_failures"] == pytest.approx(1 / 23)
    assert "informativeness" not in statements.kinds([[], []])
    with pytest.raises(ValueError, match="annotator_failures: 50.0%"):
        statements.kinds([feedback(Truth.CORRECT), None])


# The questions that they are counted on


def test_the_world_s_questions_are_of_strangers_too_and_no_person_is_in_two_splits():
    p = params.load("rlfh", "tiny", {"world_people": 200, "train_requests": 100})
    sets, dropped = rlfh_sets(p)
    refuse_overlap(sets)
    assert list(sets) == ["train", "dev", "test"] and not dropped
    assert {e.meta["set"] for e in sets["test"]} == {"open", "counted"}
    exposures = [e.meta["exposure"] for e in sets["train"]]
    assert 0.2 < exposures.count(0) / len(exposures) < 0.6
    assert all(isinstance(e, Example) for e in sets["dev"])


def test_a_short_answer_is_a_document_and_its_question_is_searched_for(monkeypatch):
    searched = {}

    def gather(p, examples, own):
        searched.update({e.id: e.answers for e in examples})
        return {e.id: [Document("d", "t", "text", "web")] for e in examples[:2]}, {}

    monkeypatch.setattr(rlfh_sets_module, "gather", gather)
    p = params.load("rlfh", "tiny").model_copy(update={"requests": "hotpotqa"})
    asked = [
        Example(id="a", question="Who won?", answers=["Ann"], entity="The race"),
        Example(id="b", question="Tell me of Ann.", answers=[], entity="Ann"),
        Example(id="c", question="When?", answers=["1911"], entity="x"),
    ]
    found, _ = rlfh_sets_module.rlfh_evidence(p, asked, {"b": "She won."})
    assert searched == {"a": ["Who won?"], "b": [], "c": ["When?"]}
    assert [d.id for d in found["a"]] == ["a#answer", "d"]
    assert found["a"][0].text == 'The answer to "Who won?" may be "Ann".'
    assert [d.id for d in found["b"]] == ["d"] and "c" not in found
