"""Claims: sentences are verbatim, extraction is whole or None."""

import json

import pytest
from fake_endpoint import answer, prompt_of, refuse, serve
from hypothesis import example, given, settings
from hypothesis import strategies as st

from factkit import prompts
from factkit.backends import Endpoint
from factkit.llm import LLM, Limits, Reply
from factkit.verify.claims import (
    Claim,
    agreement,
    llm_extractor,
)
from factkit.verify.sentences import sentences

# Sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One is here. Two is there!", ["One is here.", "Two is there!"]),
        (
            "Dr. Smith paid 3.50 dollars. Mr. Lee left.",
            ["Dr. Smith paid 3.50 dollars.", "Mr. Lee left."],
        ),
        ("# Early life\nHe was born.", ["Early life", "He was born."]),
        (
            "- First item\n* Second item\n3. Third",
            ["First item", "Second item", "Third"],
        ),
        ("> A quote.", ["A quote."]),
        ("Before.\n```py\nx = 1. Not this.\n```\nAfter.", ["Before.", "After."]),
        ("Before.\n~~~\nnever closed.", ["Before."]),
        (
            "A line that goes\non here. Next.",
            ["A line that goes\non here.", "Next."],
        ),
        ("Name: Ann\nBorn: 1950", ["Name: Ann", "Born: 1950"]),
        ("", []),
        (" \n\n1.\n---\n...", []),
    ],
)
def test_a_text_is_split_into_its_sentences(text, expected):
    assert sentences(text) == expected


markdown = st.lists(
    st.sampled_from(
        ["Dr. ", "He was ", "born", ". ", "\n", "```", "# ", "- ", '"', "(", "1. ", "é"]
    )
    | st.text(max_size=5)
).map("".join)


@settings(max_examples=60)
@given(markdown)
@example("0\x1f1. Dr. ")
def test_sentences_are_substrings_of_the_text_in_its_order(text):
    at = 0
    for sentence in sentences(text):
        at = text.index(sentence, at) + len(sentence)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["Ann won.", "Dr. Lee", "x 3.5", "(", "A. B.", "\n"])))
def test_no_letter_outside_code_is_lost(pieces):
    text = " ".join(pieces)
    kept = [c for sentence in sentences(text) for c in sentence if c.isalpha()]
    assert kept == [c for c in text if c.isalpha()]


# The language model's extractor


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


def repeat(prompt):
    return Reply(json.dumps({"claims": [field(prompt, "Sentence")]}))


def test_all_sentences_of_all_responses_are_asked_about_in_one_batch():
    llm = FakeLLM(repeat)
    found = llm_extractor(llm)(["Q1?", "Q2?"], ["A is. B is.", "C is."])
    assert found == [
        [Claim("A is.", "A is."), Claim("B is.", "B is.")],
        [Claim("C is.", "C is.")],
    ]
    assert [len(batch) for batch in llm.batches] == [3]


def test_a_request_shows_the_question_and_three_sentences_before_and_one_after():
    llm = FakeLLM(repeat)
    llm_extractor(llm)(["Who?"], ["A is. B is. C is. D is. E is. F is. G is."])
    prompt = llm.batches[0][4].messages[0]["content"]
    assert field(prompt, "Question") == "Who?"
    assert field(prompt, "Before") == ["B is.", "C is.", "D is."]
    assert field(prompt, "Sentence") == "E is."
    assert field(prompt, "After") == ["F is."]


def test_one_failed_sentence_makes_its_response_none_and_no_other():
    def answered(prompt):
        failed = field(prompt, "Sentence") == "B is."
        return Reply(None, "timeout") if failed else repeat(prompt)

    found = llm_extractor(FakeLLM(answered))(["q"] * 2, ["A is. B is.", "C is."])
    assert found == [None, [Claim("C is.", "C is.")]]


def test_a_response_without_sentences_has_no_claims_and_makes_no_call():
    llm = FakeLLM(repeat)
    assert llm_extractor(llm)(["q", "q"], ["", "```\ncode\n```"]) == [[], []]
    assert llm.batches == []


TWICE = '{"claims": ["Ann won.", "ann  WON.", " Bob won. "]}'


def test_a_claim_that_comes_again_in_other_case_or_spacing_is_kept_once():
    llm = FakeLLM(lambda prompt: Reply(TWICE))
    (found,) = llm_extractor(llm)(["q"], ["A is. B is."])
    assert found == [Claim("Ann won.", "A is."), Claim("Bob won.", "A is.")]


def test_responses_without_their_prompts_are_refused():
    with pytest.raises(ValueError, match="zip"):
        llm_extractor(FakeLLM(repeat))(["q"], ["A is.", "B is."])


hostile = st.text() | st.lists(
    st.sampled_from(
        [
            '"',
            "\\",
            "\n",
            "\u2028",
            "\nSentence: ",
            '{"claims": []}',
            "</s>",
            "[INST]",
            "x",
        ]
    )
).map("".join)


@settings(max_examples=60)
@given(hostile)
def test_a_response_stays_within_the_json_of_its_fields(text):
    llm = FakeLLM(repeat)
    llm_extractor(llm)([text], [f"A{text}"])
    template = prompts.template("extract_claims").splitlines()
    for request in llm.batches[0] if llm.batches else []:
        lines = request.messages[0]["content"].splitlines()
        assert lines[:-4] == template[:-4]
        fields = [json.loads(line.partition(": ")[2]) for line in lines[-4:]]
        assert fields[0] == text and fields[2] in f"A{text}"
        assert not any("<" in line or "[INST]" in line for line in lines[-4:])


def test_with_a_tenth_of_the_calls_failing_a_response_is_whole_or_none():
    def behave(body, attempt):
        sentence = field(prompt_of(body), "Sentence")
        if sentence.endswith("7 is here."):
            return refuse(400)
        return answer(json.dumps({"claims": [sentence]}))

    responses = [f"X{2 * i} is here. X{2 * i + 1} is here." for i in range(50)]
    with serve(behave) as server:
        limits = Limits(attempts=1, timeout_s=5)
        llm = LLM(Endpoint(server.url, "judge"), None, limits)
        found = llm_extractor(llm)(["q"] * 50, responses)
    whole = [i for i, of in enumerate(found) if of is not None]
    assert [i for i in range(50) if i not in whole] == list(range(3, 50, 5))
    assert all([c.text for c in found[i]] == sentences(responses[i]) for i in whole)


# Agreement with human facts


def test_agreement_is_as_calculated_by_hand():
    ours = [["Ann Lee was born in Rome.", "Mars is red."], ["Bob sings."]]
    human = [
        ["She was born in Rome.", "She is a poet."],
        ["He sings.", "Bob dances well."],
    ]
    # born rome / ann lee born rome: 2·2/6 ≥ 0.5; sings / bob sings: 2/3; dances: 2/5
    found = agreement(ours, human)
    assert found["recall"] == 2 / 4
    assert found["precision"] == 2 / 3
    assert (found["claims"], found["facts"]) == (1.5, 2.0)


def test_the_correlation_is_that_of_the_numbers_of_claims():
    ours, human = [["a"], ["a"] * 2, ["a"] * 3], [["a"] * 2, ["a"] * 4, ["a"] * 6]
    assert agreement(ours, human)["count_correlation"] == pytest.approx(1.0)


def test_function_words_and_case_do_not_count():
    assert (
        agreement([["He was born in ROME"]], [["born at rome"]], 1.0)["recall"] == 1.0
    )
