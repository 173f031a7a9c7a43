"""The plan of a sweep: which run waits for which, and where each one writes."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from factkit import arms, params, runs, sweeps
from factkit.params import ROOT

FROM_BASE = ("prompting", "sft", "rft", "r_tuning")


def plan(out: Path, paper: str, *options: str) -> tuple[dict[str, set[str]], list[str]]:
    """A dry run: each run and those it waits for, below `out`; papermill's commands."""
    command = [sys.executable, "-m", "factkit", "sweep", paper]
    command += ["--output-dir", str(out), *options, "--", "--dry-run"]
    done = subprocess.run(
        [*command, "--printshellcmds"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert not list(out.rglob("results.json"))
    printed = done.stdout + done.stderr
    jobs = re.findall(
        r"^rule \w+:\n    input: (.*)\n    output: (.*)\n", printed, re.MULTILINE
    )
    waits = {
        short(output, out): {short(i, out) for i in inputs.split(", ")} - {""}
        for inputs, output in jobs
    }
    return waits, re.findall("papermill notebooks/.*", printed)


def short(path: str, out: Path) -> str:
    """<profile>/<notebook>/<run>, "" for what is no run's."""
    below, _, end = path.rpartition("/")
    return below.removeprefix(f"{out}/") if end == "results.json" else ""


def test_truthrl_s_rl_waits_for_r_tuning_of_its_seed_asked_for_or_not(tmp_path):
    named = [arm for arm in arms.table("truthrl") if "reason" not in arm]
    asked = " ".join(arm for arm in named if arm != "r_tuning")
    options = ("--profile", "tiny", "--arms", asked, "--seeds", "0 7")
    waits, commands = plan(tmp_path, "truthrl", *options)
    data, train = "tiny/10_truthrl_data/main-s0", "tiny/12_truthrl_train"
    for arm in named:
        for seed in (0, 7):
            first = set() if arm in FROM_BASE else {f"{train}/r_tuning-s{seed}"}
            assert waits[f"{train}/{arm}-s{seed}"] == {data} | first
    every = {f"{train}/{arm}-s{seed}" for arm in asked.split() for seed in (0, 7)}
    for stage in ("13_truthrl_ablations", "14_truthrl_figures"):
        assert every <= waits[f"tiny/{stage}/main-s0"]
    (ternary,) = [c for c in commands if "arm ternary -p seed 7" in c]
    assert re.findall(r"-f params/tiny/([\w-]+).yaml", ternary) == ["truthrl"]
    p = params.load("truthrl", "tiny", {"arm": "ternary", "seed": 7})
    assert runs.run_folder("12_truthrl_train", p) == (
        ROOT / "outputs" / train / "ternary-s7"
    )


def test_without_a_cold_start_only_what_was_asked_for_is_trained(tmp_path):
    warm = ("--profile", "tiny", "--seeds", "0", "--set", "cold_start=false")
    waits, _ = plan(tmp_path, "truthrl", "--arms", "ternary dpo", *warm)
    trained = {run: first for run, first in waits.items() if "train" in run}
    data = {"tiny/10_truthrl_data/main-s0"}
    train = "tiny/12_truthrl_train"
    assert trained == {f"{train}/{arm}-s0": data for arm in ("ternary", "dpo")}


def test_a_variant_has_a_folder_a_cold_start_and_a_file_of_its_own(tmp_path):
    arm, train = "ternary_reason_additive", "tiny-reasoning/12_truthrl_train"
    chosen = ("--profile", "tiny", "--seeds", "0", "--variant", "reasoning")
    waits, commands = plan(tmp_path, "truthrl", "--arms", arm, *chosen)
    assert {run.split("/")[0] for run in waits if run} == {"tiny-reasoning"}
    assert f"{train}/r_tuning-s0" in waits[f"{train}/{arm}-s0"]
    (command,) = [c for c in commands if f"arm {arm}" in c]
    files = re.findall(r"-f params/tiny/([\w-]+).yaml", command)
    assert files == ["truthrl", "truthrl-reasoning"]
    p = params.load("truthrl", "tiny", {"arm": arm}, variant="reasoning")
    folder = runs.run_folder("12_truthrl_train", p)
    assert folder == ROOT / "outputs" / train / f"{arm}-s0"


def test_rlfh_s_arms_wait_for_the_data_alone_and_no_value_passes_a_shell(tmp_path):
    """`--set 'x=$(…)'` would run, and spaces would end the value."""
    out = tmp_path / "out put"
    maps = ("--set", "truth_map=1 0.5 0 -1 -2", "--set", "requests_path=$(touch x)")
    options = ("--profile", "tiny", "--seeds", "0", *maps)
    waits, commands = plan(out, "rlfh", *options)
    trained = {run: first for run, first in waits.items() if "train" in run}
    data = {"tiny/40_rlfh_data/main-s0"}
    train = "tiny/42_rlfh_train"
    assert trained == {f"{train}/{arm}-s0": data for arm in arms.table("rlfh")}
    assert len(commands) > 3
    assert not any("touch" in c or "truth_map" in c for c in commands)
    for command in commands:
        words = shlex.split(command)
        assert words[words.index("output_dir") + 1] == str(out)
        (file,) = [Path(w) for w in words if ".overrides-" in w]
        values = yaml.safe_load(file.read_text())
        assert values["truth_map"] == "1 0.5 0 -1 -2"


def test_veri_s_rl_waits_for_sft_and_its_second_model_has_runs_of_its_own(tmp_path):
    chosen = ("--profile", "h100_full", "--variant", "llama3.2-3b", "--seeds", "0")
    waits, _ = plan(tmp_path, "veri", *chosen, "--set", "cold_start=true")
    p = params.load("veri", "h100_full", variant="llama3.2-3b")
    folder = "h100_full-llama3.2-3b"
    for arm in p.arms.split():
        first = {f"{folder}/50_veri_data/main-s0"}
        if arm not in ("instruct", "sft", "larger"):
            first.add(f"{folder}/52_veri_train/sft-s0")
        assert waits[f"{folder}/52_veri_train/{arm}-s0"] == first


def commanded(monkeypatch, tmp_path, code=0, **more):
    """The snakemake command line of a sweep, which is not run."""
    seen = []

    def run(command, **_):
        seen.append(command)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", run)
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})
    sweeps.snakemake(p, "truthrl", ["ternary"], [0, 1], **more)
    return seen[0]


