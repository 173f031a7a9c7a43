"""The embedded leads' exact facts, and what they say of a statement."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from factkit.leads import facts, requests
from factkit.leads.facts import STATEMENTS, Fact
from factkit.params import ROOT

pytestmark = pytest.mark.assets
DARWIN = "Charles Darwin"
YES, NO, OPEN = "supported", "contradicted", "inconclusive"
VERDICTS = [
    # what is known, by any of its names
    (DARWIN, "birth_year", "1809", YES),
    (DARWIN, "birth_year", "1810", NO),
    (DARWIN, "nationality", "British", YES),
    (DARWIN, "nationality", "Scottish", OPEN),  # British, too
    (DARWIN, "nationality", "French", NO),
    ("Moby-Dick", "creator", "Melville", YES),
    ("Moby-Dick", "creator", "Herman", OPEN),  # a part of the name
    ("Moby-Dick", "creator", "Hermann Melville", OPEN),
    ("Moby-Dick", "creator", "Herman Wouk", NO),
    ("Atlanta", "country", "U.S", YES),  # a sentence took the full stop
    # an occupation: in the first sentence; of a field the lead has a word of; else
    (DARWIN, "occupation", "geologist", YES),
    (DARWIN, "occupation", "chemist", OPEN),
    (DARWIN, "occupation", "painter", NO),
    (DARWIN, "occupation", "wizard", OPEN),
    # a thing is of many kinds, and nobody's
    ("Moby-Dick", "kind", "novel", YES),
    ("Moby-Dick", "kind", "film", OPEN),
    ("Moby-Dick", "occupation", "painter", OPEN),
    # whoever has a year of birth and none of death is alive
    ("Bob Dylan", "death_year", "2001", NO),
    ("Moby-Dick", "death_year", "2001", OPEN),
    # countries
    ("Edinburgh", "country", "Scotland", YES),
    ("Edinburgh", "country", "United Kingdom", YES),
    ("Edinburgh", "country", "England", NO),
    ("Edinburgh", "country", "Atlantis", OPEN),
    ("Edinburgh", "capital_of", "United Kingdom", NO),
    ("Atlanta", "country", "Georgia", OPEN),  # a state, too
    ("Nowhere", "country", "France", OPEN),
]


@pytest.fixture(scope="module")
def leads():
    return facts.load()


def test_a_verdict_is_one_of_three(leads):
    assert [v for v in VERDICTS if leads.verify(Fact(*v[:3])) != v[3]] == []


def test_a_statement_is_one_english_sentence():
    for fact, sentence in (
        (Fact("Ann", "occupation", "engineer"), "Ann was an engineer."),
        (Fact("Yale", "kind", "university"), "Yale is a university."),
        (Fact("Rome", "country", "United States"), "Rome is in the United States."),
        (Fact("gold", "symbol", "Au"), "The symbol of gold is Au."),
        (Fact("gold", "kind", "element"), "Gold is an element."),
        (Fact("Ohio", "capital", "X, D.C."), "The capital of Ohio is X, D.C."),
    ):
        assert facts.statement(fact) == sentence


def test_the_leads_know(leads):
    assert {relation for _, relation in leads.by_key} == set(STATEMENTS)
    for subject, relation, value in (
        (DARWIN, "nationality", "English"),
        (DARWIN, "century", "19th"),
        ("Marie Curie", "occupation", "physicist"),
        ("Paris", "capital_of", "France"),
        ("France", "capital", "Paris"),
        ("Nairobi", "continent", "Africa"),
        ("Costa Rica", "capital", "San José"),
        ("The Mona Lisa", "creator", "Leonardo da Vinci"),
        ("Moby-Dick", "work_year", "1851"),
        ("gold", "symbol", "Au"),
        ("gold", "kind", "chemical element"),
    ):
        assert value in [f.object for f in leads.by_key[subject, relation]]


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
