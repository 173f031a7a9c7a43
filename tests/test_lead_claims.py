"""Claims on the leads' facts: labels that hold, splits, entries, the script."""

import random
from collections import Counter

import pytest

from factkit.datasets.examples import DataError, refuse_overlap
from factkit.leads import facts
from factkit.leads.claims import CLAIMED, UNTOLD, LeadClaims, hops_of
from factkit.leads.facts import Fact, Leads, Subject
from factkit.leads.reader import LeadReader
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.entries import shown
from factkit.search import in_process
from factkit.veri import train as trajectories
from factkit.verify import trajectory as t
from factkit.world.facts import LABELS

SUPPORT, REFUTE, NEI = LABELS
SIZES = {"train": 300, "dev": 30, "test": 90}


def subject(name, **objects):
    stated = tuple(Fact(name, relation, value) for relation, value in objects.items())
    return Subject(name, name, "", "", stated)


SMALL = Leads(
    {
        s.name: s
        for s in (
            subject("Ada Bond", nationality="French", birth_year="1868"),
            subject("The Cave", kind="novel", creator="Ada Bond"),
            subject("Elba", kind="island", country="Italy", continent="Europe"),
        )
    },
    frozenset({"Italy", "France"}),
)


@pytest.fixture(scope="module")
def leads():
    return facts.load()


@pytest.fixture(scope="module")
def made(leads):
    return LeadClaims(leads)


@pytest.fixture(scope="module")
def sets(made):
    return made.sets(SIZES)


@pytest.fixture(scope="module")
def pieces(made):
    return {piece.id: piece for entry in made.entries() for piece in shown(entry)}


@pytest.fixture(scope="module")
def search(made):
    return in_process(CorpusIndex(made.entries()))


@pytest.fixture(scope="module")
def reader(leads):
    return LeadReader(leads)


def every(sets):
    return [e for claims in sets.values() for e in claims]


def claimed(example, leads, reader):
    """The facts that a claim rests on, the last one as it is claimed."""
    hops = hops_of(example.question, reader)
    if len(hops) == 2:
        (by,) = leads.by_key[hops[0].subject, "creator"]
        hops = [by, Fact(by.object, hops[1].relation, hops[1].object)]
    return hops


# ---- claims


def test_sets_have_their_sizes_their_labels_in_turn_and_no_subject_twice(
    sets, made, leads, reader
):
    assert made.sets(SIZES) == sets != LeadClaims(leads, 1).sets(SIZES)
    refuse_overlap(sets)
    assert {name: len(claims) for name, claims in sets.items()} == SIZES
    owner = {}  # of a work's creator, too
    for name, claims in sets.items():
        assert set(Counter(e.label for e in claims).values()) == {len(claims) // 3}
        assert 0.1 < sum(e.meta["hops"] == 2 for e in claims) / len(claims) <= 0.2
        for example in claims:
            for fact in claimed(example, leads, reader):
                assert owner.setdefault(fact.subject, name) == name
    assert len({e.id for e in every(sets)}) == sum(SIZES.values())
    with pytest.raises(DataError, match="too few claims"):
        LeadClaims(SMALL).sets({"train": 60})
    with pytest.raises(ValueError, match="no claim"):
        hops_of("Ada wandered lonely as a cloud", reader)


def test_the_leads_say_of_each_claim_what_its_label_says(sets, made, leads, reader):
    wanted = {SUPPORT: "supported", REFUTE: "contradicted"}
    for example in every(sets):
        hops = claimed(example, leads, reader)
        assert [h.relation for h in hops] == example.relation.split()
        if example.label in wanted:
            assert leads.verify(hops[-1]) == wanted[example.label], example.question


def test_what_settles_a_claim_is_searched_and_else_is_not(sets, made, leads, pieces):
    for example in every(sets):
        assert bool(example.evidence) == (example.label != NEI)
        assert set(example.evidence) <= set(pieces)
        assert len(example.evidence) in (0, example.meta["hops"])
    untold = [f for s in leads.subjects.values() for f in s.facts if not made.told(f)]
    assert not {made.evidence(f) for f in untold} & set(pieces)
    assert {f.relation for f in untold} == {*CLAIMED, *UNTOLD}


def test_a_claim_of_two_hops_hides_the_creator_and_needs_both(monkeypatch):
    small, rng = LeadClaims(SMALL), random.Random(0)
    by, born = SMALL.subjects["The Cave"].facts[1], SMALL.subjects["Ada Bond"].facts[1]
    monkeypatch.setattr(LeadClaims, "told", lambda self, fact: True)
    claim = small.claim((by, born), SUPPORT, rng)
    assert claim.question == "The creator of the Cave was born in 1868."
    assert claim.evidence == ["The Cave_sentence_1", "Ada Bond_sentence_1"]
    assert claim.entity == "The Cave" and claim.meta["hops"] == 2
    assert small.claim((by, born), NEI, rng) is None
    monkeypatch.setattr(LeadClaims, "told", lambda self, fact: fact is not by)
    assert small.claim((by, born), SUPPORT, rng) is None
    assert small.claim((by, born), NEI, rng).evidence == []


# ---- the script


def script(claim, search, reader, precise=1.0, second_hop=1.0, k=2, seed=0):
    habits = {"PRECISE": precise, "SECOND_HOP": second_hop}
    with pytest.MonkeyPatch.context() as patch:
        for name, share in habits.items():
            patch.setattr(trajectories, name, share)
        return trajectories.by_reader(claim, search, k, reader, random.Random(seed))


def test_the_script_at_its_best_is_right_where_the_search_finds(sets, search, reader):
    """With more entries a search it is right nearly always, and never by chance."""
    right = []
    for example in sets["test"]:
        answer = t.answer_of(script(example.question, search, reader, k=5))
        right.append(answer.label == example.label)
        if right[-1] and example.label != NEI:
            assert set(answer.evidence) == set(example.evidence)
        if not right[-1]:
            assert answer.label == NEI  # not found
    assert sum(right) / len(right) > 0.95


def test_it_says_what_it_compares(reader):
    entries = LeadClaims(reader.leads).entries()
    born = next(e for e in entries if " was born in " in e.text)
    (piece,) = shown(born)
    year = piece.text.rstrip(".").split()[-1]
    only = lambda queries, k: [[born] for _ in queries]  # noqa: E731
    for other, label in ((year, SUPPORT), ("1001", REFUTE)):
        turns = script(piece.text.replace(year, other), only, reader)
        assert [s.text for s in t.steps(turns) if s.kind == "think"] == [
            f"Claim: {other}. Found: {year}."
        ]
        assert t.answer_of(turns) == t.Answer(label, (piece.id,))
    nothing = lambda queries, k: [[] for _ in queries]  # noqa: E731
    turns = script(piece.text, nothing, reader)
    assert [s.text for s in t.steps(turns) if s.kind == "think"] == [
        f"Claim: {year}. Found: nothing."
    ]
    assert t.answer_of(turns) == t.Answer(NEI, ())
