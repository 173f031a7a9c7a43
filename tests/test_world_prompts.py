"""Requests about people of the fact world, and the sets that a run is made of."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit import params
from factkit.curate.request_sets import KINDS, request_sets
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import read_examples, refuse_overlap, write_examples
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


@pytest.mark.parametrize(
    ("kind", "each"),
    [(wp.OPEN, 2), (wp.COUNTED, 1), (wp.MAY_ABSTAIN, 4), (wp.BEST_GUESS, 4)],
)
def test_a_person_gives_so_many_requests_of_a_kind(world, kind, each):
    found = wp.requests(world, world.people, kind)
    assert Counter(e.entity for e in found) == dict.fromkeys(world.people, each)
    assert {e.meta["kind"] for e in found} == {kind}
    assert len({e.id for e in found}) == len({e.question for e in found}) == len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reference_is_true(world, kind):
    for example in wp.requests(world, world.people, kind):
        assert answers_are_true(world, example)


@pytest.mark.parametrize("kind", [wp.OPEN, wp.COUNTED])
def test_the_reference_of_a_long_answer_states_every_fact_of_the_person(world, kind):
    for example in wp.requests(world, world.people, kind):
        said = w.sentences(example.answers[0])
        stated = {w.parse(world, sentence)[0].relation for sentence in said}
        assert stated == {f.relation for f in world.facts_of(example.entity)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_evidence_is_the_documents_of_the_person(world, kind):
    titles = {d.id: d.title for d in w.documents(world)}
    for example in wp.requests(world, world.people, kind):
        assert len(example.evidence) == 4
        assert {titles[i] for i in example.evidence} == {example.entity}


def test_counted_requests_want_one_two_and_three_facts_in_turn(world):
    found = wp.requests(world, world.people[:6], wp.COUNTED)
    assert [e.meta["wanted"] for e in found] == [1, 2, 3, 1, 2, 3]
    for example in found:
        asked = world_text.request(example.entity, example.meta["wanted"])
        assert example.question == asked


def test_only_one_kind_of_short_question_gives_leave_to_abstain(world):
    allowed, guessed = (wp.requests(world, world.people[:5], kind) for kind in SHORT)
    leave = world_text.MAY_ABSTAIN.format(question="")
    assert [e.question for e in allowed] == [e.question + leave for e in guessed]


@pytest.mark.parametrize("kind", SHORT)
def test_a_short_question_s_exposure_is_its_fact_s(world, kind):
    for example in wp.requests(world, world.people, kind):
        fact = world.by_key[example.entity, example.relation]
        assert example.meta["exposure"] == fact.exposure


@pytest.mark.parametrize("kind", [wp.OPEN, wp.COUNTED])
def test_a_long_request_s_exposure_is_the_mean_of_the_person_s_facts(world, kind):
    for example in wp.requests(world, world.people, kind):
        facts = world.facts_of(example.entity)
        mean = sum(f.exposure for f in facts) / len(facts)
        assert abs(example.meta["exposure"] - mean) <= 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_is_made_of_words_that_the_policy_knows(world, kind):
    tokenizer = world_text.build_tokenizer(world, "long")
    for example in wp.requests(world, world.people, kind):
        assert tokenizer.unk_token_id not in tokenizer(example.question)["input_ids"]


# Mixed


@settings(max_examples=25)
@given(st.integers(0, 60), st.integers(0, 3))
def test_half_of_a_mixture_is_open_and_a_quarter_each_counted_and_short(n, seed):
    world = w.build_world(3, people=60)
    found = wp.mixed(world, world.people, n, seed)
    kinds = Counter(e.meta["kind"] for e in found)
    quarter = n // 4
    assert len({e.id for e in found}) == len(found) == n
    assert kinds == +Counter(
        {wp.OPEN: n - 2 * quarter, wp.COUNTED: quarter, wp.MAY_ABSTAIN: quarter}
    )


def test_a_mixture_is_the_same_for_the_same_seed_only(world):
    first, again, other = (wp.mixed(world, world.people, 40, s) for s in (0, 0, 1))
    assert first == again != other


def test_a_mixture_that_people_do_not_suffice_for_is_refused(world):
    # 3 people give 6 open, 3 counted, 12 short requests: 12 prompts take 6, 3 and 3
    people = random.Random(0).sample(world.people, 3)
    assert len(wp.mixed(world, people, 12, 0)) == 12
    with pytest.raises(ValueError, match="13 prompts: 3 people give 6 open requests"):
        wp.mixed(world, people, 13, 0)


# The sets of a run of profile tiny


def test_no_entity_is_in_two_sets(sets):
    refuse_overlap(sets)
    entities = [{e.entity for e in rows} for rows in sets.values()]
    assert sum(map(len, entities)) == len(set.union(*entities))


def test_the_training_set_has_its_size_and_no_best_guess(p, sets):
    kinds = Counter(e.meta["kind"] for e in sets["train"])
    assert kinds == {wp.OPEN: 200, wp.COUNTED: 100, wp.MAY_ABSTAIN: 100}
    assert kinds.total() == p.train_requests


def test_the_sets_to_measure_on_have_every_kind_within_the_limit(p, sets):
    for name, limit in (("dev", p.dev_requests), ("test", p.test_requests)):
        kinds = Counter(e.meta["kind"] for e in sets[name])
        assert set(kinds) == set(KINDS)
        assert kinds[wp.OPEN] == limit == max(kinds.values())


def test_every_reference_of_a_run_is_true(made, sets):
    for rows in sets.values():
        for example in rows:
            assert answers_are_true(made, example)


def test_the_sets_are_data_files_that_can_be_read_back(tmp_path, sets):
    for name, rows in sets.items():
        write_examples(tmp_path / f"{name}.jsonl", rows)
        assert read_examples(tmp_path / f"{name}.jsonl") == (rows, Counter())


def test_the_held_out_texts_are_what_was_read_of_the_test_set_s_people(p, made, sets):
    _, texts, dropped = request_sets(p)
    people = {e.entity for e in sets["test"]}
    found = {w.parse(made, text)[0] for text in texts}
    assert people >= {fact.subject for fact in found}
    assert not dropped
    for fact in found:
        true = made.by_key[fact.subject, fact.relation]
        assert true.object == fact.object and true.exposure > 0


def test_the_sets_are_the_same_for_the_same_parameters(p, sets):
    assert request_sets(p)[0] == sets


def test_the_run_s_seed_leaves_the_sets_as_they_are(p, sets):
    assert request_sets(p.model_copy(update={"seed": 1}))[0] == sets


def test_a_world_too_small_for_the_training_set_is_refused(p):
    few = p.model_copy(update={"world_people": 100})
    # 55 of 100 people are left to train on
    with pytest.raises(ValueError, match="55 people give 110 open requests, not 200"):
        request_sets(few)


@pytest.mark.assets
def test_another_split_seed_gives_other_requests_and_still_no_common_entity():
    p = params.load("rar", "laptop")
    first, other = (
        request_sets(p.model_copy(update={"split_seed": seed}))[0] for seed in (0, 1)
    )
    for name, rows in first.items():
        assert len(rows) == len(other[name])
        same = {e.id for e in rows} & {e.id for e in other[name]}
        assert len(same) < len(rows) / 2, name
    refuse_overlap(other)
