"""Binary RAR's figures and coloured answers, drawn from made-up results."""

import re
from html import escape

import pytest
from drawings import (
    bar_groups,
    heights,
    named,
    none_left_open,  # noqa: F401
    points,
    segments,
    texts,
    ticks,
    with_metrics,
    without,
)

from factkit.answers.long_form import CheckedResponse
from factkit.papers.rar import figures as draw
from factkit.papers.rar.arms import ARMS
from factkit.report.figures import run_panels
from factkit.verify.claims import Claim, Support

RAR_ARMS = tuple(ARMS)

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE
COLOURS = {YES: run_panels.BLUE, OPEN: run_panels.GREY, NO: run_panels.RED}


# Answers in the colours of their claims


def answer(response, *claims):
    """A checked answer; claims: (sentence, support)."""
    made = [Claim(f"claim {i}", sentence) for i, (sentence, _) in enumerate(claims)]
    return CheckedResponse("i", "p", response, made, [support for _, support in claims])


EVIL = '<script>alert("x")</script>'


def test_the_table_colours_sentences_by_their_worst_claim_and_runs_no_script():
    before = answer(f"One. Two. {EVIL} Four. One.", ("One.", YES), ("Two.", NO))
    claims = [("Two & three.", OPEN), ("Two & three.", YES), ("One.", None)]
    after = answer("Two & three. One.", *claims)
    page = run_panels.claim_colours([(f"Who? {EVIL}", before, after)]).to_html()
    assert "<script" not in page and page.count(escape(EVIL)) == 2
    assert re.findall(r'<span style="(.*?)">(.*?)</span>', page) == [
        (COLOURS[YES], "One."),
        (COLOURS[NO], "Two."),
        (COLOURS[YES], "One."),
        (COLOURS[OPEN], "Two &amp; three."),
    ]


# Figures

RATES = {
    "hallucination_rate": 0.4,
    "format_following": 0.8,
    "win_rate": 0.6,
    "correct_claims_per_question": 2.0,
    "incorrect_claims_per_question": 1.0,
}


def result(arm, seed=0, shift=0.0, **more):
    dev = {f"dev_{s}_{n}": v for s in ("base", 120, 30) for n, v in RATES.items()}
    return with_metrics(arm, RATES, seed, shift, **dev | more)


@pytest.fixture
def results():
    return [result(arm, seed, seed / 50) for arm in RAR_ARMS for seed in (0, 1, 2)]


def test_the_trade_off_has_a_mark_an_arm_at_its_means(results):
    (ax,) = draw.trade_off(results).axes
    # the means of shifts 0, 0.02 and 0.04
    names = [arm.replace("_", " ") for arm in RAR_ARMS]
    assert points(ax) == dict.fromkeys(names, pytest.approx((0.42, 0.62)))
    assert all(high - low >= 0.05 for low, high in (ax.get_xlim(), ax.get_ylim()))


def test_claims_are_stacked_beside_the_papers_scaled_to_our_base(results):
    (ax,) = draw.claims(results).axes
    assert [t.split() for t in ticks(ax.xaxis)] == [a.split("_") for a in RAR_ARMS]
    assert heights(ax)[0] == pytest.approx([2.02] * len(RAR_ARMS))
    assert [bar.get_y() for bar in bar_groups(ax)[1]] == pytest.approx(heights(ax)[0])
    # of the paper's 30 claims 8.8 were correct; our base policy makes 3.04
    expected = [(RAR_ARMS.index("base"), n) for n in (8.8, 30.0)]
    expected += [(RAR_ARMS.index("binary_rar"), n) for n in (8.6, 13.6)]
    marks = segments(ax, "paper, scaled to the base policy's total")
    assert marks == [(x, pytest.approx(3.04 * n / 30)) for x, n in expected]
    (ax,) = draw.claims([result("base"), result("sft")]).axes
    assert named(ax) == ["correct", "other"]


def test_a_trajectory_runs_from_the_base_policy_to_the_last_step():
    lacking = without(result("binary_rar"), "30_hallucination_rate")
    first = result("binary_rar", dev_30_win_rate=0.1)
    figure = draw.trajectories(
        {"one": {"a": first}, "other": {"a": first, "b": lacking}}
    )
    one, other = figure.axes
    assert (one.get_title(), named(other)) == ("one", ["a", "b"])
    assert texts(one) == ["base", "30", "120"]
    assert list(one.lines[0].get_ydata()) == [0.6, 0.1, 0.6]
    # at step 30 nobody responded
    assert texts(other)[3:] == ["base", "120"]
    # of those at one place the first is written
    assert [t.get_visible() for t in other.texts] == [True] * 2 + [False] * 3
