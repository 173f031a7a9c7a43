"""RLFH's figures and tokens with their rewards, drawn from made-up responses."""

import warnings
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from factkit.evaluate.long_form import Checked
from factkit.figures import rlfh as draw
from factkit.figures import tables
from factkit.figures.token_view import token_reward_rows, token_rewards
from factkit.rlfh.arms import ARMS
from factkit.verify.claims import Claim, Support

RLFH_ARMS = tuple(ARMS)

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE


@pytest.fixture(autouse=True)
def none_left_open():
    """A figure that pyplot still knows is shown twice in a notebook."""
    yield
    assert plt.get_fignums() == []


def answer(correct=0, wrong=0, unsure=0, failed=0):
    supports = [YES] * correct + [NO] * wrong + [OPEN] * unsure + [None] * failed
    claims = [Claim(f"claim {i}", "It is.") for i in range(len(supports))]
    return Checked("i", "p", "It is.", claims, supports)


SILENT = answer()
FAILED = Checked("i", "p", "It is.", None, [])


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def named(ax):
    return ax.get_legend_handles_labels()[1]


def said(ax):
    return [text.get_text() for text in ax.texts]


def bar_groups(ax):
    return [c for c in ax.containers if hasattr(c, "patches")]


DRAWN = (
    draw.accuracy_change,
    draw.accuracy_and_statements,
    draw.statement_counts,
    draw.statements_by_accuracy,
    draw.refusals,
)


@pytest.mark.parametrize("function", DRAWN)
@pytest.mark.parametrize("after", [[SILENT, FAILED], [answer(1), answer(0, 2)]])
@pytest.mark.parametrize("before", [[SILENT, FAILED], [answer(2, 1), answer(3)]])
def test_figures_are_drawn_without_warnings_where_nobody_responds(
    function, before, after
):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of other tests
        figure = function(before, after)
        figure.draw_without_rendering()
    assert all(ax.get_ylabel() for ax in figure.axes)


@pytest.mark.parametrize("function", DRAWN)
def test_figures_of_no_responses_say_so(function):
    figure = function([], [])
    texts = [t for ax in figure.axes for t in (*said(ax), *named(ax))]
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert any("no responding answers" in text for text in (*texts, *titles))


# Fig 4


def changes(ax):
    """Left edge of the bin in per cent → percentage points."""
    return {
        round(100 * (bar.get_x() + bar.get_width() / 2) - 5): bar.get_height()
        for bar in ax.patches
    }


def test_the_change_of_accuracy_is_of_shares_among_those_that_respond():
    before = [answer(0, 2), answer(1, 1), answer(1, 1), answer(4)]
    after = [SILENT, FAILED, answer(3), answer(1, 1)]
    (ax,) = draw.accuracy_change(before, after).axes
    expected = dict.fromkeys(range(0, 100, 10), 0.0)
    expected |= {0: -0.25, 50: 0.0, 90: 0.25}
    assert changes(ax) == pytest.approx(expected)
    assert ax.get_title(loc="left") == "Responding answers: 4 before, 2 after"


def test_an_accuracy_on_an_edge_is_in_the_bin_that_it_begins():
    before = [answer(10)] * 9
    after = [answer(i, 10 - i) for i in range(1, 10)]
    (ax,) = draw.accuracy_change(before, after).axes
    expected = dict.fromkeys(range(10, 90, 10), 1 / 9)
    assert changes(ax) == pytest.approx(expected | {0: 0.0, 90: 1 / 9 - 1})


def test_the_change_of_accuracy_can_have_other_bins():
    rows = [answer(1, 3)], [answer(3, 1)]
    (ax,) = draw.accuracy_change(*rows, edges=(0.0, 0.5, 1.0)).axes
    assert [bar.get_height() for bar in ax.patches] == [-1, 1]


