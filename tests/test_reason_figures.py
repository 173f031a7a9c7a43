"""Figures of Learning to Reason for Factuality, drawn from made-up results."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from factkit.figures import reason as draw
from factkit.figures import tables
from factkit.reason.arms import ARMS
from factkit.rewards.reason import WEIGHTS

REASON_ARMS = tuple(ARMS)
REASON_RL_ARMS = [a for a in ARMS if ARMS[a].algorithm == "GRPO"]


@pytest.fixture(autouse=True)
def none_left_open():
    """A figure that pyplot still knows is shown twice in a notebook."""
    yield
    assert plt.get_fignums() == []


METRICS = {
    "factual_precision": 0.4,
    "correct_claims_per_question": 2.0,
    "incorrect_claims_per_question": 1.0,
    "win_rate": 0.6,
    "malformed": 0.1,
    "reasoning_words": 20.0,
    "answer_words": 12.0,
}
MANY = [f"arm{i}" for i in range(14)]  # more than there are colours and lines


def result(arm, seed=0, shift=0.0, **more):
    metrics = {name: value + shift for name, value in METRICS.items()}
    return {"arm": arm, "seed": seed, "metrics": metrics | more, "params": {}}


def seeds(*arms):
    """Three seeds an arm, around 0.02 above METRICS; each arm 0.05 above the last."""
    return [
        result(arm, seed, i / 20 + seed / 50)
        for i, arm in enumerate(arms)
        for seed in (0, 1, 2)
    ]


def without(found, *names):
    return found | {
        "metrics": {k: v for k, v in found["metrics"].items() if k not in names}
    }


@pytest.fixture
def results():
    """In an order that is not the paper's."""
    return seeds(*REASON_ARMS)[::-1]


@pytest.fixture
def table_2():
    return tables.published(2, "reason")


def spaced(arms, gap=" "):
    return [arm.replace("_", gap) for arm in arms]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def named(ax):
    return ax.get_legend_handles_labels()[1]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def bar_groups(ax):
    return [c for c in ax.containers if hasattr(c, "patches")]


def level(ax):
    """The horizontal marks that are wider than a bar, as (middle, height), sorted."""
    return sorted(
        (round((a[0] + b[0]) / 2, 9), round(a[1], 9))
        for collection in ax.collections
        for a, b in collection.get_segments()
        if a[1] == b[1] and b[0] - a[0] > 0.6
    )


def rounded(marks):
    return sorted((place, round(height, 9)) for place, height in marks)


# Curves


def curve(rows=3, shift=0.0, step=1, **more):
    columns = {
        "reward": 0.1,
        "reasoning_words": 20.0,
        "answer_words": 10.0,
        "supported_claims": 2.0,
        "total_claims": 3.0,
        "precision": 0.6,
        "malformed": 0.2,
        "wins": 0.5,
    }
    frame = {"step": [step * (i + 1) for i in range(rows)]}
    frame |= {k: [v + shift + i / 10 for i in range(rows)] for k, v in columns.items()}
    return pd.DataFrame(frame | more)


def test_a_learning_curve_shows_every_quantity_by_step():
    run = curve(step=5)
    figure = draw.learning_curve(run)
    drawn = {line.get_label(): line for ax in figure.axes for line in ax.lines}
    columns = {
        "reward": "reward",
        "reasoning": "reasoning_words",
        "answer": "answer_words",
        "all": "total_claims",
        "supported": "supported_claims",
        "claims: supported": "precision",
        "answers: preferred": "wins",
        "responses: malformed": "malformed",
    }
    assert set(drawn) == set(columns)
    for label, column in columns.items():
        assert list(drawn[label].get_xdata()) == [5, 10, 15]
        assert list(drawn[label].get_ydata()) == list(run[column])


def test_a_learning_curve_leaves_out_what_was_not_asked_for():
    figure = draw.learning_curve(curve().drop(columns=["wins", "precision"]))
    assert named(figure.axes[3]) == ["responses: malformed"]
    assert all(ax.get_ylabel() and ax.get_xlabel() for ax in figure.axes)


def test_lengths_are_the_mean_over_seeds_in_a_band_of_their_range():
    figure = draw.lengths({"fact": [curve(), curve(shift=3.0)]}, window=1)
    for ax, value in zip(figure.axes, (20.0, 10.0), strict=True):
        (line,), (band,) = ax.lines, ax.collections
        assert list(line.get_xdata()) == [1, 2, 3]
        assert list(line.get_ydata()) == pytest.approx(
            [value + 1.5, value + 1.6, value + 1.7]
        )
        edges = band.get_paths()[0].vertices[:, 1]
        assert (edges.min(), edges.max()) == pytest.approx((value, value + 3.2))


