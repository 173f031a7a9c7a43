"""Tables, and the figures that papers share, drawn from made-up results."""

import json
import re
import shutil

import pandas as pd
import pytest
from drawings import (
    heights,
    legend,
    named,
    none_left_open,  # noqa: F401
    texts,
    with_metrics,
)

from factkit.report import claims, figures, published
from factkit.report.figures import arm_panels, tables
from factkit.run import params, past_runs, runs

RATES = {"truthfulness": 0.2, "accuracy": 0.5, "hallucination": 0.3, "abstention": 0.2}
DPO_ITERATIONS = ["iterative_dpo_1", "iterative_dpo_2"]


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
    iterations = {
        f"iteration_{i}_{n}": v / max(i - 1, 0.1)
        for i in (1, 2, 3)  # the first is DPO, the paper counts from the second
        for n, v in RATES.items()
    }
    results = [result("mine"), result("dpo"), result("iterative_dpo", **iterations)]
    results += [result("ternary"), result("ternary", 1, 0.1)]
    columns = {"T": "truthfulness", "H": "nothing"}
    table = tables.beside_paper(results, 4, columns, "truthrl")
    assert list(table.index) == ["dpo", *DPO_ITERATIONS, "ternary"]
    assert list(table.loc["dpo"]) == [6.8, 43.7, "20.0", "–"]
    assert list(table["ours", "T"][DPO_ITERATIONS]) == ["20.0", "10.0"]
    assert table.at["ternary", ("ours", "T")].startswith("25.0 ±")
    without_references = published.select_rows(
        1, "truthrl", setting="without retrieval"
    )
    assert set(without_references.setting) == {"without retrieval"}
    assert set(without_references.dataset) == {"CRAG"}


def test_what_is_drawn_is_this_machines_else_the_references(tmp_path, capsys):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path), "arm": "sft"})
    by_variant = tables.stored("truthrl", p)
    assert {"", "retrieval", "reasoning"} <= set(by_variant)
    assert "main: 51 runs from outputs/reference/tiny" in capsys.readouterr().out
    with runs.start("12_truthrl_train", p) as run:
        run.finish(RATES)
    ours = tables.stored("truthrl", p)
    assert [r["folder"] for r in ours[""] if r["arm"] == "sft"] == [str(run.folder)]
    beside_it = {r["arm"] for r in ours[""]} - {r["arm"] for r in by_variant[""]}
    assert beside_it == {"sft (reference)"}
    assert len([r for r in ours[""] if r["arm"] == "sft (reference)"]) == 3  # seeds
    assert "beside them from the reference results: " in capsys.readouterr().out
    beside = past_runs.stored("truthrl", "tiny", tmp_path, beside=True)
    references = past_runs.stored("truthrl", "tiny", runs.REFERENCE)
    changed = [
        claim
        for claim in claims.read_claims("truthrl")
        if claims.judge(claim, beside).word != claims.judge(claim, references).word
    ]
    assert changed and all(("", "sft") in [a[:2] for a in c.arms] for c in changed)
    other = p.model_copy(update={"test_questions": 99, "arm": "rft"})
    with runs.start("12_truthrl_train", other) as another:
        another.finish(RATES)
    shutil.rmtree(run.folder)
    alone = tables.stored("truthrl", p)[""]
    assert [r["folder"] for r in alone] == [str(another.folder)]
    assert len(ours["retrieval"]) == len(by_variant["retrieval"])
    with pytest.raises(runs.RunError, match="python -m factkit sweep truthrl"):
        tables.stored("truthrl", p, "other")


@pytest.mark.parametrize("number", [14, 24, 34, 44, 54, 62])
def test_a_variants_figures_are_of_the_users_own_runs(number, tmp_path, monkeypatch):
    """Not of the reference results of the main variant, into the variant's folder."""
    (path,) = (params.ROOT / "notebooks").glob(f"{number}_*.ipynb")
    paper = path.stem.split("_")[1]
    known = params.load(paper, "tiny")
    p = known.model_copy(update={"variant": "mine", "output_dir": str(tmp_path)})
    monkeypatch.setattr(params, "check", lambda paper, values: p)
    (trained,) = (params.ROOT / "notebooks").glob(f"*_{paper}_train.ipynb")
    with runs.start(trained.stem, p) as run:
        run.finish({"before_accuracy": 0.5})
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    namespace: dict = {}
    for source in (s for s in sources if "P = params.check" in s or "stored(" in s):
        exec(source, namespace)
    assert [r["folder"] for r in namespace["results"]] == [str(run.folder)]
    drawn = namespace["run"]
    assert runs.relative(run.folder / "results.json") in drawn.inputs
    drawn.lock.release(force=True)