def test_a_claim_whose_verification_failed_counts_for_nothing():
    rows = [answer(1, 1)], [answer(1, failed=3)]
    (ax,) = draw.accuracy_change(*rows).axes
    assert (changes(ax)[50], changes(ax)[90]) == (-1, 1)


# Fig 5


def meshes(figure):
    return [ax.collections[0] for ax in figure.axes[:2]]


def test_the_joint_distribution_has_the_share_of_each_cell_on_one_scale():
    before = [answer(0, 1), answer(0, 1), answer(1, 2), answer(3)]
    after = [answer(3), SILENT]
    figure = draw.accuracy_and_statements(before, after)
    old, new = (np.asarray(mesh.get_array()) for mesh in meshes(figure))
    assert old.shape == new.shape == (3, 10)  # 1 to 3 statements, tenths
    assert {(y, x): old[y, x] for y, x in np.argwhere(old)} == {
        (0, 0): 0.5,
        (2, 3): 0.25,
        (2, 9): 0.25,
    }
    assert {(y, x): new[y, x] for y, x in np.argwhere(new)} == {(2, 9): 1}
    assert {mesh.get_clim() for mesh in meshes(figure)} == {(0, 1)}
    titles = [ax.get_title(loc="left") for ax in figure.axes[:2]]
    assert titles == ["Before: 4 responding answers", "After: 1 responding answers"]


def test_a_few_very_long_answers_do_not_squash_the_others():
    rows = [answer(i % 4, 1) for i in range(200)] + [answer(900)]
    figure = draw.accuracy_and_statements(rows, rows)
    (mesh, _) = meshes(figure)
    assert np.asarray(mesh.get_array()).shape == (4, 10)
    assert np.asarray(mesh.get_array()).sum() == pytest.approx(1)
    assert figure.axes[0].get_ylabel().endswith("(last: 4 or more)")


# Fig 6


def steps(ax):
    """Of before and after: number of statements → share."""
    return [
        {
            int(edge + 0.5): float(value)
            for value, edge in zip(values, edges[:-1], strict=True)
            if value
        }
        for values, edges, _ in (patch.get_data() for patch in ax.patches)
    ]


def test_statements_are_counted_by_whether_the_evidence_supports_them():
    before = [answer(2, 1), answer(2, 0, 1), answer(0, 2), SILENT]
    after = [answer(1), answer(3, 1), SILENT, FAILED]
    figure = draw.statement_counts(before, after)
    third = pytest.approx(1 / 3)
    expected = (
        [{2: third, 3: pytest.approx(2 / 3)}, {1: 0.5, 4: 0.5}],
        [{0: third, 2: pytest.approx(2 / 3)}, {1: 0.5, 3: 0.5}],
        [{1: pytest.approx(2 / 3), 2: third}, {0: 0.5, 1: 0.5}],
    )
    for ax, shares in zip(figure.axes, expected, strict=True):
        assert steps(ax) == shares
    assert named(figure.axes[0]) == [
        "before: mean 2.7 (n = 3)",
        "after: mean 2.5 (n = 2)",
    ]
    assert named(figure.axes[2])[1] == "after: mean 0.5 (n = 2)"


@pytest.mark.parametrize("most", [0, 1, 7, 60, 5000])
def test_every_answer_is_in_one_bin_whatever_its_number_of_statements(most):
    rows = [answer(i % (most + 1), 1) for i in range(300)] + [answer(most)] * 2
    figure = draw.statement_counts(rows, rows)
    counted = 302 if most else 300  # an answer without statements is none
    for ax in figure.axes:
        for patch in ax.patches:
            values, edges, _ = patch.get_data()
            assert values.sum() == pytest.approx(1)
            assert len(values) <= 20
            assert set(edges % 1) == {0.5}  # between two numbers
        assert f"(n = {counted})" in named(ax)[0]


# Fig 7


def medians(ax):
    """(place of the box, median), from left to right."""
    return sorted(
        (round(float(np.mean(line.get_xdata())), 3), float(line.get_ydata()[0]))
        for line in ax.lines
        if line.get_linewidth() == 2
    )


