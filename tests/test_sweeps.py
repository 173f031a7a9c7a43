"""The plan of a sweep: which run waits for which, and where each one writes."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from factkit import UserError
from factkit.gpu import doctor
from factkit.run import folders, gpus, params, runs, sweeps
from factkit.run.params import ROOT


def dry_run(out: Path, paper: str, *options: str, extra: tuple[str, ...] = ()) -> str:
    """What a sweep says that it would do, below `out`."""
    command = [sys.executable, "-m", "factkit", "sweep", paper]
    command += ["--output-dir", str(out), *options, "--", "--dry-run"]
    done = subprocess.run(
        [*command, "--printshellcmds", *extra], capture_output=True, text=True, cwd=ROOT
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


def test_truthrl_s_rl_waits_for_its_start_of_its_seed_asked_for_or_not(tmp_path):
    """In a variant too, which has a folder and a file of its own."""
    chosen = "prompting sft ternary dpo ternary_reason_additive"
    options = ("--profile", "tiny", "--variant", "reasoning", "--arms", chosen)
    waits, commands = plan(tmp_path, "truthrl", *options, "--seeds", "0 7")
    data = "tiny-reasoning/10_truthrl_data/main-s0"
    train = "tiny-reasoning/12_truthrl_train"
    for arm in chosen.split():
        for seed in (0, 7):
            from_base = arm in ("prompting", "sft")
            start = f"{train}/random_abstention-s{seed}"
            first = set() if from_base else {start}
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
    sweeps.Sweep("truthrl", p, ["ternary"], [0, 1]).run(**more)
    return seen[0]


def test_what_looks_like_a_number_reaches_snakemake_as_text(monkeypatch, tmp_path):
    from snakemake.cli import parse_config

    monkeypatch.setattr(folders, "profile_folder", lambda p: tmp_path)
    seen = []

    def run(command, *_):
        seen.append(command)
        return 0, ""

    monkeypatch.setattr(sweeps, "_run", run)
    for text in ("1.10", "2026", "010", "1e3", "yes", "null", "ü \U0001f600", "'", ""):
        p = params.load("truthrl", "tiny").model_copy(
            update={"variant": text, "output_dir": text}
        )
        sweeps.Sweep("truthrl", p, ["sft", "ternary"], [0, 10]).run()
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
        sweeps.Sweep("truthrl", p, ["ternary"], [0]).run()


def test_a_run_that_failed_fails_the_sweep_and_an_unknown_flag_is_named(
    monkeypatch, tmp_path
):
    with pytest.raises(sweeps.SweepError, match="Snakemake's own error"):
        commanded(monkeypatch, tmp_path, code=1)
    notebook = tmp_path / "tiny" / "12_x" / "sft-s0" / "notebook.partial.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.write_text('{"cells": []}', "utf-8")
    os.utime(notebook, (time.time() + 60,) * 2)  # written while it ran
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
    only = ("--omit-from", "data", "--dry-run")
    sweeps.Sweep("truthrl", p, ["sft"], [0]).run(extra=only)
    other = p.model_copy(update={"sft_epochs": 9})
    with pytest.raises(params.ParamError, match=r"sft_epochs=\d+ \(now 9\): give"):
        sweeps.Sweep("truthrl", other, ["sft"], [0]).run(extra=only)


CONTEND = """
import os, time
for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
    os.close(os.open(gpu, os.O_CREAT | os.O_EXCL))
time.sleep(0.2)
for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
    os.remove(gpu)
