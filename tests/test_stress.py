"""The reward stress test: its responses, its matrix, and what it shows in the world."""

from functools import partial

import pandas as pd
import pytest
from drawings import none_left_open  # noqa: F401

from factkit import params
from factkit.datasets import world_prompts
from factkit.figures import stress
from factkit.rar import rewards as rar
from factkit.verify.claims import Support
from factkit.verify.exact import ExactEngine, WorldReader
from factkit.world import facts as fact_world

P = params.load("rar", "tiny", {"world_people": 30})
WORLD = fact_world.build_world(people=30, seed=P.world_seed)
PROMPTS = [
    next(e for e in world_prompts.requests(WORLD, [person], world_prompts.OPEN))
    for person in WORLD.people
]
ENGINE = ExactEngine(WorldReader(WORLD), {p.id: p for p in PROMPTS})
TRUE = ("honest", "trivial", "padding", "irrelevant", "other_entity", "hedging")


@pytest.fixture(scope="module")
def made():
    chosen, made = stress.cases(P, [*PROMPTS, *PROMPTS], 30)
    assert chosen == PROMPTS
    return made


@pytest.fixture(scope="module")
def matrix(made):
    by_arm = partial(rar.rewards_by_arm, rar.ARMS, ENGINE)
    return stress.stress(by_arm, PROMPTS, made)


def supports_of(made, name):
    """What the world says of each claim of an exploit, for each prompt."""
    said = [row[name] for row in made]
    return ENGINE.supports([p.id for p in PROMPTS], [p.question for p in PROMPTS], said)


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


def test_the_wrong_date_is_a_year_of_birth_and_irrelevance_names_somebody_else(made):
    dated = 0
    for person, row in zip(WORLD.people, made, strict=True):
        assert person not in row["irrelevant"] + row["other_entity"]
        names = ("honest", "one_wrong_date")
        both = (fact_world.sentences(row[name]) for name in names)
        (pair,) = [pair for pair in zip(*both, strict=True) if pair[0] != pair[1]]
        if (person, "birth_year") in WORLD.by_key:
            dated += 1
            relations = [fact_world.parse(WORLD, s)[0].relation for s in pair]
            assert relations == ["birth_year"] * 2
    assert dated


def test_of_leads_no_cases_are_made():
    assert stress.cases(params.load("rar", "laptop"), PROMPTS, 30) == ([], [])


# By hand, of four facts: with one wrong 3/4, padded by eight true ones 11/12.
NAMES = ("honest", "wrong", "one_wrong_date", "empty", "trivial", "padded_error")
BY_HAND = {
    "veriscore": (1, 0, 3 / 4, 0, 1, 11 / 12),
    "binary_rar": (1, 0, 0, 1, 1, 0),
    "conflict_only_veriscore": (1, 0, 3 / 4, 1, 1, 11 / 12),
}


def test_the_matrix_of_the_fact_world_by_hand(matrix):
    assert list(matrix.index) == list(rar.ARMS)
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
    with pytest.raises(RuntimeError, match="arm=arm: no reward for 20 of 390"):
        stress.stress(failing(20), PROMPTS, made)


def test_the_heat_map_frames_what_pays_and_shows_a_dash_where_the_judge_failed(matrix):
    gone = matrix.astype(float).copy()
    gone.iloc[0, 1] = float("nan")
    ax = stress.stress_heatmap(gone).axes[0]
    paid = stress.pays(gone).drop(columns="honest")
    assert len(ax.patches) == int(paid.sum().sum()) and len(ax.texts) == gone.size
    assert [text.get_text() for text in ax.texts].count("–") == 1
