"""RLFH's figures and tokens with their rewards, drawn from made-up responses."""

import re

import pytest
from drawings import (
    bar_groups,
    heights,
    named,
    none_left_open,  # noqa: F401
    segments,
    texts,
    ticks,
    with_metrics,
)

from factkit.evaluate.long_form import Checked
from factkit.rlfh import figures as draw
from factkit.rlfh import token_view
from factkit.verify.claims import Claim, Support

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE


def answer(correct=0, wrong=0, unsure=0, failed=0):
    supports = [YES] * correct + [NO] * wrong + [OPEN] * unsure + [None] * failed
    claims = [Claim(f"claim {i}", "It is.") for i in range(len(supports))]
    return Checked("i", "p", "It is.", claims, supports)


SILENT = answer()
FAILED = Checked("i", "p", "It is.", None, [])


def changes(before, after):
    """Left edge of the bin in per cent → percentage points, where they are not 0."""
    (ax,) = draw.accuracy_change(before, after).axes
    middles = {b.get_x() + b.get_width() / 2: b.get_height() for b in ax.patches}
    return {round(100 * x - 5): round(y, 9) for x, y in middles.items() if y}


def test_the_change_of_accuracy_is_of_shares_among_those_that_respond():
    before = [answer(0, 2), answer(1, 1), answer(1, 1), answer(4)]
    after = [SILENT, FAILED, answer(3), answer(1, 1)]
    assert changes(before, after) == {0: -0.25, 90: 0.25}
    # an accuracy on an edge is in the bin that it begins
    after = [answer(i, 10 - i) for i in range(1, 10)]
    expected = dict.fromkeys(range(10, 90, 10), 1 / 9) | {90: 1 / 9 - 1}
    assert changes([answer(10)] * 9, after) == pytest.approx(expected)


def steps(ax):
    """Of before and after: number of statements → share."""
    patches = [patch.get_data() for patch in ax.patches]
    return [
        {int(edge + 0.5): v for v, edge in zip(values, edges, strict=False) if v}
        for values, edges, _ in patches
    ]


def test_statements_are_counted_by_whether_the_evidence_supports_them():
    before = [answer(2, 1), answer(2, 0, 1), answer(0, 2), SILENT]
    after = [answer(1), answer(3, 1), SILENT, FAILED]
    figure = draw.statement_counts(before, after)
    expected = (
        [{2: 1 / 3, 3: 2 / 3}, {1: 0.5, 4: 0.5}],
        [{0: 1 / 3, 2: 2 / 3}, {1: 0.5, 3: 0.5}],
        [{1: 2 / 3, 2: 1 / 3}, {0: 0.5, 1: 0.5}],
    )
    for ax, shares in zip(figure.axes, expected, strict=True):
        assert steps(ax) == [pytest.approx(share) for share in shares]
    means = ["before: mean 2.7 (n = 3)", "after: mean 2.5 (n = 2)"]
    assert named(figure.axes[0]) == means


def test_refusals_are_shares_of_the_questions_of_each_accuracy_before():
    before = [answer(0, 1)] * 10 + [answer(1, 1)] * 2 + [answer(2)] * 5 + [SILENT]
    after = [SILENT] * 5 + [answer(1)] * 5 + [SILENT, FAILED]
    (ax,) = draw.refusals(before, after + [answer(1)] * 5 + [SILENT]).axes
    bars = {round(b.get_x() + b.get_width() / 2): b.get_height() for b in ax.patches}
    assert bars == {0: 0.5, 2: 1.0, 4: 0.0}
    assert texts(ax) == ["n = 10", "n = 0", "n = 1", "n = 0", "n = 5"]
    assert ticks(ax.xaxis)[2] == "40–60"
    assert ax.get_title(loc="left") == "16 questions, all answered before"
    (line,) = bar_groups(ax)[0].errorbar[2]
    low, high = line.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((0.2366, 0.7634), abs=1e-4)  # Wilson's
    assert ax.texts[0].xy == (0, pytest.approx(high)) and ax.get_ylim()[1] > high


# Runs

METRICS = {
    "factual_precision": 0.5,
    "factscore_response_rate": 0.9,
    "correct_claims": 2.0,
    "incorrect_claims": 1.0,
}


def result(arm, seed=0, shift=0.0):
    return with_metrics(arm, METRICS, seed, shift)


def test_granularity_has_a_bar_an_arm_and_the_papers_scaled_to_our_base_policy():
    runs = [result(arm, n, n / 50) for arm in ("base", "statement") for n in (0, 1, 2)]
    rates, counts = draw.granularity(runs).axes
    assert heights(rates) == [pytest.approx([0.52, 0.92])] * 2
    assert heights(counts) == [pytest.approx([2.02, 1.02])] * 2
    label = "paper (7B, HotpotQA)"
    printed = [y for _, y in segments(rates, label)]
    assert printed == pytest.approx([0.569, 0.655, 0.91, 0.645], abs=1e-3)
    scale = 3.04 / (7.430 + 6.320)  # our base policy makes 2.02 + 1.02
    stated = [y for _, y in segments(counts, label)]
    by_hand = [7.430, 13.05, 6.320, 8.304]
    assert stated == pytest.approx([scale * n for n in by_hand])


# Tokens


def test_tokens_with_a_reward_show_its_number_and_no_feedback_is_no_reward_of_zero():
    rewarded = ("Who <?", ["He", " <b>", " 1901"], [0, 4.0, -2.123])
    html = token_view.token_reward_rows([rewarded, ("q", ["a"], None)]).to_html()
    assert "Who &lt;?" in html and " &lt;b&gt;" in html
    for number in ("+4.00", "−2.12", "+1.88", "annotator failed"):
        assert number in html
    gain, loss = re.findall(r'<span style="[^"]*(#\w{6})', html)
    assert gain != loss
