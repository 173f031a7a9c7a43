"""RLFH's figures and tokens with their rewards, drawn from made-up responses."""

import warnings
from html.parser import HTMLParser

import numpy as np
import pytest
from drawings import (
    bar_groups,
    legend,
    named,
    none_left_open,  # noqa: F401
    texts,
    ticks,
    with_metrics,
    without,
)

from factkit.evaluate.long_form import Checked
from factkit.figures import tables
from factkit.rlfh import figures as draw
from factkit.rlfh.arms import ARMS
from factkit.rlfh.token_view import token_reward_rows, token_rewards
from factkit.verify.claims import Claim, Support

RLFH_ARMS = tuple(ARMS)

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE


def answer(correct=0, wrong=0, unsure=0, failed=0):
    supports = [YES] * correct + [NO] * wrong + [OPEN] * unsure + [None] * failed
    claims = [Claim(f"claim {i}", "It is.") for i in range(len(supports))]
    return Checked("i", "p", "It is.", claims, supports)


SILENT = answer()
FAILED = Checked("i", "p", "It is.", None, [])
DRAWN = (
    draw.accuracy_change,
    draw.accuracy_and_statements,
    draw.statement_counts,
    draw.statements_by_accuracy,
    draw.refusals,
)


@pytest.mark.parametrize("function", DRAWN)
def test_figures_are_drawn_without_warnings_and_say_where_nobody_responds(function):
    silent = [SILENT, FAILED]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of other tests
        for before, after in (
            ([answer(2, 1), answer(3)], silent),
            (silent, [answer(1), answer(0, 2)]),
            (silent, silent),
            ([], []),
        ):
            figure = function(before, after)
            figure.draw_without_rendering()
            assert all(ax.get_ylabel() for ax in figure.axes)
    shown = [text for ax in figure.axes for text in (*texts(ax), *named(ax))]
    shown += [ax.get_title(loc="left") for ax in figure.axes]
    assert any("no responding answers" in text for text in shown)


# Fig 4


def changes(before, after):
    """Left edge of the bin in per cent → percentage points, where they are not 0."""
    (ax,) = draw.accuracy_change(before, after).axes
    middles = {b.get_x() + b.get_width() / 2: b.get_height() for b in ax.patches}
    return {round(100 * x - 5): round(y, 9) for x, y in middles.items() if y}


def test_the_change_of_accuracy_is_of_shares_among_those_that_respond():
    before = [answer(0, 2), answer(1, 1), answer(1, 1), answer(4)]
    after = [SILENT, FAILED, answer(3), answer(1, 1)]
    assert changes(before, after) == {0: -0.25, 90: 0.25}
    (ax,) = draw.accuracy_change(before, after).axes
    assert ax.get_title(loc="left") == "Responding answers: 4 before, 2 after"
    # whose verification failed counts for nothing
    assert changes([answer(1, 1)], [answer(1, failed=3)]) == {50: -1, 90: 1}


def test_an_accuracy_on_an_edge_is_in_the_bin_that_it_begins():
    after = [answer(i, 10 - i) for i in range(1, 10)]
    expected = dict.fromkeys(range(10, 90, 10), 1 / 9) | {90: 1 / 9 - 1}
    assert changes([answer(10)] * 9, after) == pytest.approx(expected)


# Fig 5


def meshes(figure):
    return [np.asarray(ax.collections[0].get_array()) for ax in figure.axes[:2]]


def test_the_joint_distribution_has_the_share_of_each_cell_on_one_scale():
    before = [answer(0, 1), answer(0, 1), answer(1, 2), answer(3)]
    figure = draw.accuracy_and_statements(before, [answer(3), SILENT])
    old, new = meshes(figure)
    assert old.shape == new.shape == (3, 10)  # 1 to 3 statements, tenths
    cells = [{(y, x): m[y, x] for y, x in np.argwhere(m)} for m in (old, new)]
    assert cells == [{(0, 0): 0.5, (2, 3): 0.25, (2, 9): 0.25}, {(2, 9): 1}]
    assert {ax.collections[0].get_clim() for ax in figure.axes[:2]} == {(0, 1)}
    titles = [ax.get_title(loc="left") for ax in figure.axes[:2]]
    assert titles == ["Before: 4 responding answers", "After: 1 responding answers"]


