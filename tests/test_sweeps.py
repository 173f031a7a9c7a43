"""The plan of a sweep: which run waits for which, and where each one writes."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from factkit import doctor, params, runs, sweeps
from factkit.params import ROOT


def dry_run(out: Path, paper: str, *options: str) -> str:
    """What a sweep says that it would do, below `out`."""
    command = [sys.executable, "-m", "factkit", "sweep", paper]
    command += ["--output-dir", str(out), *options, "--", "--dry-run"]
    done = subprocess.run(
        [*command, "--printshellcmds"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert not list(out.rglob("results.json"))
    return done.stdout + done.stderr


def plan(out: Path, paper: str, *options: str) -> tuple[dict[str, set[str]], list[str]]:
    """Each run that would be and those it waits for; papermill's commands."""
    printed = dry_run(out, paper, *options)
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
    """In a variant too, which has a folder and a file of its own."""
    chosen = "prompting sft ternary dpo ternary_reason_additive"
    options = ("--profile", "tiny", "--variant", "reasoning", "--arms", chosen)
    waits, commands = plan(tmp_path, "truthrl", *options, "--seeds", "0 7")
    data = "tiny-reasoning/10_truthrl_data/main-s0"
    train = "tiny-reasoning/12_truthrl_train"
    for arm in chosen.split():
        for seed in (0, 7):
            from_base = arm in ("prompting", "sft")
            first = set() if from_base else {f"{train}/r_tuning-s{seed}"}
            assert waits[f"{train}/{arm}-s{seed}"] == {data} | first
    every = {f"{train}/{arm}-s{seed}" for arm in chosen.split() for seed in (0, 7)}
    for stage in ("13_truthrl_ablations", "14_truthrl_figures"):
        assert every <= waits[f"tiny-reasoning/{stage}/main-s0"]
    (ternary,) = [c for c in commands if "arm ternary -p seed 7" in c]
    files = re.findall(r"-f params/tiny/([\w-]+).yaml", ternary)
    assert files == ["truthrl", "truthrl-reasoning"]
    values = {"arm": "ternary", "seed": 7}
    p = params.load("truthrl", "tiny", values, variant="reasoning")
    folder = runs.run_folder("12_truthrl_train", p)
    assert folder == ROOT / "outputs" / train / "ternary-s7"


def test_without_a_cold_start_only_what_was_asked_for_is_trained(tmp_path):
    """And no value passes a shell: `--set 'x=$(…)'` would run, spaces would end it."""
    out = tmp_path / "out put"
    warm = ("--profile", "tiny", "--seeds", "0", "--set", "cold_start=false")
    sets, file = "nq_open musique", tmp_path / "$(touch x)"
    file.touch()
    odd = ("--set", f"questions_path={file}", "--set", f"eval_sets={sets}")
    waits, commands = plan(out, "truthrl", "--arms", "ternary dpo", *warm, *odd)
    trained = {run: first for run, first in waits.items() if "train" in run}
    data = {"tiny/10_truthrl_data/main-s0"}
    train = "tiny/12_truthrl_train"
    assert trained == {f"{train}/{arm}-s0": data for arm in ("ternary", "dpo")}
    assert len(commands) > 3 and not any("touch" in c for c in commands)
    for command in commands:
        words = shlex.split(command)
        assert words[words.index("output_dir") + 1] == str(out)
        (file,) = [Path(w) for w in words if ".overrides-" in w]
        values = yaml.safe_load(file.read_text("utf-8"))
        assert (values["eval_sets"], values["cold_start"]) == (sets, False)


def commanded(monkeypatch, tmp_path, code=0, **more):
    """The snakemake command line of a sweep, which is not run."""
    seen = []

    def run(command, *_):
        seen.append(command)
        return code, ""

    monkeypatch.setattr(sweeps, "_run", run)
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})
    sweeps.snakemake(p, "truthrl", ["ternary"], [0, 1], **more)
    return seen[0]


def test_what_looks_like_a_number_reaches_snakemake_as_text(monkeypatch, tmp_path):
    from snakemake.cli import parse_config

    monkeypatch.setattr(runs, "profile_folder", lambda p: tmp_path)
    seen = []

    def run(command, *_):
        seen.append(command)
        return 0, ""

    monkeypatch.setattr(sweeps, "_run", run)
    for text in ("1.10", "2026", "010", "1e3", "yes", "null", "ü \U0001f600", "'", ""):
        p = params.load("truthrl", "tiny").model_copy(
            update={"variant": text, "output_dir": text}
        )
        sweeps.snakemake(p, "truthrl", ["sft", "ternary"], [0, 10])
        command = seen.pop()
        sweep = parse_config(command[command.index("--config") + 1 :])["sweep"]
        assert (sweep["variant"], sweep["output_dir"]) == (text, text)
        assert (sweep["arms"], sweep["seeds"]) == (["sft", "ternary"], ["0", "10"])