"""


def on_gpus(number, script, tmp_path):
    """A process that holds GPUs out of three, which nvidia-smi does not know."""
    own = {"CUDA_VISIBLE_DEVICES": "0,2,GPU-a1", "TMPDIR": str(tmp_path)}
    python = [sys.executable, "-c", script]
    command = [sys.executable, "-m", "factkit.run.gpus", str(number), *python]
    env = os.environ | own | {"PATH": "", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=tmp_path, env=env)


def test_no_gpu_is_given_to_two_runs_at_once(tmp_path):
    """Nor do runs wait for each other's; what the user hides stays hidden."""
    each = [on_gpus(n, CONTEND, tmp_path) for n in (1, 2, 3, 1, 2, 2, 1, 3)]
    assert [process.wait(60) for process in each] == [0] * 8
    assert on_gpus(4, CONTEND, tmp_path).wait() == 1


def test_the_gpus_of_a_killed_run_are_free(tmp_path):
    mark = "import pathlib, time; pathlib.Path('held').touch(); time.sleep(600)"
    holder = on_gpus(3, mark, tmp_path)
    while not (tmp_path / "held").exists():
        assert holder.poll() is None
        time.sleep(0.05)
    waiting = on_gpus(3, CONTEND, tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(2)
    holder.kill()
    holder.wait()
    assert waiting.wait(60) == 0


def test_gpus_are_named_as_cuda_names_them_and_known_by_their_uuid(
    monkeypatch, tmp_path
):
    smi = tmp_path / "nvidia-smi"
    lines = [f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-5e-{i})" for i in range(4)]
    smi.write_text("#!/bin/sh\necho '" + "\n".join(lines) + "'\n", "utf-8")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for names, uuids in (
        (None, {str(i): f"GPU-5e-{i}" for i in range(4)}),
        ("3,1", {"3": "GPU-5e-3", "1": "GPU-5e-1"}),
        ("GPU-5e-1", {"GPU-5e-1": "GPU-5e-1"}),
        ("", {}),
        ("-1", {}),
    ):
        if names is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
        assert gpus.visible() == uuids, names


@pytest.mark.parametrize("where", ["here", "slurm"])
def test_a_run_asks_for_the_gpus_memory_and_minutes_that_it_takes(where, tmp_path):
    """GPUs only for data and training, and none at a CPU's profile."""
    pytest.importorskip("snakemake_executor_plugin_slurm") if where == "slurm" else None
    on_cpu = {"mem_mb": "6000", "runtime": "240"}
    gpus_of = {"h100_full": 8, "tiny": 0}
    gpus_of |= {} if where == "slurm" else {"h100_lora": 1, "laptop": 0}
    for profile, n in gpus_of.items():
        options = ("--profile", profile, "--seeds", "0", "--arms", "sft")
        more = ("--executor", "slurm") * (where == "slurm")
        printed = dry_run(tmp_path, "truthrl", *options, extra=more)
        rules = re.findall(
            r"^rule (\w+):\n(?:    .*\n)*?    resources: (.*)", printed, re.M
        )
        asked = {
            rule: dict(re.findall(r"(gpu|mem_mb|runtime|cpus_per_task)=(\d+)", text))
            for rule, text in rules
            if rule != "all"
        }
        of_run = {**on_cpu, "gpu": str(n)}
        if n:
            share = {"cpus_per_task": 8 * n, "mem_mb": 100_000 * n, "runtime": 2880}
            of_run |= {key: str(value) for key, value in share.items()}
        assert asked == {
            **dict.fromkeys(("data", "train"), of_run),
            **dict.fromkeys(("rewards", "ablations", "figures"), on_cpu),
        }


def test_an_executor_whose_jobs_share_no_files_is_refused(tmp_path):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})
    sweep = sweeps.Sweep("truthrl", p, ["sft"], [0])
    with pytest.raises(UserError, match="in one pod"):
        sweep.run(extra=["--executor", "kubernetes"])


