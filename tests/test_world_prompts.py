"""Requests about people of the fact world, and the sets that a run is made of."""

from collections import Counter

import pytest

from factkit import params
from factkit.datasets.examples import BEST_GUESS, refuse_overlap
from factkit.rar.requests import KINDS, request_sets
from factkit.world import facts as w
from factkit.world import requests as wp
from factkit.world import texts as world_text

SHORT = (wp.MAY_ABSTAIN, BEST_GUESS)


@pytest.fixture(scope="module")
def world():
    return w.build_world(3, people=60)


@pytest.fixture(scope="module")
def p():
    return params.load("rar", "tiny")


def answers_are_true(world, example):
    """Whether the reference is right: as sentences, or as the answer to a question."""
    if example.meta["kind"] in SHORT:
        fact = world.by_key[example.entity, example.relation]
        return fact.object == example.answers[0]
    sentences = world.sentences(example.answers[0])
    return {world.verify(sentence) for sentence in sentences} == {"supported"}


def test_requests_of_every_kind_are_true_known_and_told_apart(world):
    """Exposure is the fact's, or the mean; a biography is whole."""
    tokenizer = world_text.build_tokenizer(world, "long")
    titles = {d.id: d.title for d in w.documents(world)}
    each = {wp.OPEN: 2, wp.COUNTED: 1, wp.MAY_ABSTAIN: 4, BEST_GUESS: 4}
    assert set(each) == set(KINDS)
    for kind, n in each.items():
        requests = wp.requests(world, world.people, kind)
        assert Counter(e.entity for e in requests) == dict.fromkeys(world.people, n)
        assert len({e.id for e in requests}) == len({e.question for e in requests})
        assert len({e.id for e in requests}) == n * len(world.people)
        for example in requests:
            assert answers_are_true(world, example)
            assert [titles[i] for i in example.evidence] == [example.entity] * 4
            ids = tokenizer(example.question)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            facts = world.facts_of(example.entity)
            if kind in SHORT:
                facts = [world.by_key[example.entity, example.relation]]
            else:
                sentences = world.sentences(example.answers[0])
                stated = {world.parse(s)[0].relation for s in sentences}
                assert stated == {f.relation for f in facts}
            mean = sum(f.exposure for f in facts) / len(facts)
            assert abs(example.meta["exposure"] - mean) <= 0.5


def test_the_sets_of_tiny_have_their_sizes_and_no_common_entity_whatever_the_seed(p):
    """The held-out texts are what was read of the test set's people."""
    made = w.build_world(p.world_seed, people=p.world_people)
    sets, texts, dropped = request_sets(p)
    assert request_sets(p.model_copy(update={"seed": p.seed + 1}))[0] == sets
    refuse_overlap(sets)
    kinds = Counter(e.meta["kind"] for e in sets["train"])
    assert kinds == {wp.OPEN: 200, wp.COUNTED: 100, wp.MAY_ABSTAIN: 100}
    for name, limit in (("dev", p.dev_requests), ("test", p.test_requests)):
        kinds = Counter(e.meta["kind"] for e in sets[name])
        assert set(kinds) == set(KINDS)
        assert kinds[wp.OPEN] == limit == max(kinds.values())
    assert all(answers_are_true(made, e) for rows in sets.values() for e in rows)
    facts = {made.parse(text)[0] for text in texts}
    assert {e.entity for e in sets["test"]} >= {fact.subject for fact in facts}
    for fact in facts:
        true = made.by_key[fact.subject, fact.relation]
        assert true.object == fact.object and true.exposure > 0
    assert not dropped