def test_macos_and_windows_lack_names_that_linux_has(monkeypatch):
    """No machine of theirs was at hand: here the names are taken away."""
    for name in ("sched_getaffinity", "sysconf", "ttyname"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert sweeps.environment(jobs=2)["OMP_NUM_THREADS"] == "1"
    machine = {name: value for name, value, *_ in doctor._machine()}
    assert machine["CPU cores"] == "3"
    assert machine["memory"].endswith(" GiB")


def test_an_interrupted_sweep_says_that_the_same_command_goes_on(monkeypatch, tmp_path):
    def run(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "_run", run)
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})
    with pytest.raises(sweeps.SweepError, match="the same command goes on"):
        sweeps.snakemake(p, "truthrl", ["ternary"], [0])


def test_a_run_that_failed_fails_the_sweep_and_an_unknown_flag_is_named(
    monkeypatch, tmp_path
):
    with pytest.raises(sweeps.SweepError, match="notebook.partial.ipynb"):
        commanded(monkeypatch, tmp_path, code=1)
    with pytest.raises(params.ParamError, match="--dryrunn"):
        commanded(monkeypatch, tmp_path, code=2, extra=["--dryrunn"])


def test_a_run_has_two_threads_or_one_where_there_is_a_core_for_each(
    monkeypatch, tmp_path
):
    """Snakemake sets OMP_NUM_THREADS to a rule's threads, whatever it was."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = dry_run(tmp_path, "truthrl", "--profile", "tiny", "--seeds", "0")
    assert "threads: 3" in told
    monkeypatch.delenv("OMP_NUM_THREADS")
    for cores, jobs, threads in ((2, 1, 2), (2, 2, 1), (8, 3, 2)):
        monkeypatch.setattr(sweeps.child, "cores", lambda cores=cores: cores)
        command = commanded(monkeypatch, tmp_path, jobs=jobs)
        assert command[command.index("--cores") + 1] == str(jobs * threads)
        assert f"threads={threads}" in command
    elsewhere = {"jobs": 9, "extra": ["--executor", "slurm"]}
    assert "threads=2" in commanded(monkeypatch, tmp_path, **elsewhere)


def test_a_sweep_shows_what_begins_and_what_is_done_as_lines_or_a_bar(
    capsys, monkeypatch
):
    """What else Snakemake writes is returned, and shown only on request."""
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    lines = [
        "noise",
        "total        4",
        "== a.ipynb → out/12_x/ternary-s0",
        "3 of 4 steps",
    ]
    script = "; ".join(f"print({line!r}, flush=True)" for line in lines)
    for code in (0, 1):
        command = (sys.executable, "-c", f"{script}; raise SystemExit({code})")
        ended, output = sweeps._run(command, dict(os.environ), "sweep", False)
        assert ended == code and "noise" in output
        out, red = capsys.readouterr()
        assert "3/4" in red and "12_x/ternary-s0" in red and "noise" not in red
        assert out == ""
    sweeps._run(command, dict(os.environ), "", False)
    assert capsys.readouterr().out.splitlines() == lines[2:]
    sweeps._run(command, dict(os.environ), "", True)
    assert capsys.readouterr().out.splitlines() == lines


def test_a_notebook_s_sweep_asks_snakemake_for_the_runs_that_it_lacks(
    tmp_path, monkeypatch
):
    """`train_arms` names its targets and gives no option of its own."""
    started = subprocess.Popen
    monkeypatch.setattr(
        sweeps.child.subprocess,
        "Popen",
        lambda c, **how: started([*c, "--dry-run"], **how),
    )
    values = {"arms": "prompting", "seeds": "3", "output_dir": str(tmp_path)}
    p = params.load("truthrl", "tiny", values)
    with pytest.raises(sweeps.SweepError, match="see the failed"):  # after a dry run
        sweeps.train_arms("truthrl", p)


def test_what_was_made_with_other_values_is_not_shown_as_the_sweep_s(tmp_path):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path), "arm": "sft"})
    runs.start("12_truthrl_train", p).finish({})
    ask = ["truthrl", ["sft"], [0]]
    only = ("--omit-from", "data", "--dry-run")
    sweeps.snakemake(p, *ask, extra=only)
    other = p.model_copy(update={"sft_epochs": 9})
    with pytest.raises(params.ParamError, match=r"sft_epochs=\d+ \(now 9\): give"):
        sweeps.snakemake(other, *ask, extra=only)
