"""Questions and ways of answering them, for the tests of the rule-based verifier.

A form is a template over a question's fields: x the reference, y and z other answers of
its kind, q the question, told the question as a statement up to its answer, and tell
what follows the answer where it comes first.

`HELD_OUT` forms were written before a look at how they are read, in four lots. Rules
were mended by some that were misread then, which moved to the other list; so the rates
at first sight say how forms unknown to the rules are read: misread were 0 to 10 % of
the first lot (plain forms) and 14 % (correct), 27 % (abstain) and 16 % (not correct) of
all four, of which the later lots are far-fetched on purpose.
"""

import calendar
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A question with its reference answer and two wrong ones of the same kind."""

    kind: str
    q: str
    x: str
    y: str
    z: str
    told: str
    tell: str


CAPITALS = """France Paris|Japan Tokyo|Norway Oslo|Kenya Nairobi|Peru Lima|Cuba Havana
Canada Ottawa|Egypt Cairo|Chad N'Djamena|Brazil Brasília|Colombia Bogotá|Ghana Accra
Austria Vienna|Mongolia Ulaanbaatar|Mexico Mexico_City|Malaysia Kuala_Lumpur
Argentina Buenos_Aires|Ethiopia Addis_Ababa|New_Zealand Wellington|Iceland Reykjavík
Sierra_Leone Freetown|Sri_Lanka Colombo|United_States Washington,_D.C.
Haiti Port-au-Prince|Grenada St._George's"""
AUTHORS = """Hamlet William_Shakespeare|Emma Jane_Austen|Dracula Bram_Stoker
Ulysses James_Joyce|Walden Henry_David_Thoreau|The_Hobbit J._R._R._Tolkien
Candide Voltaire|The_Trial Franz_Kafka|The_Stranger Albert_Camus|Utopia Thomas_More
Moby-Dick Herman_Melville|Faust Johann_Wolfgang_von_Goethe|Beloved Toni_Morrison
Middlemarch George_Eliot|The_Republic Plato|Kim Rudyard_Kipling|The_Iliad Homer
On_the_Road Jack_Kerouac|Persepolis Marjane_Satrapi|Le_Cid Pierre_Corneille"""
ELEMENTS = """Na sodium|K potassium|Fe iron|Au gold|Ag silver|Hg mercury|Sn tin|Pb lead
W tungsten|Co cobalt|As arsenic|In indium|No nobelium|Xe xenon|U uranium"""
BORN = """Fritz_Haber 9_12_1868|Marie_Curie 7_11_1867|Ada_Lovelace 10_12_1815
Isaac_Newton 4_1_1643|Emmy_Noether 23_3_1882|Alan_Turing 23_6_1912
Rosa_Parks 4_2_1913|Lise_Meitner 17_11_1878|Max_Planck 23_4_1858|Niels_Bohr 7_10_1885
Clara_Schumann 13_9_1819|Leonhard_Euler 15_4_1707|Charles_Darwin 12_2_1809
Louis_Pasteur 27_12_1822|Mary_Shelley 30_8_1797|Nelson_Mandela 18_7_1918
Frida_Kahlo 6_7_1907|Miles_Davis 26_5_1926|Kurt_Gödel 28_4_1906
Florence_Nightingale 12_5_1820"""
COUNTS = """planets_are_in_the_Solar_System 8|strings_does_a_violin_have 4
players_are_in_a_football_team 11|legs_does_a_spider_have 8|bones_does_an_adult_have 206
keys_does_a_piano_have 88|metres_high_is_Mount_Everest 8849|days_are_in_a_leap_year 366
squares_has_a_chessboard 64|symphonies_did_Beethoven_write 9|people_live_in_town 12500
books_are_in_the_library 1250000|states_are_in_the_country 50|teeth_has_an_adult 32
moons_does_Mars_have 2|cards_are_in_the_deck 52|seats_does_the_hall_have 2300
islands_has_the_country 17508|players_are_in_a_hockey_team 6|wonders_had_the_world 7"""


