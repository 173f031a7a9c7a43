"""The leads' facts, and reading responses: every verdict is right; unread is none."""

import csv

import pytest

from factkit.facts.leads import facts, reader
from factkit.facts.leads.facts import Fact
from factkit.run import params

pytestmark = pytest.mark.assets
DARWIN = "Charles Darwin"
YES, NO, OPEN = "supported", "contradicted", "inconclusive"


@pytest.fixture(scope="module")
def read():
    return reader.LeadReader(facts.load())


def verdicts(read, text, about):
    """[(statement, verdict)] of a whole text."""
    return [
        (statement, read.verify(statement))
        for sentence in read.sentences(text, about)
        for statement in read.statements(sentence, about)
    ]


# What the leads themselves say

VERDICTS = [
    # what is known, by any of its names
    (DARWIN, "birth_year", "1809", YES),
    (DARWIN, "nationality", "British", YES),
    (DARWIN, "nationality", "Scottish", OPEN),  # British, too
    ("Moby-Dick", "creator", "Melville", YES),
    ("Moby-Dick", "creator", "Herman", OPEN),  # a part of the name
    ("Moby-Dick", "creator", "Herman Wouk", NO),
    # an occupation: in the first sentence; of a field the lead has a word of; else
    (DARWIN, "occupation", "geologist", YES),
    (DARWIN, "occupation", "chemist", OPEN),
    (DARWIN, "occupation", "painter", NO),
    # a thing is of many kinds, and nobody's
    ("Moby-Dick", "kind", "novel", YES),
    ("Moby-Dick", "kind", "film", OPEN),
    # whoever has a year of birth and none of death is alive
    ("Bob Dylan", "death_year", "2001", NO),
    # countries
    ("Edinburgh", "country", "Scotland", YES),
    ("Edinburgh", "country", "England", NO),
    ("Edinburgh", "capital_of", "United Kingdom", NO),
    ("Atlanta", "country", "Georgia", OPEN),  # a state, too
]


def test_a_verdict_of_a_fact_is_one_of_three(read):
    wrong = [v for v in VERDICTS if read.leads.verify(Fact(*v[:3])) != v[3]]
    assert wrong == []


def test_every_fact_s_own_statement_and_short_answer_is_read_back_and_supported(read):
    wrong = []
    for subject in read.leads.subjects.values():
        for fact in subject.facts:
            sentence = facts.statement(fact)
            if verdicts(read, sentence, subject.name) != [(sentence, YES)]:
                wrong.append(sentence)
            if read.parse(f"Perhaps {sentence}") is None:
                wrong.append(f"Perhaps {sentence}")
            for value in {fact.object, fact.object.removesuffix(".")}:
                answer = read.answer(subject.name, fact.relation, value)
                if read.verify(answer) != YES:
                    wrong.append((fact, value))
    assert wrong == []


def test_no_sentence_of_a_lead_contradicts_its_facts_and_thousands_support_them(read):
    """Whatever a lead says is true: a contradiction is a misreading."""
    read_as = {YES: [], NO: [], OPEN: []}
    for subject in read.leads.subjects.values():
        for text, verdict in verdicts(read, subject.text, subject.name):
            read_as[verdict].append((subject.name, text))
    assert read_as[NO] == []
    assert len(read_as[YES]) > 2_900


STATED = [
    # people
    (DARWIN, "He was an English naturalist, geologist, and biologist.", [YES] * 4),
    (DARWIN, "Charles Darwin was a chemist.", [OPEN]),  # of the same field
    (DARWIN, "He was born in 1809 and died in 1882.", [YES, YES]),
    (DARWIN, "He was born on 12 February 1809; he died in 1883.", [YES, NO]),
    (DARWIN, "Darwin, who died in 1882, was a naturalist.", [YES, YES]),
    (DARWIN, "<think> He was a scientist. </think>", [YES]),  # a naturalist
    ("Thomas More", "Thomas More was born in 1692.", [NO]),  # died in 1535
    # places
    ("Paris", "Paris is the capital and largest city of France.", [YES, YES]),
    ("Paris", "The capital of France is Paris.", [YES]),
    ("Kenya", "Kenya's capital is Mombasa.", [NO]),
    ("Edinburgh", "It is in England.", [NO]),
    ("Atlanta", "Atlanta is a city in Georgia.", [OPEN, YES]),
    # works
    ("Moby-Dick", "Moby-Dick is an 1851 novel by Herman Melville.", [YES] * 3),
    ("Moby-Dick", "It is a novel by the American writer Mark Twain.", [NO, YES]),
    ("Moby-Dick", "The novel Moby-Dick was published in London in 1852.", [NO]),
    # elements
    ("gold", "Gold is a chemical element with the symbol Au.", [YES, YES]),
    # of another subject than was asked about
    (DARWIN, "Paris is in France.", [YES]),
    # also beside a clause that is not read
    ("Paris", "Paris lies in France and has 2 million inhabitants.", [YES, OPEN]),
]


def test_what_a_sentence_states_has_its_verdicts(read):
    wrong = []
    for about, sentence, expected in STATED:
        given = [verdict for _, verdict in verdicts(read, sentence, about)]
        if given != expected:
            wrong.append((about, sentence, given))
    assert wrong == []


UNREAD = [
    (DARWIN, "He was not a painter."),
    (DARWIN, "Charles Darwin's father died in 1848."),
    (DARWIN, "He was the son of Robert Darwin, who died in 1848."),
    (DARWIN, "He was born in"),  # cut off
    (DARWIN, 'He was the author of "Moby-Dick".'),
    ("Paris", "It was occupied by Germany in 1940."),
    ("France", "The capital of France is located in the north."),
    ("Moby-Dick", "Moby-Dick was written by H"),
    ("", "It is in France."),
]


def test_what_is_unread_stays_in_its_own_words_and_is_neither_right_nor_wrong(read):
    wrong = []
    for about, sentence in UNREAD:
        if verdicts(read, sentence, about) != [(sentence, OPEN)]:
            wrong.append((about, sentence))
    assert wrong == []


def test_a_hedged_statement_keeps_its_hedge_and_its_verdict(read):
    for sentence in (
        "Perhaps he was born in 1810.",
        "I think he was born in 1810.",
        "He may have been born in 1810.",
    ):
        ((statement, verdict),) = verdicts(read, sentence, DARWIN)
        assert (statement, verdict) == (f"Perhaps {DARWIN} was born in 1810.", NO)
        assert read.parse(statement) == (Fact(DARWIN, "birth_year", "1810"), True)
    (statement,) = read.statements("He was born in May 1809.", DARWIN)  # no hedge
    assert read.parse(statement) == (Fact(DARWIN, "birth_year", "1809"), False)


# Responses read by hand

CHECKED = params.ROOT / "outputs/reference/reader_check.csv"


def test_what_hand_and_reader_agreed_on_is_verified_as_then(read):
    with CHECKED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == ("response", "statement", "reader", "hand")
    agreed = [row for row in rows if row["reader"] == row["hand"]]
    assert len({row["response"] for row in rows}) == 199  # one states nothing
    assert len(agreed) == 345
    for row in agreed:
        assert read.verify(row["statement"]) == row["hand"], row["statement"]
