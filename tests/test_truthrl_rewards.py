"""TruthRL's rewards and advantages against hand calculations and by properties."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit.rewards import truthrl
from factkit.verify.outcome import Outcome

CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG
groups = st.lists(st.sampled_from(list(Outcome)), min_size=2, max_size=16)


def test_rewards_are_those_of_section_3_2():
    table = {n: [f(o) for o in Outcome] for n, f in truthrl.REWARDS.items()}
    assert table == {"binary": [1, -1, -1], "ternary": [1, 0, -1]}


def advantages(name, group):
    return truthrl.group_advantages([truthrl.REWARDS[name](o) for o in group])


def test_binary_can_not_tell_abstention_from_hallucination():
    assert advantages("binary", [ABSTAIN, WRONG]) == [0, 0]


def test_ternary_prefers_abstention_to_hallucination():
    abstaining, wrong = advantages("ternary", [ABSTAIN, WRONG])
    # rewards 0, −1: mean −0.5, sample std √0.5
    assert abstaining == pytest.approx(0.5 / (0.5**0.5 + 1e-4))
    assert wrong == -abstaining


def test_ternary_turns_against_abstention_beside_a_correct_answer():
    _, abstaining = advantages("ternary", [CORRECT, ABSTAIN])
    assert abstaining < 0


def test_without_abstention_both_rewards_are_the_same_algorithm():
    group = [CORRECT, WRONG, WRONG, CORRECT, WRONG]
    assert advantages("binary", group) == advantages("ternary", group)


@given(groups, st.randoms())
def test_permuting_a_group_permutes_its_advantages(group, rng):
    order = list(range(len(group)))
    rng.shuffle(order)
    before = advantages("ternary", group)
    after = advantages("ternary", [group[i] for i in order])
    assert after == pytest.approx([before[i] for i in order])


@given(groups)
def test_advantages_of_a_group_have_mean_zero(group):
    assert statistics.mean(advantages("ternary", group)) == pytest.approx(0, abs=1e-9)


def test_advantages_are_those_that_trl_computes():
    import torch

    rewards = torch.tensor([1.0, 0.0, -1.0, -1.0])
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    assert truthrl.group_advantages(rewards.tolist()) == pytest.approx(
        expected.tolist()
    )


def test_abstention_dynamics_by_hand():
    pro, anti = [ABSTAIN, WRONG, WRONG, WRONG], [ABSTAIN, CORRECT, WRONG, ABSTAIN]
    neither = [CORRECT, WRONG, WRONG, WRONG]
    assert truthrl.abstention_dynamics(pro + anti + neither, 4) == {
        "abstention": 3 / 12,
        "abstention_pro": 1 / 4,
        "abstention_anti": 2 / 4,
    }


def test_the_adapter_scores_and_logs_a_batch():
    logged = {}
    reward = truthrl.reward_function("ternary", group_size=3)
    scores = reward(
        completions=[" Paris", " I don't know", " Rome"],
        answers=[["Paris"]] * 3,
        question=["What is the capital of France?"] * 3,
        prompts=["p"] * 3,
        log_metric=lambda name, value: logged.update({name: value}),
    )
    assert scores == [1.0, 0.0, -1.0]
    assert logged["abstention_anti"] == logged["accuracy"] == pytest.approx(1 / 3)