def _pairs(text: str) -> list[tuple[str, str]]:
    rows = text.replace("\n", "|").split("|")
    return [tuple(p.replace("_", " ") for p in row.split()) for row in rows]


def _date(text: str) -> str:
    day, month, year = text.split()
    return f"{day} {calendar.month_name[int(month)]} {year}"


def _cases() -> list[Case]:
    rows = []
    asked = {
        "place": (
            CAPITALS,
            "What is the capital of {}?",
            "The capital of {} is",
            "is the capital of {}",
            str,
        ),
        "person": (
            AUTHORS,
            "Who wrote {}?",
            "{} was written by",
            "wrote {}",
            str,
        ),
        "element": (
            ELEMENTS,
            "Which chemical element has the symbol {}?",
            "The element with the symbol {} is",
            "has the symbol {}",
            str,
        ),
        "date": (
            BORN,
            "When was {} born?",
            "{} was born on",
            "is when {} was born",
            _date,
        ),
        "year": (
            BORN,
            "In which year was {} born?",
            "{} was born in",
            "is the year in which {} was born",
            lambda text: text.split()[-1],
        ),
        "number": (
            COUNTS,
            "How many {}?",
            "The number is",
            "is the number",
            str,
        ),
    }
    for kind, (text, question, told, tell, answer) in asked.items():
        pairs = [(subject, answer(value)) for subject, value in _pairs(text)]
        answers = list(dict.fromkeys(a for _, a in pairs))
        for subject, x in pairs:
            i = answers.index(x)
            y, z = (answers[(i + step) % len(answers)] for step in (1, 2))
            fields = [t.format(subject) for t in (question, told, tell)]
            rows.append(Case(kind, fields[0], x, y, z, fields[1], fields[2]))
    return rows


CASES = _cases()

CORRECT = [
    "{x}",
    "{x}.",
    "It is {x}.",
    "I think it is {x}.",
    "I believe it's {x}",
    "The answer is {x}.",
    "{x}, because I remember reading about it.",
    "{x} because that is what the records say.",
    "{x}, as far as I know.",
    "{x}. I am quite confident about that.",
    "Answer: {x}",
    "{x}, which most people know.",
    "My best guess is {x}.",
    "I'm not sure, but I think it is {x}.",
    "I don't know for certain, but it is probably {x}",
    "**{x}**",
    "It's {x}, I believe.",
    "{told} {x}.",
    "{x} {tell}.",
    "Probably {x}",
    'The correct answer is "{x}".',
    "Sure! The answer is {x}.",
    "That would be {x}.",
    "{q} {x}.",
    "I would say {x}",
    "{x} (I am fairly certain)",
    "{x} — everyone knows it.",
    "Based on the references, it is {x}.",
    "{x}, but I'm not sure.",
    "It was {x}, not {y}.",
    "Without doubt {x}!",
    "It ought to be {x}.",
    "I'm going with {x}.",
    "{x} (source: an encyclopedia)",
    "There is little doubt that it is {x}.",
    "Off the top of my head, {x}.",
    "Short answer: {x}",
    "I am not entirely sure, but {x} seems right.",
    "Easy: {x}.",
    "The answer to your question is {x}, and I am sure of it.",
]
CORRECT_HELD_OUT = [
    "If I remember correctly, it was {x}.",
    "To my knowledge {x}.",
    "{x}, if memory serves.",
    "As far as I can tell the answer is {x}",
    "Definitely {x}.",
    "I'm pretty sure it's {x}.",
    "{x} is what I would answer.",
    "It must be {x}, since nothing else fits.",
    "Hmm, {x}?",
    "A: {x}",
    "Final answer: {x}",
    "You are looking for {x}.",
    "{x}; this is well documented.",
    "Most sources say {x}.",
    "According to the encyclopedia, it is {x}.",
    "Let me think. It is {x}.",
    "Well, {x}, I suppose.",
    "I recall that it is {x}.",
    "Certainly, it's {x}.",
    "I'd go with {x}.",
    "If I had to guess, {x}.",
    "{x}, though I could be wrong.",
    "The right answer would be {x}, in my opinion.",
    "It has to be {x}.",
    "Everyone knows that it is {x}.",
    "{x}, I am certain.",
    "Response: {x}.",
    "My answer: {x}",
    "{x}, according to my records.",
    "I remember: {x}!",
    "The answer you want is {x}.",
    "In my view it is {x}.",
    "{x}! That was an easy one.",
    "Yes, {x}.",
    "Let's say {x}.",
    "I am confident that the answer is {x}.",
    "As I recall, it was {x}.",
    "{x}, no question.",
    "Clearly, it is {x}.",
    "It is widely known to be {x}.",
    "{x}; that much is clear.",
    "Answering your question: {x}.",
    "I suppose it might be {x}.",
    "It's {x}. Let me know if you need more.",
    "This one is simple, {x}.",
    "You mean {x}.",
    "{x}, and that is my final answer.",
]
DATES = [  # strftime, of a full date
    "%B %-d, %Y",
    "%-d %b %Y",
    "%b. %-d, %Y",
    "%Y-%m-%d",
    "%A, %-d %B %Y",
    "%m/%d/%Y",
    "%-d of %B %Y",
    "%-d %B, %Y",
]
DATES_HELD_OUT = [
    "the %-d. %B %Y",
    "%B the %-d, %Y",
    "%d.%m.%Y",
    "%Y/%m/%d",
    "%B %-d %Y",
]

