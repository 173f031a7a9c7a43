"""Run folders: one a notebook × profile × arm × seed, done if results.json says so."""

import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from factkit import statistics, stored_runs
from factkit.assets import write_atomically
from factkit.errors import UserError
from factkit.params import ROOT
from factkit.params.stages import RunParams

if TYPE_CHECKING:
    from filelock import FileLock
    from IPython.display import Image
    from matplotlib.figure import Figure
    from tqdm import tqdm

SCHEMA = 1
REQUIRED = (
    "notebook",
    "paper",
    "profile",
    "arm",
    "seed",
    "status",
    "params",
    "metrics",
)
ENDING_S = 3.0  # a killed run's kernel takes a moment to end
# what a run may take at most, rounded up: its model, kept policies and a checkpoint
NEEDED_GB = {"tiny": 0.1, "laptop": 1.5, "h100_lora": 20, "h100_full": 200}
REFERENCE = ROOT / "outputs" / "reference"
REPORTED_PACKAGES = ("torch", "transformers", "trl", "peft", "papermill")


class RunError(UserError):
    """A run can't be started as asked; the message says why and what to do."""


@dataclass
class Run:
    """A run in progress; `folder` holds all that it writes, and nobody else may.

    lock: held until the run is finished, or until this process ends.
    """

    notebook: str
    params: RunParams
    folder: Path
    inputs: dict[str, str]
    started: str
    lock: "FileLock"
    clock: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def expected(self, figure: str, run: str = "main-s0") -> "Image":
        """What will come out: the figure of the reference results of this profile, or
        of `tiny`, to look at before anything is computed."""
        from IPython.display import Image

        profiles = [self.params.profile, "tiny"]
        runs = [REFERENCE / profile / self.notebook / run for profile in profiles]
        figures = [folder / "figures" / f"{figure}.png" for folder in runs]
        shown = next((path for path in figures if path.is_file()), figures[-1])
        return Image(filename=shown, width=720)

    def figure(self, fig: "Figure", name: str) -> "Figure":
        """Save a figure as figures/<name>.png; returns it for the cell to show."""
        import matplotlib.pyplot as plt

        path = self.folder / "figures" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        fig.savefig(path, dpi=150, facecolor="white", bbox_inches="tight")
        plt.close(fig)
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
        results = {
            "schema": SCHEMA,
            "notebook": self.notebook,
            "paper": self.notebook.split("_")[1],
            "profile": self.params.profile,
            "variant": self.params.variant,
            "arm": self.folder.name.rsplit("-s", 1)[0],
            "seed": self.params.seed,
            "status": "done",
            "params": {k: _portable(v) for k, v in self.params.model_dump().items()},
            "inputs": self.inputs,
            "metrics": dict(metrics),
            "wall_s": round(time.monotonic() - self.clock, 1),
            "started": self.started,
            "versions": {name: version(name) for name in REPORTED_PACKAGES}
            | {"python": platform.python_version()},
            "device": device(),
            "git": git_commit(),
            "recipe": _read_json(self.folder / "recipe.json", missing={}),
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
            mean = statistics.mean_of(stored_runs.item_values(table, name))
            if name not in metrics or abs(mean - metrics[name]) > 1e-6:
                raise ValueError(
                    f"items of {name}: their mean is {mean}, the metric is "
                    f"{metrics.get(name)}; items are the terms of a metric's mean"
                )
        table.insert(0, "arm", self.folder.name.rsplit("-s", 1)[0])
        table.insert(1, "seed", self.params.seed)
        text = table.to_csv(index_label="item", float_format="%.7g")
        write_atomically(self.folder / "items.csv", text)


def run_folder(notebook: str, params: RunParams) -> Path:
    """outputs/<profile>/<notebook>/<arm>-s<seed>, or …/main-s0 if it has no arms."""
    has_arms = notebook.endswith("_train")
    name = f"{params.arm}-s{params.seed}" if has_arms else "main-s0"
    return profile_folder(params) / notebook / name


def profile_folder(params: RunParams) -> Path:
    """outputs/<profile>, or outputs/<profile>-<variant> for a variant's runs."""
    parts = (params.profile, params.variant) if params.variant else (params.profile,)
    return ROOT / params.output_dir / "-".join(parts)


def start(
    notebook: str,
    params: RunParams,
    inputs: Iterable[Path] = (),
    depends_on: type[RunParams] | None = None,
    wait: bool = False,
) -> Run:
    """Open the run's folder, keeping what an earlier, killed run completed there.

    inputs: files the run depends on. depends_on: the parameter class whose keys it
    depends on, where not all. If the folder was made with other values of these or
    other inputs, it is moved aside to <name>.stale-<n>, never mixed with the new run.
    wait: for another process that writes the folder, if there is one.

    Raises RunError if an input is missing or cut off, the outputs can't be written or
    are full, another process writes the folder, or its run.json can't be read.
    """
    folder = run_folder(notebook, params)
    digests = {relative(p): _whole_digest(p, params) for p in inputs}
    _require_space(folder, params.profile)
    lock = _lock(folder, wait)
    keys = set((depends_on or type(params)).model_fields) - {"output_dir"}
    identity = {"params": params.model_dump(include=keys), "inputs": digests}
    record = folder / "run.json"
    if record.exists():
        before = _recorded(record)["identity"]
        # a parameter that came later had the value that left things as they were
        fields = type(params).model_fields
        later = {k: fields[k].default for k in keys if not fields[k].is_required()}
        before["params"] = later | before["params"]
        if before != identity:
            _move_aside(folder, _differences(before, identity))
    folder.mkdir(parents=True, exist_ok=True)
    if not record.exists():
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"identity": identity, "started": now}, indent=1)
        write_atomically(record, text)
    started = _recorded(record)["started"]
    return Run(notebook, params, folder, digests, started, lock)


