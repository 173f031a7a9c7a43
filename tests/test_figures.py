"""TruthRL's tables and figures, drawn from made-up results."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from factkit.curate.probing import Probe
from factkit.datasets.examples import Example
from factkit.figures import tables
from factkit.figures import truthrl as draw
from factkit.verify.outcome import Outcome

RATES = {"truthfulness": 0.2, "accuracy": 0.5, "hallucination": 0.3, "abstention": 0.2}
KS = (1, 2, 4)
BINS = ("0.0", "0.8")
EXPOSURES = (0, 1, 40)


def result(arm, seed=0, shift=0.0, **more):
    metrics = {name: value + shift for name, value in RATES.items()}
    return {"arm": arm, "seed": seed, "metrics": metrics | more}


def grouped(kind, keys, names, n=True):
    """Metrics of groups as `short_form.flat` gives them."""
    metrics = {f"{kind}_{k}_{name}": RATES[name] for k in keys for name in names}
    return metrics | ({f"{kind}_{k}_n": 1 / len(keys) for k in keys} if n else {})


def labels(figure):
    return [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes]


def named(ax):
    return ax.get_legend_handles_labels()[1]


@pytest.fixture(autouse=True)
def none_left_open():
    """A figure that pyplot still knows is shown twice in a notebook."""
    yield
    assert plt.get_fignums() == []


# Tables


def test_a_rate_over_seeds_is_a_mean_with_its_interval():
    # mean 20 %, sample std 10 %, half-width 4.303 · 10 / √3
    assert tables.spread([0.1, 0.2, 0.3]) == "20.0 ± 24.8"


def test_a_single_seed_has_no_interval():
    assert tables.spread([0.125, None]) == "12.5"


def test_without_a_value_there_is_a_dash():
    assert tables.spread([None, None]) == tables.spread([]) == "–"


def test_a_results_table_has_a_row_an_arm_in_the_paper_s_order():
    results = [result(arm) for arm in ("ternary", "mine", "prompting", "dpo")]
    found = tables.results_table(results)
    assert list(found.index) == ["prompting", "dpo", "ternary", "mine"]


def test_a_results_table_averages_over_seeds():
    results = [result("ternary", s, shift) for s, shift in enumerate((-0.1, 0, 0.1))]
    row = tables.results_table(results).loc["ternary"]
    assert (row.seeds, row.accuracy) == (3, "50.0 ± 24.8")


def test_an_arm_without_a_metric_shows_a_dash():
    results = [result("sft", reasoning=0.5), result("ternary")]
    found = tables.results_table(results, ["reasoning"])
    assert list(found.reasoning) == ["50.0", "–"]


def test_a_results_table_shows_the_chosen_arms():
    results = [result("sft"), result("ternary")]
    assert list(tables.results_table(results, arms=["sft"]).index) == ["sft"]


# (table, its arms we have, the published columns of each)
BESIDE = [
    (1, {"prompting": {"T": 5.3, "H": 43.5, "A": 48.8}, "ternary": {"T": 37.2}}),
    (2, {"prompting": {"T": 9.7, "H": 39.8, "U": 10.7}, "sft": {"T": 3.0, "U": 0.0}}),
    (3, {"binary": {"T": 20.8, "H": 39.5}, "ternary": {"T": 37.2, "H": 19.4}}),
    (4, {"dpo": {"T": 6.8, "H": 43.7}, "ternary": {"T": 37.2}}),
    (6, {"ternary_reason_additive": {"T": 36.1, "H": 19.1, "reasoning_score": 59.1}}),
    (7, {"ternary_strict_match": {"T": -3.6, "H": 3.6}, "ternary": {"T": 37.2}}),
]
METRIC = {
    "T": "truthfulness",
    "H": "hallucination",
    "A": "accuracy",
    "U": "abstention",
    "reasoning_score": "reasoning",
}


@pytest.mark.parametrize(("table", "expected"), BESIDE, ids=lambda x: str(x)[:1])
def test_the_paper_s_numbers_stand_beside_ours(table, expected):
    columns = {c: METRIC[c] for row in expected.values() for c in row}
    results = [result(arm, reasoning=0.75) for arm in [*expected, "mine"]]
    found = tables.beside_paper(results, table, columns)
    assert list(found.index) == list(expected)
    ours = {"T": "20.0", "H": "30.0", "A": "50.0", "U": "20.0"}
    for arm, row in expected.items():
        assert {c: found.at[arm, ("paper", c)] for c in row} == row
        assert {found.at[arm, ("ours", c)] for c in row} == {
            ours.get(c, "75.0") for c in row
        }


def test_a_metric_that_was_not_measured_is_a_dash_beside_the_paper():
    found = tables.beside_paper(
        [result("ternary")], 6, {"reasoning_score": "reasoning"}
    )
    assert list(found.loc["ternary"]) == [56.6, "–"]


def iterated():
    iterations = {f"iteration_{i}_{n}": v / i for i in (1, 2) for n, v in RATES.items()}
    return result("iterative_dpo", seed=3, **iterations)


def test_each_iteration_of_dpo_becomes_a_result_of_its_own():
    before = [result("dpo"), iterated()]
    found = tables.with_iterations(before)
    assert found[:2] == before
    added = [(r["arm"], r["seed"], r["metrics"]["accuracy"]) for r in found[2:]]
    assert added == [("iterative_dpo_1", 3, 0.5), ("iterative_dpo_2", 3, 0.25)]


def test_iterations_stand_beside_table_4():
    found = tables.beside_paper([iterated()], 4, {"T": "truthfulness"})
    assert list(found.index) == ["iterative_dpo_1", "iterative_dpo_2"]
    assert list(found["ours", "T"]) == ["20.0", "10.0"]


def test_a_comparison_s_metrics_become_a_result_for_each_arm():
    metrics = {
        "ternary_accuracy": 0.1,
        "ternary_difficult_accuracy": 0.2,
        "ternary_knowledge_difficult_accuracy": 0.3,
    }
    arms = ["ternary", "ternary_knowledge"]
    found = tables.by_prefix(metrics, arms, "difficult")
    assert [(r["arm"], r["metrics"]) for r in found] == [
        ("ternary", {"difficult_accuracy": 0.2}),
        ("ternary_knowledge", {"difficult_accuracy": 0.3}),
    ]


# Figures of probing and of outcomes


def test_the_knowledge_boundary_has_a_dot_a_question_and_a_bar_a_relation():
    kinds = [Outcome.CORRECT, Outcome.WRONG, Outcome.WRONG, Outcome.WRONG]
    relations = ["birth_year", "award", "award"]
    some = [
        Example(id=str(i), question="?", answers=["x"], entity="e", relation=r)
        for i, r in enumerate(relations)
    ]
    probes = [Probe(str(i), ["s"] * 4, kinds) for i in range(3)]
    figure = draw.knowledge_boundary(some, probes, known_share=0.5)
    (ax,) = figure.axes
    drawn = {m: [x for x in ax.lines if x.get_marker() == m] for m in ".|"}
    assert sum(len(line.get_xdata()) for line in drawn["."]) == 3
    assert [list(line.get_xdata()) for line in drawn["|"]] == [[0.25], [0.25]]
    assert {t.get_text() for t in ax.get_yticklabels()} == {"birth year", "award"}
    (edge,) = [x for x in ax.lines if x.get_linestyle() == "--"]
    assert edge.get_xdata()[0] == 0.5 - 1 / 8  # between one of four and two of four
    assert "(%)" in ax.get_xlabel()


def bars(ax):
    """Left edge and width of a bar's parts → their heights."""
    stacks = {}
    for part in ax.patches:
        key = (round(part.get_x(), 3), round(part.get_width(), 3))
        stacks.setdefault(key, []).append(round(part.get_height(), 3))
    return list(stacks.values())


