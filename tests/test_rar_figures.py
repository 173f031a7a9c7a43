"""Binary RAR's figures and coloured answers, drawn from made-up results."""

from html.parser import HTMLParser

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from factkit.evaluate.long_form import Checked
from factkit.figures import ARM_COLOURS, tables
from factkit.figures import rar as draw
from factkit.rar.arms import ARMS
from factkit.retrieval.evidence import Coverage
from factkit.verify.claims import Claim, Support

RAR_ARMS = tuple(ARMS)

YES, NO, OPEN = Support.SUPPORTED, Support.CONTRADICTED, Support.INCONCLUSIVE
COLOURS = {YES: "#cfe2f3", OPEN: "#eeeeee", NO: "#f9d5c3"}


@pytest.fixture(autouse=True)
def none_left_open():
    """A figure that pyplot still knows is shown twice in a notebook."""
    yield
    assert plt.get_fignums() == []


# Answers in the colours of their claims


class Spans(HTMLParser):
    """The text of a page, its coloured parts, and the tags that it opens."""

    def __init__(self, html):
        super().__init__()
        self.text, self.coloured, self.tags, self._open = "", [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        style = dict(attrs).get("style", "") if tag == "span" else ""
        self._open.append(style.removeprefix("background-color: "))

    def handle_endtag(self, tag):
        self._open.pop()

    def handle_data(self, data):
        self.text += data
        if colour := next((c for c in reversed(self._open) if c), None):
            self.coloured.append((data, colour))


def answer(response, *claims):
    """A checked answer; claims: (sentence, support)."""
    made = [Claim(f"claim {i}", sentence) for i, (sentence, _) in enumerate(claims)]
    return Checked("i", "p", response, made, [support for _, support in claims])


def coloured(row):
    page = Spans(tables._coloured(row))
    assert page.text == row.response  # nothing lost, nothing added
    return page.coloured


@pytest.mark.parametrize("support", list(Support))
def test_a_sentence_has_the_colour_of_its_support(support):
    row = answer("One. Two. Three.", ("Two.", support))
    assert coloured(row) == [("Two.", COLOURS[support])]


def test_each_sentence_has_its_own_colour():
    row = answer("One. Two. Three. Four.", ("One.", YES), ("Two.", NO), ("Four.", OPEN))
    assert coloured(row) == [
        ("One.", COLOURS[YES]),
        ("Two.", COLOURS[NO]),
        ("Four.", COLOURS[OPEN]),
    ]


@pytest.mark.parametrize(
    ("supports", "shown"),
    [
        ([YES, NO], NO),
        ([NO, YES], NO),
        ([OPEN, NO, YES], NO),
        ([YES, OPEN], OPEN),
        ([OPEN, YES], OPEN),
        ([None, YES], YES),
    ],
)
def test_a_sentence_of_several_claims_has_the_colour_of_the_worst(supports, shown):
    row = answer("One. Two.", *[("One.", support) for support in supports])
    assert coloured(row) == [("One.", COLOURS[shown])]


def test_reasoning_is_neither_shown_nor_coloured():
    row = answer("<think>One. Two.</think> Two. Three.", ("Two.", YES))
    page = Spans(tables._coloured(row))
    assert (page.text, page.coloured) == ("Two. Three.", [("Two.", COLOURS[YES])])


def test_a_claim_whose_verification_failed_has_no_colour():
    assert coloured(answer("One. Two.", ("One.", None), ("Two.", YES))) == [
        ("Two.", COLOURS[YES])
    ]


def test_an_answer_without_claims_or_whose_claims_failed_has_no_colour():
    for claims in ([], None):
        assert coloured(Checked("i", "p", "I don't know.", claims, [])) == []


def test_a_sentence_said_twice_is_coloured_twice():
    row = answer("One. Two. One.", ("One.", NO))
    assert coloured(row) == [("One.", COLOURS[NO])] * 2


@pytest.mark.parametrize("order", [1, -1])
def test_a_sentence_within_another_leaves_that_one_whole(order):
    claims = [("He was a cook.", NO), ("She said: He was a cook.", YES)][::order]
    row = answer("She said: He was a cook. He was a cook.", *claims)
    assert coloured(row) == [
        ("She said: He was a cook.", COLOURS[YES]),
        ("He was a cook.", COLOURS[NO]),
    ]


def test_words_of_the_markup_in_a_sentence_do_not_break_it():
    said = ("One.", "span", "background-color", "style", "amp", "A & B.")
    row = answer(" / ".join(said), *[(sentence, YES) for sentence in said])
    assert [text for text, _ in coloured(row)] == list(said)


EVIL = '<script>alert("x")</script>'


@pytest.mark.parametrize(
    "row",
    [
        answer(f"One. {EVIL} Two.", ("One.", YES)),
        answer(f"{EVIL}", (EVIL, NO)),
        answer(f'"><img src=x onerror="y"> {EVIL}', ('"><img src=x onerror="y">', NO)),
        Checked("i", "p", EVIL, None, []),
    ],
)
def test_markup_in_an_answer_is_text(row):
    page = Spans(tables._coloured(row))
    assert set(page.tags) <= {"span"}
    assert page.text == row.response


def test_the_table_shows_request_and_answers_and_runs_no_script():
    before = answer(f"One. {EVIL}", ("One.", NO))
    after = answer("Two & three.", ("Two & three.", YES))
    html = tables.claim_colours([(f"Who? {EVIL}", before, after)] * 2).to_html()
    page = Spans(html)
    assert "script" not in page.tags
    assert page.text.count(EVIL) == 4
    assert page.coloured == [("One.", COLOURS[NO]), ("Two & three.", COLOURS[YES])] * 2
    head = [page.text.index(name) for name in ("request", "before", "after", "Who?")]
    assert head == sorted(head)


# Figures

RATES = {
    "hallucination_rate": 0.4,
    "short_accuracy": 0.5,
    "short_hallucination": 0.3,
    "short_abstention": 0.2,
    "best_guess_accuracy": 0.5,
    "format_following": 0.8,
    "win_rate": 0.6,
    "correct_claims_per_question": 2.0,
    "incorrect_claims_per_question": 1.0,
}
EDGES = (0, 1, 40)


def result(arm, seed=0, shift=0.0, **more):
    metrics = {name: value + shift for name, value in RATES.items()}
    for step in ("base", 30, 120):
        metrics |= {f"dev_{step}_{name}": value for name, value in RATES.items()}
    for edge in EDGES:
        metrics |= {f"exposure_{edge}_{name}": v for name, v in RATES.items()}
    return {"arm": arm, "seed": seed, "metrics": metrics | more}


def without(found, *names):
    metrics = {k: v for k, v in found["metrics"].items() if not k.endswith(names)}
    return found | {"metrics": metrics}


@pytest.fixture
def results():
    return [result(arm, seed, seed / 50) for arm in RAR_ARMS for seed in (0, 1, 2)]


def ticks(ax):
    return [label.get_text() for label in ax.get_xticklabels()]


def named(ax):
    return ax.get_legend_handles_labels()[1]


def test_drawn_scores_rise_to_all_requests():
    figure = draw.drawn_scores([[0.0, 1.0], [0.5, 0.5], []])
    means, gaps = figure.axes[0].lines
    assert list(means.get_xdata()) == [0.5, 0.5]
    assert list(gaps.get_xdata()) == [0.0, 1.0]
    assert list(means.get_ydata()) == list(gaps.get_ydata()) == [50, 100]


def test_a_learning_curve_shows_reward_and_length_by_step():
    columns = {"step": [1, 2], "reward": [0.2, 0.4]}
    figure = draw.learning_curve(
        pd.DataFrame(columns | {"completions/mean_length": [9.0, 8.0]})
    )
    reward, length = (ax.lines[0] for ax in figure.axes)
    assert list(reward.get_ydata()) == [0.2, 0.4]
    assert list(length.get_ydata()) == [9.0, 8.0]


def test_before_and_after_stand_beside_each_other_with_their_intervals():
    name = "correct_claims_per_question"
    after = RATES | {"short_hallucination": 0.1, name: 1.5}
    spans = {"base": {}, "after": {name: (1.0, 1.75)}}
    figure = draw.before_and_after(RATES, after, spans)
    rates, claims = figure.axes
    assert named(rates) == ["before", "after"]
    bars = [c for c in rates.containers if hasattr(c, "patches")]
    assert [bar.get_height() for bar in bars[1]] == [0.4, 0.1, 0.2, 0.5]
    bars = [c for c in claims.containers if hasattr(c, "patches")]
    assert [bar.get_height() for bar in bars[1]] == [1.5, 1.0]
    (line,) = bars[1].errorbar[2]
    assert [list(ends[:, 1]) for ends in line.get_segments()] == [[1.0, 1.75], [1, 1]]


def test_before_and_after_are_drawn_where_nobody_responds():
    silent = {k: 0.0 for k in RATES if k != "hallucination_rate"}
    figure = draw.before_and_after(RATES, silent, {"base": {}, "after": {}})
    assert len(figure.axes) == 2


def test_coverage_has_a_line_a_query_and_the_papers_value():
    covered = {
        (asked, k): Coverage(10, k + 2 * asked, 12, k)
        for asked in (0, 1)
        for k in (1, 2)
    }
    (ax,) = draw.retrieval_coverage(covered).axes
    both, alone, paper = ax.lines
    assert list(both.get_ydata()) == [0.3, 0.4]
    assert list(alone.get_ydata()) == [0.1, 0.2]
    assert set(paper.get_ydata()) == {0.53}


def test_the_exposure_figure_of_a_run_has_a_line_before_and_after():
    kinds = ("correct", "incorrect")
    bins = {
        edge: {f"{kind}_claims_per_question": n * i for n, kind in enumerate(kinds, 1)}
        for i, edge in enumerate(EDGES)
    }
    figure = draw.by_exposure({"base": bins, "after": bins})
    for ax, factor in zip(figure.axes, (1, 2), strict=True):
        assert named(ax) == ["before", "after"]
        assert ticks(ax) == ["0", "≥ 1", "≥ 40"]
        for line in ax.lines:
            assert list(line.get_ydata()) == [0, factor, 2 * factor]


def test_the_trade_off_has_a_mark_an_arm_at_its_means(results):
    ax = draw.trade_off(results).axes[0]
    assert named(ax) == [arm.replace("_", " ") for arm in RAR_ARMS]
    for container in ax.containers:
        x, y = (data[0] for data in container.lines[0].get_data())
        # the means of shifts 0, 0.02 and 0.04
        assert (x, y) == (pytest.approx(0.42), pytest.approx(0.62))
    looks = {(c.lines[0].get_color(), c.lines[0].get_marker()) for c in ax.containers}
    assert len(looks) == len(RAR_ARMS)


def test_other_models_tables_are_drawn_where_there_are_runs():
    """Else they say why not, beside the paper's numbers."""
    runs = {"tulu3-8b": [result("base"), result("binary_rar")], "": [result("base")]}
    table = draw.other_models(runs)
    tulu = table.loc["Table 5, Tulu3-8B"]
    assert tulu["paper", "biography"].to_dict() == {"base": 68.1, "binary_rar": 60.1}
    assert tulu["ours", "biography"].to_dict() == {"base": "40.0", "binary_rar": "40.0"}
    why = table["ours", ""]
    assert "variant qwen3-4b" in why["Table 2, Qwen3-4B", "sft"]
    assert "aime25 in utility_benchmarks" in why["Table 6, Qwen3-8B", "base"]
    assert table.loc["Table 6, Qwen3-8B"]["paper", "aime25"]["base"] == 64.1
    reasons = {"": [result("base", aime25=0.5)]}
    ours = draw.other_models(reasons).loc["Table 6, Qwen3-8B"]["ours", "aime25"]
    assert ours.to_dict() == {"base": "50.0"}


def test_the_trade_off_leaves_out_an_arm_that_never_responds():
    silent = without(result("dpo"), "hallucination_rate")
    ax = draw.trade_off([result("base"), silent, result("sft")]).axes[0]
    assert named(ax) == ["base", "sft"]


def test_without_win_rates_utility_is_the_form_of_answers():
    some = [without(result(arm), "win_rate") for arm in ("base", "sft")]
    ax = draw.trade_off(some).axes[0]
    assert ax.get_ylabel() == "answers of the form asked for (%)"
    assert ax.containers[0].lines[0].get_ydata()[0] == 0.8


def test_claims_are_stacked_beside_the_paper_s_scaled_to_our_base(results):
    ax = draw.claims(results).axes[0]
    assert ticks(ax) == [arm.replace("_", "\n") for arm in RAR_ARMS]
    correct, other = [c for c in ax.containers if hasattr(c, "patches")]
    assert [b.get_height() for b in correct] == pytest.approx([2.02] * len(RAR_ARMS))
    assert [b.get_y() for b in other] == pytest.approx([2.02] * len(RAR_ARMS))
    # of the paper's 30 claims 8.8 were correct; our base policy makes 3.04
    lines = sorted(
        segment[0][1]
        for collection in ax.collections
        for segment in collection.get_segments()
        if len(segment) == 2 and segment[0][1] == segment[1][1]
    )
    expected = sorted(3.04 * n / 30 for n in (30.0, 8.8, 13.6, 8.6))
    assert lines == pytest.approx(expected)


def test_claims_of_other_arms_alone_have_no_line_of_the_paper():
    ax = draw.claims([result("base"), result("sft")]).axes[0]
    assert named(ax) == ["correct", "other"]


def test_short_answers_fill_a_bar_an_arm():
    ax = draw.short_answers([result("base"), result("dpo")]).axes[0]
    columns = zip(*ax.containers, strict=True)
    tops = [sum(bar.get_height() for bar in column) for column in columns]
    assert named(ax) == ["correct", "wrong", "abstained"]
    assert tops == pytest.approx([1.0, 1.0])


def test_a_trajectory_runs_from_the_base_policy_to_the_last_step(results):
    arms = ("veriscore", "binary_rar")
    ax = draw.trajectories(results, arms).axes[0]
    assert set(named(ax)) == {"veriscore", "binary rar"}
    said = [text.get_text() for text in ax.texts]
    assert said == ["base", "30", "120"] * 2


def test_a_trajectory_is_that_of_the_first_seed():
    first = result("binary_rar", 0, dev_30_win_rate=0.1)
    ax = draw.trajectories([first, result("binary_rar", 1)], ("binary_rar",)).axes[0]
    assert list(ax.lines[0].get_ydata()) == [0.6, 0.1, 0.6]


def test_a_step_at_which_nobody_responds_is_left_out():
    some = without(result("binary_rar"), "30_hallucination_rate")
    ax = draw.trajectories([some], ("binary_rar",)).axes[0]
    assert [text.get_text() for text in ax.texts] == ["base", "120"]


def test_betas_have_a_panel_an_arm_and_a_line_a_coefficient():
    arms = ("veriscore", "binary_rar")
    by_beta = {b: [result(arm) for arm in arms] for b in (0.1, 0.001)}
    figure = draw.betas(by_beta, arms)
    assert [ax.get_title() for ax in figure.axes] == ["veriscore", "binary rar"]
    for ax in figure.axes:
        assert named(ax) == ["β = 0.001", "β = 0.1"]
        assert [line.get_color() for line in ax.lines] == list(ARM_COLOURS[:2])


@pytest.mark.parametrize("n", [1, 2, 6])
def test_the_exposure_figure_has_a_line_an_arm(results, n):
    figure = draw.exposure_by_arm(results, RAR_ARMS[:n])
    for ax, value in zip(figure.axes, (2.0, 1.0), strict=True):
        assert named(ax) == [arm.replace("_", " ") for arm in RAR_ARMS[:n]]
        assert ticks(ax) == ["0", "≥ 1", "≥ 40"]
        for line in ax.lines:
            assert list(line.get_ydata()) == pytest.approx([value] * 3)
