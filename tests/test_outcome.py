"""Outcomes of short answers, case by case and by properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.verify.outcome import Outcome, outcome

FRANCE = ("What is the capital of France?", ["Paris"])
HABER = ("In which year was Fritz Haber born?", ["1868"])
words = st.text(st.characters(categories=["L"]), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("response", "case"),
    [
        ("Paris", FRANCE),
        ("paris.", FRANCE),
        ("It is Paris, France.", FRANCE),
        ("The capital of France is Paris\nQuestion: and Spain?", FRANCE),
        ("1868", HABER),
        ("Fritz Haber was born on 9 December 1868.", HABER),
        ("It is As", ("What is the symbol of arsenic?", ["As"])),
        ("the netherlands", ("Which country?", ["Netherlands"])),
        ("Bogota", ("Capital of Colombia?", ["Bogotá"])),
        ("1,500", ("How many?", ["1500"])),
    ],
)
def test_correct(response, case):
    assert outcome(response, case[1], case[0]) is Outcome.CORRECT


@pytest.mark.parametrize(
    "response",
    [
        "I don't know",
        "I don’t know.",
        "I DO NOT KNOW",
        "i'm not sure",
        "Unknown",
        "Sorry, I cannot answer that",
        "No idea!",
    ],
)
def test_abstention_in_any_case_and_with_curly_apostrophes(response):
    assert outcome(response, FRANCE[1], FRANCE[0]) is Outcome.ABSTAIN


@pytest.mark.parametrize(
    ("response", "case"),
    [
        ("", FRANCE),
        ("  \n", FRANCE),
        ("Lyon", FRANCE),
        ("Paris or Lyon", FRANCE),
        ("Paris, Lyon, Nice", FRANCE),
        ("France", FRANCE),
        ("1868 or 1869", HABER),
        ("18680", HABER),
        ("South America", ("In which country?", ["United States", "America"])),
        ("Mexico", ("What is the capital of Mexico?", ["Mexico City"])),
        ("Not Paris", FRANCE),
    ],
)
def test_wrong(response, case):
    assert outcome(response, case[1], case[0]) is Outcome.WRONG


@given(words, words)
def test_offering_a_second_answer_is_wrong_unless_it_is_the_same(answer, other):
    both = outcome(f"{answer} xor {other}", [answer])
    assert both in (Outcome.WRONG, Outcome.ABSTAIN)


@given(st.integers(1000, 2100), st.integers(1000, 2100))
def test_years_match_as_numbers_only(gold, said):
    expected = Outcome.CORRECT if gold == said else Outcome.WRONG
    assert outcome(f"in {said}", [str(gold)]) is expected


@given(st.text(max_size=200))
def test_any_text_has_an_outcome(response):
    assert outcome(response, ["Paris", "1868"]) in Outcome