def test_statements_by_accuracy_have_boxes_before_and_after_where_there_are_answers():
    before = [answer(0, 2), answer(0, 4), answer(0, 9), answer(2, 2), SILENT]
    after = [SILENT, answer(1, 5), FAILED, answer(3, 3), answer(7)]
    (ax,) = draw.statements_by_accuracy(before, after).axes
    assert medians(ax) == [(-0.2, 4), (0.2, 6), (1.8, 4), (2.2, 6), (4.2, 7)]
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
    assert said(ax) == ["n = 4", "n = 0", "n = 1", "n = 0", "n = 5"]
    assert ax.get_title(loc="left") == "10 questions, all answered before"


def test_refusals_have_wilson_intervals_below_their_n():
    rows = [answer(0, 1)] * 10
    (ax,) = draw.refusals(rows, [SILENT] * 5 + [answer(1)] * 5).axes
    (bar,) = bar_groups(ax)
    (line,) = bar.errorbar[2]
    (low, high) = line.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert ax.texts[0].xy == (0, pytest.approx(high))
    assert ax.get_ylim()[1] > high


def solved(k, n):
    """The interval as the p where |k/n − p| = 1.96 √(p (1 − p) / n)."""
    z2 = 1.96**2
    roots = np.roots([n * n + n * z2, -2 * k * n - n * z2, k * k])
    return sorted(roots.real)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 10), (3, 7), (999, 1000)])
def test_the_wilson_interval_solves_its_equation(k, n):
    low, high = draw.wilson(k, n)
    assert (low, high) == pytest.approx(solved(k, n), abs=1e-7)
    assert 0 <= low <= k / n <= high <= 1


def test_of_no_question_every_share_is_possible():
    assert draw.wilson(0, 0) == (0, 1)


# Runs

METRICS = {
    "factual_precision": 0.5,
    "factscore_response_rate": 0.9,
    "correct_claims": 2.0,
    "incorrect_claims": 1.0,
}


def result(arm, seed=0, shift=0.0, prefix=""):
    metrics = {f"{prefix}{name}": value + shift for name, value in METRICS.items()}
    return {"arm": arm, "seed": seed, "metrics": metrics, "params": {}}


def without(found, *names):
    kept = {k: v for k, v in found["metrics"].items() if k not in names}
    return found | {"metrics": kept}


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
    return {
        round(float(c.lines[0].get_ydata()[0]) + 0.18): float(c.lines[0].get_xdata()[0])
        for c in ax.containers
    }


def papers(ax):
    """Row → the paper's value."""
    (line,) = [ln for ln in ax.lines if ln.get_label().startswith("paper")]
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


def test_granularity_has_intervals_over_seeds_and_none_of_one(results):
    # t of 2 degrees of freedom, and 0.02 the deviation of 0, 0.02 and 0.04
    half = 4.302653 * 0.02 / 3**0.5
    for container in draw.granularity(results).axes[0].containers:
        (bar,) = container.lines[2]
        (left, right) = bar.get_segments()[0][:, 0]
        assert right - left == pytest.approx(2 * half)
    figure = draw.granularity([result("sentence")])
    assert figure.axes[0].containers[0].lines[2] == ()
    assert ticks(figure.axes[0].yaxis) == ["sentence (1 seed)"]