def _recorded(record: Path) -> dict[str, Any]:
    """A run.json's content. Raises RunError if it is none."""
    try:
        made = _read_json(record)
        return {"identity": made["identity"], "started": made["started"]}
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{relative(record)} can't be read ({error!r}), so nobody knows what made "
            f"the folder: move {relative(record.parent)} away"
        ) from None


def _lock(folder: Path, wait: bool) -> "FileLock":
    """The right to write a run's folder; it ends with this process, however it ends.

    The lock's file stands beside the folder, which may be moved aside, and says who has
    it. Raises RunError if another process does.
    """
    from filelock import FileLock, Timeout

    path = folder.with_name(f".{folder.name}.lock")
    lock = FileLock(path, is_singleton=True)
    try:
        lock.acquire(timeout=ENDING_S)
    except Timeout:
        writer = f"{relative(folder)} is being written by {path.read_text().strip()}"
        if not wait:
            raise RunError(f"{writer}: wait until it is done, or stop it") from None
        print(f"{writer}: waiting for it")
        lock.acquire()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    path.write_text(f"process {os.getpid()} on {platform.node()} since {now}\n")
    return lock


def _whole_digest(path: Path, p: RunParams) -> str:
    """The SHA-256 of an input. Raises RunError if it is missing or was cut off."""
    if not path.is_file():
        stem = path.parent.parent.name
        files = (p.variant, "") if p.variant else ("",)
        names = ["-".join(filter(None, (stem.split("_")[1], v))) for v in files[::-1]]
        given = " ".join(f"-f params/{p.profile}/{name}.yaml" for name in names)
        raise RunError(
            f"{relative(path)} is missing: run {stem} first, by\n"
            f"papermill notebooks/{stem}.ipynb {stem}.out.ipynb {given}"
            + (f" -r output_dir {p.output_dir!r}" if p.output_dir != "outputs" else "")
            + " --log-level ERROR"
        )
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        try:
            json.loads(content.splitlines()[-1])
            whole = content.endswith(b"\n")
        except (ValueError, IndexError):
            whole = False
        if not whole:
            raise RunError(
                f"{relative(path)} was cut off: its last line is not whole; remove "
                f"{relative(path.parent)} and run {path.parent.parent.name} again"
            )
    return hashlib.sha256(content).hexdigest()


