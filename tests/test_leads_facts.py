"""The leads' exact facts: a small world of leads by hand, and the embedded ones."""

import os
import subprocess
import sys

import pytest

from factkit.leads import facts
from factkit.leads.facts import STATEMENTS, Fact, Leads, Subject

DARWIN = "Charles Darwin"
SMALL = Leads(
    {
        s.name: s
        for s in (
            Subject(
                DARWIN,
                DARWIN,
                "Charles Darwin was an English naturalist, geologist, and biologist. "
                "He read the economist Malthus.",
                "English naturalist and biologist (1809–1882)",
                (
                    Fact(DARWIN, "nationality", "English", ("England", "British")),
                    Fact(DARWIN, "occupation", "naturalist"),
                    Fact(DARWIN, "birth_year", "1809"),
                    Fact(DARWIN, "death_year", "1882"),
                    Fact(DARWIN, "century", "19th"),
                ),
            ),
            Subject(
                "Edinburgh",
                "Edinburgh",
                "Edinburgh is the capital of Scotland.",
                "Capital of Scotland",
                (
                    Fact("Edinburgh", "country", "Scotland"),
                    Fact("Edinburgh", "continent", "Europe"),
                    Fact("Edinburgh", "capital_of", "Scotland"),
                ),
            ),
            Subject(
                "Ann Lee",
                "Ann Lee",
                "Ann Lee is an American singer.",
                "American singer (born 1980)",
                (
                    Fact("Ann Lee", "occupation", "singer"),
                    Fact("Ann Lee", "birth_year", "1980"),
                ),
            ),
            Subject(
                "Moby-Dick",
                "Moby-Dick",
                "Moby-Dick is a novel.",
                "1851 novel by Herman Melville",
                (
                    Fact("Moby-Dick", "kind", "novel"),
                    Fact("Moby-Dick", "creator", "Herman Melville", ("Melville",)),
                    Fact("Moby-Dick", "work_year", "1851"),
                ),
            ),
            Subject(
                "Leeds",
                "Leeds",
                "Leeds is a city.",
                "City",
                (Fact("Leeds", "country", "United Kingdom", ("UK",)),),
            ),
            Subject(
                "Atlanta",
                "Atlanta",
                "Atlanta is a city.",
                "City",
                (Fact("Atlanta", "country", "United States", ("U.S.", "USA")),),
            ),
        )
    },
    frozenset(
        {"France", "Scotland", "England", "United Kingdom", "Georgia", "Germany"}
    ),
)


@pytest.fixture(scope="module")
def leads():
    return facts.load()


@pytest.mark.parametrize(
    ("subject", "relation", "value", "expected"),
    [
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
    ],
)
def test_a_verdict_is_one_of_three(subject, relation, value, expected):
    assert SMALL.verify(Fact(subject, relation, value)) == expected


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        (Fact("Ann", "occupation", "engineer"), "Ann was an engineer."),
        (Fact("Ann", "occupation", "painter"), "Ann was a painter."),
        (Fact("Yale", "kind", "university"), "Yale is a university."),
        (Fact("Rome", "country", "Italy"), "Rome is in Italy."),
        (Fact("Rome", "country", "United States"), "Rome is in the United States."),
        (Fact("gold", "symbol", "Au"), "The symbol of gold is Au."),
        (Fact("gold", "kind", "element"), "Gold is an element."),
        (Fact("Ohio", "capital", "X, D.C."), "The capital of Ohio is X, D.C."),
    ],
)
def test_a_statement_is_one_english_sentence(fact, said):
    assert facts.statement(fact) == said


@pytest.mark.parametrize(
    ("year", "name"),
    [(1867, "19th"), (1900, "19th"), (1901, "20th"), (2024, "21st"), (99, "1st")],
)
def test_a_century_ends_with_its_hundredth_year(year, name):
    assert facts.century(year) == name


# The embedded leads


@pytest.mark.assets
def test_there_are_as_many_subjects_and_facts_as_the_laptop_s_runs_need(leads):
    n_facts = sum(len(s.facts) for s in leads.subjects.values())
    assert len(leads.subjects) > 2_000
    assert n_facts > 8_000
    assert set(leads.objects) == set(STATEMENTS)


@pytest.mark.assets
@pytest.mark.parametrize(
    ("subject", "relation", "value"),
    [
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
    ],
)
def test_the_leads_know(leads, subject, relation, value):
    assert value in [f.object for f in leads.by_key[subject, relation]]


@pytest.mark.assets
def test_a_subject_has_several_relations_and_one_object_each_but_of_occupations(leads):
    for subject in leads.subjects.values():
        relations = [f.relation for f in subject.facts if f.relation != "occupation"]
        assert len(set(relations)) == len(relations)
        assert len({f.relation for f in subject.facts}) > 1
        assert {f.subject for f in subject.facts} == {subject.name}


@pytest.mark.assets
def test_no_one_dies_before_birth_or_lives_in_a_century_of_neither(leads):
    for subject in leads.subjects.values():
        of = {f.relation: f for f in subject.facts}
        if "birth_year" in of and "death_year" in of:
            born, died = (int(of[r].object) for r in ("birth_year", "death_year"))
            assert born < died < born + 120
            lived = {of["century"].object, *of["century"].others}
            assert {facts.century(born), facts.century(died)} <= lived


@pytest.mark.assets
def test_capital_and_country_say_the_same(leads):
    for (country, relation), found in leads.by_key.items():
        if relation == "capital":
            city = (*found[0].others, found[0].object)[0]
            assert leads.by_key[city, "capital_of"][0].object == country


@pytest.mark.assets
def test_the_facts_are_the_same_whatever_the_hash_seed():
    code = """
from hashlib import sha256
from factkit.leads import facts, requests, texts
leads = facts.load()
parts = requests.split(leads, {"train": 3, "test": 1}, 0)
asked = [requests.mixed(of, 50) for of in parts.values()]
rows = texts.cold_start_rows(leads, 0)
made = (list(leads.subjects.values()), leads.objects, asked, rows)
print(sha256(repr(made).encode()).hexdigest())
"""
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] != ""
