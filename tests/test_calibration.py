"""Measures of confidence against values worked out by hand."""

import pandas as pd
import pytest

from factkit.answers import calibration
from factkit.answers.short_form import ScoredAnswer
from factkit.papers.truthrl import figures
from factkit.report import rules
from factkit.run.results import read_results
from factkit.run.runs import REFERENCE
from factkit.verify.outcome import Outcome

CORRECT, ABSTAIN, WRONG = Outcome.CORRECT, Outcome.ABSTAIN, Outcome.WRONG


def rows(*pairs):
    return [
        ScoredAnswer(f"q{i}", "?", ["x"], "a", "r", outcome, confidence)
        for i, (outcome, confidence) in enumerate(pairs)
    ]


# what does not count: an abstention, an answer without a confidence, a failed judge
OTHERS = [(ABSTAIN, 0.9), (WRONG, None), (None, 0.9)]


def test_measures_are_those_by_hand():
    four = [(CORRECT, 0.9), (CORRECT, 0.4), (WRONG, 0.6), (WRONG, 0.1)]
    found = calibration.measures(rows(*four, *OTHERS))
    risks = [0, 1 / 2, 1 / 3, 2 / 4]  # in the order 0.9, 0.6, 0.4, 0.1
    assert found == pytest.approx(
        {
            "most_coverage": 4 / 6,  # of the six that were judged
            "brier": (0.1**2 + 0.6**2 + 0.6**2 + 0.1**2) / 4,
            "ece": (0.1 + 0.6 + 0.6 + 0.1) / 4,  # four bins of one answer each
            "aurc": sum(risks) / 4,
            "confidence_auc": 3 / 4,  # 0.4 is below 0.6
            "coverage_0.1_risk": 0,  # one of the six, rounded
            "coverage_0.2_risk": 0,
            "coverage_0.3_risk": 1 / 2,
            "coverage_0.4_risk": 1 / 2,
            "coverage_0.5_risk": 1 / 3,
            "coverage_0.6_risk": 1 / 2,
            "coverage_0.7_risk": 1 / 2,
        }
    )


def test_a_bin_s_error_is_that_of_its_means_and_the_last_bin_holds_certainty():
    # 0.9 and 1.0 share a bin: mean 0.95 against a half that is right
    found = calibration.measures(rows((CORRECT, 1.0), (WRONG, 0.9)))
    assert found["ece"] == pytest.approx(0.45)
    calibrated = rows(*[(CORRECT, 0.7)] * 7, *[(WRONG, 0.7)] * 3)
    assert calibration.measures(calibrated)["ece"] == pytest.approx(0)


def test_answers_of_one_confidence_share_their_risk_in_any_order():
    for pairs in ([(CORRECT, 0.5), (WRONG, 0.5)], [(WRONG, 0.5), (CORRECT, 0.5)]):
        found = calibration.measures(rows(*pairs))
        assert (found["aurc"], found["confidence_auc"]) == (0.5, 0.5)
        assert found["coverage_0.5_risk"] == found["coverage_1.0_risk"] == 0.5


def test_the_confidence_rule_answers_where_the_policy_is_more_than_half_sure():
    rates = calibration.confidence_rule(
        [CORRECT, WRONG, WRONG, None], [0.6, 0.5, 0.51, None]
    )
    assert rates["confidence_rule_truthfulness"] == 0
    assert rates["confidence_rule_abstention"] == 1 / 2


def test_a_page_adds_the_confidence_rule_from_an_untrained_run_s_items():
    folder = REFERENCE / "tiny" / "12_truthrl_train" / "prompting-s0"
    result = read_results(folder) | {"folder": str(folder)}
    tuned = result | {"arm": "ternary", "folder": "nowhere"}
    one, other = rules.add_confidence_rule([tuned, result])
    assert one == tuned
    items = pd.read_csv(folder / "items.csv").dropna(subset="truthfulness")
    sure = items[items.confidence > 0.5]
    added = other["metrics"]["confidence_rule_truthfulness"]
    assert added == pytest.approx(sure.truthfulness.sum() / len(items))
    assert rules.add_confidence_rule([one, other]) == [one, other]
    assert rules.add_confidence_rule([tuned]) == [tuned]


def test_without_pairs_or_answers_nothing_is_made_up():
    assert "confidence_auc" not in calibration.measures(rows((CORRECT, 0.5)))
    assert calibration.measures(rows((ABSTAIN, 0.5))) == {"most_coverage": 0}
    assert calibration.measures([]) == {}
    assert all(calibration.brier_term(row) == {} for row in rows(*OTHERS))


def test_the_curve_of_an_arm_ends_where_it_covers_no_more():
    def result(arm, **risks):
        metrics = {f"coverage_{c}_risk": v for c, v in risks.items()}
        return {"arm": arm, "metrics": metrics}

    seeds = [{"0.1": 0.0, "0.2": 0.2}, {"0.1": 0.2}]
    results = [result("rlcr", **risks) for risks in seeds]
    results.append(result("ternary", **{"0.1": 0.1, "0.2": 0.1, "0.3": 0.2}))
    (ax,) = figures.risk_coverage(results).axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in ax.lines}
    assert drawn["ternary"] == [[0.1, 0.1], [0.2, 0.1], [0.3, 0.2]]
    assert drawn["RLCR"] == [[0.1, pytest.approx(0.1)], [0.2, 0.2]]


def test_curves_of_more_arms_than_named_line_styles_are_drawn():
    """The fifth style is a pattern of dashes, not a name."""
    arms = "prompting r_tuning ternary abstention_price stated_confidence rlcr".split()
    rates = ("accuracy", "abstention", "hallucination")
    metrics = {f"majority_{k}_{rate}": 0.5 for k in (1, 2) for rate in rates}
    metrics["coverage_0.1_risk"] = 0.1
    results = [{"arm": arm, "metrics": metrics} for arm in arms]
    for draw in (figures.risk_coverage, figures.majority):
        figure = draw(results)
        assert len(figure.axes[0].lines) == len(arms)
