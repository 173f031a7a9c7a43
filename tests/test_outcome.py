"""Outcomes of short answers, case by case and by properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.verify.outcome import Outcome, contains, exact, outcome

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


@pytest.mark.parametrize("response", ["Paris", " Paris\n", "Lutetia"])
def test_exact_takes_a_reference_letter_by_letter(response):
    assert exact(response, ["Paris", "Lutetia "]) is Outcome.CORRECT


@pytest.mark.parametrize("response", ["paris", "Paris.", "It is Paris", "", "Par is"])
def test_exact_takes_nothing_else(response):
    assert exact(response, ["Paris"]) is Outcome.WRONG


def test_exact_compares_no_numbers():
    assert exact("1,500", ["1500"]) is Outcome.WRONG


@given(st.text(max_size=50), st.lists(words, min_size=1))
def test_what_is_exact_is_never_wrong_by_the_rules(response, answers):
    if exact(response, answers) is Outcome.CORRECT:
        assert outcome(response, answers) is not Outcome.WRONG


@given(words)
def test_an_answer_in_its_own_letters_is_correct_or_an_abstention(answer):
    assert exact(f" {answer}\n", [answer]) is not Outcome.WRONG


@pytest.mark.parametrize(
    "response",
    ["Paris", "Lyon or Paris.", "The PARIS of today\nand Rome", "Ile-de-France: Paris"],
)
def test_contains_takes_an_answer_among_other_words(response):
    assert contains(response, ["Paris"]) is Outcome.CORRECT


@pytest.mark.parametrize("response", ["", "Parisian", "Lyon", "Par is"])
def test_contains_takes_whole_words_only(response):
    assert contains(response, ["Paris"]) is Outcome.WRONG


def test_contains_takes_the_words_of_an_answer_in_a_row():
    said = ["the New York of today", "New in York", "York New"]
    found = [contains(s, ["New York"]) for s in said]
    assert found == [Outcome.CORRECT, Outcome.WRONG, Outcome.WRONG]


@given(words, words.filter(lambda w: w.casefold() not in ("a", "an", "the")), words)
def test_contains_takes_an_answer_between_any_words(before, answer, after):
    found = contains(f"{before} {answer} {after}", [answer])
    assert found in (Outcome.CORRECT, Outcome.ABSTAIN)


@pytest.mark.parametrize("rule", [outcome, exact, contains])
def test_every_rule_sees_an_abstention(rule):
    assert rule("I don't know.", ["Paris"]) is Outcome.ABSTAIN
