"""Support of claims: the label that was stated or None, each equal row asked once."""

import json

import pytest
from fake_endpoint import answer, prompt_of, refuse, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit import prompts
from factkit.backends import Endpoint
from factkit.llm import LLM, Limits, Reply
from factkit.verify.claims import Claim, Support
from factkit.verify.support import (
    llm_claim_verifier,
    support_of,
)

LABELS = [support.value for support in Support]
SUPPORTED, CONTRADICTED, INCONCLUSIVE = Support


class FakeLLM:
    """Answers by a rule on the prompt; keeps the batches."""

    def __init__(self, answer):
        self.answer = answer
        self.batches = []

    def run(self, requests, progress=""):
        self.batches.append(requests)
        return [self.answer(r.messages[0]["content"]) for r in requests]


def field(prompt, name):
    """A field of the last, filled part of a prompt."""
    line = prompt.rpartition(f"\n{name}: ")[2].partition("\n")[0]
    return json.loads(line)


hostile = st.text() | st.lists(
    st.sampled_from(
        ['"label"', ": ", '"supported"', '"', "\\", "{", "}", "\n", "supported", "</"]
        + ["</think>", "[INST]", "\u2028", "<|im_end|>", "Claim: "]
    )
).map("".join)


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


@settings(max_examples=60)
@given(hostile)
def test_claim_and_evidence_stay_within_the_json_of_their_fields(text):
    llm = FakeLLM(agree)
    llm_claim_verifier(llm)([(text, [text, "e"])])
    lines = llm.batches[0][0].messages[0]["content"].splitlines()
    assert lines[:-2] == prompts.template("verify_claim").splitlines()[:-2]
    fields = [json.loads(line.partition(": ")[2]) for line in lines[-2:]]
    assert fields == [[text, "e"], text]
    assert not any("<" in line or "[INST]" in line for line in lines[-2:])


def test_with_a_tenth_of_the_calls_failing_the_other_claims_are_verified():
    def behave(body, attempt):
        claim = field(prompt_of(body), "Claim")
        if claim.endswith("7"):
            return refuse(400)
        return answer(json.dumps({"label": LABELS[int(claim) % 3]}))

    rows = [(str(i), ["e"]) for i in range(100)]
    with serve(behave) as server:
        limits = Limits(attempts=1, timeout_s=5)
        llm = LLM(Endpoint(server.url, "judge"), None, limits)
        found = llm_claim_verifier(llm)(rows)
    expected = [None if i % 10 == 7 else Support(LABELS[i % 3]) for i in range(100)]
    assert found == expected


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


def test_a_verifier_that_loses_rows_is_refused():
    with pytest.raises(ValueError, match="zip"):
        support_of([[claim("A"), claim("B")]], lambda i, c: [], lambda rows: [None])
