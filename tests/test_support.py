"""Support of claims: the label that was stated or None, each equal row asked once."""

import json

import pytest
from fake_llm import FakeLLM

from factkit.llm import Reply
from factkit.verify.claims import (
    Claim,
    Support,
    llm_claim_verifier,
    support_of,
)

SUPPORTED, CONTRADICTED, INCONCLUSIVE = Support


# The language model's verifier


def agree(prompt):
    return Reply(json.dumps({"label": "supported"}))


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