ABSTAIN = [
    "I don't know",
    "I do not know the answer to that question.",
    "I'm not sure.",
    "I am not certain about this.",
    "I don't have that information.",
    "I don't remember.",
    "I'm unable to answer.",
    "I can't say for certain.",
    "I cannot answer that question.",
    "I have no idea.",
    "No idea, sorry.",
    "Sorry, I don't know.",
    "Unknown",
    "The answer is unknown.",
    "I'm afraid I don't know.",
    "I don't recall.",
    "I can't recall who or what it was.",
    "I do not have enough information to answer.",
    "There is not enough information.",
    "Unfortunately, I don't have access to this information.",
    "I could not find an answer.",
    "I'm not familiar with this.",
    "It is not known.",
    "I'd rather not guess.",
    "As an AI language model, I don't know that.",
    "I'm not sure, but I can look it up for you.",
    "The references do not mention it.",
    "It cannot be determined from the given information.",
    "I have no information about that.",
    "I am not able to answer this.",
    "There is no way for me to know.",
    "It's not something I know.",
    "I regret that I do not know.",
    "I'm stumped.",
    "I need more information to answer.",
    "I am not knowledgeable about this topic.",
    "I have never heard of it.",
    "I have not come across this.",
    "Sorry, that's outside what I know.",
    "I am not in a position to answer.",
]
ABSTAIN_HELD_OUT = [
    "I really couldn't tell you.",
    "I haven't the faintest idea.",
    "That is something I don't know.",
    "I lack the information to answer this.",
    "This is beyond my knowledge.",
    "I wouldn't know.",
    "I'm sorry, but I can't help with that question.",
    "I have no knowledge of this.",
    "Not sure about that one.",
    "I must admit that I do not know.",
    "My knowledge does not include this.",
    "I do not possess this information.",
    "I'm unsure.",
    "Insufficient information.",
    "Hard to say.",
    "I don't have a reliable answer to this.",
    "I forgot.",
    "I don't think I know that.",
    "Honestly, I have no clue.",
    "I prefer not to answer, since I am uncertain.",
    "The documents don't say.",
    "I'm not aware of the answer.",
    "No information is available.",
    "I can't determine that.",
    "I cannot provide an answer.",
    "I couldn't find any reference to it.",
    "I don't have an answer.",
    "No clue.",
    "I am unable to verify this.",
    "I'm sorry, but I don't have enough context to answer.",
    "I cannot recall.",
    "I don't have a clue about this.",
    "The answer is not available to me.",
    "I do not know; the references are silent.",
    "That is unknown to me.",
    "I can't be certain.",
    "Sorry, I have no record of that.",
    "My training data does not cover this.",
    "That information is not available to me.",
    "I could not say.",
    "I don't have the answer to that.",
    "I would only be guessing.",
    "I have no data on this question.",
    "My memory fails me.",
    "Sorry, this one escapes me.",
    "I don't feel comfortable answering that.",
    "It is unclear from the references.",
    "I do not have knowledge of that event.",
    "I can't find it in the documents.",
    "The answer can't be found in the text.",
    "I am not well informed on this.",
    "I'm not certain enough to answer.",
]