def test_the_papers_marks_are_hollow_and_of_the_arms_that_it_has(results):
    figure = draw.granularity(results)
    printed = tables.published(2, "rlfh").set_index("arm")
    first = tables.published(1, "rlfh").set_index(["model", "arm"]).loc["Vicuna-7B"]
    for ax, name in zip(figure.axes, ("precision", "response_rate"), strict=False):
        stated = {a: printed.at[a, name] for a in printed.index}
        stated |= {a: first.at[a, f"hotpotqa_{name}"] for a in ("base", "dpo")}
        rows = {RLFH_ARMS.index(a): value / 100 for a, value in stated.items()}
        assert papers(ax) == pytest.approx(rows)
        assert RLFH_ARMS.index("statement_group") not in papers(ax)
        (line,) = [ln for ln in ax.lines if ln.get_label().startswith("paper")]
        assert line.get_markerfacecolor() == "white"


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
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(labels) == [
        "here: mean over seeds, 95 % t interval",
        "paper (7B, HotpotQA)",
    ]


def test_an_arm_that_never_responds_has_no_factscore_and_keeps_its_row():
    silent = without(result("dpo"), "factual_precision")
    figure = draw.granularity([result("base"), silent])
    assert ours(figure.axes[0]) == {0: 0.5}
    assert ours(figure.axes[1]) == {0: 0.9, 1: 0.9}


def test_granularity_can_be_of_one_evaluation_set():
    runs = [result("base", prefix="people_"), result("dpo", shift=1.0)]
    figure = draw.granularity(runs, prefix="people_")
    assert ours(figure.axes[2]) == {0: 2.0}
    assert set(papers(figure.axes[2])) == {0, 1}


def test_without_results_granularity_says_so():
    assert said(draw.granularity([]).axes[0]) == ["no results"]


def test_before_and_after_stand_beside_each_other_with_their_intervals():
    before = METRICS | {"response_rate": 0.9}
    after = {name: 2 * value for name, value in before.items()}
    spans = {"base": {}, "after": {"correct_claims": (3.0, 4.5)}}
    figure = draw.before_and_after(before, after, spans)
    values = list(METRICS.values())
    for ax, of in zip(figure.axes, (values[:2], values[2:]), strict=True):
        left, right = bar_groups(ax)
        assert [bar.get_height() for bar in left] == of
        assert [bar.get_height() for bar in right] == [2 * value for value in of]
        assert ax.get_ylabel()
    (line,) = bar_groups(figure.axes[1])[1].errorbar[2]
    assert [list(e[:, 1]) for e in line.get_segments()] == [[3, 4.5], [2, 2]]


KINDS = {
    "correct": [1.0, 2.0, 3.0],
    "hedged_correct": [0.5, 0.25, 0.5],
    "vague": [0.5, 0.0, 0.5],
    "hedged_wrong": [0.0, 0.5, 0.25],
    "wrong": [2.0, 1.0, 0.5],
}


@pytest.fixture
def curve():
    columns = {"step": [5, 10, 15], "reward": [-1.0, 0.5, 2.0]}
    columns |= {"responds": [1.0, 0.9, 0.8], "informativeness": [3.0, 4.0, 4.5]}
    return pd.DataFrame(columns | KINDS)


def test_a_learning_curve_shows_what_was_logged_by_step(curve):
    figure = draw.learning_curve(curve)
    for ax, column in zip(
        [figure.axes[i] for i in (0, 2, 3)],
        ("reward", "informativeness", "responds"),
        strict=True,
    ):
        (line,) = ax.lines
        assert list(line.get_xdata()) == [5, 10, 15]
        assert list(line.get_ydata()) == list(curve[column])
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes)


def test_statements_are_stacked_by_kind_from_correct_to_wrong(curve):
    ax = draw.learning_curve(curve).axes[1]
    assert named(ax) == ["correct", "hedged correct", "vague", "hedged wrong", "wrong"]
    tops = np.cumsum(list(KINDS.values()), axis=0)
    for area, top in zip(ax.collections, tops, strict=True):
        points = area.get_paths()[0].vertices
        for step, height in zip(curve.step, top, strict=True):
            assert points[points[:, 0] == step, 1].max() == pytest.approx(height)
    looks = {(str(a.get_facecolor()), a.get_hatch()) for a in ax.collections}
    assert len(looks) == len(KINDS)


