"""One rule for all intervals: what it covers, what it pairs, what it leaves out."""

import numpy as np
import pytest

from factkit.run import statistics


def items(values, prefix="q"):
    """The items of one cell, each with weight 1; NaN does not count."""
    pairs = enumerate(values)
    return {f"{prefix}{i}": (float(x), 1.0) for i, x in pairs if x == x}


def drawn(rng, sd_seed, sd_item, sd_rest, n_seeds=3, n_items=100):
    """Item shares of a difference that is truly 0: a row a seed."""
    return (
        sd_seed * rng.normal(size=(n_seeds, 1))
        + sd_item * rng.normal(size=(1, n_items))
        + sd_rest * rng.normal(size=(n_seeds, n_items))
    )


def covered(table):
    cells = {s: items(row) for s, row in enumerate(table)}
    estimate = statistics.difference(cells, {})
    return abs(estimate.value) <= estimate.half_width


@pytest.mark.parametrize("sds", [(0, 0.5, 0.5), (0.05, 0.5, 0.5), (0.2, 0.3, 0.3)])
def test_the_interval_covers_the_truth_in_about_95_of_100(sds):
    rng = np.random.default_rng(0)
    hits = [covered(drawn(rng, *sds)) for _ in range(600)]
    assert 0.90 <= np.mean(hits) <= 0.98


def test_one_seed_gives_the_paired_t_interval_over_items():
    from scipy import stats

    rng = np.random.default_rng(2)
    more, less = rng.random(50), rng.random(50)
    found = statistics.difference({0: items(more)}, {0: items(less)})
    low, high = stats.ttest_rel(more, less).confidence_interval(0.95)
    assert found.value - found.half_width == pytest.approx(low)
    assert found.value + found.half_width == pytest.approx(high)


def test_seeds_with_items_of_their_own_give_the_t_t_interval():
    values = [0.1, 0.4, 0.3]
    cells = {s: items([v] * 30, prefix=f"w{s}-") for s, v in enumerate(values)}
    found = statistics.difference(cells, {})
    assert (found.value, found.half_width) == pytest.approx(
        statistics.t_interval(values)
    )


def test_items_that_do_not_count_have_no_say():
    """A metric of those alone who responded: mean over them, whoever they are."""
    more = {0: items([1, 1, float("nan"), 0] * 10)}
    less = {0: items([0, float("nan"), 1, 0] * 10)}
    found = statistics.difference(more, less)
    assert found.value == pytest.approx(2 / 3 - 1 / 3)
    assert found.items == 30


def test_a_ratio_of_sums_is_linearised_as_the_jackknife_has_it():
    rng = np.random.default_rng(4)
    weights = rng.integers(1, 9, size=80)
    values = rng.random(80)
    cell = {f"q{i}": (v, w) for i, (v, w) in enumerate(zip(values, weights))}  # noqa: B905
    found = statistics.difference({0: cell}, {})
    left_out = [
        statistics.mean_of({k: v for k, v in cell.items() if k != f"q{i}"})
        for i in range(80)
    ]
    jackknife = (79 / 80 * np.sum((left_out - np.mean(left_out)) ** 2)) ** 0.5
    assert found.value == pytest.approx((values * weights).sum() / weights.sum())
    assert found.se == pytest.approx(jackknife, rel=0.03)


def test_holm_adjusts_as_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([]) == []
