"""Run folders: done only when complete, never mixed with other parameters."""

import json
import math

import pytest

from factkit import params, runs


def settings(tmp_path, **more):
    return params.load("truthrl", "tiny", {"output_dir": str(tmp_path), **more})


def keep(run, value):
    """What file n.json of the run holds: `value`, if nothing was there before."""
    path = run.folder / "n.json"
    if not path.exists():
        path.write_text(json.dumps(value))
    return json.loads(path.read_text())


def test_a_run_is_done_only_when_it_has_finished(tmp_path):
    p = settings(tmp_path)
    run = runs.start("12_truthrl_train", p)
    assert runs.read_results(run.folder) is None
    run.finish({"accuracy": 0.5})
    assert runs.read_results(run.folder)["metrics"] == {"accuracy": 0.5}


def test_results_say_what_made_them(tmp_path):
    run = runs.start("12_truthrl_train", settings(tmp_path, arm="sft", seed=3))
    results = run.finish({}, ["a deviation"])
    assert (results["paper"], results["arm"], results["seed"]) == ("truthrl", "sft", 3)
    assert set(results) >= {"schema", "notebook", "profile", "status", "params"}
    assert set(results) >= {"wall_s", "started", "versions", "device", "git"}
    assert results["deviations"] == ["a deviation"]


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "0.5"])
def test_a_metric_that_is_no_number_is_refused(tmp_path, value):
    run = runs.start("12_truthrl_train", settings(tmp_path))
    with pytest.raises(ValueError, match="accuracy"):
        run.finish({"accuracy": value})


def test_arms_and_seeds_have_folders_of_their_own(tmp_path):
    folders = {
        runs.run_folder("12_truthrl_train", settings(tmp_path, arm=arm, seed=seed))
        for arm in ("binary", "ternary")
        for seed in (0, 1)
    }
    assert len(folders) == 4


def test_starting_again_keeps_what_is_there(tmp_path):
    run = runs.start("12_truthrl_train", settings(tmp_path))
    assert keep(run, 1) == 1
    again = runs.start("12_truthrl_train", settings(tmp_path))
    assert keep(again, 2) == 1


def test_other_parameters_never_continue_an_old_run(tmp_path, capsys):
    run = runs.start("12_truthrl_train", settings(tmp_path))
    keep(run, 1)
    again = runs.start("12_truthrl_train", settings(tmp_path, rl_steps=5))
    assert keep(again, 2) == 2
    assert (
        json.loads(
            (tmp_path / "tiny/12_truthrl_train/ternary-s0.stale-1/n.json").read_text()
        )
        == 1
    )
    assert "rl_steps" in capsys.readouterr().out


def test_other_input_data_never_continues_an_old_run(tmp_path):
    data = tmp_path / "train.jsonl"
    data.write_text("a")
    keep(runs.start("12_truthrl_train", settings(tmp_path), [data]), 1)
    data.write_text("b")
    again = runs.start("12_truthrl_train", settings(tmp_path), [data])
    assert keep(again, 2) == 2


def test_a_run_depends_only_on_the_parameters_it_names(tmp_path):
    for steps in (5, 6):
        p = settings(tmp_path, rl_steps=steps)
        run = runs.start("12_truthrl_train", p, depends_on=params.QuestionSftParams)
        assert keep(run, "first") == "first"
    assert not list(tmp_path.rglob("*.stale-*"))


def test_a_parameter_that_came_later_leaves_a_run_with_its_default(tmp_path):
    for value, kept in ((0.0, 1), (0.1, 2)):
        run = runs.start("12_truthrl_train", settings(tmp_path))
        keep(run, 1)
        record = run.folder / "run.json"
        made = json.loads(record.read_text())
        made["identity"]["params"].pop("rl_warmup_ratio", None)
        record.write_text(json.dumps(made))
        p = settings(tmp_path, rl_warmup_ratio=value)
        assert keep(runs.start("12_truthrl_train", p), 2) == kept


def test_stale_runs_are_not_results(tmp_path):
    runs.start("12_truthrl_train", settings(tmp_path)).finish({})
    runs.start("12_truthrl_train", settings(tmp_path, rl_steps=5))
    assert runs.all_results(tmp_path) == []
