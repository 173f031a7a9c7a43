"""Tables, and the figures that papers share, drawn from made-up results."""

import pandas as pd
import pytest
from drawings import (
    bar_groups,
    heights,
    legend,
    named,
    none_left_open,  # noqa: F401
    texts,
    ticks,
    with_metrics,
    without,
)

from factkit import params, runs
from factkit.figures import bars, curves, look, tables
from factkit.truthrl import figures as draw

RATES = {"truthfulness": 0.2, "accuracy": 0.5, "hallucination": 0.3, "abstention": 0.2}
DPO_ITERATIONS = ["iterative_dpo_1", "iterative_dpo_2"]
MANY = [f"arm{i}" for i in range(14)]  # more than there are colours and lines


def result(arm, seed=0, shift=0.0, **more):
    return with_metrics(arm, RATES, seed, shift, **more)


# Tables


def test_values_over_seeds_are_a_mean_with_its_interval():
    # mean 20 %, sample std 10 %, half-width 4.303 · 10 / √3
    assert tables.spread([0.1, 0.2, 0.3]) == "20.0 ± 24.8"
    assert tables.spread([0.125, None]) == "12.5"
    assert tables.spread([None, None]) == tables.spread([]) == "–"


def test_a_results_table_has_a_row_an_arm_in_the_papers_order():
    results = [result("ternary", s, shift) for s, shift in enumerate((-0.1, 0, 0.1))]
    results += [result(arm, words=7.5) for arm in ("mine", "prompting", "dpo")]
    table = tables.results_table(results)
    assert list(table.index) == ["prompting", "dpo", "ternary", "mine"]
    assert (table.seeds["ternary"], table.accuracy["ternary"]) == (3, "50.0 ± 24.8")
    words = tables.results_table(results, ["words"], ("dpo", "ternary"), factor=1)
    assert words.words.to_dict() == {"dpo": "7.5", "ternary": "–"}


# (table, its arms we have, the published columns of each)


def test_the_papers_numbers_stand_beside_ours():
    iterations = {f"iteration_{i}_{n}": v / i for i in (1, 2) for n, v in RATES.items()}
    results = [result("mine"), result("dpo"), result("iterative_dpo", **iterations)]
    results += [result("ternary"), result("ternary", 1, 0.1)]
    columns = {"T": "truthfulness", "H": "nothing"}
    table = tables.beside_paper(results, 4, columns)
    assert list(table.index) == ["dpo", *DPO_ITERATIONS, "ternary"]
    assert list(table.loc["dpo"]) == [6.8, 43.7, "20.0", "–"]
    assert list(table["ours", "T"][DPO_ITERATIONS]) == ["20.0", "10.0"]
    assert table.at["ternary", ("ours", "T")].startswith("25.0 ±")
    without_references = tables.of_paper(1, setting="without retrieval")
    assert set(without_references.setting) == {"without retrieval"}
    assert set(without_references.dataset) == {"CRAG"}


def test_the_rule_by_relation_has_a_row_of_its_own_where_results_hold_it():
    rule = {f"relation_rule_{k}": 0.25 for k in RATES}
    results = [result("prompting"), result("ternary", **rule), result("ternary", 1)]
    table = tables.results_table(results, arms=["prompting"])
    assert list(table.index) == ["prompting", "relation_rule"]
    assert table.at["relation_rule", "truthfulness"] == "25.0"
    beside = tables.beside_paper(results, 1, {"T": "truthfulness"})
    assert list(beside.loc["relation_rule"]) == ["–", "25.0"]
    assert "relation_rule" not in tables.results_table(results, ["reasoning"]).index


def test_the_means_of_a_comparison_are_of_what_was_measured_after_training():
    more = {"dev_10_accuracy": 1.0, "before_accuracy": 1.0, "exposure_0_accuracy": 1.0}
    results = [result("sft", **more), result("sft", 1, 0.2), result("dpo", words=3.0)]
    found = tables.means(results)
    assert found == pytest.approx(
        {f"sft_{name}": value + 0.1 for name, value in RATES.items()}
        | {f"dpo_{name}": value for name, value in RATES.items()}
        | {"dpo_words": 3.0}
    )
    assert set(tables.means(results, ["words"])) == {"dpo_words"}