def test_a_few_very_long_answers_do_not_squash_the_others():
    rows = [answer(i % 4, 1) for i in range(200)] + [answer(900)]
    figure = draw.accuracy_and_statements(rows, rows)
    (mesh, _) = meshes(figure)
    assert mesh.shape == (4, 10)
    assert mesh.sum() == pytest.approx(1)
    assert figure.axes[0].get_ylabel().endswith("(last: 4 or more)")


# Fig 6


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


def test_every_answer_is_in_one_bin_whatever_its_number_of_statements():
    for most in (0, 1, 7, 60, 5000):
        rows = [answer(i % (most + 1), 1) for i in range(300)] + [answer(most)] * 2
        counted = 302 if most else 300  # an answer without statements is none
        for ax in draw.statement_counts(rows, rows).axes:
            assert f"(n = {counted})" in named(ax)[0]
            for patch in ax.patches:
                values, edges, _ = patch.get_data()
                assert values.sum() == pytest.approx(1)
                assert len(values) <= 20
                assert set(edges % 1) == {0.5}  # between two numbers


# Fig 7


def test_statements_by_accuracy_have_boxes_before_and_after_where_there_are_answers():
    before = [answer(0, 2), answer(0, 4), answer(0, 9), answer(2, 2), SILENT]
    after = [SILENT, answer(1, 5), FAILED, answer(3, 3), answer(7)]
    (ax,) = draw.statements_by_accuracy(before, after).axes
    medians = [line for line in ax.lines if line.get_linewidth() == 2]
    places = [round(float(np.mean(line.get_xdata())), 3) for line in medians]
    found = zip(places, (float(line.get_ydata()[0]) for line in medians), strict=True)
    assert sorted(found) == [(-0.2, 4), (0.2, 6), (1.8, 4), (2.2, 6), (4.2, 7)]
    assert ticks(ax.xaxis) == [
        "0–20\nn = 3; 1",
        "20–40\nn = 0; 0",
        "40–60\nn = 1; 1",
        "60–80\nn = 0; 0",
        "80–100\nn = 0; 1",
    ]
    assert named(ax) == ["before", "after"]


# Fig 8


def test_refusals_are_shares_of_the_questions_of_each_accuracy_before():
    before = [answer(0, 1)] * 4 + [answer(1, 1)] * 2 + [answer(2)] * 5 + [SILENT]
    after = [SILENT] * 3 + [answer(1)] + [SILENT, FAILED] + [answer(1)] * 5 + [SILENT]
    (ax,) = draw.refusals(before, after).axes
    heights = {round(b.get_x() + b.get_width() / 2): b.get_height() for b in ax.patches}
    assert heights == {0: 0.75, 2: 1.0, 4: 0.0}
    assert texts(ax) == ["n = 4", "n = 0", "n = 1", "n = 0", "n = 5"]
    assert ax.get_title(loc="left") == "10 questions, all answered before"


def test_refusals_have_wilson_intervals_below_their_n():
    rows = [answer(0, 1)] * 10
    (ax,) = draw.refusals(rows, [SILENT] * 5 + [answer(1)] * 5).axes
    (line,) = bar_groups(ax)[0].errorbar[2]
    (low, high) = line.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert ax.texts[0].xy == (0, pytest.approx(high))
    assert ax.get_ylim()[1] > high


# Runs

METRICS = {
    "factual_precision": 0.5,
    "factscore_response_rate": 0.9,
    "correct_claims": 2.0,
    "incorrect_claims": 1.0,
}


def result(arm, seed=0, shift=0.0):
    return with_metrics(arm, METRICS, seed, shift)