def test_outcomes_are_drawn_without_the_paper_where_asked():
    figure = draw.stacked_outcomes([result("ternary")], published=False)
    assert len(bars(figure.axes[0])) == 1
    assert named(figure.axes[0]) == ["correct", "hallucinated", "abstained"]


def test_the_outcome_axis_is_labelled():
    figure = draw.stacked_outcomes([result("ternary"), result("sft")], published=False)
    assert figure.axes[0].get_ylabel() == "held-out questions (%)"
    ticks = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert ticks == ["sft", "ternary"]


def test_outcomes_of_difficult_questions_are_those_with_the_prefix():
    hard = {"accuracy": 0.1, "hallucination": 0.6, "abstention": 0.3}
    more = {f"difficult_{name}": value for name, value in hard.items()}
    results = [result("ternary", **more), result("sft")]
    figure = draw.stacked_outcomes(results, prefix="difficult_", published=False)
    assert bars(figure.axes[0]) == [[0.1, 0.6, 0.3]]


def test_outcomes_of_several_seeds_have_error_bars():
    several = [result("ternary", s, s / 100) for s in (0, 1)]
    figures = [draw.stacked_outcomes(r, "", False) for r in (several[:1], several)]
    one, two = figures
    assert len(one.axes[0].collections) == 0 < len(two.axes[0].collections)


