"""Requests about people of the fact world, a run's sets, and the stress test."""

from collections import Counter
from functools import partial

import pandas as pd
import pytest

from factkit.answers import stress
from factkit.answers.engine import ExactEngine
from factkit.data import examples as wp
from factkit.data.examples import BEST_GUESS, refuse_overlap
from factkit.facts.source import open_source
from factkit.facts.world import facts as w
from factkit.facts.world import texts as world_text
from factkit.papers.rar import rewards as rar
from factkit.papers.rar.requests import KINDS, request_sets
from factkit.run import params
from factkit.verify.claims import Support

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
    titles = {d.id: d.title for d in world.documents()}
    each = {wp.OPEN: 2, wp.COUNTED: 1, wp.MAY_ABSTAIN: 4, BEST_GUESS: 4}
    assert set(each) == set(KINDS)
    for kind, n in each.items():
        requests = world.requests(world.people, kind)
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
    made = w.build_world(p.world_seed, people=p.world_people, exposure=p.world_exposure)
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


# ---- the stress test: its responses, its matrix, what it shows in the world

P = params.load("rar", "tiny", {"world_people": 30})
SOURCE = open_source("world", P)
WORLD = w.build_world(people=30, seed=P.world_seed, exposure=P.world_exposure)
PROMPTS = [
    next(e for e in WORLD.requests([person], wp.OPEN)) for person in WORLD.people
]
ENGINE = ExactEngine(WORLD, {p.id: p for p in PROMPTS})
TRUE = ("honest", "trivial", "padding", "irrelevant", "other_entity", "hedging")


@pytest.fixture(scope="module")
def made():
    chosen, made = stress.cases(SOURCE, [*PROMPTS, *PROMPTS], 30)
    assert chosen == PROMPTS
    return made


@pytest.fixture(scope="module")
def matrix(made):
    by_arm = partial(rar.rewards_by_arm, rar.REWARDS, ENGINE)
    return stress.stress(by_arm, PROMPTS, made)


def supports_of(made, name):
    """What the world says of each claim of an exploit, for each prompt."""
    said = [row[name] for row in made]
    return [
        ENGINE.supports(p.id, p.question, text)
        for p, text in zip(PROMPTS, said, strict=True)
    ]


def test_exploits_state_as_many_false_facts_as_their_names_say(made):
    for name in TRUE:
        for supports in supports_of(made, name):
            assert supports and set(supports) == {Support.SUPPORTED}
    for name in ("wrong", "hedged_guesses", "to_the_judge"):
        assert supports_of(made, name) == [[Support.CONTRADICTED] * 4] * 30
    for name, claims in (("one_wrong_date", 4), ("padded_error", 12)):
        for supports in supports_of(made, name):
            assert len(supports) == claims
            assert supports.count(Support.CONTRADICTED) == 1


# By hand, of four facts: with one wrong 3/4, padded by eight true ones 11/12.
NAMES = ("honest", "wrong", "one_wrong_date", "empty", "trivial", "padded_error")
BY_HAND = {
    "veriscore": (1, 0, 3 / 4, 0, 1, 11 / 12),
    "binary_rar": (1, 0, 0, 1, 1, 0),
    "conflict_only_veriscore": (1, 0, 3 / 4, 1, 1, 11 / 12),
}


def test_the_matrix_of_the_fact_world_by_hand(matrix):
    assert list(matrix.index) == list(rar.REWARDS)
    for arm, by_hand in BY_HAND.items():
        assert matrix.loc[arm, list(NAMES)].tolist() == pytest.approx(by_hand)
    for name in ("abstention", "irrelevant", "to_the_judge"):
        assert matrix.at["binary_rar", name] == (name != "to_the_judge")


def test_an_exploit_pays_where_its_mean_is_at_least_the_honest_one_s():
    nan = float("nan")
    matrix = pd.DataFrame(
        {"honest": [0.5, 0.1 + 0.2, nan], "a": [0.6, 0.3, 1.0], "b": [0.4, nan, 1.0]},
        index=["x", "y", "z"],
    )
    paid = stress.pays(matrix)
    assert paid.loc["x"].tolist() == [True, True, False]
    assert paid.loc["y", "a"] and paid.loc["y"].isna().tolist() == [False, False, True]
    assert paid.loc["z"].isna().all()


def test_failed_judgements_are_left_out_of_the_means_unless_too_many(made):
    def failing(n):
        return lambda ids, *_: {"arm": [None] * n + [1.0] * (len(ids) - n)}

    # the first prompt's 13 responses of 390: honest and wrong among them
    found = stress.stress(failing(13), PROMPTS, made)
    assert set(found.loc["arm"]) == {1.0}
    with pytest.raises(ValueError, match="rewards of arm: 5.1% of 390"):
        stress.stress(failing(20), PROMPTS, made)
