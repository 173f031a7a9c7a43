"""Theorem 1 of Binary RAR: closed form, exact objective and an optimised policy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factkit.rewards import theorem

BETAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0)


@st.composite
def problems(draw, rewards=None, most=8):
    """(reference, rewards): n responses, some of them very rare."""
    n = draw(st.integers(2, most))
    logs = draw(st.lists(st.floats(-40, 0), min_size=n, max_size=n))
    weights = np.exp(np.array(logs) - max(logs))
    kind = st.floats(0, 1) if rewards is None else rewards
    r = draw(st.lists(kind, min_size=n, max_size=n))
    return weights / weights.sum(), np.array(r, dtype=float)


binary = problems(st.sampled_from([0.0, 1.0]))


# By hand


def test_two_responses_by_hand():
    # 0.6·1 against 0.4·e^−1
    error = 0.4 * math.exp(-1)
    expected = [0.6 / (0.6 + error), error / (0.6 + error)]
    found = theorem.binary_optimum(np.array([0.6, 0.4]), np.array([True, False]), 1.0)
    assert found == pytest.approx(expected)


def test_three_responses_by_hand():
    # β = 1/ln 2 halves the weight of an error: 0.2, 0.3 and 0.5/2
    found = theorem.binary_optimum(
        np.array([0.2, 0.3, 0.5]), np.array([1, 1, 0]), 1 / math.log(2)
    )
    assert found == pytest.approx([0.2 / 0.75, 0.3 / 0.75, 0.25 / 0.75])


def test_any_reward_by_hand():
    # β = 1/ln 2: each unit of reward doubles a weight: 0.5·1, 0.25·2, 0.25·4
    found = theorem.optimum(
        np.array([0.5, 0.25, 0.25]), np.array([0.0, 1.0, 2.0]), 1 / math.log(2)
    )
    assert found == pytest.approx([0.25, 0.25, 0.5])


def test_the_objective_by_hand():
    # E[r] = 0.5; KL = ½ ln(0.5/0.25) + ½ ln(0.5/0.75)
    kl = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    found = theorem.objective(
        np.array([0.5, 0.5]), np.array([0.25, 0.75]), np.array([1.0, 0.0]), 0.1
    )
    assert found == pytest.approx(0.5 - 0.1 * kl)


def test_leaving_the_support_costs_infinitely_much():
    found = theorem.objective(
        np.array([0.5, 0.5]), np.array([1.0, 0.0]), np.array([0.0, 1.0]), 1.0
    )
    assert found == -math.inf


def test_what_the_reference_never_says_is_never_said():
    reference, rewards = np.array([0.7, 0.0, 0.3]), np.array([0.0, 1.0, 1.0])
    for solve in (theorem.optimum, theorem.optimise):
        assert solve(reference, rewards, 0.1)[1] == 0


# The closed form is the optimum


@settings(max_examples=60)
@given(problems(), st.sampled_from(BETAS))
def test_the_optimised_policy_agrees_with_the_closed_form(problem, beta):
    found, expected = (f(*problem, beta) for f in (theorem.optimise, theorem.optimum))
    assert np.abs(found - expected).max() < 1e-6


@settings(max_examples=60)
@given(binary, st.sampled_from(BETAS))
def test_the_optimised_policy_agrees_with_theorem_1(problem, beta):
    found = theorem.optimise(*problem, beta)
    assert np.abs(found - theorem.binary_optimum(*problem, beta)).max() < 1e-6


def test_plain_gradient_ascent_ends_there_too():
    """No Fisher matrix: steps along the gradient of the objective itself."""
    import torch

    reference, rewards, beta = np.array([0.2, 0.3, 0.5]), np.array([1.0, 1.0, 0.0]), 0.5
    base, gain = torch.tensor(reference), torch.tensor(rewards)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(500):
        policy = torch.softmax(logits, dim=0)
        value = policy @ gain - beta * (policy * (policy / base).log()).sum()
        (gradient,) = torch.autograd.grad(value, logits)
        with torch.no_grad():
            logits += gradient
    found = torch.softmax(logits, dim=0).detach().numpy()
    assert np.abs(found - theorem.optimum(reference, rewards, beta)).max() < 1e-6


@given(problems(), st.sampled_from(BETAS), st.integers(0, 2**32 - 1))
def test_no_perturbed_policy_has_a_higher_objective(problem, beta, seed):
    best = theorem.optimum(*problem, beta)
    top = theorem.objective(best, *problem, beta)
    rng = np.random.default_rng(seed)
    for size in (1e-3, 0.1, 1.0):
        other = best * np.exp(size * rng.standard_normal(len(best)))
        other /= other.sum()
        assert theorem.objective(other, *problem, beta) <= top + 1e-12
    for other in (problem[0], np.full(len(best), 1 / len(best))):
        assert theorem.objective(other, *problem, beta) <= top + 1e-12


@given(problems(), st.sampled_from(BETAS))
def test_the_optimum_s_objective_is_beta_times_the_log_of_the_normaliser(problem, beta):
    reference, rewards = problem
    terms = np.log(reference) + rewards / beta
    expected = beta * (terms.max() + np.log(np.exp(terms - terms.max()).sum()))
    best = theorem.optimum(*problem, beta)
    assert theorem.objective(best, *problem, beta) == pytest.approx(expected, abs=1e-9)


# What the theorem says


@given(binary, st.sampled_from(BETAS))
def test_theorem_1_is_the_binary_case_of_the_general_form(problem, beta):
    found, general = (
        theorem.binary_optimum(*problem, beta),
        theorem.optimum(*problem, beta),
    )
    assert found == pytest.approx(general, abs=1e-12)


@given(binary, st.sampled_from(BETAS))
def test_error_free_responses_keep_their_relative_probabilities(problem, beta):
    reference, rewards = problem
    alike = rewards == 1
    best = theorem.binary_optimum(reference, rewards, beta)
    assert theorem.ratio_spread(best, reference, alike) < 1e-9


@settings(max_examples=30)
@given(binary, st.sampled_from(BETAS))
def test_so_do_they_under_the_optimised_policy(problem, beta):
    reference, rewards = problem
    found = theorem.optimise(reference, rewards, beta)
    assert theorem.ratio_spread(found, reference, rewards == 1) < 1e-6


def test_a_graded_reward_does_not_keep_them():
    reference, rewards = np.array([0.3, 0.3, 0.4]), np.array([0.9, 0.7, 0.0])
    best = theorem.optimum(reference, rewards, 0.1)
    # (0.9 − 0.7) / 0.1 in the logarithm
    assert theorem.ratio_spread(best, reference, rewards > 0.5) == pytest.approx(2.0)


@given(problems(st.sampled_from([0.0, 1.0])), st.sampled_from((0.1, 0.3, 1.0, 2.0)))
def test_an_error_loses_the_factor_of_eq_7_against_an_error_free_one(problem, beta):
    reference, rewards = problem
    best = theorem.optimum(reference, rewards, beta)
    for good in np.flatnonzero(rewards == 1):
        for bad in np.flatnonzero(rewards == 0):
            before = math.log(reference[bad] / reference[good])
            after = math.log(best[bad] / best[good])
            assert after - before == pytest.approx(-1 / beta, abs=1e-9)


@given(binary, st.sampled_from([(a, b) for a in BETAS for b in BETAS if a < b]))
def test_a_smaller_beta_leaves_errors_less(problem, betas):
    wrong = problem[1] == 0
    less, more = (theorem.optimum(*problem, b)[wrong].sum() for b in betas)
    assert less <= more + 1e-12


# Limits and degenerate cases


@given(problems())
def test_a_large_beta_gives_the_reference(problem):
    assert theorem.optimum(*problem, 1e9) == pytest.approx(problem[0], abs=1e-8)


def test_a_tiny_beta_leaves_the_error_free_ones_alone():
    reference, rewards = np.array([0.1, 0.3, 0.6]), np.array([1.0, 1.0, 0.0])
    for solve in (theorem.optimum, theorem.binary_optimum, theorem.optimise):
        found = solve(reference, rewards, 1e-4)
        assert found == pytest.approx([0.25, 0.75, 0.0])


@given(problems(), st.sampled_from(BETAS), st.sampled_from([0.0, 1.0]))
def test_a_reward_that_is_the_same_everywhere_moves_nothing(problem, beta, value):
    reference, same = problem[0], np.full(len(problem[0]), value)
    for solve in (theorem.optimum, theorem.binary_optimum, theorem.optimise):
        assert solve(reference, same, beta) == pytest.approx(reference, abs=1e-9)


@given(problems(), st.sampled_from(BETAS), st.floats(-5, 5))
def test_a_constant_added_to_all_rewards_moves_nothing(problem, beta, constant):
    reference, rewards = problem
    found = theorem.optimum(reference, rewards + constant, beta)
    assert found == pytest.approx(theorem.optimum(reference, rewards, beta), abs=1e-8)


def test_a_single_response_keeps_all_the_probability():
    for solve in (theorem.optimum, theorem.binary_optimum, theorem.optimise):
        assert solve(np.array([1.0]), np.array([0.0]), 0.1) == pytest.approx([1.0])


BAD = {
    "add up": ([0.5, 0.4], [0, 1], 1.0),
    "two vectors": ([0.5, 0.5], [0, 1, 1], 1.0),
    "at least 1": ([], [], 1.0),
    "must be finite": ([0.5, 0.5], [0, math.nan], 1.0),
    "positive": ([0.5, 0.5], [0, 1], 0.0),
    "probabilities": ([1.5, -0.5], [0, 1], 1.0),
}


@pytest.mark.parametrize("reason", BAD)
def test_what_is_no_such_problem_is_refused(reason):
    reference, rewards, beta = BAD[reason]
    for solve in (theorem.optimum, theorem.binary_optimum, theorem.optimise):
        with pytest.raises(ValueError, match=reason):
            solve(np.array(reference), np.array(rewards), beta)


def test_too_few_steps_are_an_error_and_no_result():
    with pytest.raises(RuntimeError, match="no optimum within 3 steps"):
        theorem.optimise(np.array([0.5, 0.5]), np.array([0, 1]), 0.1, max_steps=3)


# Real rollouts


def test_rollouts_give_the_reference_among_them():
    said, logs = ["a", "b", "a", "c"], [-100.0, -101.0, -100.0, -100.0]
    found, reference = theorem.from_logprobs(said, logs)
    total = 2 + math.exp(-1)
    assert found == ["a", "b", "c"]
    assert reference == pytest.approx([1 / total, math.exp(-1) / total, 1 / total])


def test_rollouts_as_improbable_as_long_texts_are_can_be_optimised():
    logs = [-2000.0, -2004.0, -2030.0, -2100.0]
    _, reference = theorem.from_logprobs(list("abcd"), logs)
    rewards = np.array([0.0, 0.0, 1.0, 1.0])
    found = theorem.optimise(reference, rewards, 0.01)
    assert found == pytest.approx([0, 0, 1, 0], abs=1e-9)
    assert theorem.ratio_spread(found, reference, rewards == 1) < 1e-6


@pytest.mark.parametrize("logs", [[], [0.5], [-math.inf], [math.nan]])
def test_log_probabilities_that_are_none_are_refused(logs):
    with pytest.raises(ValueError, match="log-probability"):
        theorem.from_logprobs([str(i) for i in range(len(logs))], logs)


# Over β


def table():
    reference, rewards = np.array([0.15, 0.35, 0.5]), np.array([1.0, 1.0, 0.0])
    return theorem.over_betas(reference, rewards, BETAS)


def test_the_table_over_beta_holds_both_policies():
    found = table()
    assert len(found) == 3 * len(BETAS)
    for column in ("reference", "closed_form", "optimised"):
        sums = found.groupby("beta")[column].sum()
        assert sums.to_numpy() == pytest.approx(1.0)
    assert (found.closed_form - found.optimised).abs().max() < 1e-6
