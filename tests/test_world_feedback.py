"""Sentences of two statements in the fact world, and text made of them."""

from hypothesis import given
from hypothesis import strategies as st

from factkit.world import facts as worlds

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
