"""RLFH's figures and tokens with their rewards, drawn from made-up results."""

import re

import pytest
from drawings import (
    heights,
    none_left_open,  # noqa: F401
    segments,
    with_metrics,
)

from factkit.papers.rlfh import figures as draw

METRICS = {
    "factual_precision": 0.5,
    "factscore_response_rate": 0.9,
    "correct_claims": 2.0,
    "incorrect_claims": 1.0,
}


def test_granularity_has_a_bar_an_arm_and_the_papers_scaled_to_our_base_policy():
    groups = {
        arm: [with_metrics(arm, METRICS, n, n / 50) for n in (0, 1, 2)]
        for arm in ("base", "statement")
    }
    rates, counts = draw.granularity(groups).axes
    assert heights(rates) == [pytest.approx([0.52, 0.92])] * 2
    assert heights(counts) == [pytest.approx([2.02, 1.02])] * 2
    label = "paper (7B, HotpotQA)"
    shares = [y for _, y in segments(rates, label)]
    assert shares == pytest.approx([0.569, 0.655, 0.91, 0.645], abs=1e-3)
    scale = 3.04 / (7.430 + 6.320)  # our base policy makes 2.02 + 1.02
    stated = [y for _, y in segments(counts, label)]
    by_hand = [7.430, 13.05, 6.320, 8.304]
    assert stated == pytest.approx([scale * n for n in by_hand])


def test_tokens_with_a_reward_show_its_number_and_no_feedback_is_no_reward_of_zero():
    rewarded = ("Who <?", ["He", " <b>", " 1901"], [0, 4.0, -2.123])
    html = draw.token_reward_rows([rewarded, ("q", ["a"], None)]).to_html()
    assert "Who &lt;?" in html and " &lt;b&gt;" in html
    for number in ("+4.00", "−2.12", "+1.88", "annotator failed"):
        assert number in html
    gain, loss = re.findall(r'<span style="[^"]*(#\w{6})', html)
    assert gain != loss
