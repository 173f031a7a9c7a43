"""Hedges: told by wording, taken off so that a sentence is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import world
from factkit.verify.hedges import hedged, hedges, without_hedges

HEDGED = [
    ("Ann was probably a poet.", "Ann was a poet."),
    ("Ann was, perhaps, a poet.", "Ann was a poet."),
    ("Perhaps Ann was a poet.", "Ann was a poet."),
    ("Most likely, Ann was a poet.", "Ann was a poet."),
    ("Reportedly, Ann was a poet.", "Ann was a poet."),
    ("Ann might be a poet.", "Ann is a poet."),
    ("Ann might have been a poet.", "Ann was a poet."),
    ("Ann may have been born in May.", "Ann was born in May."),
    ("Ann could have been born in Rome.", "Ann was born in Rome."),
    ("Aspirin may cause bleeding.", "Aspirin cause bleeding."),
    ("I think that Ann was a poet.", "Ann was a poet."),
    ("I believe Ann was a poet.", "Ann was a poet."),
    ("As far as I know, Ann was a poet.", "Ann was a poet."),
    ("If I remember correctly, Ann was a poet.", "Ann was a poet."),
    ("I'm not sure, but Ann was a poet.", "Ann was a poet."),
    ("I’m not entirely sure, but I think Ann was a poet.", "Ann was a poet."),
    ("It is believed that Ann was a poet.", "Ann was a poet."),
    ("It’s widely thought that Ann was a poet.", "Ann was a poet."),
    ("It is possible that Ann was a poet.", "Ann was a poet."),
    ("It seems that Ann was a poet.", "Ann was a poet."),
    ("Ann is said to have been a poet.", "Ann was a poet."),
    ("Ann was widely believed to be a poet.", "Ann was a poet."),
    ("Ann seems to be a poet.", "Ann is a poet."),
    ("Ann is likely to be a poet.", "Ann is a poet."),
    ("Ann died in 1950, possibly in Rome.", "Ann died in 1950 in Rome."),
]
PLAIN = [
    "Ann was a poet.",
    "Ann was born in May 1950.",
    "Ann could read at three.",
    "It could be seen from Rome.",
    "Ann was born around 1950.",
    "Ann said that it was over.",
    "Ann thought of Rome.",
    "It is unlikely to rain.",
    "Ann believes in ghosts.",
    "The mighty fell.",
]


@pytest.mark.parametrize(("text", "plain"), HEDGED)
def test_a_hedge_is_told_and_taken_off(text, plain):
    assert hedges(text)
    assert without_hedges(text) == plain
    assert not hedges(plain)


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_sentence_has_no_hedge_and_stays_as_it_is(text):
    assert not hedges(text)
    assert without_hedges(text) == text


@pytest.mark.parametrize("hedge", world.HEDGES)
def test_the_hedges_of_the_fact_world_are_hedges(hedge):
    assert hedges(f"{hedge.capitalize()} Ala Haskwood was a poet.")


@pytest.mark.parametrize(
    ("sentence", "statements", "expected"),
    [
        ("A was probably x, and B.", ["A was probably x.", "B."], [True, False]),
        ("Perhaps A and B.", ["A.", "B."], [True, True]),
        ("Perhaps A, possibly B.", ["A.", "Possibly B."], [False, True]),
        ("A and B.", ["A.", "B."], [False, False]),
        ("Perhaps.", [], []),
    ],
)
def test_a_hedge_is_the_statements_that_kept_it_or_else_the_whole_sentences(
    sentence, statements, expected
):
    assert hedged(sentence, statements) == expected


@given(
    st.lists(
        st.sampled_from(["it is", "likely", "that", "may", "have been", ",", "I think"])
        | st.text(max_size=3)
    ).map(" ".join)
)
def test_what_has_no_hedge_is_left_alone(text):
    assert hedges(text) or without_hedges(text) in (text, text[:1].upper() + text[1:])


def test_long_texts_of_hedges_take_no_long_time():
    for part in ("perhaps ", "it is ", "I think that ", "x", "likely, "):
        assert len(without_hedges(part * 20_000)) <= len(part) * 20_000
