"""Run folders: done only when complete, never mixed with other parameters."""

import contextlib
import io
import json
import math
import subprocess
import sys

import pytest

from factkit import params, runs
from factkit.params import ROOT
from factkit.truthrl.arms import QuestionParams, QuestionSftParams


def settings(tmp_path, **more):
    return params.load("truthrl", "tiny", {"output_dir": str(tmp_path), **more})


def rows(path, text='{"id": 1}\n'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def keep(run, value):
    """What file n.json of the run holds: `value`, if nothing was there before."""
    path = run.folder / "n.json"
    if not path.exists():
        path.write_text(json.dumps(value), "utf-8")
    return json.loads(path.read_text("utf-8"))


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
    table = runs.read_items(run.folder)
    assert list(table.index) == list(items)
    assert runs.item_values(table, "factual_precision") == {"q1": (1.0, 1.0)}
    assert runs.item_values(table, "claim_precision")["q3"] == (0.0, 3.0)
    assert runs.read_items(tmp_path) is None


def test_a_metric_that_is_no_number_is_refused(tmp_path):
    run = runs.start("12_truthrl_train", settings(tmp_path))
    for value in (math.nan, math.inf, None, "0.5"):
        with pytest.raises(ValueError, match="accuracy"):
            run.finish({"accuracy": value})


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
        made = json.loads(record.read_text("utf-8"))
        made["identity"]["params"].pop("rl_warmup_ratio", None)
        record.write_text(json.dumps(made), "utf-8")
        p = settings(tmp_path, rl_warmup_ratio=value)
        assert keep(runs.start("12_truthrl_train", p), 2) == kept


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


def test_a_user_s_error_is_one_line_in_a_notebook():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_cell("from factkit.runs import RunError")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        shell.run_cell("raise RunError('run 10 first')")
    assert shown.getvalue().strip() == "RunError: run 10 first"


def test_other_parameters_or_inputs_never_continue_an_old_run(tmp_path, capsys):
    data = rows(tmp_path / "train.jsonl")
    for n in (1, 2):  # started again, it keeps what is there
        assert keep(runs.start("12_truthrl_train", settings(tmp_path), [data]), n) == 1
    other = settings(tmp_path, rl_steps=5)
    assert keep(runs.start("12_truthrl_train", other, [data]), 3) == 3
    aside = tmp_path / "tiny/12_truthrl_train/ternary-s0.stale-1/n.json"
    assert json.loads(aside.read_text("utf-8")) == 1
    assert "rl_steps" in capsys.readouterr().out
    rows(data, '{"id": 2}\n')
    changed = runs.start("12_truthrl_train", other, [data])
    assert keep(changed, 4) == 4
    changed.finish({})
    runs.start("12_truthrl_train", settings(tmp_path), [data])
    assert runs.all_results(tmp_path) == []  # stale runs are no results


def test_a_run_goes_on_where_services_have_moved(tmp_path):
    here = settings(tmp_path)
    assert keep(runs.start("12_truthrl_train", here), 1) == 1
    moved = {"judge_url": "http://node2:8001/v1", "judge_concurrency": 8}
    moved |= {"vllm_server_url": "http://node3:8000", "micro_batch_size": 2}
    there = settings(tmp_path, **moved)
    run = runs.start("12_truthrl_train", there)
    assert keep(run, 2) == 1
    assert run.finish({})["params"]["judge_url"] == moved["judge_url"]  # but it is said


def test_an_input_that_is_missing_or_cut_is_told_before_a_finished_run_is_moved(
    tmp_path,
):
    path = tmp_path / "tiny" / "10_truthrl_data" / "main-s0" / "train.jsonl"
    p = settings(tmp_path, variant="retrieval")
    runs.start("12_truthrl_train", p, [rows(path)]).finish({})
    files = "-f params/tiny/truthrl.yaml -f params/tiny/truthrl-retrieval.yaml"
    for text, fault in (("", "missing"), ('{"id": 1}\n{"id"', "cut off")):
        rows(path, text)
        with pytest.raises(runs.RunError, match=fault) as error:
            runs.start("12_truthrl_train", p, [path])
        said = str(error.value)
        assert "run 10_truthrl_data first" in said
        assert "papermill notebooks/10_truthrl_data.ipynb" in said
        assert files in said and f"-r output_dir '{tmp_path}'" in said
    assert not list(tmp_path.rglob("*.stale-*"))


def test_what_cannot_be_read_is_named_and_left_alone(tmp_path, capsys):
    runs.start("12_truthrl_train", settings(tmp_path, seed=1)).finish({})
    folder = runs.start("12_truthrl_train", settings(tmp_path)).folder
    results, record = folder / "results.json", folder / "run.json"
    for text in ("", "{", "[]", '{"arm": "ternary"}', '{"identity": {}}'):
        results.write_text(text, "utf-8")
        assert [r["seed"] for r in runs.all_results(tmp_path)] == [1]
        assert str(results) in capsys.readouterr().out
        record.write_text(text, "utf-8")
        with pytest.raises(runs.RunError, match="run.json can't be read"):
            runs.start("12_truthrl_train", settings(tmp_path))
        assert results.read_text("utf-8") == record.read_text("utf-8") == text


def test_inputs_made_with_other_values_are_refused(tmp_path):
    p = settings(tmp_path)
    data = runs.start("10_truthrl_data", p, depends_on=QuestionParams)
    path = rows(data.folder / "train.jsonl")
    data.finish({})
    runs.start("12_truthrl_train", settings(tmp_path, rl_steps=5), [path])
    elsewhere = settings(tmp_path, eval_batch_size=3, seed=2)
    runs.start("12_truthrl_train", elsewhere, [path])  # comes out the same
    with pytest.raises(runs.RunError, match=r"probe_samples=\d+ \(now 3\)"):
        runs.start("12_truthrl_train", settings(tmp_path, probe_samples=3), [path])