def test_lengths_are_running_means():
    values = [10.0, 20.0, 30.0, 90.0]
    run = curve(4, reasoning_words=values)
    ax = draw.lengths({"fact": [run]}, window=2).axes[0]
    assert list(ax.lines[0].get_ydata()) == [10, 15, 25, 60]


def test_lengths_of_a_seed_that_is_shorter_go_as_far_as_it_does():
    runs = [curve(4), curve(2, shift=1.0)]
    ax = draw.lengths({"fact": runs}, window=1).axes[0]
    values = [20.5, 20.6, 20.2, 20.3]
    assert list(ax.lines[0].get_ydata()) == pytest.approx(values)


def test_lengths_have_a_line_an_arm_and_no_two_look_alike():
    figure = draw.lengths({arm: [curve()] for arm in MANY})
    assert legend(figure) == MANY
    for ax in figure.axes:
        looks = {(ln.get_color(), str(ln._unscaled_dash_pattern)) for ln in ax.lines}
        assert len(ax.lines) == len(looks) == len(MANY)


def test_lengths_leave_out_an_arm_without_reasoning():
    silent = curve().drop(columns=["reasoning_words", "answer_words"])
    figure = draw.lengths({"base": [silent], "fact": [silent, curve()]})
    assert legend(figure) == ["fact"]


@pytest.mark.parametrize(
    "lengths", [[5], [5, 5], [1, 2, 2, 9], list(range(100)), [0, 7, 3000]]
)
def test_every_length_is_counted_once_in_bins_of_whole_words(lengths):
    (ax,) = draw.reasoning_lengths(lengths, "fact_relevance").axes
    edges = [bar.get_x() for bar in ax.patches]
    widths = {round(bar.get_width(), 6) for bar in ax.patches}
    assert sum(bar.get_height() for bar in ax.patches) == len(lengths)
    assert all(edge % 1 == 0.5 for edge in edges)  # between two numbers of words
    assert len(widths) == 1 and widths.pop() % 1 == 0
    assert len(edges) <= 32


def test_a_length_falls_into_its_own_bin():
    (ax,) = draw.reasoning_lengths([3, 3, 5], "x").axes
    counts = {bar.get_x() + 0.5: bar.get_height() for bar in ax.patches}
    assert counts == {3: 2, 4: 0, 5: 1}


def test_the_median_length_is_marked_and_said():
    (ax,) = draw.reasoning_lengths([1, 2, 4, 90], "sft_dpo").axes
    assert set(ax.lines[0].get_xdata()) == {3}
    assert named(ax) == ["median: 3"]
    assert ax.get_xlabel() == "words of the reasoning, sft dpo"


def test_without_reasoning_no_length_is_drawn():
    (ax,) = draw.reasoning_lengths([], "base").axes
    assert not ax.patches and not ax.lines


# Strategies


def test_strategy_shares_are_means_over_the_seeds_that_have_any():
    runs = [
        result("fact", 0, strategy_doubt=0.4, strategy_left_out=0.2),
        result("fact", 1, strategy_doubt=0.6),
        result("fact", 2),
        result("sft", 0, strategy_recall=0.1),
        result("base"),
    ]
    found = draw.strategy_shares(runs)
    assert list(found) == ["sft", "fact"]
    assert found["fact"] == pytest.approx({"doubt": 0.5, "left_out": 0.1})
    assert found["sft"] == {"recall": 0.1}


def test_strategies_are_a_bar_an_arm_the_most_frequent_uppermost():
    shares = {"sft": {"a": 0.1, "b_c": 0.5}, "fact": {"a": 0.2, "b_c": 0.4, "d": 0.6}}
    figure = draw.strategies(shares)
    (ax,) = figure.axes
    assert ticks(ax.yaxis) == ["b c", "d", "a"]
    assert ax.yaxis_inverted()
    assert legend(figure) == ["sft", "fact"]
    widths = [[bar.get_width() for bar in group] for group in bar_groups(ax)]
    assert widths == [[0.5, 0.0, 0.1], [0.4, 0.6, 0.2]]
    for place, name in enumerate(ticks(ax.yaxis)):
        middles = [g[place].get_y() + g[place].get_height() / 2 for g in bar_groups(ax)]
        assert sum(middles) / 2 == pytest.approx(place), name
        assert middles[0] < middles[1]


def test_only_the_top_strategies_are_shown():
    shares = {"fact": {f"s{i}": i / 30 for i in range(30)}}
    (ax,) = draw.strategies(shares).axes
    assert ticks(ax.yaxis) == [f"s{i}" for i in range(29, 9, -1)]
    (ax,) = draw.strategies(shares, top=3).axes
    assert ticks(ax.yaxis) == ["s29", "s28", "s27"]


