"""Run folders: one a notebook × profile × arm × seed, done if results.json says so."""

import hashlib
import json
import math
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Self

from factkit import UserError, cpu, source_digest, statistics
from factkit.assets import write_atomically
from factkit.params import ROOT, papermill_files
from factkit.params.stages import RunParams

if TYPE_CHECKING:
    import pandas as pd
    from filelock import FileLock
    from IPython.display import Image
    from matplotlib.figure import Figure

SCHEMA = 1
NAMED = ("notebook", "paper", "profile", "arm", "seed", "status", "params", "metrics")
ENDING_S = 3.0  # a killed run's kernel takes a moment to end
REFERENCE = ROOT / "outputs" / "reference"
# where services answer, and how much at a time: a run goes on with other values
ADDRESSES = {
    *("vllm_server_url", "judge_url", "search_url", "reward_url", "relevance_url"),
    *("judge_key", "judge_headers", "judge_concurrency", "judge_timeout"),
    *("judge_max_calls", "vllm_memory", "micro_batch_size"),
}
# and how else it is computed, and its name: not what comes out
ELSEWHERE = ADDRESSES | {
    *("output_dir", "arm", "arms", "seed", "seeds", "rollouts", "num_processes"),
    *("vllm_tensor_parallel", "vllm_server_gpus", "deepspeed", "lora_backend"),
    *("eval_batch_size", "max_context_length"),
}
REPORTED_PACKAGES = ("torch", "transformers", "trl", "peft", "papermill")


class RunError(UserError):
    """A run can't be started as asked; the message says why and what to do."""


