"""Run folders: one a notebook × profile × arm × seed, done if results.json says so."""

import difflib
import hashlib
import io
import itertools
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Self, TextIO

from pydantic import TypeAdapter

from factkit.run import identity, machine, statistics
from factkit.run.failures import UserError
from factkit.run.files import write_atomically
from factkit.run.params import ROOT, papermill_files
from factkit.run.params.stages import RunParams
from factkit.run.results import (
    ITEMS,
    JUDGEMENTS,
    ResultsError,
    RunRecord,
    read_results,
    run_folders,
    write_results,
)

if TYPE_CHECKING:
    import pandas as pd
    from filelock import FileLock
    from IPython.display import Image
    from matplotlib.figure import Figure

ENDING_S = 3.0  # a killed run's kernel takes a moment to end
REFERENCE = ROOT / "outputs" / "reference"
# where services answer, and how much at a time: a run goes on with other values
ADDRESSES = {
    *("judge_url", "search_url", "relevance_url", "judge_key", "judge_headers"),
    *("judge_concurrency", "judge_timeout", "judge_max_calls"),
    *("judge_gpus", "vllm_memory", "micro_batch_size"),
}
# and how else it is computed, and its name: not what comes out
ELSEWHERE = ADDRESSES | {
    *("output_dir", "arm", "arms", "seed", "seeds", "rollouts", "num_processes"),
    *("vllm_tensor_parallel", "deepspeed", "lora_backend"),
    *("eval_batch_size", "max_context_length"),
}
REPORTED_PACKAGES = ("torch", "transformers", "trl", "peft", "papermill")


REWARD_SOURCE = "reward.py"  # of a run with a user's own reward
OWN = "own"  # folder of the runs with a user's own reward, apart from the kit's arms


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

    @property
    def arm(self) -> str:
        """What the folder is named after, without its seed; own/… for own rewards."""
        name = self.folder.name.rsplit("-s", 1)[0]
        return f"{OWN}/{name}" if self.folder.parent.name == OWN else name

    def expected(self, figure: str, run: str = "main-s0") -> "Image | None":
        """The figure of the reference results of this profile, or of `tiny`, to look at
        before anything is computed; None, with a note, if there is none."""
        from IPython.display import Image

        file = Path(self.notebook, run, "figures", f"{figure}.png")
        own = REFERENCE / self.params.profile / file
        shown = own if own.is_file() else REFERENCE / "tiny" / file
        if not shown.is_file():
            return print(f"no reference figure {figure} yet")
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
        path = self.folder / "recipe.json"
        recipe = json.loads(path.read_bytes()) if path.is_file() else {}
        if made := recipe.get("verl"):
            text = "trained by verl: {checkpoint} {verl_overrides}".format_map(made)
            others = (s for s in deviations if not s.startswith("trained by TRL"))
            deviations = [*others, text.rstrip()]
        values = {k: _portable(v) for k, v in self.params.model_dump().items()}
        if "reward" in self.inputs:  # not the arm whose set-up it shares
            values["arm"] = self.arm
        results = {
            "schema": 1,
            "notebook": self.notebook,
            "paper": self.notebook.split("_")[1],
            "profile": self.params.profile,
            "variant": self.params.variant,
            "arm": self.arm,
            "seed": self.params.seed,
            "status": "done",
            "params": values,
            "inputs": self.inputs,
            "metrics": dict(metrics),
            "wall_s": round(time.monotonic() - self.clock, 1),
            "started": self.started,
            "versions": {name: version(name) for name in REPORTED_PACKAGES}
            | {"python": platform.python_version()},
            "device": machine.device(),
            "git": machine.git_commit(),
            "recipe": recipe,
            "deviations": list(deviations),
        }
        if JUDGEMENTS["asked"]:
            results["judgements"] = dict(JUDGEMENTS)
        results = write_results(self.folder, results)
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
        table.insert(0, "arm", self.arm)
        table.insert(1, "seed", self.params.seed)
        text = table.to_csv(index_label="item", float_format="%.7g")
        ids = [str(item) for item in items]
        if ids != list(_items_table(io.StringIO(text), metrics).item.unique()):
            raise ValueError(
                "items: two have one id, or an id can't be written as text"
            )
        write_atomically(self.folder / ITEMS, text)


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
    function of the caller's own; the run is in own/<its name>-s<seed>, apart from the
    kit's arms, and depends on all that `identity` finds in it.

    Raises RunError if an input is missing, cut off or of a run with other values of
    what both depend on, another process writes the folder, or its run.json can't be
    read; UserError if the reward can't be identified.
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
        name = identity.callable_name(reward)
        if not name.isidentifier():  # of a lambda
            raise RunError(
                f"the reward {name} has no name: define it by `def` with one"
            )
        folder = folder.parent / OWN / f"{name}-s{params.seed}"
        digests["reward"], source = identity.describe_source(reward)
    lock = lock_folder(folder, wait)
    made_of = {"params": params.model_dump(include=keys), "inputs": digests}
    record = folder / "run.json"
    files = folder.iterdir() if folder.is_dir() else ()
    if any(file.suffix in (".json", ".jsonl", ".csv") for file in files):
        before = _recorded(record)["identity"]
        # a parameter that came later had the value that left things as they were, and
        # one that has gone said nothing of them
        fields = type(params).model_fields
        later = {k: fields[k].default for k in keys if not fields[k].is_required()}
        still = fields.keys() - ADDRESSES
        had = {k: v for k, v in before["params"].items() if k in still}
        before["params"] = later | had
        if before != made_of:
            if reward and before["inputs"].get("reward") != digests["reward"]:
                _show_change(folder / REWARD_SOURCE, source)
            _move_aside(folder, before["params"], made_of["params"])
    folder.mkdir(exist_ok=True)
    if not record.exists():
        text = json.dumps({"identity": made_of, "started": _now()}, indent=1)
        write_atomically(record, text)
    if reward:
        write_atomically(folder / REWARD_SOURCE, source)
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
    """The SHA-256 of an input. Raises RunError if it is missing, was cut off, or is not
    what the run that wrote it recorded in its results.json."""
    content = path.read_bytes() if path.is_file() else b""
    digest = hashlib.sha256(content).hexdigest()
    cut_off = path.suffix == ".jsonl" and not content.endswith(b"\n")
    made = read_results(path.parent) if content and not cut_off else None
    changed = made and made["files"].get(path.name, digest) != digest
    if not content or cut_off or changed:
        fault = "changed" if changed else "cut off" if content else "missing"
        stem = path.parent.parent.name
        how = papermill_files(stem.split("_")[1], p.profile, p.variant)
        if p.output_dir != "outputs":
            how += f" -r output_dir {p.output_dir!r}"
        raise RunError(
            f"{relative(path)} is {fault}: run {stem} "
            f"first, by\npapermill notebooks/{stem}.ipynb {stem}.out.ipynb {how} "
            "--log-level ERROR"
        )
    return digest


