"""The committed reference results are whole and say where they come from."""

import csv
import itertools
import json
import re
import shutil

import nbformat
import pytest
import store_reference

from factkit.run import arms, folders, params
from factkit.run.params import ROOT
from factkit.run.results import write_results

REFERENCE = ROOT / "outputs" / "reference"
OWN = {"seed", "output_dir", "claims_path"}  # where a user's files are
RESULTS = {
    "/".join(path.parts[-4:-1]): json.loads(path.read_text("utf-8"))
    for path in sorted(REFERENCE.glob("*/*/*/results.json"))
}
RUNS = {name: result for name, result in RESULTS.items() if "_train/" in name}


def settings():
    """The parameters of each profile for CPUs and of its variants, a paper each."""
    for profile in ("tiny", "laptop"):
        for paper in arms.find_papers():
            for variant in ("", *params.variants(paper, profile)):
                p = params.load(paper, profile, variant=variant)
                if not p.has_own_data:
                    yield paper, p


def test_reference_results_name_hardware_time_and_commit_and_no_path():
    assert len(RESULTS) > 100
    offenders = [
        name
        for name, result in RESULTS.items()
        if result["status"] != "done"
        or not (result["device"] and result["wall_s"] > 0 and result["git"])
        or any(str(value).startswith("/") for value in result["params"].values())
    ]
    assert offenders == []


def test_the_arms_of_a_table_were_measured_at_one_commit():
    commits = {}
    for name, result in RUNS.items():
        setting, notebook, _ = name.split("/")
        commits.setdefault(f"{setting}/{notebook}", set()).add(result["git"])
    assert {name for name, of in commits.items() if len(of) > 1} == set()


def test_runs_of_two_commits_are_not_stored(tmp_path, monkeypatch):
    for seed, commit in enumerate("ab"):
        folder = tmp_path / f"outputs/tiny/42_rlfh_train/base-s{seed}"
        kept = REFERENCE / folder.relative_to(tmp_path / "outputs")
        shutil.copytree(kept, folder)
        content = json.loads((kept / "results.json").read_text("utf-8"))
        write_results(folder, {**content, "git": commit})
    monkeypatch.setattr(params, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"\['a', 'b'\]"):
        store_reference.store("rlfh", "tiny")


def test_a_stored_notebook_has_results_and_neither_bars_nor_paths():
    stored = sorted(REFERENCE.glob("tiny/*/*/notebook.ipynb"))
    assert stored
    assert sum(path.stat().st_size for path in stored) < 8e6
    for path in stored:
        notebook = nbformat.read(path, as_version=4)
        outputs = [o for c in notebook.cells for o in c.get("outputs", ())]
        assert any("data" in o for o in outputs), path
        assert {o.get("name", "stdout") for o in outputs} == {"stdout"}, path
        text = path.read_text("utf-8")
        assert not re.search(r"/(root|home|work|tmp|Users)/", text), path
        assert store_reference.clean(notebook) == notebook


def test_every_arm_and_seed_of_a_profile_and_its_variants_has_a_reference():
    missing = []
    for paper, p in settings():
        notebook = arms.find_papers()[paper].notebooks["train"]
        folder = folders.profile_folder(p).name
        for arm, seed in itertools.product(p.arm_names, p.seed_numbers):
            run = f"{folder}/{notebook}/{arm}-s{seed}"
            missing += [run] if run not in RUNS else []
    assert missing == []


def test_reference_runs_have_their_profile_s_present_parameters():
    offenders = {}
    for name, result in RUNS.items():
        had = result["params"]
        p = params.load(result["paper"], had["profile"], variant=had["variant"])
        keys = set(
            arms.find_papers()[result["paper"]].arms[result["arm"]].reads.model_fields
        )
        # what came later has the value that left things as they were
        later = {k: f.default for k, f in type(p).model_fields.items()}
        differs = {
            key: value
            for key, value in p.model_dump(include=keys - OWN).items()
            if had.get(key, later[key]) != value
        }
        if differs:
            offenders[name] = differs
    assert offenders == {}


def test_the_curves_of_reference_runs_are_whole():
    for name, result in RUNS.items():
        algorithm = arms.find_papers()[result["paper"]].arms[result["arm"]].algorithm
        if algorithm in ("GRPO", "PPO"):
            with (REFERENCE / name / "metrics.csv").open(encoding="utf-8") as f:
                steps = len(list(csv.DictReader(f)))
            assert steps == result["params"]["rl_steps"], name