@dataclass
class Run:
    """A run in progress; `folder` holds all that it writes, and nobody else may.

    lock: held until the run is finished, or until this process ends. reference_arms:
    the arms of which it reads results that the kit ships, in order.
    """

    notebook: str
    params: RunParams
    folder: Path
    inputs: dict[str, str]
    started: str
    lock: "FileLock"
    clock: float = field(default_factory=time.monotonic)
    reference_arms: dict[str, None] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def expected(self, figure: str, run: str = "main-s0") -> "Image":
        """What will come out: the figure of the reference results of this profile, or
        of `tiny`, to look at before anything is computed."""
        from IPython.display import Image

        file = Path(self.notebook, run, "figures", f"{figure}.png")
        own = REFERENCE / self.params.profile / file
        shown = own if own.is_file() else REFERENCE / "tiny" / file
        return Image(filename=shown, width=720)

    def record_inputs(self, *groups: Iterable[Mapping[str, Any]]) -> None:
        """Name the results that this run reads, as results.json will list them.

        groups: results of other runs. Those that the kit ships are named below each
        figure from here on.
        """
        for result in chain(*groups):
            path = Path(result["folder"]) / "results.json"
            self.inputs[relative(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
            if result.get("reference"):
                self.reference_arms[result["arm"].removesuffix(" (reference)")] = None

    def figure(self, fig: "Figure", name: str) -> "Figure":
        """Save a figure as figures/<name>.png; returns it for the cell to show.

        A line below it names the arms whose results are the reference's.
        """
        import io

        from matplotlib import pyplot

        if self.reference_arms:
            names = ", ".join(self.reference_arms)
            note = fill(f"Reference results, not your own runs: {names}", 100)
            fig.text(0, -0.01, note, va="top", fontsize=7, color="#555555")
        path = self.folder / "figures" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        picture = io.BytesIO()
        fig.savefig(
            picture, format="png", dpi=150, facecolor="white", bbox_inches="tight"
        )
        write_atomically(path, picture.getvalue())
        pyplot.close(fig)  # one of pyplot's would be shown twice
        return fig

    def finish(
        self,
        metrics: Mapping[str, float],
        deviations: Sequence[str] = (),
        items: Mapping[str, Mapping[str, float | None]] | None = None,
    ) -> dict[str, Any]:
        """Write items.csv, then results.json, last and atomically; returns its content.

        metrics: flat name → finite number; rates are fractions. deviations: sentences
        that say what differs from the paper. items: test item → its value in some of
        the metrics, None or absent where it does not count; what claims are judged by.
        Raises ValueError on NaN or no number, and if a metric is not the mean of its
        items.
        """
        for name, value in metrics.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"metric {name}={value!r} is not a finite number")
        if items:
            self._write_items(metrics, items)
        recipe = self.folder / "recipe.json"
        arm = self.folder.name.rsplit("-s", 1)[0]
        values = {k: _portable(v) for k, v in self.params.model_dump().items()}
        if "reward" in self.inputs:  # not the arm whose set-up it shares
            values["arm"] = arm
        results = {
            "schema": SCHEMA,
            "notebook": self.notebook,
            "paper": self.notebook.split("_")[1],
            "profile": self.params.profile,
            "variant": self.params.variant,
            "arm": arm,
            "seed": self.params.seed,
            "status": "done",
            "params": values,
            "inputs": self.inputs,
            "metrics": dict(metrics),
            "wall_s": round(time.monotonic() - self.clock, 1),
            "started": self.started,
            "versions": {name: version(name) for name in REPORTED_PACKAGES}
            | {"python": platform.python_version()},
            "device": device(),
            "git": git_commit(),
            "recipe": json.loads(recipe.read_text("utf-8")) if recipe.is_file() else {},
            "deviations": list(deviations),
        }
        write_atomically(self.folder / "results.json", json.dumps(results, indent=1))
        self.lock.release(force=True)
        return results

    def _write_items(
        self, metrics: Mapping[str, float], items: Mapping[str, Mapping]
    ) -> None:
        """Write items.csv: arm, seed, item, then a column a metric."""
        import pandas as pd

        table = pd.DataFrame.from_dict(items, orient="index", dtype=float)
        for name in table:
            mean = statistics.mean_of(item_values(table, name))
            if name not in metrics or abs(mean - metrics[name]) > 1e-6:
                raise ValueError(
                    f"items of {name}: their mean is {mean}, the metric is "
                    f"{metrics.get(name)}; items are the terms of a metric's mean"
                )
        table.insert(0, "arm", self.folder.name.rsplit("-s", 1)[0])
        table.insert(1, "seed", self.params.seed)
        text = table.to_csv(index_label="item", float_format="%.7g")
        write_atomically(self.folder / "items.csv", text)


# ---- a run's start


def run_folder(notebook: str, params: RunParams) -> Path:
    """outputs/<profile>/<notebook>/<arm>-s<seed>, or …/main-s0 if it has no arms."""
    has_arms = notebook.endswith("_train")
    name = f"{params.arm}-s{params.seed}" if has_arms else "main-s0"
    return profile_folder(params) / notebook / name


def profile_folder(params: RunParams) -> Path:
    """outputs/<profile>, or outputs/<profile>-<variant> for a variant's runs."""
    name = "-".join(filter(None, (params.profile, params.variant)))
    return ROOT / params.output_dir / name


def start(
    notebook: str,
    params: RunParams,
    inputs: Iterable[Path] = (),
    depends_on: type[RunParams] | None = None,
    wait: bool = False,
    reward: Callable | None = None,
) -> Run:
    """Open the run's folder, keeping what an earlier, killed run completed there.

    inputs: files the run depends on. depends_on: the parameter class whose keys it
    depends on, where not all. If the folder was made with other values of these or
    other inputs, it is moved aside to <name>.stale-<n>, never mixed with the new run.
    wait: for another process that writes the folder, if there is one. reward: a
    function of the caller's own; the run is named after it and depends on its source.

    Raises RunError if an input is missing, cut off or of a run with other values of
    what both depend on, another process writes the folder, or its run.json can't be
    read.
    """
    folder = run_folder(notebook, params)
    inputs = list(inputs)
    digests = {relative(path): _digest(path, params) for path in inputs}
    keys = set((depends_on or type(params)).model_fields) - {"output_dir"} - ADDRESSES
    for made in dict.fromkeys(path.parent for path in inputs):
        if other := made_otherwise(made, params, keys):
            raise RunError(
                f"{relative(made)} was made with {other}: run {made.parent.name} "
                "again, or give another output_dir"
            )
    if reward:
        folder = folder.with_name(f"{reward.__name__}-s{params.seed}")
        digests["reward"] = source_digest(reward)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = _lock(folder, wait)
    identity = {"params": params.model_dump(include=keys), "inputs": digests}
    record = folder / "run.json"
    if record.exists():
        before = _recorded(record)["identity"]
        # a parameter that came later had the value that left things as they were
        fields = type(params).model_fields
        later = {k: fields[k].default for k in keys if not fields[k].is_required()}
        had = {k: v for k, v in before["params"].items() if k not in ADDRESSES}
        before["params"] = later | had
        if before != identity:
            _move_aside(folder, before["params"], identity["params"])
    folder.mkdir(exist_ok=True)
    if not record.exists():
        text = json.dumps({"identity": identity, "started": _now()}, indent=1)
        write_atomically(record, text)
    return Run(notebook, params, folder, digests, _recorded(record)["started"], lock)


def made_otherwise(folder: Path, params: RunParams, keys: Iterable[str]) -> str:
    """Which of the keys a run that wrote the folder had with other values, in words.

    Not those that say where it was computed. "" if there are none, or no run.json.
    """
    record = folder / "run.json"
    made = _recorded(record)["identity"]["params"] if record.is_file() else {}
    here = params.model_dump(include=set(keys) - ELSEWHERE)
    return ", ".join(
        f"{key}={made[key]!r} (now {value!r})"
        for key, value in sorted(here.items())
        if key in made and made[key] != value
    )


def _digest(path: Path, p: RunParams) -> str:
    """The SHA-256 of an input. Raises RunError if it is missing or was cut off."""
    content = path.read_bytes() if path.is_file() else b""
    if not content or (path.suffix == ".jsonl" and not content.endswith(b"\n")):
        stem = path.parent.parent.name
        how = papermill_files(stem.split("_")[1], p.profile, p.variant)
        if p.output_dir != "outputs":
            how += f" -r output_dir {p.output_dir!r}"
        raise RunError(
            f"{relative(path)} is {'cut off' if content else 'missing'}: run {stem} "
            f"first, by\npapermill notebooks/{stem}.ipynb {stem}.out.ipynb {how} "
            "--log-level ERROR"
        )
    return hashlib.sha256(content).hexdigest()


def _lock(folder: Path, wait: bool) -> "FileLock":
    """The right to write a run's folder; it ends with this process, however it ends.

    The lock's file stands beside the folder, which may be moved aside, and says who has
    it. Raises RunError if another process does.
    """
    from filelock import FileLock, Timeout

    path = folder.with_name(f".{folder.name}.lock")
    lock = FileLock(path, is_singleton=True)
    try:
        lock.acquire(timeout=-1 if wait else ENDING_S)
    except Timeout:
        holder = path.read_text("utf-8").strip()
        raise RunError(
            f"{relative(folder)} is being written by {holder}: wait until it is done, "
            "or stop it"
        ) from None
    holder = f"process {os.getpid()} on {platform.node()} since {_now()}\n"
    path.write_text(holder, "utf-8")
    return lock


def _recorded(record: Path) -> dict[str, Any]:
    """A run.json's content. Raises RunError if it is none."""
    try:
        made = json.loads(record.read_text(encoding="utf-8"))
        return {"identity": made["identity"], "started": made["started"]}
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{relative(record)} can't be read ({error!r}), so nobody knows what made "
            f"the folder: move {relative(record.parent)} away"
        ) from None


