"""Outcomes of short answers, case by case and by properties."""

from hypothesis import given
from hypothesis import strategies as st

from factkit.verify.outcome import Outcome, contains, exact, outcome

FRANCE = ("What is the capital of France?", ["Paris"])
HABER = ("In which year was Fritz Haber born?", ["1868"])
words = st.text(st.characters(categories=["L"]), min_size=1, max_size=12)


CASES = {
    Outcome.CORRECT: [
        ("paris.", FRANCE),
        ("It is Paris, France.", FRANCE),
        ("The capital of France is Paris\nQuestion: and Spain?", FRANCE),
        ("Fritz Haber was born on 9 December 1868.", HABER),
        ("It is As", ("What is the symbol of arsenic?", ["As"])),
        ("the netherlands", ("Which country?", ["Netherlands"])),
        ("Bogota", ("Capital of Colombia?", ["Bogotá"])),
        ("1,500", ("How many?", ["1500"])),
    ],
    Outcome.ABSTAIN: [
        ("I don’t know.", FRANCE),
        ("I DO NOT KNOW", FRANCE),
        ("Unknown", FRANCE),
        ("Sorry, I cannot answer that", FRANCE),
    ],
    Outcome.WRONG: [
        ("", FRANCE),
        ("  \n", FRANCE),
        ("Lyon", FRANCE),
        ("Paris or Lyon", FRANCE),
        ("Paris, Lyon, Nice", FRANCE),
        ("France", FRANCE),
        ("18680", HABER),
        ("South America", ("In which country?", ["United States", "America"])),
        ("Not Paris", FRANCE),
    ],
}


def test_an_outcome_by_the_rules():
    for expected, cases in CASES.items():
        for response, (question, answers) in cases:
            assert outcome(response, answers, question) is expected, response


@given(st.integers(1000, 2100), st.integers(1000, 2100))
def test_years_match_as_numbers_only(gold, said):
    expected = Outcome.CORRECT if gold == said else Outcome.WRONG
    assert outcome(f"in {said}", [str(gold)]) is expected


@given(st.text(max_size=200))
def test_any_text_has_an_outcome(response):
    assert outcome(response, ["Paris", "1868"]) in Outcome


def test_exact_takes_a_reference_letter_by_letter():
    for response in ("Paris", " Paris\n", "Lutetia"):
        assert exact(response, ["Paris", "Lutetia "]) is Outcome.CORRECT
    for response in ("paris", "Paris.", "It is Paris", "", "Par is"):
        assert exact(response, ["Paris"]) is Outcome.WRONG
    assert exact("1,500", ["1500"]) is Outcome.WRONG
    assert exact("I don't know.", ["Paris"]) is Outcome.ABSTAIN


@given(st.text(max_size=50), st.lists(words, min_size=1))
def test_what_is_exact_is_never_wrong_by_the_rules(response, answers):
    if exact(response, answers) is Outcome.CORRECT:
        assert outcome(response, answers) is not Outcome.WRONG


def test_contains_takes_the_words_of_an_answer_in_a_row_among_others():
    for response in ("Lyon or Paris.", "The PARIS of today\nand Rome", "France: Paris"):
        assert contains(response, ["Paris"]) is Outcome.CORRECT
    for response in ("", "Parisian", "Lyon", "Par is"):
        assert contains(response, ["Paris"]) is Outcome.WRONG
    assert contains("the New York of today", ["New York"]) is Outcome.CORRECT
    assert contains("New in York", ["New York"]) is Outcome.WRONG
    assert contains("I don't know.", ["Paris"]) is Outcome.ABSTAIN


@given(words, words.filter(lambda w: w.casefold() not in ("a", "an", "the")), words)
def test_contains_takes_an_answer_between_any_words(before, answer, after):
    found = contains(f"{before} {answer} {after}", [answer])
    assert found in (Outcome.CORRECT, Outcome.ABSTAIN)
