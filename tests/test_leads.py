"""What the rules on leads ask, and what they refuse to ask."""

import csv
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

import factkit
from factkit.data.assets import verified
from factkit.data.corpus import Document, load_leads
from factkit.facts.leads.questions import lead_questions


@pytest.fixture
def elements_db(tmp_path):
    path = tmp_path / "elements.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE elements (symbol, atomic_number, name)")
        db.execute("INSERT INTO elements VALUES ('Al', 13, 'Aluminum')")
        db.execute("INSERT INTO elements VALUES ('Dy', 66, 'Dysprosium')")
    return path


@pytest.fixture
def ask(elements_db):
    """Ask about leads given as (title, description, text, topic)."""

    def _ask(*leads):
        documents = [
            Document(title, title, text, "test", {"description": said, "topic": topic})
            for title, said, text, topic in leads
        ]
        examples, dropped = lead_questions(documents, elements_db)
        return {e.id: e for e in examples}, dropped

    return _ask


def person(title="Fritz Haber", said="German chemist (1868–1934)", text=None):
    return (title, said, text or f"{title} was a {said.split(' (')[0]}.", "People")


def place(title, said, text=None):
    return (title, said, text or f"{title} is a {said}.", "Geography")


def work(title, said, text):
    return (title, said, text, "Arts")


GERMANY = place("Germany", "Country in Central Europe")
LIFE = {"birth_year:Fritz Haber", "death_year:Fritz Haber"}
PLAY = "A play by Jo March and Meg March, sisters."
TWO, ONE = "nationality: double", "place: no single country"


BC, REIGN = (
    "person: BC, circa, reign or no years",
    "person: years of a reign or a group",
)
DROPPED = [
    # (leads, how often which reason is counted, what is asked nevertheless)
    ([person(said="Greek geometer (341–270 BC)")], {BC: 1}, set()),
    ([person(said="English rock band (1960–1970)")], {REIGN: 1}, set()),
    ([person(said="Polish-French physicist (1867–1934)")], {TWO: 1}, LIFE),
    ([work("Roderigo", "Play by Jo March", PLAY)], {"creator: several": 1}, set()),
    (
        [work("Oz", "1965 novel by Jo March", "By Jo March in 1964, printed 1965.")],
        {"work year: lead gives no or several near years": 1},
        {"creator:Oz"},
    ),
    ([place("Inn", "River in Germany and Austria")], {ONE: 1}, set()),
    ([person("Jo March"), person("jo March")], {"same question twice": 6}, set()),
    (
        [GERMANY, place("Germany City", "Capital of Germany", "A city.")],
        {"question contains the answer": 1},
        {"capital:Germany City", "continent:Germany"},
    ),
]


def test_what_has_no_single_sure_answer_is_dropped_and_counted(ask):
    for leads, reasons, nevertheless in DROPPED:
        examples, dropped = ask(*leads)
        assert (set(examples), dict(dropped)) == (nevertheless, reasons), leads


@pytest.mark.assets
def test_the_real_leads_give_enough_plain_unique_questions_every_time():
    documents, elements = load_leads(), verified("elements")
    examples, dropped = lead_questions(documents, elements)
    assert (examples, dropped) == lead_questions(documents[::-1], elements)
    assert [e.id for e in examples] == sorted({e.id for e in examples})
    assert len({e.question.casefold() for e in examples}) == len(examples)
    assert all(len(e.question.split()) <= 20 for e in examples)
    shown = [text for e in examples for text in (e.question, *e.answers)]
    assert not [text for text in shown if "(" in text or not text.strip()]
    counts = Counter(e.relation for e in examples)
    assert len(counts) == 17 and min(counts.values()) >= 30


@pytest.mark.assets
def test_the_hand_checked_questions_are_still_asked_with_the_same_answers():
    path = Path(factkit.__file__).parent / "facts" / "leads" / "hand_check.csv"
    with path.open(encoding="utf-8") as f:
        checked = [(r["id"], r["question"], r["answer"]) for r in csv.DictReader(f)]
    examples, _ = lead_questions(load_leads(), verified("elements"))
    asked = {(e.id, e.question, e.answers[0]) for e in examples}
    assert len(checked) == 100
    assert set(checked) <= asked
