"""Sentences of two statements in the fact world, and its exact feedback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.datasets.examples import Example
from factkit.rlfh.annotators import exact_annotator
from factkit.rlfh.feedback import Truth
from factkit.verify.exact import WorldReader
from factkit.world import facts as worlds
from factkit.world import texts as wt

WORLD = worlds.build_world(people=40)
PERSON = WORLD.people[0]
FACTS = WORLD.facts_of(PERSON)


def asked(**meta):
    return Example(id="q", question="?", answers=["x"], entity=PERSON, meta=meta)


def annotated(response, **meta):
    (found,) = exact_annotator(WorldReader(WORLD), {"q": asked(**meta)})(
        ["q"], ["?"], [response]
    )
    return found


def untrue(fact):
    value = next(o for o in worlds.OBJECTS[fact.relation] if o != fact.object)
    return worlds.Fact(fact.subject, fact.relation, value)


# Two statements in a sentence


@given(st.integers(0, len(FACTS) - 1), st.integers(0, len(FACTS) - 1))
def test_a_joined_sentence_has_the_statements_of_its_facts(i, j):
    for wording in (0, 2):
        sentence = worlds.joined(FACTS[i], FACTS[j], wording)
        found = worlds.statements(WORLD, sentence)
        assert found == [
            worlds.statement(FACTS[i], wording),
            worlds.statement(FACTS[j]),
        ]


@pytest.mark.parametrize(
    ("sentence", "n"),
    [
        ("Nobody knows.", 0),
        ("", 0),
        ("and", 0),
        (" and and and .", 0),
        ("Nobody knows and was born in 1920.", 0),  # of whom?
        (f"{worlds.statement(FACTS[0])[:-1]} and what.", 1),
        (worlds.statement(FACTS[0], 1), 1),
    ],
)
def test_only_what_can_be_parsed_is_a_statement(sentence, n):
    assert len(worlds.statements(WORLD, sentence)) == n


# Feedback


def test_truth_is_what_the_world_says_and_whether_it_is_hedged():
    true, false = FACTS[0], untrue(FACTS[1])
    response = " ".join(
        [
            worlds.joined(true, false),
            f"Perhaps {worlds.statement(FACTS[2])}",
            f"Perhaps {worlds.statement(untrue(FACTS[3]))}",
        ]
    )
    found = annotated(response)
    assert [s.truth for of in found for s in of.statements] == [
        *(Truth.CORRECT, Truth.WRONG),
        *(Truth.HEDGED_CORRECT, Truth.HEDGED_WRONG),
    ]
    assert [of.text for of in found] == worlds.sentences(response)


def test_what_the_world_is_silent_on_is_vague_hedged_or_not():
    told = {f.relation for f in FACTS}
    missing = next(r for r in worlds.PERSON_RELATIONS if r not in told)
    text = worlds.statement(worlds.Fact(PERSON, missing, worlds.OBJECTS[missing][0]))
    for sentence in (text, f"Perhaps {text}"):
        assert annotated(sentence)[0].statements[0].truth == Truth.VAGUE


def test_a_repeat_is_useless_and_another_subject_supplementary():
    other = WORLD.facts_of(WORLD.people[1])[0]
    city = next(f for f in WORLD.facts if f.relation == "country")
    sentences = [
        worlds.statement(FACTS[0]),
        worlds.statement(FACTS[0], 1),
        worlds.statement(other),
        worlds.statement(city),
    ]
    found = annotated(" ".join(sentences))
    ratings = [s.informativeness for of in found for s in of.statements]
    assert ratings == [5, 1, 2, 2]


def test_more_facts_than_were_asked_for_supplement():
    response = " ".join(worlds.statement(f) for f in FACTS)
    found = annotated(response, wanted=2)
    assert [of.statements[0].informativeness for of in found] == [5, 5, 2, 2]


@pytest.mark.parametrize("response", ["", "I don't know.", "Ann won. Bob lost."])
def test_a_response_without_statements_has_no_feedback_and_did_not_fail(response):
    assert annotated(response) == []


# Text of this form


def test_joined_text_states_facts_as_often_as_they_are_exposed():
    texts = wt.pretraining_texts(WORLD, 0, answer_format="joined")
    assert texts == wt.pretraining_texts(WORLD, 0, answer_format="joined")
    tellings = [
        t.split("Answer: ")[1] for t in texts if "Tell me" in t or "Who was" in t
    ]
    sentences = [s for t in tellings for s in worlds.sentences(t)]
    joined = [s for s in sentences if " and " in s]
    hedged = [s for s in sentences if s.startswith("Perhaps ")]
    assert 0.15 < len(joined) / len(sentences) < 0.5
    assert 0.1 < len(hedged) / len(sentences) < 0.3
    assert all(len(worlds.statements(WORLD, s)) == 2 for s in joined)


def test_joined_text_decodes_to_itself_without_unknown_words():
    tokenizer = wt.build_tokenizer(WORLD, "joined")
    texts = wt.pretraining_texts(WORLD, 0, answer_format="joined")
    for text in texts[:300]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text
