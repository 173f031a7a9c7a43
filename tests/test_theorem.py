"""Binary RAR's Theorem 1: the closed form, and the policy that an optimiser finds."""

import numpy as np
import pytest

from factkit.papers.rar import theorem

REFERENCE = np.array([0.30, 0.20, 0.35, 0.15])
NO_ERROR = np.array([1, 1, 0, 0])


@pytest.mark.parametrize("beta", [0.05, 1.0, 10.0])
def test_the_optimum_divides_the_odds_of_an_error_and_an_optimiser_finds_it(beta):
    best = theorem.optimum(REFERENCE, NO_ERROR, beta)
    assert best.sum() == pytest.approx(1)
    odds = best / REFERENCE
    assert odds[0] == pytest.approx(odds[1])  # error-free ones keep their proportions
    assert odds[0] / odds[2] == pytest.approx(np.exp(1 / beta))
    assert theorem.optimise(REFERENCE, NO_ERROR, beta) == pytest.approx(best, abs=1e-6)