def test_strategies_of_many_arms_all_have_bars_that_differ():
    figure = draw.strategies({arm: {"a": 0.5} for arm in MANY})
    assert legend(figure) == MANY
    bars = [group[0] for group in bar_groups(figure.axes[0])]
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in bars}
    assert len(looks) == len(MANY)


# Trade-off


def points(ax):
    """Label → (x, y) of the marks."""
    return {
        c.get_label(): tuple(float(v[0]) for v in c.lines[0].get_data())
        for c in ax.containers
    }


def test_the_trade_off_has_a_mark_an_arm_at_its_means(results, table_2):
    ours = points(draw.precision_and_detail(results, table_2).axes[0])
    assert len(ours) == len(REASON_ARMS)
    for i, (arm, label) in enumerate(zip(REASON_ARMS, ours, strict=True)):
        assert label.startswith(arm.replace("_", " "))
        assert ours[label] == pytest.approx((0.42 + i / 20, 2.02 + i / 20))


def test_marks_say_the_weights_that_an_arm_was_trained_with(results, table_2):
    ours = points(draw.precision_and_detail(results, table_2).axes[0])
    assert "fact detail10 relevance (λ 0.1, μ 0.1)" in ours
    assert "fact (λ 0, μ 0)" in ours
    assert "sft dpo" in ours


def test_intervals_are_drawn_over_seeds_and_not_for_one(results, table_2):
    (ax, _) = draw.precision_and_detail(results, table_2).axes
    # t of 2 degrees of freedom, and 0.02 the deviation of 0, 0.02 and 0.04
    half = 4.302653 * 0.02 / 3**0.5
    for container in ax.containers:
        (x_bar, y_bar), mark = container.lines[2], container.lines[0]
        (left, right) = x_bar.get_segments()[0][:, 0]
        (low, high) = y_bar.get_segments()[0][:, 1]
        assert (right - left, high - low) == pytest.approx((2 * half, 2 * half))
        assert (left + right) / 2 == pytest.approx(mark.get_xdata()[0])
    (ax, _) = draw.precision_and_detail([result("fact")], table_2).axes
    assert ax.containers[0].lines[2] == ()


def test_arms_with_relevance_are_joined_in_the_order_of_their_detail(results, table_2):
    for ax in draw.precision_and_detail(results, table_2).axes:
        path = next(ln for ln in ax.lines if ln.get_label().startswith("μ = 0.1"))
        marks = points(ax)
        order = [
            next(
                xy for label, xy in marks.items() if label.endswith(f"(λ {w:g}, μ 0.1)")
            )
            for w in (0, 0.01, 0.1)
        ]
        joined = list(zip(path.get_xdata(), path.get_ydata(), strict=True))
        assert joined == [pytest.approx(xy) for xy in order]


def test_the_papers_marks_are_grey_and_look_as_ours_otherwise(results, table_2):
    ours, paper = draw.precision_and_detail(results).axes
    stated = {
        row.arm: (row.precision / 100, row.supported) for row in table_2.itertuples()
    }
    found = dict(zip(["base", *WEIGHTS], points(paper).values(), strict=True))
    assert found == {arm: pytest.approx(xy) for arm, xy in stated.items()}
    markers = {c.get_label(): c.lines[0].get_marker() for c in ours.containers}
    for container in paper.containers:
        mark = container.lines[0]
        assert mark.get_color() == draw.PUBLISHED
        assert mark.get_marker() == markers[container.get_label()]


def test_the_trade_off_names_every_arm_once_and_leaves_out_what_was_not_measured(
    table_2,
):
    runs = [result("fact"), without(result("sft"), "factual_precision"), result("new")]
    figure = draw.precision_and_detail(runs, table_2)
    assert list(points(figure.axes[0])) == ["fact (λ 0, μ 0)", "new"]
    assert len(legend(figure)) == len(set(legend(figure)))
    assert set(points(figure.axes[1])) < set(legend(figure))


def test_the_table_to_stand_beside_can_be_another(results, table_2):
    (_, paper) = draw.precision_and_detail(results, table_2.query("mu == 0")).axes
    assert list(points(paper)) == ["fact (λ 0, μ 0)", "fact detail (λ 0.01, μ 0)"]


def test_no_two_of_many_arms_look_alike(table_2):
    (ax, _) = draw.precision_and_detail(seeds(*MANY), table_2).axes
    marks = [c.lines[0] for c in ax.containers]
    assert len({(m.get_color(), m.get_marker()) for m in marks}) == len(MANY)


# Bars


