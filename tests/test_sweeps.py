"""The plan of a sweep: which run waits for which, and where each one writes."""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from factkit import arms, params, runs, sweeps
from factkit.params.files import ROOT

DATA, TRAIN = "10_truthrl_data/main-s0", "12_truthrl_train"
FROM_BASE = ("prompting", "sft", "rft", "r_tuning")
REASONING = [a for a in arms.table("truthrl") if "reason" in a]
LATER = [a for a in arms.table("truthrl") if a not in (*FROM_BASE, *REASONING)]


def plan(out: Path, arms: str, *options: str) -> Mapping[str, set[str]]:
    """What a dry run would do: results of a run → those it waits for, below `out`."""
    command = [sys.executable, "-m", "factkit", "sweep", "truthrl", "--profile", "tiny"]
    command += ["--arms", arms, "--output-dir", str(out), *options, "--", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    jobs = re.findall(
        r"^rule \w+:\n    input: (.*)\n    output: (.*)\n",
        done.stdout + done.stderr,
        re.MULTILINE,
    )
    return {
        short(output, out): {short(i, out) for i in inputs.split(", ")} - {""}
        for inputs, output in jobs
    }


def short(path: str, out: Path) -> str:
    """<profile>/<notebook>/<run>, "" for what is no run's."""
    below, _, end = path.rpartition("/")
    return below.removeprefix(f"{out}/") if end == "results.json" else ""


def run_of(arm: str, seed: int = 0, folder: str = "tiny") -> str:
    return f"{folder}/{TRAIN}/{arm}-s{seed}"


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    arms = " ".join((*FROM_BASE, *LATER))
    return plan(tmp_path_factory.mktemp("cold"), arms, "--seeds", "0 7")


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    arms = " ".join((*FROM_BASE, *LATER))
    off = ("--seeds", "0", "--set", "cold_start=false")
    return plan(tmp_path_factory.mktemp("warm"), arms, *off)


@pytest.fixture(scope="module")
def boxed(tmp_path_factory):
    arms = " ".join(REASONING)
    chosen = ("--seeds", "0", "--variant", "reasoning")
    return plan(tmp_path_factory.mktemp("boxed"), arms, *chosen)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("arm", LATER)
def test_a_cold_start_waits_for_r_tuning_of_its_seed(cold, arm, seed):
    expected = {f"tiny/{DATA}", run_of("r_tuning", seed)}
    assert cold[run_of(arm, seed)] == expected


@pytest.mark.parametrize("arm", FROM_BASE)
def test_an_arm_from_the_policy_waits_for_the_data_alone(cold, arm):
    assert cold[run_of(arm)] == {f"tiny/{DATA}"}


@pytest.mark.parametrize("arm", LATER)
def test_without_a_cold_start_no_arm_waits_for_r_tuning(warm, arm):
    assert warm[run_of(arm)] == {f"tiny/{DATA}"}


def test_r_tuning_is_run_for_a_cold_start_that_was_not_asked_for(tmp_path):
    assert run_of("r_tuning") in plan(tmp_path, "ternary", "--seeds", "0")


def test_without_a_cold_start_only_what_was_asked_for_is_trained(tmp_path):
    off = ("--seeds", "0", "--set", "cold_start=false")
    found = [run for run in plan(tmp_path, "ternary", *off) if TRAIN in run]
    assert found == [run_of("ternary")]


def test_the_comparison_and_the_figures_wait_for_every_arm_and_seed(cold):
    wanted = {run_of(a, s) for a in (*FROM_BASE, *LATER) for s in (0, 7)}
    for stage in ("13_truthrl_ablations", "14_truthrl_figures"):
        assert wanted <= cold[f"tiny/{stage}/main-s0"]


def test_a_variant_s_outputs_have_a_folder_of_their_own(boxed):
    runs_planned = set(boxed) - {""}
    assert run_of(REASONING[0], folder="tiny-reasoning") in runs_planned
    assert {run.split("/")[0] for run in runs_planned} == {"tiny-reasoning"}


@pytest.mark.parametrize("arm", REASONING)
def test_a_variant_s_cold_start_is_the_variant_s_own(boxed, arm):
    first = run_of("r_tuning", folder="tiny-reasoning")
    assert first in boxed[run_of(arm, folder="tiny-reasoning")]


@pytest.mark.parametrize("variant", ["", "reasoning"])
def test_the_plan_writes_where_the_notebooks_do(cold, boxed, variant):
    arm = "ternary_reason_additive" if variant else "ternary"
    p = params.load("truthrl", "tiny", {"arm": arm}, variant=variant)
    folder = runs.run_folder(TRAIN, p).relative_to(ROOT / "outputs")
    assert str(folder) in (boxed if variant else cold)


@pytest.mark.parametrize(
    ("variant", "files"),
    [("", ["truthrl"]), ("reasoning", ["truthrl", "truthrl-reasoning"])],
)
def test_papermill_gets_the_profile_s_file_and_then_the_variant_s(
    tmp_path, variant, files
):
    command = [sys.executable, "-m", "factkit", "sweep", "truthrl", "--arms", "ternary"]
    command += ["--seeds", "0", "--variant", variant, "--output-dir", str(tmp_path)]
    command += ["--", "--dry-run", "--printshellcmds"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    said = done.stdout + done.stderr
    (train,) = [x for x in said.splitlines() if "papermill" in x and "arm ternary" in x]
    assert re.findall(r"-f params/tiny/([\w-]+).yaml", train) == files


def test_an_arm_that_the_profile_can_not_run_is_refused_before_the_plan():
    command = [sys.executable, "-m", "factkit", "sweep", "truthrl", "--profile", "tiny"]
    command += ["--arms", REASONING[0], "--", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, "variant=reasoning" in done.stderr) == (2, True)


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


def test_no_value_passes_through_a_shell(tmp_path):
    """`--set 'x=$(…)'` would run, and spaces would end the value."""
    out = tmp_path / "out put"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "factkit", "sweep", "rlfh", "--profile", "tiny"),
            *("--arms", "base", "--output-dir", str(out), "--seeds", "0"),
            *("--set", "truth_map=1 0.5 0 -1 -2", "--set", "requests_path=$(touch x)"),
            *("--", "--dry-run", "--printshellcmds"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    commands = re.findall("papermill notebooks/.*", done.stdout + done.stderr)
    assert len(commands) > 3
    assert not any("touch" in c or "truth_map" in c for c in commands)
    for command in commands:
        words = shlex.split(command)
        assert words[words.index("output_dir") + 1] == str(out)
        (file,) = [Path(w) for w in words if ".overrides-" in w]
        values = yaml.safe_load(file.read_text())
        assert values["truth_map"] == "1 0.5 0 -1 -2"


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


@pytest.mark.parametrize("paper", arms.PAPERS)
def test_the_main_job_has_arms_that_the_paper_has(paper):
    for arm in arms.main(paper):
        assert params.load(paper, "tiny", {"arm": arm}).arm == arm


def trained_after(paper, tmp_path, *options):
    """What each run of a paper's train notebook waits for, in a dry run."""
    command = [sys.executable, "-m", "factkit", "sweep", paper, *options]
    command += ["--seeds", "0", "--output-dir", str(tmp_path), "--", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rules = re.findall(
        r"^rule train:\n    input: (.*)\n    output: (.*)\n",
        done.stdout + done.stderr,
        re.MULTILINE,
    )
    return {
        short(output, tmp_path): {short(i, tmp_path) for i in inputs.split(", ")} - {""}
        for inputs, output in rules
    }


def test_rlfh_s_arms_all_wait_for_the_data_alone(tmp_path):
    found = trained_after("rlfh", tmp_path, "--profile", "tiny")
    assert len(found) == len(arms.table("rlfh"))
    assert all(of == {"tiny/40_rlfh_data/main-s0"} for of in found.values())


@pytest.mark.parametrize("cold_start", [False, True])
def test_veri_s_rl_waits_for_sft_where_the_start_is_cold(tmp_path, cold_start):
    chosen = (
        "--set",
        f"cold_start={cold_start}",
        "--arms",
        " ".join(arms.table("veri")),
    )
    found = trained_after("veri", tmp_path, "--profile", "tiny", *chosen)
    data, train = "tiny/50_veri_data/main-s0", "tiny/52_veri_train"
    untrained = ("instruct", "sft", "larger")
    for arm in arms.table("veri"):
        waits = cold_start and arm not in untrained
        first = {f"{train}/sft-s0"} if waits else set()
        assert found[f"{train}/{arm}-s0"] == {data} | first
    assert len(found) == len(arms.table("veri"))


def test_veri_s_second_model_has_runs_of_its_own(tmp_path):
    chosen = ("--profile", "h100_full", "--variant", "llama3.2-3b")
    found = trained_after("veri", tmp_path, *chosen)
    folder = "h100_full-llama3.2-3b/52_veri_train"
    p = params.load("veri", "h100_full", variant="llama3.2-3b")
    assert set(found) == {f"{folder}/{arm}-s0" for arm in p.arms.split()}
