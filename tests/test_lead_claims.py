"""Claims on the leads' facts: labels that hold, splits, entries, the script."""

import random
from collections import Counter

import pytest

from factkit.datasets.examples import DataError, refuse_overlap
from factkit.leads import facts
from factkit.leads.facts import Fact
from factkit.leads.reader import LeadReader
from factkit.leads.requests import LeadClaims
from factkit.retrieval.bm25 import CorpusIndex
from factkit.search import in_process
from factkit.veri import data as trajectories
from factkit.verify import trajectory as t
from factkit.world.facts import LABELS

SUPPORT, REFUTE, NEI = LABELS
SIZES = {"train": 300, "dev": 30, "test": 90}


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
def search(made):
    return in_process(CorpusIndex(made.entries()))


@pytest.fixture(scope="module")
def reader(leads):
    return LeadReader(leads)


def every(sets):
    return [e for claims in sets.values() for e in claims]


def claimed(example, leads, reader):
    """The facts that a claim rests on, the last one as it is claimed."""
    hops = reader.hops_of(example.question)
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
        made.sets({"train": 60_000})
    with pytest.raises(ValueError, match="no claim"):
        reader.hops_of("Ada wandered lonely as a cloud")


def test_the_leads_say_of_each_claim_what_its_label_says(sets, made, leads, reader):
    wanted = {SUPPORT: "supported", REFUTE: "contradicted"}
    for example in every(sets):
        hops = claimed(example, leads, reader)
        assert [h.relation for h in hops] == example.relation.split()
        if example.label in wanted:
            assert leads.verify(hops[-1]) == wanted[example.label], example.question


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
