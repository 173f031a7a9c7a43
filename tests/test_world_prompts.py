"""Requests about people of the fact world, and the sets that a run is made of."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit import params
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import read_examples, refuse_overlap, write_examples
from factkit.rar.requests import KINDS, request_sets
from factkit.world import facts as w
from factkit.world import texts as world_text

SHORT = (wp.MAY_ABSTAIN, wp.BEST_GUESS)


@pytest.fixture(scope="module")
def world():
    return w.build_world(3, people=60)


@pytest.fixture(scope="module")
def p():
    return params.load("rar", "tiny")


@pytest.fixture(scope="module")
def made(p):
    return w.build_world(p.world_seed, people=p.world_people)


@pytest.fixture(scope="module")
def sets(p):
    return request_sets(p)[0]


def answers_are_true(world, example):
    """Whether the reference is right: as sentences, or as the answer to a question."""
    if example.meta["kind"] in SHORT:
        return (
            world.by_key[example.entity, example.relation].object
            == (example.answers[0])
        )
    said = w.sentences(example.answers[0])
    return {w.verify(world, sentence) for sentence in said} == {"supported"}


# Requests of a kind


def test_requests_of_every_kind_are_true_known_and_told_apart(world):
    tokenizer = world_text.build_tokenizer(world, "long")
    titles = {d.id: d.title for d in w.documents(world)}
    each = {wp.OPEN: 2, wp.COUNTED: 1, wp.MAY_ABSTAIN: 4, wp.BEST_GUESS: 4}
    assert set(each) == set(KINDS)
    for kind, n in each.items():
        requests = wp.requests(world, world.people, kind)
        assert Counter(e.entity for e in requests) == dict.fromkeys(world.people, n)
        assert len({e.id for e in requests}) == len({e.question for e in requests})
        assert len({e.id for e in requests}) == n * len(world.people)
        for example in requests:
            assert example.meta["kind"] == kind
            assert answers_are_true(world, example)
            assert [titles[i] for i in example.evidence] == [example.entity] * 4
            ids = tokenizer(example.question)["input_ids"]
            assert tokenizer.unk_token_id not in ids


def test_exposure_is_the_fact_s_or_the_mean_and_a_biography_is_whole(world):
    for kind in KINDS:
        for example in wp.requests(world, world.people, kind):
            facts = world.facts_of(example.entity)
            if kind in SHORT:
                fact = world.by_key[example.entity, example.relation]
                assert example.meta["exposure"] == fact.exposure
                continue
            mean = sum(f.exposure for f in facts) / len(facts)
            assert abs(example.meta["exposure"] - mean) <= 0.5
            sentences = w.sentences(example.answers[0])
            stated = {w.parse(world, s)[0].relation for s in sentences}
            assert stated == {f.relation for f in facts}


def test_counted_requests_want_one_two_and_three_facts_in_turn(world):
    counted = wp.requests(world, world.people[:6], wp.COUNTED)
    assert [e.meta["wanted"] for e in counted] == [1, 2, 3, 1, 2, 3]
    for example in counted:
        request = world_text.request(example.entity, example.meta["wanted"])
        assert example.question == request


def test_only_one_kind_of_short_question_gives_leave_to_abstain(world):
    allowed, guessed = (wp.requests(world, world.people[:5], kind) for kind in SHORT)
    leave = world_text.MAY_ABSTAIN.format(question="")
    assert [e.question for e in allowed] == [e.question + leave for e in guessed]


# Mixed


@settings(max_examples=25)
@given(st.integers(0, 60), st.integers(0, 3))
def test_half_of_a_mixture_is_open_and_a_quarter_each_counted_and_short(n, seed):
    world = w.build_world(3, people=60)
    mixture = wp.mixed(world, world.people, n, seed)
    assert wp.mixed(world, world.people, n, seed) == mixture
    kinds = Counter(e.meta["kind"] for e in mixture)
    quarter = n // 4
    assert len({e.id for e in mixture}) == len(mixture) == n
    assert kinds == +Counter(
        {wp.OPEN: n - 2 * quarter, wp.COUNTED: quarter, wp.MAY_ABSTAIN: quarter}
    )


def test_a_mixture_that_people_do_not_suffice_for_is_refused(world):
    # 3 people give 6 open, 3 counted, 12 short requests: 12 prompts take 6, 3 and 3
    people = random.Random(0).sample(world.people, 3)
    assert len(wp.mixed(world, people, 12, 0)) == 12
    with pytest.raises(ValueError, match="13 prompts: 3 people give 6 open requests"):
        wp.mixed(world, people, 13, 0)


# The sets of a run of profile tiny


def test_the_sets_have_their_sizes_and_no_common_entity(p, made, sets, tmp_path):
    refuse_overlap(sets)
    entities = [{e.entity for e in rows} for rows in sets.values()]
    assert sum(map(len, entities)) == len(set.union(*entities))
    kinds = Counter(e.meta["kind"] for e in sets["train"])
    assert kinds == {wp.OPEN: 200, wp.COUNTED: 100, wp.MAY_ABSTAIN: 100}
    assert kinds.total() == p.train_requests
    for name, limit in (("dev", p.dev_requests), ("test", p.test_requests)):
        kinds = Counter(e.meta["kind"] for e in sets[name])
        assert set(kinds) == set(KINDS)
        assert kinds[wp.OPEN] == limit == max(kinds.values())
    for name, rows in sets.items():
        assert all(answers_are_true(made, example) for example in rows)
        write_examples(tmp_path / f"{name}.jsonl", rows)
        assert read_examples(tmp_path / f"{name}.jsonl") == rows


def test_the_run_s_seed_leaves_the_sets_as_they_are(p, sets):
    for seed in (p.seed, p.seed + 1):
        assert request_sets(p.model_copy(update={"seed": seed}))[0] == sets


def test_the_held_out_texts_are_what_was_read_of_the_test_set_s_people(p, made, sets):
    _, texts, dropped = request_sets(p)
    people = {e.entity for e in sets["test"]}
    found = {w.parse(made, text)[0] for text in texts}
    assert people >= {fact.subject for fact in found}
    assert not dropped
    for fact in found:
        true = made.by_key[fact.subject, fact.relation]
        assert true.object == fact.object and true.exposure > 0


def test_a_world_too_small_for_the_training_set_is_refused(p):
    few = p.model_copy(update={"world_people": 100})
    # 55 of 100 people are left to train on
    with pytest.raises(ValueError, match="55 people give 110 open requests, not 200"):
        request_sets(few)
