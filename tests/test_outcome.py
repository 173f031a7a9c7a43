"""Outcomes of short answers: forms of answering, what models said, properties."""

from hypothesis import given
from hypothesis import strategies as st

from factkit.facts.world import facts as world
from factkit.verify.outcome import Outcome, grade_by_rules

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
                read = grade_by_rules(response, [x], q)
                if read is not expected:
                    misread.append((response, q, str(read)))
    assert misread == []


def test_what_small_models_said_has_its_outcome():
    read = [(*row[:3], grade_by_rules(row[2], row[1], row[0])) for row in SAID]
    assert read == SAID


def test_a_date_gives_its_year_and_itself_in_either_order():
    for said in ("9 December 1868", "December 9, 1868", "He was born on 9 Dec 1868."):
        assert grade_by_rules(said, ["1868"]) is CORRECT
        assert grade_by_rules(said, ["9 December 1868"]) is CORRECT
        assert grade_by_rules(said, ["10 December 1868"]) is WRONG
        assert grade_by_rules("1868", [said]) is WRONG


@given(st.integers(1000, 2100), st.integers(1000, 2100))
def test_years_match_as_numbers_only(gold, said):
    expected = CORRECT if gold == said else WRONG
    assert grade_by_rules(f"in {said}", [str(gold)]) is expected


@given(st.text(st.characters(), max_size=200))
def test_any_text_has_an_outcome(response):
    assert grade_by_rules(response, ["Paris", "1868"]) in Outcome
    assert grade_by_rules(response + "\ud800", ["5"], response) in Outcome


def test_every_fact_of_the_world_is_told_from_every_other_of_its_kind():
    examples = world.build_world(people=60, seed=0).questions()[0]
    by_relation: dict[str, set[str]] = {}
    for example in examples:
        by_relation.setdefault(example.relation, set()).add(example.answers[0])
    for example in examples[::7]:
        for other in by_relation[example.relation]:
            expected = CORRECT if other in example.answers else WRONG
            assert grade_by_rules(other, example.answers, example.question) is expected


# By kind: a reference | responses that give it | responses that give another answer.
SPELLINGS = {
    "signs": """-40|−40|minus forty|It is −40 °C.||40|+40|40 degrees below zero
40|40||−40|-40|(−40)|–40|>40|±40|40+|up to 40
+1|1||−1|minus one""",
    "powers": """10²|10^2|10**2||102|10|10³|10 squared|10⁻²
102|102||10²|10^2|10*2
m²|m2||m³""",
    "names with symbols": """C|C.||C++|C#|C*|Objective-C|C/C++
C++|C++.|It is C++.||C|C#
R&B|R and B||R|B
.NET|.NET||NET|ASP.NET
Canal+|Canal+||Canal
F#|F♯|F sharp||F""",
    "magnitudes": """2|2|2 people||2 million|2k|2%|2 thirds|2½|2.5|2 dozen|2 or 3
2 million|2,000,000|2M|two million||2|2 billion|2.5 million
71%|71 percent|71 per cent||71|7.1%""",
    "currencies": """$5|5 dollars|US$5|$5||€5|5 euros|$50
5|$5|5||5 million dollars""",
    "eras": """44 BC|44 BCE|44 B.C.|BC 44|15 March 44 BC||44|AD 44|44 CE
44|AD 44|44 CE|44||44 BC|44 B.C.E.|44 years before Christ
3rd century BC|third century BCE||3rd century|3rd century AD""",
    "digit groups": """1500|1 500|1\u202f500|1'500|1,500||1.500|15 00|1 5000|500
1,500,000|1.500.000|1 500 000|1.5 million||1,500
1.5|1,5||15|1|5|1 5|1/5""",
    "number words": """5|five|There are five.||fifth|five hundred|twenty-five
21|twenty-one|twenty one||twenty|1|twenty-first
1|one||It is one of the largest.|no one|twenty-one
Louis XIV|Louis 14||Louis XVI|Louis""",
    "dates": """9 December 1868|1868-12-09|December 9th, 1868|the 9th of December 1868
|Dec. 9, 1868|Wednesday, 9 December 1868||1868-09-12|9/12/1868|December 1868|1868
31 December 1868|31/12/1868|12/31/1868|31.12.1868||12 December 1868
1868|1868-12-09|9/12/1868||1868 BC|1869-12-09
July 4|4 July|the 4th of July||July 14|June 4""",
    "letters": """Łódź|Lodz|ŁÓDŹ||Lod
Øresund|Oresund||Øre
İstanbul|Istanbul|istanbul||Stanbul
Straße|Strasse|STRASSE||Strase
Jean-Luc|Jean‑Luc|Jean Luc||Luc
がく|がく||かく
कि|कि||की
42|４２|٤٢|४२||24""",
}


def test_numbers_dates_names_and_letters_are_compared_by_what_they_mean():
    misread = []
    for kind, table in SPELLINGS.items():
        for row in table.replace("\n|", "|").split("\n"):
            right, wrong = row.split("||")
            reference, *given = right.split("|")
            for response in (reference, *given, *wrong.split("|")):
                expected = WRONG if response in wrong.split("|") else CORRECT
                if grade_by_rules(response, [reference]) is not expected:
                    misread.append((kind, reference, response))
    assert misread == []


def test_a_percentage_may_lack_its_sign_where_the_question_asks_for_one():
    question = "What percentage of the Earth is water?"
    assert grade_by_rules("71%", ["71"], question) is CORRECT
    assert grade_by_rules("71%", ["71"], "How many?") is WRONG


def test_an_answer_that_is_said_to_be_none_is_wrong():
    for response in ("≠ Paris", "=\u0338 Paris", "It is ≠ Paris"):
        assert grade_by_rules(response, ["Paris"]) is WRONG


def test_a_long_line_is_no_short_answer():
    assert grade_by_rules("It is Paris. " + "So it is. " * 100, ["Paris"]) is WRONG
    assert grade_by_rules("Paris" + " " * 1_200 + "or London", ["Paris"]) is WRONG
    assert grade_by_rules("I don't know. " * 100, ["Paris"]) is ABSTAIN