SEEDED = [
    result(
        arm,
        seed,
        **grouped("majority", KS, ("accuracy", "abstention", "hallucination"), False),
        **grouped("confidence", BINS, ("accuracy", "abstention", "hallucination")),
        **grouped("exposure", EXPOSURES, ("accuracy", "abstention")),
    )
    for arm in ("prompting", "ternary", "sft")
    for seed in (0, 1)
]
SHOWN = ("prompting", "ternary")


def test_majority_curves_have_a_line_an_arm_and_a_panel_a_rate():
    figure = draw.majority_curves(SEEDED, SHOWN)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["accuracy", "abstention", "hallucination"]
    for ax in figure.axes:
        lines = [(list(x.get_xdata()), list(x.get_ydata())) for x in ax.lines]
        assert lines == [(list(KS), [RATES[ax.get_title()]] * 3)] * 2
    assert named(figure.axes[0]) == list(SHOWN)
    assert set(labels(figure)) == {("samples k", "held-out questions (%)")}


def test_majority_bands_reach_over_the_seeds():
    results = [
        result("ternary", s, **{f"majority_1_{name}": v for name in RATES})
        for s, v in enumerate((0.1, 0.3))
    ]
    ax = draw.majority_curves(results, ["ternary"]).axes[0]
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.1, 0.3)
    assert list(ax.lines[0].get_ydata()) == [0.2]


def test_confidence_has_a_panel_an_arm_and_a_bar_a_bin():
    figure = draw.confidence_bins(SEEDED, SHOWN)
    assert [x for x, _ in labels(figure)] == [f"confidence · {arm}" for arm in SHOWN]
    for ax in figure.axes:
        assert bars(ax) == [[0.5, 0.3, 0.2]] * 2
        ticks = [t.get_text() for t in ax.get_xticklabels()]
        assert ticks == ["0.0–0.2", "0.8–1.0"]
        assert ax.get_ylabel() == "answers in the bin (%)"


def test_confidence_says_the_share_of_answers_in_a_bin():
    figure = draw.confidence_bins(SEEDED, ["ternary"])
    assert [t.get_text() for t in figure.axes[0].texts] == ["50 %", "50 %"]


def test_a_confidence_bin_that_one_seed_lacks_is_drawn_from_the_other():
    lacking = result("sft", **grouped("confidence", BINS[:1], RATES))
    having = result("sft", 1, **grouped("confidence", BINS, RATES))
    (ax,) = draw.confidence_bins([lacking, having], ["sft"]).axes
    assert bars(ax) == [[0.5, 0.3, 0.2]] * 2
    assert [t.get_text() for t in ax.texts] == ["75 %", "25 %"]


def test_exposure_has_a_curve_an_arm_in_two_panels():
    figure = draw.exposure_curves(SEEDED, SHOWN)
    assert [y for _, y in labels(figure)] == [
        "abstention, held-out questions (%)",
        "accuracy, held-out questions (%)",
    ]
    for ax, name in zip(figure.axes, ("abstention", "accuracy"), strict=True):
        assert [list(c.lines[0].get_ydata()) for c in ax.containers] == [
            [RATES[name]] * 3
        ] * 2
        assert ax.get_xlabel() == "times that the policy read the fact"
    assert named(figure.axes[0]) == list(SHOWN)


def test_exposure_bins_are_named_by_their_ends():
    ax = draw.exposure_curves(SEEDED, SHOWN).axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1–39", "40+"]


# Figures of training


def curve(level=0.5, steps=20, **more):
    columns = {
        "step": range(1, steps + 1),
        "accuracy": level,
        "hallucination": 0.2,
        "abstention": 0.3,
        "abstention_pro": 0.4,
        "abstention_anti": 0.1,
        "reward": 0.25,
    }
    return pd.DataFrame(columns | more)


CURVES = {"ternary": [curve(0.4), curve(0.6)], "binary": [curve(0.3)]}


def test_learning_dynamics_have_a_line_a_reward_at_the_mean_of_the_seeds():
    figure = draw.learning_dynamics(CURVES)
    accuracy, hallucination, truthfulness = figure.axes
    levels = [[x.get_ydata()[-1] for x in ax.lines] for ax in figure.axes]
    assert levels == [pytest.approx(v) for v in ([0.5, 0.3], [0.2, 0.2], [0.3, 0.1])]
    assert named(accuracy) == list(CURVES)
    assert set(labels(figure)) == {("GRPO step", "sampled responses (%)")}


