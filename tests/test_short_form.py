"""Metrics of short answers by hand and by properties; the ledger's verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factkit import figures, ledger
from factkit.evaluate import short_form
from factkit.verify.outcome import Outcome

many = st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=60)


def test_rates_by_hand():
    results = [Outcome.CORRECT] * 3 + [Outcome.ABSTAIN] * 5 + [Outcome.WRONG] * 2
    assert short_form.rates(results) == pytest.approx(
        {"truthfulness": 0.1, "accuracy": 0.3, "hallucination": 0.2, "abstention": 0.5}
    )


@given(many)
def test_rates_add_up_and_truthfulness_is_bounded(results):
    rates = short_form.rates(results)
    total = rates["accuracy"] + rates["hallucination"] + rates["abstention"]
    assert total == pytest.approx(1)
    assert -1 <= rates["truthfulness"] <= 1


def test_no_outcomes_can_not_be_scored():
    with pytest.raises(ValueError, match="no outcomes"):
        short_form.rates([])


def test_a_bootstrap_interval_holds_the_rate_and_shrinks_with_n():
    few = [Outcome.CORRECT, Outcome.WRONG] * 10
    spans = [short_form.bootstrap(few * k, 400)["accuracy"] for k in (1, 25)]
    assert all(low < 0.5 < high for low, high in spans)
    assert spans[1][1] - spans[1][0] < (spans[0][1] - spans[0][0]) / 2


def test_the_interval_over_seeds_is_students():
    mean, half = figures.mean_and_range([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.303 / 3**0.5))


@pytest.mark.parametrize(
    ("ternary", "prompting", "verdict"),
    [
        ([0.3, 0.31, 0.29], [0.0, 0.0, 0.0], "holds"),
        ([0.0, 0.0, 0.01], [0.3, 0.31, 0.29], "fails"),
        ([0.3, 0.0, -0.3], [0.0, 0.0, 0.0], "undecided"),
        ([0.3], [0.0], "undecided"),
    ],
)
def test_a_claim_is_judged_by_its_interval_over_seeds(ternary, prompting, verdict):
    arms = {"ternary": ternary, "prompting": prompting}
    results = [
        {"arm": arm, "seed": seed, "metrics": {"truthfulness": value}}
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]
    (row,) = ledger.check(ledger.TRUTHRL[:1], results).to_dict("records")
    assert row["verdict"] == verdict


def test_the_published_table_is_consistent():
    from factkit.figures.truthrl import published_table_1

    table = published_table_1()
    assert len(table) == 2 * 2 * 8 * 5
    assert ((table.A - table.H - table["T"]).abs() <= 0.15).all()