def test_win_rates_stand_by_arm_beside_the_papers(results, table_2):
    (ax,) = draw.win_rates(results).axes
    assert ticks(ax.xaxis) == spaced(REASON_ARMS, "\n")
    ((*bars,),) = bar_groups(ax)
    heights = [0.62 + i / 20 for i in range(len(REASON_ARMS))]
    assert [bar.get_height() for bar in bars] == pytest.approx(heights)
    stated = table_2.set_index("arm").win_rate / 100
    places = [(REASON_ARMS.index(arm), stated[arm]) for arm in stated.index]
    assert level(ax) == rounded(places)
    (half,) = [ln for ln in ax.lines if set(ln.get_ydata()) == {0.5}]
    assert half.get_linestyle() == "--"
    assert named(ax).count("paper (8B, six data sets)") == 1


def test_win_rates_leave_out_an_arm_that_was_not_compared():
    (ax,) = draw.win_rates([without(result("base"), "win_rate"), result("fact")]).axes
    assert ticks(ax.xaxis) == ["fact"]
    assert level(ax) == [(0, 0.435)]


def test_claims_are_stacked_beside_the_papers_scaled_to_our_base(results, table_2):
    (ax,) = draw.claims(results).axes
    assert ticks(ax.xaxis) == spaced(REASON_ARMS, "\n")
    supported, unsupported = bar_groups(ax)
    heights = [2.02 + i / 20 for i in range(len(REASON_ARMS))]
    assert [b.get_height() for b in supported] == pytest.approx(heights)
    assert [b.get_y() for b in unsupported] == pytest.approx(heights)
    assert [b.get_height() for b in unsupported] == pytest.approx(
        [h - 1 for h in heights]
    )
    scale = 3.04 / 45.6  # our base's claims over the paper's 23.5 + 22.1
    marks = [
        (REASON_ARMS.index(row.arm), n * scale)
        for row in table_2.itertuples()
        for n in (row.supported, row.supported + row.unsupported)
    ]
    assert level(ax) == rounded(marks)


def test_claims_without_our_base_have_no_line_of_the_paper():
    (ax,) = draw.claims([result("sft"), result("fact")]).axes
    assert named(ax) == ["supported", "unsupported"]
    assert level(ax) == []


def test_before_and_after_stand_beside_each_other_with_their_intervals():
    after = {name: 2 * value for name, value in METRICS.items()}
    spans = {"base": {}, "after": {draw.DETAIL: (3.0, 4.5)}}
    figure = draw.before_and_after(METRICS, after, spans)
    names = (
        ("factual_precision", "win_rate", "malformed"),
        (draw.DETAIL, draw.UNSUPPORTED),
        ("reasoning_words", "answer_words"),
    )
    for ax, of in zip(figure.axes, names, strict=True):
        left, right = bar_groups(ax)
        assert [bar.get_height() for bar in left] == [METRICS[n] for n in of]
        assert [bar.get_height() for bar in right] == [after[n] for n in of]
        assert ax.get_ylabel()
    (line,) = bar_groups(figure.axes[1])[1].errorbar[2]
    assert [list(e[:, 1]) for e in line.get_segments()] == [[3, 4.5], [2, 2]]
    assert named(figure.axes[2]) == ["before", "after"]


def test_before_and_after_are_drawn_where_the_base_does_not_reason():
    silent = without(result("base"), "reasoning_words", "answer_words")["metrics"]
    figure = draw.before_and_after(silent, METRICS, {"base": {}, "after": {}})
    left, right = bar_groups(figure.axes[2])
    assert [bar.get_height() for bar in left] == [0, 0]
    assert [bar.get_height() for bar in right] == [20, 12]


def test_the_arms_are_those_of_the_paper_in_its_order():
    runs = [result(arm) for arm in ("new", *sorted(REASON_RL_ARMS), "sft", "base")]
    (ax,) = draw.claims(runs).axes
    order = ["base", "sft", *REASON_RL_ARMS, "new"]
    assert ticks(ax.xaxis) == spaced(order, "\n")


def test_each_evaluation_set_stands_in_the_table_and_nothing_else():
    of = {"factual_precision": 0.5, "correct_claims_per_question": 3.0, "win_rate": 0.6}
    prefixes = ("", "open_", "fava_", "dev_open_", "before_open_", "exposure_10_")
    metrics = {prefix + name: v for prefix in prefixes for name, v in of.items()}
    del metrics["exposure_10_win_rate"]  # exposures are not compared
    metrics |= {"least_win_rate": 0.6}
    runs = [{"arm": "fact", "seed": s, "metrics": metrics} for s in (0, 1)]
    table = draw.by_set(runs)
    assert list(table.columns.levels[0].unique()) == ["average", "fava", "open"]
    row = table.loc["fact", "fava"]
    assert list(row) == ["50.0 ± 0.0", "3.0 ± 0.0", "60.0 ± 0.0"]
