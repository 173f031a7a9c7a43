"""Figures of Learning to Reason for Factuality, drawn from made-up results."""

import pytest
from drawings import (
    heights,
    legend,
    none_left_open,  # noqa: F401
    points,
    segments,
    ticks,
    with_metrics,
    without,
)

from factkit.papers.reason import figures as draw
from factkit.papers.reason.arms import ARMS
from factkit.report import published

REASON_ARMS = tuple(ARMS)
METRICS = {
    "factual_precision": 0.4,
    "correct_claims_per_question": 2.0,
    "incorrect_claims_per_question": 1.0,
    "win_rate": 0.6,
}


def result(arm, seed=0, shift=0.0, **more):
    return with_metrics(arm, METRICS, seed, shift, **more)


@pytest.fixture
def results():
    """Three seeds an arm, around 0.02 above METRICS; each arm 0.05 above the last; in
    an order that is not the paper's."""
    return [
        result(arm, seed, i / 20 + seed / 50)
        for i, arm in enumerate(REASON_ARMS)
        for seed in (0, 1, 2)
    ][::-1]


@pytest.fixture
def table_2():
    return published.read_table(2, "reason")


def test_the_trade_off_has_a_mark_an_arm_that_says_its_weights(results):
    figure = draw.precision_and_detail(results)
    ours = points(figure.axes[0])
    for i, (arm, label) in enumerate(zip(REASON_ARMS, ours, strict=True)):
        assert label.startswith(arm.replace("_", " "))
        assert ours[label] == pytest.approx((0.42 + i / 20, 2.02 + i / 20))
    assert {"fact detail10 relevance (λ 0.1, μ 0.1)", "sft dpo"} <= set(ours)
    assert len(legend(figure)) == len(set(legend(figure)))


def test_what_was_not_measured_is_left_out():
    results = [without(result("sft"), "precision", "win_rate"), result("new")]
    assert list(points(draw.precision_and_detail(results).axes[0])) == ["new"]
    (ax,) = draw.win_rates(results).axes
    assert ticks(ax.xaxis) == ["new"]


def test_win_rates_stand_by_arm_beside_the_papers(results, table_2):
    (ax,) = draw.win_rates(results).axes
    assert [t.split() for t in ticks(ax.xaxis)] == [a.split("_") for a in REASON_ARMS]
    expected = [0.62 + i / 20 for i in range(len(REASON_ARMS))]
    assert heights(ax) == [pytest.approx(expected)]
    stated = [
        (REASON_ARMS.index(r.arm), r.win_rate / 100) for r in table_2.itertuples()
    ]
    assert segments(ax, "paper (8B, six data sets)") == sorted(stated)
    (half,) = [ln for ln in ax.lines if set(ln.get_ydata()) == {0.5}]
    assert half.get_linestyle() == "--"


def test_each_evaluation_set_stands_in_the_table_and_nothing_else():
    of_set = {"factual_precision": 0.5, draw.DETAIL: 3.0, "win_rate": 0.6}
    prefixes = ("", "open_", "fava_", "dev_open_", "before_open_", "exposure_10_")
    metrics = {prefix + name: v for prefix in prefixes for name, v in of_set.items()}
    del metrics["exposure_10_win_rate"]  # exposures are not compared
    metrics |= {"least_win_rate": 0.6}
    table = draw.by_set([with_metrics("fact", metrics, seed) for seed in (0, 1)])
    assert list(table.columns.levels[0].unique()) == ["average", "fava", "open"]
    row = table.loc["fact", "fava"]
    assert list(row) == ["50.0 ± 0.0", "3.0 ± 0.0", "60.0 ± 0.0"]