@pytest.fixture
def results():
    """Three seeds an arm, not in the paper's order; each arm 0.01 above the last."""
    return [
        result(arm, seed, i / 100 + seed / 50)
        for i, arm in enumerate(RLFH_ARMS)
        for seed in (0, 1, 2)
    ][::-1]


def ours(ax):
    """Row → mean."""
    marks = [c.lines[0] for c in ax.containers]
    return {round(m.get_ydata()[0] + 0.18): float(m.get_xdata()[0]) for m in marks}


def papers(ax):
    """Row → the paper's value."""
    (line,) = [ln for ln in ax.lines if ln.get_label().startswith("paper")]
    assert line.get_markerfacecolor() == "white"
    places = [round(y - 0.18) for y in line.get_ydata()]
    return dict(zip(places, map(float, line.get_xdata()), strict=True))


def test_granularity_has_a_row_an_arm_with_means_over_seeds(results):
    figure = draw.granularity(results)
    names = [f"{arm.replace('_', ' ')} (3 seeds)" for arm in RLFH_ARMS]
    assert ticks(figure.axes[0].yaxis) == names
    assert figure.axes[0].yaxis_inverted()
    for ax, value in zip(figure.axes, METRICS.values(), strict=True):
        expected = {i: value + i / 100 + 0.02 for i in range(len(RLFH_ARMS))}
        assert ours(ax) == pytest.approx(expected)
        assert ax.get_xlabel()


def test_the_papers_marks_are_of_the_arms_that_it_has(results):
    figure = draw.granularity(results)
    printed = tables.published(2, "rlfh").set_index("arm")
    first = tables.published(1, "rlfh").set_index(["model", "arm"]).loc["Vicuna-7B"]
    for ax, name in zip(figure.axes, ("precision", "response_rate"), strict=False):
        stated = {a: printed.at[a, name] for a in printed.index}
        stated |= {a: first.at[a, f"hotpotqa_{name}"] for a in ("base", "dpo")}
        rows = {RLFH_ARMS.index(a): value / 100 for a, value in stated.items()}
        assert papers(ax) == pytest.approx(rows)


def test_the_papers_statements_are_scaled_to_our_base_policy(results):
    correct, incorrect = draw.granularity(results).axes[2:]
    scale = 3.04 / (7.430 + 6.320)  # our base policy makes 2.02 + 1.02
    row = RLFH_ARMS.index("statement")
    assert papers(correct)[row] == pytest.approx(13.05 * scale)
    assert papers(incorrect)[row] == pytest.approx(8.304 * scale)
    assert papers(correct)[0] + papers(incorrect)[0] == pytest.approx(3.04)


def test_without_our_base_policy_the_papers_statements_are_left_out():
    figure = draw.granularity([result("paragraph"), result("statement")])
    assert papers(figure.axes[0]) == pytest.approx({0: 0.639, 1: 0.655})
    assert papers(figure.axes[2]) == papers(figure.axes[3]) == {}
    assert "paper (7B, HotpotQA)" in legend(figure)
    assert ticks(figure.axes[0].yaxis) == ["paragraph (1 seed)", "statement (1 seed)"]


def test_an_arm_that_never_responds_has_no_factscore_and_keeps_its_row():
    silent = without(result("dpo"), "factual_precision")
    figure = draw.granularity([result("base"), silent])
    assert ours(figure.axes[0]) == {0: 0.5}
    assert ours(figure.axes[1]) == {0: 0.9, 1: 0.9}
    assert texts(draw.granularity([]).axes[0]) == ["no results"]


# Tokens


class Page(HTMLParser):
    """A page's text without the numbers above, its coloured parts, tags and cells."""

    def __init__(self, html):
        super().__init__()
        self.text, self.tags, self.attributes, self.cells = "", [], [], []
        self.parts, self._open = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        self._open.append(tag)
        if tag == "td":
            self.cells.append("")
        if tag == "span":
            colour = dict(attrs)["style"].split(": ")[1].split(";")[0]
            self.parts.append(["", "", colour, dict(attrs)["title"]])

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "span" in self._open:
            self.parts[-1]["sup" in self._open] += data
        if "sup" not in self._open:
            self.text += data
            if "td" in self._open:
                self.cells[-1] += data