def test_the_extremes_of_a_metric_are_said_in_words():
    results = [result("sft"), result("dpo", 0, 0.1), result("dpo", 1, 0.3)]
    assert tables.in_words(
        [*results, without(result("none"), "cy")], ["accuracy", "nothing"]
    ) == ("accuracy: most of dpo (70.0 %), least of sft (50.0 %).")


def test_what_is_drawn_is_this_machines_else_the_references(tmp_path, capsys):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path), "arm": "sft"})
    by_variant = tables.stored("truthrl", p)
    assert {"", "retrieval", "reasoning"} <= set(by_variant)
    assert "main: 39 runs from outputs/reference/tiny" in capsys.readouterr().out
    with runs.start("12_truthrl_train", p) as run:
        run.finish(RATES)
    ours = tables.stored("truthrl", p)
    assert [r["folder"] for r in ours[""]] == [str(run.folder)]
    assert len(ours["retrieval"]) == len(by_variant["retrieval"])
    with pytest.raises(runs.RunError, match="python -m factkit sweep truthrl"):
        tables.stored("truthrl", p, "other")


# Bars


def test_bars_are_stacked_with_intervals_over_seeds_and_none_of_one():
    parts = [("accuracy", "right", "blue"), ("hallucination", "wrong", "red")]
    groups = {"dpo": [result("dpo", s, s / 10) for s in (0, 1)], "a_b": [result("a_b")]}
    _, ax = bars.stacked(groups, parts)
    assert heights(ax) == [pytest.approx([0.55, 0.5]), pytest.approx([0.35, 0.3])]
    assert [bar.get_y() for bar in bar_groups(ax)[1]] == pytest.approx([0.55, 0.5])
    assert (named(ax), ticks(ax.xaxis)) == (["right", "wrong"], ["dpo", "a\nb"])
    assert len(ax.collections) == 2
    _, ax = bars.stacked(
        {"a": [result("a")], "b": [without(result("b"), "acc")]}, parts
    )
    assert len(ax.collections) == 0


def test_before_and_after_stand_beside_each_other_with_their_intervals():
    after = {name: value + 0.1 for name, value in RATES.items()}
    spans = {"base": {}, "after": {"accuracy": (0.5, 0.9), "abstention": (0.4, 0.5)}}
    panels = {"rates (%)": {"accuracy": "right"}, "other": {"abstention": "none"}}
    figure = bars.before_and_after(RATES, after, spans, panels)
    rates, other = figure.axes
    assert heights(rates) == [[0.5], [pytest.approx(0.6)]]
    assert (rates.get_ylabel(), other.get_ylabel()) == ("rates (%)", "other")
    assert ticks(rates.xaxis) == ["right"] and named(other) == ["before", "after"]
    ends = [
        [list(e[:, 1]) for e in group.errorbar[2][0].get_segments()]
        for ax in figure.axes
        for group in bar_groups(ax)
    ]
    # an interval that lies beside its value is drawn from the value on
    expected = [[0.5, 0.5]], [[0.5, 0.9]], [[0.2, 0.2]], [[0.3, 0.5]]
    assert ends == [[pytest.approx(e) for e in of_bar] for of_bar in expected]


# Curves


def curve(**columns):
    return pd.DataFrame({"step": [5, 10, 15]} | columns)