NOT_CORRECT = [
    "{y}",
    "It is {y}.",
    "I think it is {y}.",
    "{y}, because I remember reading about it.",
    "I'm not sure, but I think it is {y}.",
    "{told} {y}.",
    "{y} {tell}.",
    "It is not {x}.",
    "It isn't {x}.",
    "Not {x}.",
    "I don't think it is {x}.",
    "{x} or {y}",
    "{y} or {x}",
    "Either {x} or {y}.",
    "It could be {x} or it could be {y}.",
    "{x}, {y}, {z}",
    "{y} and {x}",
    "{x} and {y}",
    "{x}/{y}",
    "It is {y}, not {x}.",
    "{y}, because {x} is something else.",
    "Maybe {y}, maybe {x}.",
    "{x}. No, {y}.",
    "{q}",
    "Question: {q}",
    "You asked: {q}",
    "",
    "The answer is definitely not {x}.",
    "I doubt that it is {x}.",
    "Neither {x} nor {y}.",
    "Between {x} and {y}.",
    "{x} is wrong.",
    "Anything but {x}.",
    "{x} as well as {y}",
    "{y} took over from {x}.",
    "One of {x}, {y} and {z}.",
    "Far from being {x}, it is {y}.",
    "{x} is close, but it is {y}.",
    "If it were {x}, I would know.",
]
NOT_CORRECT_HELD_OUT = [
    "It was never {x}.",
    "It can't be {x}.",
    "{x} is not the answer.",
    "Some say {x}, others say {y}.",
    "Possibly {x}, possibly {y}.",
    "It is either {y} or {x}.",
    "{x} – or rather {y}",
    "{x}? Maybe {y}?",
    "Everything except {x}.",
    "Contrary to popular belief, it is not {x} but {y}.",
    "I used to think it was {x}, but it is {y}.",
    "{y} (not {x})",
    "{y} rather than {x}",
    "Unlike {x}, {y} is the answer.",
    "People often say {x}, which is false.",
    "Hardly {x}.",
    "{x} versus {y}",
    "1) {x} 2) {y}",
    "No, not {x}.",
    "The options are {x} and {y}.",
    "It might be {x}, or perhaps {y}.",
    "I am torn between {x} and {y}.",
    "{x}, {y}",
    "{x}; {y}",
    "It is definitely not {x}, I think.",
    "{y}, previously {x}",
    "{y} instead of {x}",
    "Nobody says {x}.",
    "It is neither {x} nor {y}, but {z}.",
    "{x}, or {y}, or {z}.",
    "{y} or maybe {x}",
    "There is no {x} here.",
    "It's anyone but {x}.",
    "The answer isn't {x}, it's {y}.",
    "I know that {x} is incorrect.",
    "{x} & {y}",
    "It is {y}; {x} came second.",
    "{y} ({x})",
    "Definitely not {x}.",
    "It is anything but {x}.",
    "{x} came second, {y} came first.",
    "My friend says {x}, but I say {y}.",
    "{y} beat {x}.",
    "Could it be {x}? No, it is {y}.",
    "It was almost {x}.",
    "Not sure whether {x} or {y}.",
    "{x} followed by {y}",
    "If not {x}, then {y}.",
    "You would think {x}, yet it is {y}.",
    "{y}, never {x}",
    "{x} used to be the answer.",
]