def test_a_learning_curve_says_what_was_not_logged(curve):
    figure = draw.learning_curve(curve.drop(columns=["informativeness", "vague"]))
    assert said(figure.axes[2]) == ["not logged"]
    assert "vague" not in named(figure.axes[1])
    figure = draw.learning_curve(curve[["step", "reward"]])
    assert [said(ax) for ax in figure.axes] == [[], *[["not logged"]] * 3]


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


def page(*arguments, **named):
    return Page(token_rewards(*arguments, **named).data)


def test_tokens_with_a_reward_have_its_number_and_exactly_its_value():
    tokens = ["He", " cooked", ",", " 1901", "."]
    view = page(tokens, [0.0, 1.0, 0.0, -2.123456, 0.5625])
    assert view.text == "He cooked, 1901."
    assert [(text, number, title) for text, number, _, title in view.parts] == [
        (" cooked", "+1.00", "1.0"),
        (" 1901", "−2.12", "-2.123456"),
        (".", "+0.56", "0.5625"),
    ]


def channels(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def test_rewards_are_blue_and_losses_orange_the_larger_the_darker():
    rewards = [1.0, 2.0, 4.0, -1.0, -2.0, -4.0]
    colours = [channels(of) for _, _, of, _ in page(list("abcdef"), rewards).parts]
    assert all(red < blue for red, _, blue in colours[:3])
    assert all(red > blue for red, _, blue in colours[3:])
    for three in (colours[:3], colours[3:]):
        sums = [sum(of) for of in three]
        assert sums == sorted(sums, reverse=True) and len(set(sums)) == 3


@pytest.mark.parametrize(
    "tokens",
    [
        ["One", ".\n\n", "- two", "\n", "\tthree ", " "],
        ['<script>alert("x")</script>', "&amp;", "<", "b>"],
        ['"', "' onclick='x", "$a$", "é", "日本"],
        ["", "", ""],
        [],
    ],
)
@pytest.mark.parametrize("reward", [0.0, 1.5])
def test_no_character_of_a_response_is_lost_or_run(tokens, reward):
    view = page(tokens, [reward] * len(tokens))
    assert view.text == "".join(tokens)
    assert set(view.tags) <= {"div", "span", "sup"}
    assert not {k for of in view.attributes for k in of} - {"style", "class", "title"}
    assert len(view.parts) == (len(tokens) if reward else 0)


def test_line_breaks_are_kept_by_an_inline_style():
    html = token_rewards(["a\n", "b"], [0.0, 1.0]).data
    assert "white-space: pre-wrap" in html
    assert "<style" not in html


def test_a_title_stands_above_as_text():
    view = page(["a"], [0.0], title="Who <b>?")
    assert view.text == "Who <b>?\na"


def test_a_reward_on_a_token_without_characters_is_shown():
    view = page(["He cooked.", ""], [0.0, 3.0])
    assert view.parts[0][:2] == ["", "+3.00"]


def test_a_small_reward_is_not_shown_as_none():
    ((_, number, _, title),) = page(["a"], [-0.0042]).parts
    assert (number, title) == ("−0.004", "-0.0042")


def test_numpy_rewards_are_shown_as_plain_numbers():
    ((_, _, _, title),) = page(["a"], np.array([0.1])).parts
    assert title == "0.1"


def test_more_rewards_than_tokens_are_refused():
    with pytest.raises(ValueError):
        token_rewards(["a"], [1.0, 2.0])


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


def test_rows_have_one_scale_of_colours():
    rows = [("p", ["a", "b"], [4.0, 1.0]), ("q", ["c"], [1.0])]
    colours = [of for _, _, of, _ in Page(token_reward_rows(rows).data).parts]
    ((_, _, strongest, _),) = page(["a"], [4.0]).parts
    assert colours[0] == strongest != colours[1] == colours[2]


def test_no_rows_are_an_empty_table():
    assert Page(token_reward_rows([]).data).cells == []