def test_a_learning_curve_shows_its_panels_by_step():
    frame = curve(reward=[1.0, 2.0, 4.0], vague=0.5, wrong=[1.0, 0.5, 0.0])
    panels = {"mean": {"reward": "its reward"}, "kinds": {"vague": "v", "wrong": "w"}}
    panels |= {"share (%)": {"vague": "vague", "none": "none"}, "gone": {"x": "x"}}
    figure = curves.learning_curve(frame, panels, window=2, stacked="kinds")
    mean, kinds, share, gone = figure.axes
    assert [ax.get_ylabel() for ax in figure.axes] == [*panels]
    assert [list(line.get_xdata()) for line in mean.lines] == [[5, 10, 15]] * 2
    assert [list(line.get_ydata()) for line in mean.lines] == [[1, 1.5, 3], [1, 2, 4]]
    tops = [[0.5, 0.5, 0.5], [1.5, 1.0, 0.5]]
    for area, top in zip(kinds.collections, tops, strict=True):
        corners = area.get_paths()[0].vertices
        for step, height in zip((5, 10, 15), top, strict=True):
            assert corners[corners[:, 0] == step, 1].max() == pytest.approx(height)
    assert (named(kinds), named(share)) == (["v", "w"], ["vague"])
    assert [texts(ax) for ax in figure.axes] == [[], [], [], ["not logged"]]
    (one,) = (
        curves.learning_curve(frame.head(1), {"a": panels["mean"]} | panels)
        .axes[0]
        .lines
    )
    assert one.get_marker() == "o"  # a curve of one step is seen


def test_many_arms_all_look_different():
    _, ax = bars.stacked({}, [])
    bars.grouped(ax, {arm: [result(arm)] for arm in MANY}, {"accuracy": "right"})
    looks = {(g[0].get_facecolor(), g[0].get_hatch()) for g in bar_groups(ax)}
    assert len(looks) == len({look(i) for i in range(len(MANY))}) == len(MANY)


def test_arms_while_training_are_running_means_over_steps_and_then_over_seeds():
    seeds = [curve(reward=[0.0, 0.2, 0.4]), curve(reward=[0.2, 0.2, 0.2])]
    figure = curves.over_training({"an_arm": seeds}, {"reward": "reward"}, window=2)
    (ax,) = figure.axes
    assert list(ax.lines[0].get_xdata()) == [5, 10, 15]
    # running means 0, 0.1, 0.3 and 0.2, 0.2, 0.2
    assert list(ax.lines[0].get_ydata()) == pytest.approx([0.1, 0.15, 0.25])
    corners = ax.collections[0].get_paths()[0].vertices
    band = corners[corners[:, 0] == 15, 1]
    assert (band.min(), band.max()) == pytest.approx((0.2, 0.3))
    assert (ax.get_ylabel(), legend(figure)) == ("reward (%)", ["an arm"])


def test_exposure_has_a_line_an_arm_at_the_means_of_its_bins():
    def metrics(value):
        return {f"exposure_{edge}_x": value + edge for edge in (40, 0, 1)}

    lacking = {"exposure_0_x": 1.0, "exposure_0_short_x": 9.0}
    groups = {"a_b": [metrics(0.0), metrics(2.0), lacking], "c": [metrics(5.0)]}
    groups["a_b"][0] |= {"exposure_0_short_x": 9.0, "other_0_x": 9.0}
    (ax,) = curves.by_exposure(groups, {"x": "x a question"}).axes
    lines = [list(c.lines[0].get_ydata()) for c in ax.containers]
    assert lines == [[1, 2, 41], [5, 6, 45]]
    assert ticks(ax.xaxis) == ["0", "1–39", "40+"]
    assert (named(ax), ax.get_ylabel()) == (["a b", "c"], "x a question")


# TruthRL's outcomes


def test_outcomes_are_stacked_to_one_beside_the_published_bar():
    (ax,) = draw.stacked_outcomes([result("ternary"), result("mine")]).axes
    *ours, correct, wrong, rest = heights(ax)
    assert ours == [[0.5, 0.5], [0.3, 0.3], [0.2, 0.2]]
    # Table 1, CRAG with retrieval: T 37.2, H 19.4; the paper has no arm `mine`
    assert [correct, wrong, rest] == [[pytest.approx(v)] for v in (0.566, 0.194, 0.24)]
    assert [t for t in texts(ax) if t] == ["50", "50", "30", "30", "20", "20"]
    assert named(ax)[-1] == "paper (CRAG, 8B)"
    assert ax.get_ylabel() == "held-out questions (%)"
