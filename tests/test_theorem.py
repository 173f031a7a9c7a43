"""Theorem 1 of Binary RAR: the closed form, and an optimised policy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit.rar import rewards as theorem

BETAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0)


@st.composite
def problems(draw, rewards=None):
    """(reference, rewards): 2 to 8 responses, some of them very rare."""
    n = draw(st.integers(2, 8))
    logs = draw(st.lists(st.floats(-40, 0), min_size=n, max_size=n))
    weights = np.exp(np.array(logs) - max(logs))
    kind = st.floats(0, 1) if rewards is None else rewards
    r = draw(st.lists(kind, min_size=n, max_size=n))
    return weights / weights.sum(), np.array(r, dtype=float)


binary = problems(st.sampled_from([0.0, 1.0]))


def test_three_responses_by_hand():
    # β = 1/ln 2 halves the weight of an error: 0.2, 0.3 and 0.5/2
    best = theorem.binary_optimum(
        np.array([0.2, 0.3, 0.5]), np.array([1, 1, 0]), 1 / math.log(2)
    )
    assert best == pytest.approx([0.2 / 0.75, 0.3 / 0.75, 0.25 / 0.75])
    # each unit of reward doubles a weight: 0.5·1, 0.25·2, 0.25·4
    best = theorem.optimum(
        np.array([0.5, 0.25, 0.25]), np.array([0.0, 1.0, 2.0]), 1 / math.log(2)
    )
    assert best == pytest.approx([0.25, 0.25, 0.5])


@settings(max_examples=60)
@given(problems(), st.sampled_from(BETAS))
def test_the_optimised_policy_agrees_with_the_closed_form(problem, beta):
    policies = [f(*problem, beta) for f in (theorem.optimise, theorem.optimum)]
    assert np.abs(policies[0] - policies[1]).max() < 1e-6


@settings(max_examples=60)
@given(binary, st.sampled_from(BETAS))
def test_so_does_theorem_1_which_keeps_error_free_responses_ratios(problem, beta):
    reference, rewards = problem
    best = theorem.binary_optimum(reference, rewards, beta)
    assert best == pytest.approx(theorem.optimum(*problem, beta), abs=1e-12)
    if rewards.any():
        assert theorem.ratio_spread(best, reference, rewards == 1) < 1e-9


def test_a_graded_reward_does_not_keep_them():
    reference, rewards = np.array([0.3, 0.3, 0.4]), np.array([0.9, 0.7, 0.0])
    best = theorem.optimum(reference, rewards, 0.1)
    # (0.9 − 0.7) / 0.1 in the logarithm
    assert theorem.ratio_spread(best, reference, rewards > 0.5) == pytest.approx(2.0)


def test_too_few_steps_are_an_error_and_no_result():
    with pytest.raises(RuntimeError, match="no optimum within 3 steps"):
        theorem.optimise(np.array([0.5, 0.5]), np.array([0, 1]), 0.1, max_steps=3)
