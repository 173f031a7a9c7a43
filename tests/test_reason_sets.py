"""Learning to Reason's requests: who is asked about, in which set, how many."""

from collections import Counter

import pytest

from factkit import params
from factkit.datasets import world_prompts as wp
from factkit.datasets.examples import refuse_overlap
from factkit.datasets.long_form_prompts import long_prompt
from factkit.leads import facts
from factkit.leads.requests import of_cold_start
from factkit.reason import requests as curating
from factkit.reason.requests import evaluated, reason_sets
from factkit.world import facts as w

SIZES = {
    "sft_requests": 12,
    "train_requests": 36,
    "dev_requests": 9,
    "test_requests": 10,
}
KINDS = {wp.OPEN, wp.COUNTED}


def load(**values):
    return params.load("reason", "tiny", {"world_people": 100} | SIZES | values)


@pytest.fixture(scope="module")
def p():
    return load()


@pytest.fixture(scope="module")
def made(p):
    return w.build_world(p.world_seed, people=p.world_people)


@pytest.fixture(scope="module")
def sets(p):
    return reason_sets(p)[0]


def entities(examples):
    return {e.entity for e in examples}


# The fact world


def test_each_split_of_the_paper_has_as_many_requests_as_wanted(p, sets):
    sizes = {name: len(examples) for name, examples in sets.items()}
    # 10 of each of the two evaluation sets
    assert sizes == {"sft": 12, "train": 36, "dev": 9, "test": 20}
    assert tuple(sizes) == p.splits
    kinds = Counter(e.meta["set"] for e in sets["test"])
    assert kinds == dict.fromkeys(KINDS, p.test_requests)


def test_no_person_and_no_question_is_in_two_sets(sets):
    refuse_overlap(sets)
    people = Counter(person for of in sets.values() for person in entities(of))
    assert set(people.values()) == {1}
    every = [e for of in sets.values() for e in of]
    assert len({e.id for e in every}) == len({e.question for e in every}) == len(every)


def test_all_are_asked_for_where_there_are_fewer_than_wanted(made):
    wanted = dict.fromkeys(SIZES, 10_000)
    sets = reason_sets(load(**wanted))[0]
    read_of = {f.subject for f in made.facts if f.exposure} & set(made.people)
    assert set().union(*map(entities, sets.values())) == read_of
    for examples in sets.values():  # two open requests a person, and a counted one
        n = len(entities(examples))
        kinds = Counter(e.meta["set"] for e in examples)
        assert kinds == {wp.OPEN: 2 * n, wp.COUNTED: n}
    refuse_overlap(sets)


def test_sft_and_rl_share_the_people_in_the_ratio_of_their_requests():
    for sft, train in ((8, 24), (24, 8)):
        sets = reason_sets(load(sft_requests=sft * 100, train_requests=train * 100))[0]
        n, m = len(entities(sets["sft"])), len(entities(sets["train"]))
        assert n == round((n + m) * sft / (sft + train))


def test_only_people_whom_the_policy_read_of_are_asked_about(made, sets):
    exposure = {
        person: sum(f.exposure for f in made.facts_of(person)) for person in made.people
    }
    assert 0 in exposure.values()
    assert all(exposure[e.entity] for of in sets.values() for e in of)


def test_a_request_is_in_the_set_of_its_kind(sets):
    for examples in sets.values():
        assert {e.meta["set"] for e in examples} == KINDS
        assert all(e.meta["set"] == e.meta["kind"] for e in examples)


def test_the_sets_are_those_of_the_world_s_seed_and_no_other(p, sets):
    assert reason_sets(p)[0] == sets
    assert reason_sets(p.model_copy(update={"seed": 7}))[0] == sets
    assert reason_sets(load(world_seed=1))[0] != sets


def test_the_test_set_stays_whatever_is_trained_on(sets):
    more = load(sft_requests=24, train_requests=24, dev_requests=12)
    assert reason_sets(more)[0]["test"] == sets["test"]


# Leads


@pytest.fixture(scope="module")
def of_leads():
    return reason_sets(load(requests="leads"))


@pytest.mark.assets
def test_requests_about_leads_have_the_sizes_wanted_and_no_lead_is_in_two(of_leads):
    sizes = {name: len(examples) for name, examples in of_leads[0].items()}
    assert sizes == {"sft": 12, "train": 36, "dev": 9, "test": 20}
    refuse_overlap(of_leads[0])


@pytest.mark.assets
def test_people_and_all_else_are_two_evaluation_sets(of_leads):
    test = of_leads[0]["test"]
    assert Counter(e.meta["set"] for e in test) == {"people": 10, "other": 10}
    for example in test:
        of_people = example.meta["topic"] == "people"
        assert (example.meta["set"] == "people") == of_people


@pytest.mark.assets
def test_no_subject_of_the_cold_start_is_asked_about(of_leads):
    subjects = facts.load().subjects
    for examples in of_leads[0].values():
        for example in examples:
            subject = subjects[example.entity]
            assert not of_cold_start(subject)
            stated = [facts.statement(fact) for fact in subject.facts]
            assert example.answers == [" ".join(stated)]


# The paper's evaluation sets


def prompts_by_topic(n):
    """n prompts that go by topic, a hundred each."""
    return [
        long_prompt(f"x{i}", f"Tell {i}.", f"x{i}", f"t{i // 100}") for i in range(n)
    ]


def test_of_a_set_the_paper_s_number_is_drawn_from_all_topics():
    """The first 250 of LongFact's objects are of 8 of its 38 topics."""
    rows = prompts_by_topic(1_140)
    p = load(test_requests=532)
    drawn = evaluated("longfact_objects", rows, p, None)
    assert len(drawn) == len({e.id for e in drawn}) == 250  # not 532
    assert len({e.relation for e in drawn}) == 12
    assert drawn == evaluated("longfact_objects", rows, p, None)
    assert len(evaluated("factbench_hard", prompts_by_topic(532), p, None)) == 532
    assert len(evaluated("biography", prompts_by_topic(183), load(), None)) == 10


def test_a_part_chosen_for_seeking_facts_is_drawn_from_such_prompts(monkeypatch):
    asked = []

    def keep(llm, rows):
        asked.append(len(rows))
        return rows[::2], Counter()

    monkeypatch.setattr(curating, "keep_factual", keep)
    rows, p = prompts_by_topic(805), load(test_requests=532)
    drawn = evaluated("alpaca_fact", rows, p, None)
    assert len(drawn) == 241 and {e.id for e in drawn} <= {e.id for e in rows[::2]}
    chosen = rows[:141]  # a file of the rows that FLAME chose
    assert {e.id for e in evaluated("fava", chosen, p, None)} == {e.id for e in chosen}
    assert asked == [805]