def test_reference_results_are_labelled_wherever_they_are_drawn(tmp_path):
    mine, shipped = result("sft"), result("ternary") | {"reference": True}
    again = result("sft (reference)") | {"reference": True}
    results = [mine, shipped, again]
    labels = ["sft", "sft (reference)", "ternary (reference)"]
    assert list(tables.results_table(results).index) == labels
    beside = tables.beside_paper(results, 1, {"T": "truthfulness"}, "truthrl")
    assert list(beside.index) == ["sft", "ternary (reference)"]
    figure = arm_panels.outcomes(tables.by_arm(results))
    ticks = figure.axes[0].get_xticklabels()
    assert [tick.get_text().replace("\n", " ") for tick in ticks] == labels
    assert "ternary (reference)_accuracy" in tables.means(results)
    run = runs.start("14_truthrl_figures", own_params(tmp_path))
    for r in results:
        folder = tmp_path / r["arm"]
        folder.mkdir()
        (folder / "results.json").write_text("{}", "utf-8")
        r["folder"] = str(folder)
    small = results[1] | {"arm": "prompting", "variant": "small"}
    run.record_inputs(results, [small])
    run.figure(figure, "outcomes")  # which does not draw the variant
    assert figure.texts[-1].get_text().endswith("not your own runs: ternary")
    run.figure(figure, "sizes", [small])
    assert figure.texts[-1].get_text().endswith("ternary, prompting (small)")
    assert len(run.finish({})["inputs"]) == 3


def test_figures_of_own_runs_have_no_note_on_another_variant_s_references(tmp_path):
    run = runs.start("14_truthrl_figures", own_params(tmp_path))
    (tmp_path / "results.json").write_text("{}", "utf-8")
    mine = result("sft") | {"folder": str(tmp_path)}
    shipped = mine | {"reference": True, "variant": "small"}
    run.record_inputs([mine], [shipped])
    figure, _ = figures.new_figure()
    run.figure(figure, "own")
    assert not figure.texts


def test_the_note_on_reference_results_stands_below_the_legend(tmp_path):
    figure, ax = figures.new_figure()
    ax.plot([0, 1], label="sft (reference)")
    figures.legend_below(figure)
    boxes = []

    def measure(_):
        parts = (ax, *figure.legends, *figure.texts)
        boxes.append([part.get_window_extent().frozen() for part in parts])

    figure.canvas.mpl_connect("draw_event", measure)
    run = runs.start("14_truthrl_figures", own_params(tmp_path))
    run.reference_arms["sft"] = None
    run.figure(figure, "curve")
    panel, entries, note = boxes[-1]
    assert panel.y0 > entries.y1 > entries.y0 > note.y1


def own_params(tmp_path):
    return params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})


# Curves


def curve(**columns):
    return pd.DataFrame({"step": [5, 10, 15]} | columns)


def test_arms_while_training_are_running_means_over_steps_and_then_over_seeds():
    seeds = [curve(reward=[0.0, 0.2, 0.4]), curve(reward=[0.2, 0.2, 0.2])]
    figure = arm_panels.over_training({"an_arm": seeds}, {"reward": "reward"}, window=2)
    (ax,) = figure.axes
    assert list(ax.lines[0].get_xdata()) == [5, 10, 15]
    # running means 0, 0.1, 0.3 and 0.2, 0.2, 0.2
    assert list(ax.lines[0].get_ydata()) == pytest.approx([0.1, 0.15, 0.25])
    corners = ax.collections[0].get_paths()[0].vertices
    band = corners[corners[:, 0] == 15, 1]
    assert (band.min(), band.max()) == pytest.approx((0.2, 0.3))
    assert (ax.get_ylabel(), legend(figure)) == ("reward (%)", ["an arm"])


# TruthRL's outcomes


def test_outcomes_are_stacked_to_one_beside_the_published_bar():
    groups = tables.by_arm([result("ternary"), result("mine")])
    paper = published.select_rows(1, "truthrl").set_index("arm")
    (ax,) = arm_panels.outcomes(groups, paper=paper).axes
    *ours, correct, wrong, rest = heights(ax)
    assert ours == [[0.5, 0.5], [0.3, 0.3], [0.2, 0.2]]
    # Table 1, CRAG with retrieval: T 37.2, H 19.4; the paper has no arm `mine`
    assert [correct, wrong, rest] == [[pytest.approx(v)] for v in (0.566, 0.194, 0.24)]
    assert [t for t in texts(ax) if t] == ["50", "50", "30", "30", "20", "20"]
    assert named(ax)[-1] == "paper (CRAG, 8B)"
    assert ax.get_ylabel() == "held-out questions (%)"


def test_wherever_a_background_is_set_the_text_colour_is_too():
    """Else text is white on white in a dark theme."""
    lines = [
        (path.name, line.strip())
        for path in sorted((params.ROOT / "factkit").rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if "background-color:" in line
    ]
    assert lines
    assert [n for n in lines if not re.search(r"(?<![\w-])color:", n[1])] == []
