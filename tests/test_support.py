"""Support of claims: the label that was stated or None, each equal row asked once."""

import json

import pytest
from fake_llm import FakeLLM, field

from factkit.llm import Reply
from factkit.verify.claims import Claim, Support
from factkit.verify.support import (
    llm_claim_verifier,
    support_of,
)

SUPPORTED, CONTRADICTED, INCONCLUSIVE = Support


# The language model's verifier


def agree(prompt):
    return Reply(json.dumps({"label": "supported"}))


def test_each_claim_is_asked_about_once_with_all_its_evidence_in_one_batch():
    llm = FakeLLM(agree)
    rows = [("A.", ["e1", "e2"]), ("B.", ("e3",))]
    assert llm_claim_verifier(llm)(rows) == [SUPPORTED] * 2
    (batch,) = llm.batches
    filled = [r.messages[0]["content"] for r in batch]
    assert [field(p, "Claim") for p in filled] == ["A.", "B."]
    assert [field(p, "Search results") for p in filled] == [["e1", "e2"], ["e3"]]


def test_a_claim_without_evidence_is_inconclusive_without_a_call():
    llm = FakeLLM(agree)
    found = llm_claim_verifier(llm)([("A.", []), ("B.", ["e"]), ("C.", ())])
    assert found == [INCONCLUSIVE, SUPPORTED, INCONCLUSIVE]
    assert len(llm.batches[0]) == 1


@pytest.mark.parametrize("reply", [Reply(None, "timeout"), Reply(""), Reply("maybe")])
def test_a_failed_verification_is_none(reply):
    assert llm_claim_verifier(FakeLLM(lambda p: reply))([("A.", ["e"])]) == [None]


# All claims of all responses


def claim(text):
    return Claim(text, text)


def test_equal_claims_with_equal_evidence_are_verified_once_in_one_call():
    calls = []

    def verify(rows):
        calls.append(list(rows))
        return [SUPPORTED] * len(rows)

    claims = [[claim("A"), claim("B")], [claim("B")], [claim("B")]]
    evidence = [["e"], ["e"], ["other"]]
    support_of(claims, lambda i, c: evidence[i], verify)
    assert calls == [[("A", ("e",)), ("B", ("e",)), ("B", ("other",))]]


def test_support_comes_back_in_the_order_of_the_claims():
    def verify(rows):
        return [{"A": SUPPORTED, "B": CONTRADICTED, "C": None}[c] for c, _ in rows]

    claims = [[claim("A"), claim("B")], None, [], [claim("C"), claim("A")]]
    found = support_of(claims, lambda i, c: [], verify)
    assert found == [[SUPPORTED, CONTRADICTED], None, [], [None, SUPPORTED]]


def test_without_claims_the_verifier_is_not_called():
    def fails(rows):
        raise AssertionError

    assert support_of([[], None], lambda i, c: [], fails) == [[], None]
