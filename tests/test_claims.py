"""Claims: sentences are verbatim; extraction and support are whole or None."""

import json

from fake_llm import FakeLLM, field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from factkit.verify.claims import (
    Claim,
    extract_claims,
    label_texts,
    verify_claims,
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
    extract_claims(llm, ["Who?"], ["A is. B is. C is. D is. E is. F is. G is."])
    prompt = llm.batches[0][4].messages[0]["content"]
    assert field(prompt, "Question") == "Who?"
    assert field(prompt, "Before") == ["B is.", "C is.", "D is."]
    assert field(prompt, "Sentence") == "E is."
    assert field(prompt, "After") == ["F is."]


def test_one_failed_sentence_makes_its_response_none_and_no_other():
    def answered(prompt):
        failed = field(prompt, "Sentence") == "B is."
        return Reply(None, "timeout") if failed else repeat(prompt)

    found = extract_claims(FakeLLM(answered), ["q"] * 2, ["A is. B is.", "C is."])
    assert found == [None, [Claim("C is.", "C is.")]]


TWICE = '{"claims": ["Ann won.", "ann  WON.", " Bob won. "]}'


def test_a_claim_that_comes_again_in_other_case_or_spacing_is_kept_once():
    llm = FakeLLM(lambda prompt: Reply(TWICE))
    (found,) = extract_claims(llm, ["q"], ["Both won. So they won."])
    assert found == [Claim("Ann won.", "Both won."), Claim("Bob won.", "Both won.")]


SUPPORTED, INCONCLUSIVE = Support.SUPPORTED, Support.INCONCLUSIVE


# The language model's verifier


def agree(prompt):
    return Reply(json.dumps({"label": "supported"}))


def test_a_claim_without_evidence_is_inconclusive_without_a_call():
    llm = FakeLLM(agree)
    found = label_texts(llm, [("A.", []), ("B.", ["e"]), ("C.", ())])
    assert found == [INCONCLUSIVE, SUPPORTED, INCONCLUSIVE]
    assert len(llm.batches[0]) == 1


def test_a_failed_verification_is_none():
    for reply in (Reply(None, "timeout"), Reply(""), Reply("maybe")):
        llm = FakeLLM(lambda prompt, reply=reply: reply)
        assert label_texts(llm, [("A.", ["e"])]) == [None]


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
    verify_claims(claims, lambda i, c: evidence[i], verify)
    assert calls == [[("A", ("e",)), ("B", ("e",)), ("B", ("other",))]]
