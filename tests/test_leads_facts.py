"""The leads' exact facts: a small world of leads by hand, and the embedded ones."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from factkit.leads import facts, requests
from factkit.leads.facts import Fact, Leads, Subject
from factkit.params import ROOT

DARWIN = "Charles Darwin"


def subject(name, description, text, *known):
    facts_of = tuple(Fact(name, *fact) for fact in known)
    return Subject(name, name, text, description, facts_of)


SUBJECTS = (
    subject(
        DARWIN,
        "English naturalist and biologist (1809–1882)",
        "Charles Darwin was an English naturalist, geologist, and biologist. "
        "He read the economist Malthus.",
        ("nationality", "English", ("England", "British")),
        ("occupation", "naturalist"),
        ("birth_year", "1809"),
        ("death_year", "1882"),
        ("century", "19th"),
    ),
    subject(
        "Edinburgh",
        "Capital of Scotland",
        "Edinburgh is the capital of Scotland.",
        ("country", "Scotland"),
        ("continent", "Europe"),
        ("capital_of", "Scotland"),
    ),
    subject(
        "Ann Lee",
        "American singer (born 1980)",
        "Ann Lee is an American singer.",
        ("occupation", "singer"),
        ("birth_year", "1980"),
    ),
    subject(
        "Moby-Dick",
        "1851 novel by Herman Melville",
        "Moby-Dick is a novel.",
        ("kind", "novel"),
        ("creator", "Herman Melville", ("Melville",)),
        ("work_year", "1851"),
    ),
    subject(
        *("Leeds", "City", "Leeds is a city."), ("country", "United Kingdom", ("UK",))
    ),
    subject(
        *("Atlanta", "City", "Atlanta is a city."),
        ("country", "United States", ("U.S.", "USA")),
    ),
)
SMALL = Leads(
    {s.name: s for s in SUBJECTS},
    frozenset(
        {"France", "Scotland", "England", "United Kingdom", "Georgia", "Germany"}
    ),
)


@pytest.fixture(scope="module")
def leads():
    return facts.load()


VERDICTS = [
    # what is known, by any of its names
    (DARWIN, "birth_year", "1809", "supported"),
    (DARWIN, "birth_year", "1810", "contradicted"),
    (DARWIN, "nationality", "English", "supported"),
    (DARWIN, "nationality", "British", "supported"),
    (DARWIN, "nationality", "Scottish", "inconclusive"),  # British, too
    (DARWIN, "nationality", "French", "contradicted"),
    ("Moby-Dick", "creator", "Melville", "supported"),
    ("Moby-Dick", "creator", "Mark Twain", "contradicted"),
    ("Moby-Dick", "creator", "Herman", "inconclusive"),  # a part of the name
    ("Moby-Dick", "creator", "Hermann Melville", "inconclusive"),
    ("Moby-Dick", "creator", "Herman Wouk", "contradicted"),
    ("Atlanta", "country", "U.S", "supported"),  # a sentence took the full stop
    # an occupation: in the first sentence; of a field the lead has a word of; else
    (DARWIN, "occupation", "biologist", "supported"),
    (DARWIN, "occupation", "geologist", "supported"),
    (DARWIN, "occupation", "chemist", "inconclusive"),
    (DARWIN, "occupation", "economist", "inconclusive"),  # another's
    (DARWIN, "occupation", "painter", "contradicted"),
    (DARWIN, "occupation", "wizard", "inconclusive"),
    # a thing is of many kinds, and nobody's
    ("Moby-Dick", "kind", "novel", "supported"),
    ("Moby-Dick", "kind", "film", "inconclusive"),
    ("Moby-Dick", "occupation", "painter", "inconclusive"),
    # whoever has a year of birth and none of death is alive
    ("Ann Lee", "death_year", "2001", "contradicted"),
    ("Moby-Dick", "death_year", "2001", "inconclusive"),
    # countries
    ("Edinburgh", "country", "Scotland", "supported"),
    ("Edinburgh", "country", "United Kingdom", "supported"),
    ("Edinburgh", "country", "England", "contradicted"),
    ("Edinburgh", "country", "France", "contradicted"),
    ("Edinburgh", "country", "Atlantis", "inconclusive"),
    ("Edinburgh", "capital_of", "United Kingdom", "contradicted"),
    ("Edinburgh", "continent", "Asia", "contradicted"),
    ("Leeds", "country", "England", "inconclusive"),  # a part of the known one
    ("Leeds", "country", "Germany", "contradicted"),
    ("Leeds", "continent", "Asia", "inconclusive"),  # the leads don't say
    ("Atlanta", "country", "Georgia", "inconclusive"),  # a state, too
    # nothing known of it
    ("Rome", "country", "France", "inconclusive"),
]


def test_a_verdict_is_one_of_three():
    wrong = [v for v in VERDICTS if SMALL.verify(Fact(*v[:3])) != v[3]]
    assert wrong == []


def test_a_statement_is_one_english_sentence():
    for fact, sentence in (
        (Fact("Ann", "occupation", "engineer"), "Ann was an engineer."),
        (Fact("Ann", "occupation", "painter"), "Ann was a painter."),
        (Fact("Yale", "kind", "university"), "Yale is a university."),
        (Fact("Rome", "country", "Italy"), "Rome is in Italy."),
        (Fact("Rome", "country", "United States"), "Rome is in the United States."),
        (Fact("gold", "symbol", "Au"), "The symbol of gold is Au."),
        (Fact("gold", "kind", "element"), "Gold is an element."),
        (Fact("Ohio", "capital", "X, D.C."), "The capital of Ohio is X, D.C."),
    ):
        assert facts.statement(fact) == sentence


# The embedded leads


@pytest.mark.assets
def test_the_leads_know(leads):
    for subject, relation, value in (
        (DARWIN, "nationality", "English"),
        (DARWIN, "century", "19th"),
        ("Marie Curie", "occupation", "physicist"),
        ("Paris", "capital_of", "France"),
        ("France", "capital", "Paris"),
        ("Nairobi", "continent", "Africa"),
        ("Edinburgh", "continent", "Europe"),
        ("Costa Rica", "capital", "San José"),
        ("The Mona Lisa", "creator", "Leonardo da Vinci"),
        ("Moby-Dick", "work_year", "1851"),
        ("gold", "symbol", "Au"),
        ("gold", "kind", "chemical element"),
    ):
        assert value in [f.object for f in leads.by_key[subject, relation]]


@pytest.mark.assets
def test_no_one_dies_before_birth_or_lives_in_a_century_of_neither(leads):
    for subject in leads.subjects.values():
        by_relation = {f.relation: f for f in subject.facts}
        if {"birth_year", "death_year"} <= set(by_relation):
            born, died = (
                int(by_relation[r].object) for r in ("birth_year", "death_year")
            )
            assert born < died < born + 120
            lived = {by_relation["century"].object, *by_relation["century"].others}
            assert {facts.century(born), facts.century(died)} <= lived


def digest():
    """Of the facts and of all that is drawn from them."""
    leads = facts.load()
    parts = requests.split(leads, {"train": 3, "test": 1}, 0)
    asked = [requests.mixed(subjects, 50) for subjects in parts.values()]
    rows = requests.cold_start_rows(leads, 0)
    drawn = (list(leads.subjects.values()), asked, rows)
    return sha256(repr(drawn).encode()).hexdigest()


@pytest.mark.assets
def test_the_facts_are_the_same_whatever_the_hash_seed():
    code = "import test_leads_facts; print(test_leads_facts.digest())"
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest()