def page(*arguments):
    return Page(token_rewards(*arguments).data)


def test_tokens_with_a_reward_have_its_number_and_exactly_its_value():
    tokens = ["He", " cooked", ",", " 1901", ".", "!", ""]
    rewards = [0.0, 1.0, 0.0, -2.123456, 0.5625, -0.0042, 3.0]
    view = page(tokens, np.array(rewards))
    assert view.text == "He cooked, 1901.!"
    assert [(text, number, title) for text, number, _, title in view.parts] == [
        (" cooked", "+1.00", "1.0"),
        (" 1901", "−2.12", "-2.123456"),
        (".", "+0.56", "0.5625"),
        ("!", "−0.004", "-0.0042"),
        ("", "+3.00", "3.0"),
    ]
    with pytest.raises(ValueError):
        token_rewards(["a"], [1.0, 2.0])


def test_rewards_are_blue_and_losses_orange_the_larger_the_darker():
    parts = page(list("abcdef"), [1.0, 2.0, 4.0, -1.0, -2.0, -4.0]).parts
    colours = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for _, _, c, _ in parts]
    assert all(red < blue for red, _, blue in colours[:3])
    assert all(red > blue for red, _, blue in colours[3:])
    for three in (colours[:3], colours[3:]):
        sums = [sum(channels) for channels in three]
        assert sums == sorted(sums, reverse=True) and len(set(sums)) == 3


def test_no_character_of_a_response_is_lost_or_run():
    for tokens in (
        ["One", ".\n\n", "- two", "\n", "\tthree ", " "],
        ['<script>alert("x")</script>', "&amp;", "<", "b>"],
        ['"', "' onclick='x", "$a$", "é", "日本"],
        ["", "", ""],
        [],
    ):
        for reward in (0.0, 1.5):
            view = page(tokens, [reward] * len(tokens))
            assert view.text == "".join(tokens)
            assert set(view.tags) <= {"div", "span", "sup"}
            names = {name for attributes in view.attributes for name in attributes}
            assert not names - {"style", "class", "title"}
            assert len(view.parts) == (len(tokens) if reward else 0)
    html = token_rewards(["a\n", "b"], [0.0, 1.0]).data
    assert "white-space: pre-wrap" in html and "<style" not in html


def test_a_response_without_feedback_is_not_one_of_reward_zero():
    view = page(["a", " b"], None)
    assert view.text.startswith("a b") and "annotator failed" in view.text
    rows = Page(token_reward_rows([("q", ["a"], None), ("r", ["a"], [0.0])]).data)
    assert (rows.cells[2], rows.cells[5]) == ("–", "0")


def test_rows_end_with_the_sum_and_say_a_prompt_once():
    rows = [
        ("Who <?", ["He", " cooked"], [-1.5, -0.566]),
        ("Who <?", ["I pass."], [0.0]),
        ("Where?", ["Here", "."], [0.1, 0.2]),
    ]
    view = Page(token_reward_rows(rows).data)
    cells = [view.cells[i : i + 3] for i in range(0, 9, 3)]
    assert cells == [
        ["Who <?", "He cooked", "−2.07"],
        ["", "I pass.", "0"],
        ["Where?", "Here.", "+0.30"],
    ]
    assert Page(token_reward_rows([]).data).cells == []


def test_rows_have_one_scale_of_colours():
    rows = [("p", ["a", "b"], [4.0, 1.0]), ("q", ["c"], [1.0])]
    parts = Page(token_reward_rows(rows).data).parts
    strongest, weak, other = [colour for _, _, colour, _ in parts]
    assert strongest == page(["a"], [4.0]).parts[0][2] != weak == other
