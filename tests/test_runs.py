"""Run folders: done only when complete, never mixed with other parameters."""

import contextlib
import io
import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from factkit.papers.truthrl.arms import QuestionSftParams
from factkit.run import params, past_runs, runs
from factkit.run.params import ROOT
from factkit.run.params.data import QuestionParams


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


def test_results_count_what_a_judge_was_asked_asked_again_and_failed_on(
    tmp_path, monkeypatch
):
    for counts in ({}, {"asked": 9, "asked_again": 4, "failed": 1}):
        monkeypatch.setattr(runs, "JUDGEMENTS", Counter(counts))
        p = settings(tmp_path / str(len(counts)), arm="sft")
        results = runs.start("12_truthrl_train", p).finish({})
        assert results.get("judgements", {}) == counts


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
from factkit.run import params, past_runs, runs
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
    shell.run_cell("from factkit.run.runs import RunError")
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
    moved |= {"vllm_memory": 0.5, "micro_batch_size": 2}
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


def finished(tmp_path, seed=0, arm="ternary", notebook="12_truthrl_train"):
    """A finished run's folder, with items of three questions and a curve."""
    run = runs.start(notebook, settings(tmp_path, arm=arm, seed=seed))
    (run.folder / "metrics.csv").write_text("step,loss\n1,0.5\n", "utf-8")
    items = {q: {"accuracy": v} for q, v in (("a", 1.0), ("b", 0.0), ("c", 1.0))}
    run.finish({"accuracy": 2 / 3, "seconds": 3}, items=items)
    return run.folder


def replaced(name, old, new):
    def damage(folder):
        content = (folder / name).read_bytes()
        assert old in content
        (folder / name).write_bytes(content.replace(old, new, 1))

    return damage


