"""Claims: sentences are verbatim; extraction and support are whole or None."""

import asyncio
import json

from fake_llm import FakeLLM, field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from factkit.verify.calls import run_all
from factkit.verify.claims import (
    Claim,
    check_response,
    extract_claims,
    label_text,
)
from factkit.verify.llm import Reply
from factkit.verify.outcome import Support
from factkit.verify.response import split_sentences

# Sentences

SPLIT = {
    "One is here. Two is there!": ["One is here.", "Two is there!"],
    "Dr. Smith paid 3.50 dollars. Mr. Lee left.": [
        *("Dr. Smith paid 3.50 dollars.", "Mr. Lee left.")
    ],
    "# Early life\nHe was born.": ["Early life", "He was born."],
    "- First item\n* Second item\n3. Third": ["First item", "Second item", "Third"],
    "Before.\n```py\nx = 1. Not this.\n```\nAfter.": ["Before.", "After."],
    "Name: Ann\nBorn: 1950": ["Name: Ann", "Born: 1950"],
    "It dates from c. 1308. See Fig. 2 (Vol. 3). Next.": [
        *("It dates from c. 1308.", "See Fig. 2 (Vol. 3).", "Next.")
    ],
    "E. T. A. Hoffmann of the U.S. Army wrote. It was in the U.S. He left!": [
        "E. T. A. Hoffmann of the U.S. Army wrote.",
        *("It was in the U.S.", "He left!"),
    ],
    'He said "Go." Then... nothing. 東京は首都。京都も。': [
        *('He said "Go."', "Then... nothing.", "東京は首都。", "京都も。")
    ],
    "": [],
    " \n\n1.\n---\n...": [],
}
markdown = st.lists(
    st.sampled_from(
        ["Dr. ", "He was ", "born", ". ", "\n", "```", "# ", "- ", '"', "(", "1. ", "é"]
    )
    | st.text(max_size=5)
).map("".join)


def test_a_text_is_split_into_its_sentences():
    assert {text: split_sentences(text) for text in SPLIT} == SPLIT


@settings(max_examples=40)
@given(markdown)
@example("0\x1f1. Dr. ")
def test_sentences_are_substrings_of_the_text_in_its_order(text):
    at = 0
    for sentence in split_sentences(text):
        at = text.index(sentence, at) + len(sentence)


# The language model's extractor


def repeat(prompt):
    return Reply(json.dumps({"claims": [field(prompt, "Sentence")]}))


def test_a_request_shows_the_question_and_three_sentences_before_and_one_after():
    llm = FakeLLM(repeat)
    text = "A is. B is. C is. D is. E is. F is. G is."
    run_all([extract_claims(llm, "Who?", text)])
    prompt = llm.requests[4].messages[0]["content"]
    assert field(prompt, "Question") == "Who?"
    assert field(prompt, "Before") == ["B is.", "C is.", "D is."]
    assert field(prompt, "Sentence") == "E is."
    assert field(prompt, "After") == ["F is."]


def test_one_failed_sentence_makes_its_response_none_and_no_other():
    def answered(prompt):
        failed = field(prompt, "Sentence") == "B is."
        return Reply(None, "timeout") if failed else repeat(prompt)

    llm, texts = FakeLLM(answered), ["A is. B is.", "C is."]
    found = run_all(extract_claims(llm, "q", text) for text in texts)
    assert found == [None, [Claim("C is.", "C is.")]]


TWICE = '{"claims": ["Ann won.", "ann  WON.", " Bob won. "]}'


def test_a_claim_that_comes_again_in_other_case_or_spacing_is_kept_once():
    llm = FakeLLM(lambda prompt: Reply(TWICE))
    (found,) = run_all([extract_claims(llm, "q", "Both won. So they won.")])
    assert found == [Claim("Ann won.", "Both won."), Claim("Bob won.", "Both won.")]


SUPPORTED, INCONCLUSIVE = Support.SUPPORTED, Support.INCONCLUSIVE


# The language model's verifier


def agree(prompt):
    return Reply(json.dumps({"label": "supported"}))


def test_a_claim_without_evidence_is_inconclusive_without_a_call():
    llm = FakeLLM(agree)
    rows = ("A.", []), ("B.", ["e"]), ("C.", ())
    found = run_all(label_text(llm, *row) for row in rows)
    assert found == [INCONCLUSIVE, SUPPORTED, INCONCLUSIVE]
    assert len(llm.requests) == 1


def test_a_failed_verification_is_none():
    for reply in (Reply(None, "timeout"), Reply(""), Reply("maybe")):
        llm = FakeLLM(lambda prompt, reply=reply: reply)
        assert run_all([label_text(llm, "A.", ["e"])]) == [None]


# Both together


def test_a_response_s_claims_are_verified_before_all_others_are_extracted():
    """Each with its own evidence; where extraction failed, nothing is verified."""
    slow, order = asyncio.Event(), []

    async def extract(prompt, response):
        if response == "slow":
            await slow.wait()
        order.append(f"extracted {response}")
        texts = [f"{response} {i}" for i in range(2)]
        return None if response == "bad" else [Claim(t, t) for t in texts]

    async def verify(text, evidence):
        order.append(f"verified {text} {evidence}")
        slow.set()
        return SUPPORTED

    texts = "slow", "bad", "fast"
    parts = extract, lambda claim: [claim[-1]], verify
    found = run_all(check_response("q", text, *parts) for text in texts)
    assert order == [
        *("extracted bad", "extracted fast"),
        *("verified fast 0 ['0']", "verified fast 1 ['1']", "extracted slow"),
        *("verified slow 0 ['0']", "verified slow 1 ['1']"),
    ]
    assert [supports for _, supports in found] == [
        [SUPPORTED] * 2,
        None,
        [SUPPORTED] * 2,
    ]
    assert found[1] == (None, None)