def test_a_sweep_is_refused_where_a_run_takes_more_gpus_than_there_are(
    monkeypatch, tmp_path
):
    values = {"output_dir": str(tmp_path), "judge_url": "http://127.0.0.1:1/v1"}
    p = params.load("truthrl", "h100_full", values)
    monkeypatch.setattr(
        sweeps, "_run", lambda command, *_: seen.append(command) or (0, "")
    )
    seen, sweep = [], sweeps.Sweep("truthrl", p, ["sft"], [0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6")
    with pytest.raises(UserError, match="takes 8 GPU.*and 7 are visible"):
        sweep.run()
    assert not seen
    sweep.run(extra=["--executor", "slurm"])  # not this machine's
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    sweep.run()
    assert ["gpu=8" in command for command in seen] == [False, True]
    assert ['"slots": "yes"' in command[-1] for command in seen] == [False, True]


def test_beside_another_sweep_of_the_paper_all_is_trained_before_it_waits(
    monkeypatch, tmp_path
):
    p = params.load("truthrl", "tiny", {"output_dir": str(tmp_path)})
    sweep = sweeps.Sweep("truthrl", p, ["ternary"], [3], ablations=True)
    sweep.folder.mkdir()
    commands, comparing = [], FileLock(sweep.folder / ".truthrl.sweep.lock")

    def run(command, *_):
        commands.append([w for w in command if w.endswith("results.json")])
        comparing.release()
        return 0, ""

    monkeypatch.setattr(sweeps, "_run", run)
    with comparing:
        sweep.run()
    made = {Path(name).parent.name for name in commands[0]}
    assert made == {"main-s0", "random_abstention-s3", "ternary-s3"}
    assert commands[1:] == [[]]  # all


PAPERMILL = """#!{python}
import pathlib, sys, time
from factkit.run import machine, params, runs
words = sys.argv
name, partial = pathlib.Path(words[1]).stem, pathlib.Path(words[2])
own = [i for i, word in enumerate(words) if word in ("-p", "-r")]
values = {{words[i + 1]: words[i + 2] for i in own}}
values = {{k: int(v) if k == "seed" else v for k, v in values.items()}}
p = params.load("rar", "tiny", values)
machine.device = str  # without torch
run = runs.start(name, p)
while values.get("arm") == "base" and not (partial.parents[1] / "dpo-s0").exists():
    time.sleep(0.1)
run.finish({{}})
partial.touch()
with open("{log}", "a") as log:
    print(partial.parent.name, name, file=log)
"""
BESIDE = """
import sys
from factkit.run import params, sweeps
made = sweeps.environment
sweeps.environment = lambda *a: made(*a) | {"PATH": sys.argv[1] + ":" + made()["PATH"]}
p = params.load("rar", "tiny", {"output_dir": sys.argv[2]})
sweeps.Sweep("rar", p, sys.argv[3].split(), [0], ablations=True).run(jobs=2)
"""


@pytest.mark.slow
def test_two_sweeps_of_one_folder_train_side_by_side_and_make_each_run_once(tmp_path):
    """`base` ends only when the other sweep's `dpo` has begun; `sft` is of both."""
    out, log, fake = tmp_path / "out", tmp_path / "log", tmp_path / "papermill"
    fake.write_text(PAPERMILL.format(python=sys.executable, log=log), "utf-8")
    fake.chmod(0o755)
    command = [sys.executable, "-c", BESIDE, str(tmp_path), str(out)]
    sweeps_ = [
        subprocess.Popen([*command, arms], cwd=ROOT, stdout=-1, stderr=-2, text=True)
        for arms in ("base sft", "sft dpo")
    ]
    told = [process.communicate(timeout=300)[0] for process in sweeps_]
    assert [process.returncode for process in sweeps_] == [0, 0], told
    made = log.read_text("utf-8").splitlines()
    trained = [f"{arm}-s0 22_rar_train" for arm in ("base", "sft", "dpo")]
    once = [line for line in made if "_data" in line or "_train" in line]
    assert sorted(once) == sorted(["main-s0 20_rar_data", *trained])
    assert made.count("main-s0 23_rar_ablations") == 2
    assert made.count("main-s0 24_rar_figures") == 2
    assert "waiting for another sweep" in "".join(told)
