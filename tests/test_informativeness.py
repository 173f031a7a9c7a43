"""Informativeness by rules: the obvious cases come out as they should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.verify.informativeness import ratings

RATED = {
    "When was Ada Lovelace born?": [
        ("Ada Lovelace was born on 10 December 1815.", 5),
        ("Ada Lovelace was born in London.", 4),
        ("Ada Lovelace died in 1852.", 4),
        ("Ada Lovelace was a mathematician.", 3),
        ("London is a city.", 2),
        ("Ada Lovelace was born.", 1),
    ],
    "Where was Ada Lovelace born?": [
        ("Ada Lovelace was born in London.", 5),
        ("Ada Lovelace was born in December 1815.", 4),
    ],
    "Who was Ada Lovelace?": [
        ("Ada Lovelace was a mathematician.", 5),
        ("Ada Lovelace was born in London.", 4),
        ("Lovelace liked horses.", 3),
        ("Charles Babbage was an engineer.", 2),
    ],
    "Tell me about the life of Ada Lovelace.": [
        ("Ada Lovelace was a mathematician.", 5),
        ("Ada Lovelace wrote about the Analytical Engine.", 4),
        ("Ada Lovelace liked horses.", 3),
    ],
    "How many moons does Mars have?": [
        ("Mars has two moons.", 5),
        ("Mars has moons.", 1),
        ("Mars is red.", 3),
        ("Saturn has rings.", 2),
    ],
    "What is the capital of France?": [
        ("Paris is the capital of France.", 5),
        ("France borders Spain.", 4),
        ("France has many rivers.", 3),
        ("Berlin is the capital of Germany.", 2),
    ],
    "Who designed the Forth Bridge?": [
        ("The Forth Bridge was designed by John Fowler.", 5),
        ("The Forth Bridge opened in 1890.", 4),
        ("The Forth Bridge was designed well.", 3),
        ("John Fowler was an engineer.", 2),
    ],
    "Which magazine was started first, Arthur's Magazine or First for Women?": [
        ("Arthur's Magazine was likely started first.", 5),
        ("First for Women was founded in 1989.", 4),
        ("Philadelphia is a city.", 2),
    ],
    "Is Ben Nevis in Scotland?": [
        ("Ben Nevis is in Scotland.", 5),
        ("Ben Nevis is 1,345 metres high.", 4),
        ("Ben Nevis is steep.", 3),
    ],
    "why is the sky blue?": [
        ("The sky is blue because air scatters short waves.", 5),
        ("The sky is high.", 3),
        ("Tides come with the Moon.", 2),
    ],
}


@pytest.mark.parametrize(
    ("question", "statement", "expected"),
    [(question, *row) for question, rows in RATED.items() for row in rows],
)
def test_a_statement_is_rated_as_the_rules_say(question, statement, expected):
    assert ratings(question, [statement]) == [expected]


@pytest.mark.parametrize(
    "again",
    [
        "Ada Lovelace was born in London.",
        "ADA Lovelace was born in london!",
        "Ada Lovelace was probably born in London.",
        "I think Ada Lovelace was born in London.",
    ],
)
def test_what_was_said_already_is_of_no_use_hedged_or_not(again):
    first = "Ada Lovelace was born in London."
    assert ratings("Where was Ada Lovelace born?", [first, again]) == [5, 1]


def test_another_number_or_order_of_names_is_no_repeat():
    said = ["Ann beat Bob twice.", "Bob beat Ann twice.", "Ann has two sons."]
    found = ratings("Tell me about Ann.", [*said, "Ann has three sons."])
    assert 1 not in found


@pytest.mark.parametrize("hedge", ["Perhaps ", "I think ", "It is believed that "])
def test_a_hedge_changes_no_rating(hedge):
    for question, rows in RATED.items():
        for statement, expected in rows:
            assert ratings(question, [f"{hedge}{statement}"]) == [expected]


def test_a_question_without_words_makes_nothing_informative():
    assert ratings("", ["Ann was a poet.", "Ann was a poet."]) == [2, 1]


@given(st.text(), st.lists(st.text()))
def test_each_statement_gets_one_rating_of_the_scale(question, statements):
    found = ratings(question, statements)
    assert len(found) == len(statements)
    assert set(found) <= {1, 2, 3, 4, 5}
