"""Sentences of two statements in the fact world, and text made of them."""

from hypothesis import given
from hypothesis import strategies as st

from factkit.world import facts as worlds
from factkit.world import texts as wt

WORLD = worlds.build_world(people=40)
FACTS = WORLD.facts_of(WORLD.people[0])
places = st.integers(0, len(FACTS) - 1)


@given(places, places)
def test_a_joined_sentence_has_the_statements_of_its_facts(i, j):
    for wording in (0, 2):
        sentence = worlds.joined(FACTS[i], FACTS[j], wording)
        first = worlds.statement(FACTS[i], wording)
        expected = [first, worlds.statement(FACTS[j])]
        assert worlds.statements(WORLD, sentence) == expected


def test_only_what_can_be_parsed_is_a_statement():
    whose = "Nobody knows and was born in 1920."
    for sentence in ("Nobody knows.", "", "and", " and and and .", whose):
        assert worlds.statements(WORLD, sentence) == []
    sentence = f"{worlds.statement(FACTS[0])[:-1]} and what."
    assert len(worlds.statements(WORLD, sentence)) == 1


def test_joined_text_is_of_both_kinds_of_sentences_and_of_known_words():
    texts = wt.pretraining_texts(WORLD, 0, answer_format="joined")
    assert texts == wt.pretraining_texts(WORLD, 0, answer_format="joined")
    answers = [
        t.split("Answer: ")[1] for t in texts if "Tell me" in t or "Who was" in t
    ]
    sentences = [s for t in answers for s in worlds.sentences(t)]
    joined = [s for s in sentences if " and " in s]
    hedged = [s for s in sentences if s.startswith("Perhaps ")]
    assert 0.15 < len(joined) / len(sentences) < 0.5
    assert 0.1 < len(hedged) / len(sentences) < 0.3
    assert all(len(worlds.statements(WORLD, s)) == 2 for s in joined)
    tokenizer = wt.build_tokenizer(WORLD, "joined")
    for text in texts[:300]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids and tokenizer.decode(ids) == text