def test_learning_dynamics_run_over_ten_steps():
    jump = curve(level=[0.0] * 10 + [1.0] * 10)
    line = draw.learning_dynamics({"ternary": [jump]}).axes[0].lines[0]
    assert list(line.get_ydata()[9:12]) == pytest.approx([0, 0.1, 0.2])


def test_abstention_dynamics_have_a_panel_a_kind_of_group():
    figure = draw.abstention_dynamics(CURVES)
    assert [ax.get_title() for ax in figure.axes] == [
        "all groups",
        "wrong + abstaining only",
        "abstaining + a correct one",
    ]
    levels = [[x.get_ydata()[-1] for x in ax.lines] for ax in figure.axes]
    assert levels == [pytest.approx(v) for v in ([0.3] * 2, [0.4] * 2, [0.1] * 2)]
    assert set(labels(figure)) == {("GRPO step", "abstaining samples (%)")}


def test_a_reward_without_a_kind_of_group_has_no_line_in_its_panel():
    without = curve().drop(columns="abstention_anti")
    figure = draw.abstention_dynamics({"binary": [without], "ternary": [curve()]})
    assert [len(ax.lines) for ax in figure.axes] == [2, 2, 1]


def test_a_learning_curve_shows_the_rates_and_the_reward():
    figure = draw.learning_curve(curve())
    rates, reward = figure.axes
    assert named(rates) == ["correct", "hallucinated", "abstained"]
    assert [x.get_ydata()[0] for x in rates.lines] == [0.5, 0.2, 0.3]
    assert [list(x.get_ydata()) for x in reward.lines] == [[0.25] * 20]
    assert labels(figure) == [
        ("GRPO step", "sampled responses (%)"),
        ("GRPO step", "mean reward, in [−1, 1]"),
    ]


def test_before_and_after_have_a_bar_a_rate_with_its_interval():
    spans = {name: (value - 0.1, value + 0.2) for name, value in RATES.items()}
    better = {name: value + 0.1 for name, value in RATES.items()}
    wide = {name: (value, value + 0.2) for name, value in RATES.items()}
    figure = draw.before_and_after(RATES, better, [spans, wide])
    (ax,) = figure.axes
    heights = [part.get_height() for part in ax.patches]
    assert heights == pytest.approx([*RATES.values(), *better.values()])
    ends = [c.get_segments()[0][:, 1] for c in ax.collections]
    assert ends[0] == pytest.approx(spans["truthfulness"])
    assert named(ax) == ["before", "after"]
    assert ax.get_ylabel() == "held-out questions (%)"


def test_curves_are_read_of_rl_runs_only_and_in_the_paper_s_order(tmp_path):
    for name in ("ternary-s0", "ternary-s1", "binary-s0", "sft-s0", "prompting-s0"):
        (tmp_path / name).mkdir()
        if name.startswith("prompting"):
            continue  # nothing was trained
        rows = pd.DataFrame({"step": [1], "loss": [0.1]}) if "sft" in name else curve()
        rows.to_csv(tmp_path / name / "metrics.csv", index=False)
    folders = list(tmp_path.iterdir())
    found = draw.read_curves(folders)
    assert [(arm, len(frames)) for arm, frames in found.items()] == [
        ("binary", 1),
        ("ternary", 2),
    ]
    assert list(draw.read_curves(folders, ["ternary"])) == ["ternary"]


def test_outcomes_are_stacked_to_one_beside_the_published_bar():
    figure = draw.stacked_outcomes([result("ternary"), result("mine")])
    assert bars(figure.axes[0]) == [
        [0.5, 0.3, 0.2],
        [0.566, 0.194, 0.24],  # Table 1, CRAG with retrieval: T 37.2, H 19.4
        [0.5, 0.3, 0.2],  # the paper has no arm of this name
    ]


def test_the_rule_by_relation_has_a_row_of_its_own_where_results_hold_it():
    rule = {f"relation_rule_{k}": 0.25 for k in RATES}
    runs = [result("prompting"), result("ternary", **rule), result("ternary", seed=1)]
    found = tables.results_table(runs, arms=["prompting"])
    assert list(found.index) == ["prompting", "relation_rule"]
    assert found.at["relation_rule", "truthfulness"] == "25.0"
    beside = tables.beside_paper(runs, 1, {"T": "truthfulness"})
    assert list(beside.loc["relation_rule"]) == ["–", "25.0"]
    assert "relation_rule" not in tables.results_table(runs, ["reasoning"]).index