def lock_folder(folder: Path, wait: bool = False) -> "FileLock":
    """The right to write a run's folder; it ends with this process, however it ends.

    The lock's file stands beside the folder, which may be moved aside, and says who has
    it. Raises RunError if another process does.
    """
    from filelock import FileLock, Timeout

    folder.parent.mkdir(parents=True, exist_ok=True)
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


def _recorded(record: Path) -> RunRecord:
    """A run.json's content. Raises RunError if it is none."""
    try:
        return TypeAdapter(RunRecord).validate_json(record.read_bytes())
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RunError(
            f"{relative(record)} can't be read ({reason}), so nobody knows what made "
            f"the folder: move {relative(record.parent)} away"
        ) from None


def _show_change(stored: Path, source: str) -> None:
    """Print how a reward and what it uses differ from those that a run was made with,
    in ten lines at most."""
    before = stored.read_text("utf-8") if stored.is_file() else ""
    lines = difflib.unified_diff(
        before.splitlines(), source.splitlines(), "before", "now", lineterm="", n=0
    )
    changed = [line for line in lines if before and not line.startswith("@@")]
    if not changed:
        changed = [
            "not the source of it or of what it uses, but a value that is not shown.",
            "If you changed none, one has a random order, as list(set(…)): sort it.",
        ]
    print("The reward has changed:", *changed[:8], sep="\n")
    if len(changed) > 8:
        print(f"… and {len(changed) - 8} more lines")


def _move_aside(
    folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    changed = ", ".join(
        f"{key}={before.get(key)!r} (now {value!r})"
        for key, value in now.items()
        if before.get(key) != value
    )
    names = (f"{folder.name}.stale-{number}" for number in itertools.count(1))
    free = (folder.with_name(name) for name in names)
    aside = next(path for path in free if not os.path.lexists(path))
    folder.rename(aside)
    made = changed or "other input data or another reward"
    print(f"{relative(folder)} was made with {made}: moved to {aside.name}")


# ---- what runs stored


def all_results(*folders: Path) -> list[dict[str, Any]]:
    """The results of every finished run below the folders, sorted by their paths.

    Damaged runs are left out and printed, each with its number among all.
    """
    paths = sorted(path for folder in folders for path in run_folders(folder))
    finished, damaged = [], []
    for path in paths:
        try:
            finished.append(read_results(path))
        except ResultsError as error:
            damaged.append(error)
    for number, error in enumerate(damaged, start=1):
        print(f"left out, damaged run {number} of {len(paths)}: {error}")
    return finished


def read_items(folder: Path | str) -> "pd.DataFrame | None":
    """The items that a run stored, a row an item, a column a metric; None without.

    Raises ResultsError as `read_results`, and on items of another arm or seed.
    """
    results = read_results(Path(folder))
    if results is None or ITEMS not in results["files"]:
        return None
    table = _items_table(Path(folder, ITEMS), results["metrics"])
    owners = set(zip(table.pop("arm"), table.pop("seed"), strict=True))
    if owners != {(results["arm"], results["seed"])}:
        raise ResultsError(f"{Path(folder, ITEMS)}: items of {owners}; run it again")
    return table.set_index("item")


def _items_table(source: Path | TextIO, metrics: Iterable[str]) -> "pd.DataFrame":
    """What items.csv holds. Ids are texts, whatever they look like: NA is one, too."""
    import pandas as pd

    return pd.read_csv(
        source,
        dtype={"item": str, "arm": str},
        keep_default_na=False,
        na_values=dict.fromkeys(metrics, [""]),
        lineterminator="\n",
    )


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


def relative(path: Path) -> str:
    """A path as seen from the project root, where it lies below it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _portable(value: Any) -> Any:
    """A parameter's value; of a path that only this machine has, its last part."""
    absolute = isinstance(value, str) and Path(value).is_absolute()
    return Path(value).name if absolute else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