def _require_space(folder: Path, profile: str) -> None:
    """Raises RunError where a run could not be written to its end."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    except OSError as error:
        raise RunError(
            f"{relative(folder.parent)} can't be written ({error.strerror}); take "
            "another output_dir"
        ) from None
    free, needed = shutil.disk_usage(folder.parent).free / 1e9, NEEDED_GB[profile]
    if free < needed:
        raise RunError(
            f"{relative(folder.parent)}: a run of profile {profile} may take {needed} "
            f"GB, {free:.1f} GB are free; free some, or take another output_dir"
        )


def read_results(folder: Path) -> dict[str, Any] | None:
    """The content of a run's results.json, or None if the run is not done."""
    path = folder / "results.json"
    if not path.is_file():
        return None
    try:
        results = _read_json(path) | {"folder": str(folder)}
        lacking = [key for key in REQUIRED if key not in results]
        if lacking:
            raise ValueError(f"no {', '.join(lacking)}")
    except (ValueError, TypeError) as error:
        print(f"{relative(path)} is left out, for it can't be read: {error}")
        return None
    return results if results["status"] == "done" else None


def _read_json(path: Path, missing: Any = None) -> Any:
    """What a JSON file holds; `missing` where there is none. Raises ValueError."""
    if missing is not None and not path.is_file():
        return missing
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def all_results(*folders: Path) -> list[dict[str, Any]]:
    """The results of every finished run below the folders, sorted by their paths."""
    paths = sorted(p for folder in folders for p in folder.rglob("results.json"))
    found = (read_results(p.parent) for p in paths if ".stale-" not in str(p))
    return [results for results in found if results]


def progress_bar(total: int, label: str, unit: str = "it") -> "tqdm":
    """A tqdm bar; in a batch run started from a terminal it is drawn on that terminal.

    A notebook's kernel has no terminal: `python -m factkit` hands it the name of its
    own in FACTKIT_TTY. Elsewhere the bar is drawn every five seconds, since what a
    kernel writes is kept in the notebook.
    """
    from tqdm import tqdm

    terminal = os.environ.get("FACTKIT_TTY")
    stream = open(terminal, "w") if terminal else sys.stderr  # noqa: SIM115
    pause = 0.1 if stream.isatty() else 5.0
    return tqdm(
        total=total, desc=label, unit=unit, file=stream, leave=True, mininterval=pause
    )


def device() -> str:
    """The hardware in words: GPU names, or the number of CPU threads torch uses."""
    import torch

    if torch.cuda.is_available():
        n = torch.cuda.device_count()
        return f"{n} × {torch.cuda.get_device_name(0)}"
    return f"CPU, {torch.get_num_threads()} threads, {platform.machine()}"


def git_commit() -> str:
    """The commit of the working tree, with a + if it has changes; empty outside git."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()


def relative(path: Path) -> str:
    """A path as seen from the project root, where it lies below it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _portable(value: Any) -> Any:
    """A parameter's value; of a path that only this machine has, its last part."""
    absolute = isinstance(value, str) and Path(value).is_absolute()
    return Path(value).name if absolute else value


def _move_aside(folder: Path, why: str) -> None:
    number = len(list(folder.parent.glob(f"{folder.name}.stale-*"))) + 1
    aside = folder.with_name(f"{folder.name}.stale-{number}")
    shutil.move(folder, aside)
    print(f"{relative(folder)} was made with {why}: moved to {aside.name}")


def _differences(before: dict, now: dict) -> str:
    """A few words on which parameters or inputs changed."""
    changed = [
        f"{key}={before['params'].get(key)!r} (now {value!r})"
        for key, value in now["params"].items()
        if before["params"].get(key) != value
    ]
    return ", ".join(changed) or "other input data"