def test_a_value_set_on_the_command_line_reaches_papermill(monkeypatch, tmp_path):
    overrides = {"rl_steps": 3, "cold_start": False}
    command = commanded(monkeypatch, tmp_path, overrides=overrides)
    (file,) = [c.removeprefix("overrides=") for c in command if "overrides=" in c]
    assert yaml.safe_load(Path(file).read_text()) == overrides


def test_an_interrupted_sweep_says_that_the_same_command_goes_on(monkeypatch, tmp_path):
    def run(command, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", run)
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})
    with pytest.raises(sweeps.SweepError, match="the same command goes on"):
        sweeps.snakemake(p, "truthrl", ["ternary"], [0])


def test_a_flag_that_snakemake_lacks_is_named_in_a_line(monkeypatch, tmp_path):
    with pytest.raises(params.ParamError, match="arguments: --dryrunn"):
        commanded(monkeypatch, tmp_path, extra=["--dryrunn"])
    commanded(monkeypatch, tmp_path, extra=["--dry-run", "--executor", "local"])


def test_a_run_that_failed_fails_the_sweep(monkeypatch, tmp_path):
    with pytest.raises(sweeps.SweepError, match="notebook.partial.ipynb"):
        commanded(monkeypatch, tmp_path, code=1)


def test_jobs_at_a_time_have_two_cores_each(monkeypatch, tmp_path):
    command = commanded(monkeypatch, tmp_path, jobs=3)
    assert command[command.index("--cores") + 1] == "6"


def test_the_main_jobs_have_arms_that_their_papers_have():
    for paper in arms.PAPERS:
        for arm in arms.main(paper):
            assert params.load(paper, "tiny", {"arm": arm}).arm == arm
