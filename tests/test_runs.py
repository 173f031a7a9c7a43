"""Run folders: done only when complete, never mixed with other parameters."""

import contextlib
import io
import json
import math
import subprocess
import sys

import pytest

from factkit import params, runs, stored_runs
from factkit.params import ROOT
from factkit.truthrl.arms import QuestionSftParams


def settings(tmp_path, **more):
    return params.load("truthrl", "tiny", {"output_dir": str(tmp_path), **more})


def rows(path, text='{"id": 1}\n'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


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


def test_items_are_the_terms_of_a_metric_s_mean(tmp_path):
    run = runs.start("12_truthrl_train", settings(tmp_path, arm="sft", seed=3))
    metrics = {"accuracy": 0.5, "factual_precision": 1.0, "claim_precision": 0.25}
    metrics["total_claims"] = 2.0
    items = {
        "q1": {"accuracy": 1.0, "factual_precision": 1.0},
        "q2": {"accuracy": 0.0, "factual_precision": None},  # it says nothing
        "q3": {"claim_precision": 0.0, "total_claims": 3.0},
        "q4": {"claim_precision": 1.0, "total_claims": 1.0},
    }
    with pytest.raises(ValueError, match="items of accuracy"):
        run.finish(metrics | {"accuracy": 0.6}, items=items)
    with pytest.raises(ValueError, match="items of accuracy"):
        run.finish({}, items=items)
    assert not (run.folder / "results.json").exists()
    run.finish(metrics, items=items)
    table = stored_runs.read_items(run.folder)
    assert list(table.index) == list(items)
    assert stored_runs.item_values(table, "factual_precision") == {"q1": (1.0, 1.0)}
    assert stored_runs.item_values(table, "claim_precision")["q3"] == (0.0, 3.0)
    assert stored_runs.read_items(tmp_path) is None


def test_a_metric_that_is_no_number_is_refused(tmp_path):
    run = runs.start("12_truthrl_train", settings(tmp_path))
    for value in (math.nan, math.inf, None, "0.5"):
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
    rows(data)
    keep(runs.start("12_truthrl_train", settings(tmp_path), [data]), 1)
    rows(data, '{"id": 2}\n')
    again = runs.start("12_truthrl_train", settings(tmp_path), [data])
    assert keep(again, 2) == 2


def test_a_run_depends_only_on_the_parameters_it_names(tmp_path):
    for steps in (5, 6):
        p = settings(tmp_path, rl_steps=steps)
        run = runs.start("12_truthrl_train", p, depends_on=QuestionSftParams)
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


WRITER = """
import sys, time
from pathlib import Path
from factkit import params, runs
p = params.load("truthrl", "tiny", {"output_dir": sys.argv[1]})
run = runs.start("12_truthrl_train", p)
print("writing", flush=True)
time.sleep(60)
"""


def test_a_folder_is_nobody_else_s_until_its_run_ends_or_is_killed(tmp_path):
    """Neither is it gone on with, nor moved aside by a run with other parameters."""
    runs.start("12_truthrl_train", settings(tmp_path)).finish({})  # free for others
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert writer.stdout.readline() == "writing\n"
    for more in ({}, {"rl_steps": 5}):
        with pytest.raises(runs.RunError, match=f"process {writer.pid} on .* since"):
            runs.start("12_truthrl_train", settings(tmp_path, **more))
    assert not list(tmp_path.rglob("*.stale-*"))
    runs.start("12_truthrl_train", settings(tmp_path, seed=1))  # another run may
    writer.kill()
    writer.wait()
    runs.start("12_truthrl_train", settings(tmp_path))


def test_a_missing_input_names_the_notebook_to_run_first_and_how(tmp_path):
    missing = tmp_path / "tiny" / "10_truthrl_data" / "main-s0" / "train.jsonl"
    p = settings(tmp_path, variant="retrieval")
    with pytest.raises(runs.RunError) as error:
        runs.start("12_truthrl_train", p, [missing])
    said = str(error.value)
    assert "run 10_truthrl_data first" in said
    files = "-f params/tiny/truthrl.yaml -f params/tiny/truthrl-retrieval.yaml"
    assert "papermill notebooks/10_truthrl_data.ipynb" in said
    assert files in said
    assert f"-r output_dir '{tmp_path}'" in said


@pytest.mark.parametrize("text", ["", '{"id": 1}\n{"id"', '{"id": 1}\n{"id": 2}'])
def test_an_input_that_was_cut_is_told_before_a_finished_run_is_moved(tmp_path, text):
    path = tmp_path / "tiny" / "10_truthrl_data" / "main-s0" / "train.jsonl"
    runs.start("12_truthrl_train", settings(tmp_path), [rows(path)]).finish({})
    rows(path, text)
    with pytest.raises(runs.RunError, match="cut off.*run 10_truthrl_data again"):
        runs.start("12_truthrl_train", settings(tmp_path), [path])
    assert not list(tmp_path.rglob("*.stale-*"))


BROKEN = ["", "{", "[]", '{"arm": "ternary"}', '{"identity": {}}', "[" * 100_000]


def test_results_that_cannot_be_read_are_named_and_left_alone(tmp_path, capsys):
    whole = runs.start("12_truthrl_train", settings(tmp_path, seed=1))
    whole.finish({})
    broken = runs.start("12_truthrl_train", settings(tmp_path)).folder / "results.json"
    for text in BROKEN:
        broken.write_text(text)
        assert [r["seed"] for r in runs.all_results(tmp_path)] == [1]
        assert str(broken) in capsys.readouterr().out
        assert broken.read_text() == text


def test_a_record_that_cannot_be_read_stops_the_run_and_is_left_alone(tmp_path):
    run = runs.start("12_truthrl_train", settings(tmp_path))
    for text in BROKEN:
        (run.folder / "run.json").write_text(text)
        with pytest.raises(runs.RunError, match="run.json can't be read"):
            runs.start("12_truthrl_train", settings(tmp_path))
        assert (run.folder / "run.json").read_text() == text


def test_outputs_that_cannot_be_written_are_told_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(runs.RunError, match="can't be written.*output_dir"):
        runs.start("12_truthrl_train", settings(tmp_path / "file"))


def test_outputs_without_space_are_told_with_what_is_needed(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 10_000_000})
    monkeypatch.setattr(runs.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(runs.RunError, match="may take 0.1 GB, 0.0 GB are free"):
        runs.start("12_truthrl_train", settings(tmp_path))
    assert not list(tmp_path.rglob("run.json"))


def test_a_user_s_error_is_one_line_in_a_notebook():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_cell("from factkit.runs import RunError")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        shell.run_cell("raise RunError('run 10 first')")
    assert shown.getvalue().strip() == "RunError: run 10 first"
