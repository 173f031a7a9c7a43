"""Run folders: one a notebook × profile × arm × seed, done if results.json says so."""

import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.assets import write_atomically
from factkit.params import ROOT, RunParams

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from tqdm import tqdm

SCHEMA = 1
REPORTED_PACKAGES = ("torch", "transformers", "trl", "peft", "papermill")


@dataclass
class Run:
    """A run in progress; `folder` holds all that it writes."""

    notebook: str
    params: RunParams
    folder: Path
    inputs: dict[str, str]
    started: str
    clock: float = field(default_factory=time.monotonic)

    def figure(self, fig: "Figure", name: str) -> "Figure":
        """Save a figure as figures/<name>.png; returns it for the cell to show."""
        import matplotlib.pyplot as plt

        path = self.folder / "figures" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        fig.savefig(path, dpi=150, facecolor="white", bbox_inches="tight")
        plt.close(fig)
        return fig

    def finish(
        self, metrics: Mapping[str, float], deviations: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Write results.json, last and atomically; returns its content.

        metrics: flat name → finite number; rates are fractions. deviations: sentences
        that say what differs from the paper. Raises ValueError on NaN or no number.
        """
        for name, value in metrics.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"metric {name}={value!r} is not a finite number")
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
            "deviations": list(deviations),
        }
        write_atomically(self.folder / "results.json", json.dumps(results, indent=1))
        return results


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
) -> Run:
    """Open the run's folder, keeping what an earlier, killed run completed there.

    inputs: files the run depends on. depends_on: the parameter class whose keys it
    depends on, where not all. If the folder was made with other values of these or
    other inputs, it is moved aside to <name>.stale-<n>, never mixed with the new run.
    """
    folder = run_folder(notebook, params)
    digests = {relative(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in inputs}
    keys = set((depends_on or type(params)).model_fields) - {"output_dir"}
    identity = {"params": params.model_dump(include=keys), "inputs": digests}
    record = folder / "run.json"
    if record.exists():
        before = json.loads(record.read_text())["identity"]
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
    started = json.loads(record.read_text())["started"]
    return Run(notebook, params, folder, digests, started)


def read_results(folder: Path) -> dict[str, Any] | None:
    """The content of a run's results.json, or None if the run is not done."""
    path = folder / "results.json"
    if not path.is_file():
        return None
    results = json.loads(path.read_text(encoding="utf-8"))
    return results if results.get("status") == "done" else None


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
