"""Claims: sentences are verbatim, extraction is whole or None, rules split as said."""

import json

import pytest
from fake_endpoint import answer, prompt_of, refuse, serve
from hypothesis import example, given, settings
from hypothesis import strategies as st

from factkit import prompts
from factkit import world as worlds
from factkit.backends import Endpoint
from factkit.llm import LLM, Limits, Reply
from factkit.params import ROOT
from factkit.verify.claims import (
    Claim,
    agreement,
    embedded_claims,
    llm_extractor,
    sentences,
    world_claims,
)

FACTSCORE = ROOT.parent / "shared" / "data" / "factscore" / "InstructGPT.jsonl"


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


# Rules


def texts_of(response, prompt="Tell me about Ann Lee."):
    (found,) = embedded_claims([prompt], [response])
    return [claim.text for claim in found]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        # coordinated predicates, clauses
        (
            "Ann Lee won a prize and moved to Rome.",
            ["Ann Lee won a prize.", "Ann Lee moved to Rome."],
        ),
        (
            "Ann Lee is a poet, and her brother is a painter.",
            ["Ann Lee is a poet.", "Ann Lee's brother is a painter."],
        ),
        (
            "Mars has two moons, while Venus has none.",
            ["Mars has two moons.", "Venus has none."],
        ),
        (
            "The play was written and directed by Ann.",
            ["The play was written and directed by Ann."],
        ),
        # relative clauses, appositions
        (
            "Ann Lee, who was a poet, died in 1950.",
            ["Ann Lee was a poet.", "Ann Lee died in 1950."],
        ),
        (
            "She joined Acme Corp, which is based in Rome.",
            ["Ann Lee joined Acme Corp.", "Acme Corp is based in Rome."],
        ),
        (
            "Ann Lee is a poet who lives in Rome.",
            ["Ann Lee is a poet.", "Ann Lee lives in Rome."],
        ),
        (
            "Ann Lee, a famous poet, was born in Rome.",
            ["Ann Lee was a famous poet.", "Ann Lee was born in Rome."],
        ),
        # what leads in, and what follows in -ing
        (
            "Born in Rome, she moved to Oslo.",
            ["Ann Lee was born in Rome.", "Ann Lee moved to Oslo."],
        ),
        ("In 1950, Ann Lee joined Acme.", ["Ann Lee joined Acme in 1950."]),
        (
            "She left Acme, becoming a teacher.",
            ["Ann Lee left Acme.", "Ann Lee became a teacher."],
        ),
        # lists, birth, nationality
        (
            "Ann Lee was a poet, painter and engraver.",
            [
                "Ann Lee was a poet.",
                "Ann Lee was a painter.",
                "Ann Lee was an engraver.",
            ],
        ),
        (
            "She appeared in films such as Alpha and Beta.",
            [
                "Ann Lee appeared in films.",
                "Ann Lee appeared in Alpha.",
                "Ann Lee appeared in Beta.",
            ],
        ),
        (
            "Ann Lee was born on May 4, 1950 in Rome, Italy.",
            ["Ann Lee was born on May 4, 1950.", "Ann Lee was born in Rome, Italy."],
        ),
        (
            "Ann Lee (born 4 May 1950) is an Italian poet.",
            [
                "Ann Lee is Italian.",
                "Ann Lee is a poet.",
                "Ann Lee was born 4 May 1950.",
            ],
        ),
        # not split: it isn't clear how
        (
            "She is the founder and head of Acme.",
            ["Ann Lee is the founder and head of Acme."],
        ),
        ("She had a quick and easy style.", ["Ann Lee had a quick and easy style."]),
        # Markdown
        ("- **Ann Lee** is a [poet](http://x.y).", ["Ann Lee is a poet."]),
    ],
    ids=lambda v: v[:30] if isinstance(v, str) else "",
)
def test_a_sentence_is_split_into_atomic_statements(response, expected):
    assert texts_of(response) == expected


@pytest.mark.parametrize(
    "response",
    [
        "Was Ann Lee a poet?",
        "I think Ann Lee is a poet.",
        "We know that Ann Lee was a poet.",
        "You should read the poems of Ann Lee.",
        "Try the early poems of Ann Lee.",
        "It is not known when she was born; I'm sorry.",
        "There is no information about Ann Lee.",
        "If Ann Lee were alive, she would write poems.",
        "Here are some facts about her:",
        "# Life of Ann Lee",
        "```\nAnn Lee is a poet.\n```",
        "x == y is {a: b}",
        "I don't know.",
        "She is.",
        "",
    ],
)
def test_what_states_nothing_has_no_claim(response):
    assert texts_of(response) == []


def test_a_pronoun_becomes_the_name_it_stands_for():
    response = "Bob Ray is a cook. He lives in Rome. Mars is red. It has two moons."
    assert texts_of(response) == [
        "Bob Ray is a cook.",
        "Bob Ray lives in Rome.",
        "Mars is red.",
        "Mars has two moons.",
    ]


def test_a_claim_keeps_its_sentence_verbatim():
    (found,) = embedded_claims(["q"], ["**Ann Lee** won a prize and moved to Rome."])
    assert {c.sentence for c in found} == {"**Ann Lee** won a prize and moved to Rome."}
    assert len(found) == 2


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [
                "Ann",
                "was",
                "and",
                "which",
                "born",
                "in",
                ",",
                ".",
                "of",
                "He",
                "a",
                "such as",
            ]
        )
        | st.text(max_size=4)
    ).map(" ".join)
)
@example(", , was Ann Ann")
def test_any_response_has_claims_that_begin_high_and_are_not_empty(response):
    (found,) = embedded_claims([response], [response])
    assert all(claim.text[0].upper()[0] == claim.text[0] for claim in found)


# The fact world


def test_the_world_extracts_the_sentences_that_state_a_fact():
    world = worlds.build_world(people=10)
    fact = world.facts[0]
    stated = worlds.statement(fact)
    response = f"Well. {stated} Nonsense was told. {stated} {stated[:-1]}"
    found = world_claims(world)(["q", "q"], [response, ""])
    assert found == [[Claim(stated, stated)], []]


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


@pytest.mark.skipif(not FACTSCORE.exists(), reason="no ../shared/data/factscore")
def test_the_rules_agree_with_human_facts_better_than_whole_sentences_do():
    rows = [json.loads(line) for line in FACTSCORE.read_text().splitlines()]
    rows = [row for row in rows if row["annotations"]][1::2]
    human = [
        [f["text"] for a in r["annotations"] for f in a["human-atomic-facts"] or []]
        for r in rows
    ]
    responses = [row["output"] for row in rows]
    found = embedded_claims([row["input"] for row in rows], responses)
    ours = agreement([[c.text for c in of] for of in found], human)
    whole = agreement([sentences(r) for r in responses], human)
    for measure in ("recall", "precision", "count_correlation"):
        assert ours[measure] > whole[measure]
