"""Outcomes of short answers: forms of answering, what models said, properties."""

from hypothesis import given
from hypothesis import strategies as st

from factkit.verify.outcome import Outcome, outcome
from factkit.world import facts as world

CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG

# (question, reference, another of its kind)
QUESTIONS = [
    ("What is the capital of Peru?", "Lima", "Oslo"),
    ("Who wrote Walden?", "Henry David Thoreau", "Jane Austen"),
    ("Which chemical element has the symbol Sn?", "tin", "lead"),
    ("In which year was Fritz Haber born?", "1868", "1867"),
    ("When was Fritz Haber born?", "9 December 1868", "7 November 1867"),
]
FORMS = {  # x: the reference, y: the other
    CORRECT: """{x}|{x}.|It is {x}.|**{x}**|I think it is {x}.|The answer is {x}.
{x}, because I remember reading about it.|Answer: {x}|My best guess is {x}.
I'm not sure, but I think it is {x}.|I don't know for certain, but it is probably {x}
{x}, but I'm not sure.|It was {x}, not {y}.|{x}; this is well documented.
{x} (I am fairly certain)|Sure! The answer is {x}.|Yes, {x}.|{q} {x}.|Final answer: {x}
I'd go with {x}.|You are looking for {x}.|{x}, which most people know.""",
    ABSTAIN: """I don't know|I DO NOT KNOW.|I don’t know know know|I'm not sure.
I do not know the answer to that question.|I'm unable to answer.|Unknown|I don't recall.
I can't say for certain.|I have no idea.|No idea, sorry.|Sorry, I don't know.
I do not have enough information to answer.|The references do not mention it.
It cannot be determined from the given information.|I'd rather not guess.|I'm unsure.
As an AI language model, I don't know that.|I don't know; the references are silent.
I'm not sure, but I can look it up for you.|That is unknown to me.""",
    WRONG: """{y}|It is {y}.|{y}, because I remember it.|I'm not sure, but it is {y}.
It is not {x}.|It isn't {x}.|Not {x}.|{x} or {y}|{y} or {x}|Either {x} or {y}.|{x}/{y}
{y} and {x}|{x} and {y}|It is {y}, not {x}.|Maybe {y}, maybe {x}.|{x}. No, {y}.|{q}
Neither {x} nor {y}.|{x} is wrong.|{x} as well as {y}|{x}, {y}|{x}; {y}||  |{y} ({x})
{x} is close, but it is {y}.|It might be {x}, or perhaps {y}.|You asked: {q}""",
}
SAID = [  # by small models: (question, answers, response, its outcome)
    ("Of which country is Asmara the capital?", ["Eritrea"], "Eritrea Answer: Eritrea")
    + (CORRECT,),
    ("On which continent is Lesotho?", ["Africa"], "Lesotho is located in Africa.")
    + (CORRECT,),
    ("What nationality was Philip Johnson?", ["American"], "American (USA)", CORRECT),
    ("When was Les Misérables published?", ["1862"], "31 March 1862", CORRECT),
    ("Who wrote One Piece?", ["Oda"], "It was Oda\nQuestion: and Faust?", CORRECT),
    ("In which country is Maharashtra?", ["India"], "Southeastern India", WRONG),
    ("On which continent is Monaco?", ["Europe"], "Monaco, which is not in Europe")
    + (WRONG,),
    ("Which band is it?", ["Unknown Pleasures"], "Unknown Pleasures", CORRECT),
    ("Is Pluto a planet?", ["No"], "No.", CORRECT),
]


def test_usual_forms_of_answering_have_their_outcome():
    misread = []
    for expected, forms in FORMS.items():
        for form in forms.replace("\n", "|").split("|"):
            for q, x, y in QUESTIONS:
                response = form.format(q=q, x=x, y=y)
                read = outcome(response, [x], q)
                if read is not expected:
                    misread.append((response, q, str(read)))
    assert misread == []


def test_what_small_models_said_has_its_outcome():
    read = [(*row[:3], outcome(row[2], row[1], row[0])) for row in SAID]
    assert read == SAID


def test_a_date_gives_its_year_and_itself_in_either_order():
    for said in ("9 December 1868", "December 9, 1868", "He was born on 9 Dec 1868."):
        assert outcome(said, ["1868"]) is CORRECT
        assert outcome(said, ["9 December 1868"]) is CORRECT
        assert outcome(said, ["10 December 1868"]) is WRONG
        assert outcome("1868", [said]) is WRONG


@given(st.integers(1000, 2100), st.integers(1000, 2100))
def test_years_match_as_numbers_only(gold, said):
    expected = CORRECT if gold == said else WRONG
    assert outcome(f"in {said}", [str(gold)]) is expected


@given(st.text(max_size=200))
def test_any_text_has_an_outcome(response):
    assert outcome(response, ["Paris", "1868"]) in Outcome


def test_every_fact_of_the_world_is_told_from_every_other_of_its_kind():
    examples = world.questions(world.build_world(people=60, seed=0))
    by_relation: dict[str, set[str]] = {}
    for example in examples:
        by_relation.setdefault(example.relation, set()).add(example.answers[0])
    for example in examples[::7]:
        for other in by_relation[example.relation]:
            expected = CORRECT if other in example.answers else WRONG
            assert outcome(other, example.answers, example.question) is expected