def cut(name, share):
    def damage(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return damage


def with_field(*keys, value):
    """Writes a value into a field, in a file that is still JSON."""

    def damage(folder):
        results = json.loads((folder / "results.json").read_text("utf-8"))
        place = results
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        (folder / "results.json").write_text(json.dumps(results, indent=1), "utf-8")

    return damage


def without(name):
    return lambda folder: (folder / name).unlink()


def as_folder(name):
    def damage(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return damage


def of_another(name, run):
    """Puts in a run's folder what another run's holds."""

    def damage(folder):
        source, target = folder.parent / run, folder
        for file in source.iterdir() if name == "*" else [source / name]:
            target.joinpath(file.name).write_bytes(file.read_bytes())

    return damage


FIELDS = ("arm", "seed", "params", "metrics", "inputs", "recipe", "wall_s", "device")
FIELDS += ("paper", "profile", "variant", "notebook", "status", "schema", "deviations")
BAD = (None, [], {}, "x", "7", -1, 0.25, True, {"a": {"b": []}})
DAMAGES = {
    **{f"{k} {v}": with_field(k, value=v) for k in FIELDS for v in BAD},
    **{f"metric {v}": with_field("metrics", "accuracy", value=v) for v in BAD},
    "nan": replaced("results.json", b'"seconds": 3', b'"seconds": NaN'),
    "inf": replaced("results.json", b'"seconds": 3', b'"seconds": 1e999'),
    "huge": replaced("results.json", b'"seconds": 3', b'"seconds": 3' + b"0" * 400),
    "digit": replaced("results.json", b'"seconds": 3', b'"seconds": 4'),
    "sha256": replaced("results.json", b'"sha256": "', b'"sha256": "0'),
    "twice": replaced("results.json", b'"params"', b'"arm": "sft",\n "params"'),
    "deep": replaced("results.json", b"{", b'{"x": ' + b"[" * 99_999),
    "latin": replaced("results.json", b"ternary", b"tern\xe4ry"),
    "empty": cut("results.json", 0),
    "half": cut("results.json", 0.5),
    "folder": as_folder("results.json"),
    "items cut": replaced("items.csv", b"c,ternary,0,1\n", b""),
    "items empty": cut("items.csv", 0),
    "items gone": without("items.csv"),
    "items folder": as_folder("items.csv"),
    "items changed": replaced("items.csv", b"b,ternary,0,0", b"b,ternary,0,1"),
    "items of an arm": of_another("items.csv", "sft-s0"),
    "items of a seed": of_another("items.csv", "ternary-s1"),
    "curve cut": cut("metrics.csv", 0.5),
    "curve gone": without("metrics.csv"),
    "samples of another": lambda folder: rows(folder / "samples.jsonl"),
    "all of an arm": of_another("*", "sft-s0"),
    "all of a seed": of_another("*", "ternary-s1"),
    "all of a paper": of_another("*", "../22_rar_train/base-s0"),
    "old version": replaced("results.json", b'"files"', b'"other"'),
}


def test_a_damaged_run_is_named_and_left_out_and_the_others_are_reported(
    tmp_path, capsys
):
    folder = finished(tmp_path)
    finished(tmp_path, arm="sft"), finished(tmp_path, seed=1)
    rar = params.load("rar", "tiny", {"output_dir": str(tmp_path), "arm": "base"})
    runs.start("22_rar_train", rar).finish({"accuracy": 1.0})
    left = [("sft", 0), ("ternary", 1)]
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    results = json.loads((folder / "results.json").read_text("utf-8"))
    for name, damage in DAMAGES.items():
        damage(folder)
        if name.partition(" ")[0] in FIELDS and (
            json.loads((folder / "results.json").read_text("utf-8")) == results
        ):
            continue  # that was the value
        capsys.readouterr()
        stored = runs.all_results(folder.parent)
        assert [(r["arm"], r["seed"]) for r in stored] == left, name
        note = capsys.readouterr().out
        assert note.startswith(f"left out, damaged run 1 of 3: {folder}/results.json: ")
        assert "run the notebook again" in note and note.count("\n") == 1, note
        with pytest.raises(runs.ResultsError):
            runs.read_items(folder)
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
    assert len(past_runs.stored("truthrl", "tiny", tmp_path)[""]) == 3
    assert capsys.readouterr().out == ""
    DAMAGES["items cut"](folder)
    assert len(past_runs.stored("truthrl", "tiny", tmp_path)[""]) == 2


IDS = [
    "NA",
    "None",
    "null",
    "nan",
    "NaN",
    "N/A",
    "",
    "1e5",
    "100000",
    "001",
    "1",
    "1.0",
]
IDS += [" x ", "x", "True", "inf", "a,b", 'a"b', "a\nb", "a\rb", "\ufeffx", "#", "0x10"]


def test_every_item_keeps_its_id_whatever_it_looks_like(tmp_path):
    values = {item: {"accuracy": float(i % 2)} for i, item in enumerate(IDS)}
    run = runs.start("12_truthrl_train", settings(tmp_path, arm="sft"))
    run.finish({"accuracy": len(IDS) // 2 / len(IDS)}, items=values)
    table = runs.read_items(run.folder)
    assert list(table.index) == IDS
    assert list(runs.item_values(table, "accuracy")) == IDS
    run = runs.start("12_truthrl_train", settings(tmp_path, arm="sft", seed=1))
    with pytest.raises(ValueError, match="two have one id"):
        run.finish({"accuracy": 1.0}, items={k: {"accuracy": 1.0} for k in (1, "1")})


def test_runs_behind_symbolic_links_count_and_a_loop_ends(tmp_path, capsys):
    below = tmp_path / "outputs"
    for seed in (0, 1):
        folder = finished(below, seed)
    away = tmp_path / "away"
    folder.rename(away)
    folder.symlink_to(away)
    (away / "loop").symlink_to(folder.parent)
    folder.with_name("ternary-s2").symlink_to(tmp_path / "not mounted")
    results = runs.all_results(below)
    assert [r["seed"] for r in results] == [0, 1]
    assert "ternary-s2 is a link to nothing" in capsys.readouterr().out
    (tmp_path / "linked").symlink_to(below)
    assert len(runs.all_results(tmp_path / "linked")) == 2


def test_a_folder_is_moved_aside_under_a_free_name(tmp_path):
    """Never into a folder that was moved aside before."""
    for steps in (5, 6, 7):
        run = runs.start("12_truthrl_train", settings(tmp_path, rl_steps=steps))
        assert keep(run, steps) == steps
    first, second = (run.folder.with_name(f"ternary-s0.stale-{n}") for n in (1, 2))
    shutil.rmtree(first)
    runs.start("12_truthrl_train", settings(tmp_path, rl_steps=8))
    assert keep(SimpleNamespace(folder=first), 0) == 7
    assert keep(SimpleNamespace(folder=second), 0) == 6
    first.rename(tmp_path / "elsewhere")
    first.symlink_to(tmp_path / "nowhere")
    runs.start("12_truthrl_train", settings(tmp_path, rl_steps=9))
    assert (first.with_name("ternary-s0.stale-3")).is_dir()
    assert sorted(p.name for p in second.iterdir()) == ["n.json", "run.json"]


def test_an_input_that_is_not_what_its_run_wrote_is_refused(tmp_path):
    p = settings(tmp_path)
    data = runs.start("10_truthrl_data", p, depends_on=QuestionParams)
    path = rows(data.folder / "train.jsonl", '{"id": 1}\n{"id": 2}\n')
    data.finish({})
    runs.start("12_truthrl_train", p, [path])
    rows(path, '{"id": 1}\n')  # cut between two lines
    with pytest.raises(runs.RunError, match=r"train.jsonl is changed: run 10_truthrl"):
        runs.start("12_truthrl_train", p, [path])


def test_a_folder_without_its_record_is_refused_where_it_holds_something(tmp_path):
    folder = finished(tmp_path)
    (folder / "run.json").unlink()
    with pytest.raises(runs.RunError, match="nobody knows what made the folder"):
        runs.start("12_truthrl_train", settings(tmp_path))


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