def _move_aside(
    folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    changed = ", ".join(
        f"{key}={before.get(key)!r} (now {value!r})"
        for key, value in now.items()
        if before.get(key) != value
    )
    number = len(list(folder.parent.glob(f"{folder.name}.stale-*"))) + 1
    aside = folder.with_name(f"{folder.name}.stale-{number}")
    shutil.move(folder, aside)
    made = changed or "other input data or another reward"
    print(f"{relative(folder)} was made with {made}: moved to {aside.name}")


# ---- what runs stored


def read_results(folder: Path) -> dict[str, Any] | None:
    """The content of a run's results.json, or None if the run is not done."""
    path = folder / "results.json"
    if not path.is_file():
        return None
    try:
        results = json.loads(path.read_text(encoding="utf-8")) | {"folder": str(folder)}
        if lacking := [key for key in NAMED if key not in results]:
            raise ValueError(f"no {', '.join(lacking)}")
    except (ValueError, TypeError) as error:
        print(f"{relative(path)} is left out, for it can't be read: {error}")
        return None
    return results if results["status"] == "done" else None


def all_results(*folders: Path) -> list[dict[str, Any]]:
    """The results of every finished run below the folders, sorted by their paths."""
    paths = sorted(p for folder in folders for p in folder.rglob("results.json"))
    read = (read_results(p.parent) for p in paths if ".stale-" not in str(p))
    return [results for results in read if results]


def read_items(folder: Path | str) -> "pd.DataFrame | None":
    """The items that a run stored, a row an item, a column a metric; None without."""
    import pandas as pd

    path = Path(folder) / "items.csv"
    if not path.is_file():
        return None
    table = pd.read_csv(path, index_col="item", dtype={"item": str})
    return table.drop(columns=["arm", "seed"])


def item_values(
    table: "pd.DataFrame", metric: str, prefix: str = ""
) -> statistics.Items:
    """Item → (value, weight) of those that count in a metric.

    prefix: of the columns' names, as of an iteration's metrics.
    """
    values = table[prefix + metric]
    weight = statistics.WEIGHTS.get(metric)
    weights = table[prefix + weight] if weight else values.notna().astype(float)
    kept = values.notna() & weights.notna()
    pairs = zip(values[kept], weights[kept], strict=True)
    return dict(zip(table.index[kept], pairs, strict=True))


# ---- this machine


def device() -> str:
    """The hardware in words: GPU names, or the number of CPU threads torch uses, and
    whether the processor takes float32 in place of bfloat16."""
    import torch

    if torch.cuda.is_available():
        n = torch.cuda.device_count()
        return f"{n} × {torch.cuda.get_device_name(0)}"
    words = f"CPU, {torch.get_num_threads()} threads, {platform.machine()}"
    lacks = cpu.dtype("bfloat16") != "bfloat16"
    return f"{words} without bfloat16 (float32 in its place)" if lacks else words


def git_commit() -> str:
    """The commit of the kit's working tree, with a + if it has changes; without one,
    "none" and the reason, as "none: not a git repository"."""
    # of another owner's tree, too: who runs its code may read its history
    git = ["git", "-C", str(ROOT), "-c", "safe.directory=*"]
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    own["LC_ALL"] = "C"
    how = {"capture_output": True, "encoding": "utf-8", "env": own}
    try:
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], **how)
    except OSError:
        return "none: git is not installed"
    if top.returncode:  # fatal: not a git repository (or any …
        reason = top.stderr.partition("fatal: ")[2] or "git failed"
        return f"none: {re.split(r' [(]| at |$', reason, flags=re.M)[0]}"
    if Path(top.stdout.strip()).resolve() != ROOT:
        return "none: inside another git repository"
    describe = [*git, "describe", "--always", "--dirty=+", "--abbrev=12"]
    commit = subprocess.run(describe, **how).stdout.strip()
    return commit or "none: no commit yet"


def relative(path: Path) -> str:
    """A path as seen from the project root, where it lies below it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _portable(value: Any) -> Any:
    """A parameter's value; of a path that only this machine has, its last part."""
    absolute = isinstance(value, str) and Path(value).is_absolute()
    return Path(value).name if absolute else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
