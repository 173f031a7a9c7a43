"""Runs: start one, write its results, read those of others.

A run is one notebook × profile × arm × seed; it is done if its results.json says so.
"""

import difflib
import hashlib
import io
import json
import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock

from factkit.run import folders, identity, machine
from factkit.run.files import file_checksum, write_atomically
from factkit.run.folders import RunError, lock_folder, relative, run_folder
from factkit.run.folders import profile_folder as profile_folder
from factkit.run.params import ROOT, papermill_files
from factkit.run.params.own import OWN_DATA, OwnDataParams
from factkit.run.params.stages import RunParams
from factkit.run.results import JUDGEMENTS, read_results, write_items, write_results
from factkit.run.results import ResultsError as ResultsError
from factkit.run.results import all_results as all_results
from factkit.run.results import item_values as item_values
from factkit.run.results import read_items as read_items

if TYPE_CHECKING:
    from IPython.display import Image
    from matplotlib.figure import Figure

REFERENCE = ROOT / "outputs" / "reference"
REPORTED_PACKAGES = ("torch", "transformers", "trl", "peft", "papermill")
REWARD_SOURCE = "reward.py"  # of a run with a user's own reward
OWN = "own"  # folder of the runs with a user's own reward, apart from the kit's arms


@dataclass
class Run:
    """A run in progress, the only writer of `folder`.

    inputs: name → checksum of the files that the run depends on. lock: held until the
    run is finished or this process ends. reference_arms: arms whose results are read
    from those that the kit ships, in order.
    """

    notebook: str
    params: RunParams
    folder: Path
    inputs: dict[str, str]
    started: str
    lock: FileLock
    clock: float = field(default_factory=time.monotonic)
    reference_arms: dict[str, None] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    @property
    def arm(self) -> str:
        """The arm's name; own/<name> for a user's own reward."""
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

    def record_inputs(
        self,
        results: Iterable[Mapping[str, Any]],
        *others: Iterable[Mapping[str, Any]],
    ) -> None:
        """Add results of other runs to the inputs that results.json lists.

        Later figures name below them those of `results` that the kit ships, unless a
        label says it: "sft (reference)", beside the user's own.
        """
        results = list(results)
        for result in chain(results, *others):
            path = Path(result["folder"]) / "results.json"
            self.inputs[relative(path)] = file_checksum(path)
        self.reference_arms |= self._shipped(results)

    def _shipped(self, results: Iterable[Mapping[str, Any]]) -> dict[str, None]:
        """The arms of those results that the kit ships and whose label does not say it,
        in order; of another variant with its name."""
        names: dict[str, None] = {}
        for result in results:
            arm, variant = result["arm"], result.get("variant", self.params.variant)
            if result.get("reference") and not arm.endswith("(reference)"):
                here = variant == self.params.variant
                names[arm if here else f"{arm} ({variant or 'main'})"] = None
        return names

    def figure(
        self, fig: "Figure", name: str, others: Iterable[Mapping[str, Any]] = ()
    ) -> "Figure":
        """Save a figure as figures/<name>.png; returns it for the cell to show.

        others: results of other variants that it draws.
        """
        from matplotlib import pyplot

        if shipped := self.reference_arms | self._shipped(others):
            note = "Reference results where drawn, not your own runs: "
            note = fill(note + ", ".join(shipped), 100)
            fig.draw_without_rendering()  # lay it out, without room for the note
            fig.set_layout_engine("none")
            for legend in fig.legends:  # by default at the lower edge, which moves
                legend.set_bbox_to_anchor((0, 0, 1, 1), fig.transFigure)
            fig.text(0, -0.01, note, va="top", fontsize=7, color="#555555")
        path = self.folder / "figures" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        image = io.BytesIO()
        fig.savefig(
            image, format="png", dpi=150, facecolor="white", bbox_inches="tight"
        )
        write_atomically(path, image.getvalue())
        pyplot.close(fig)  # else Jupyter shows it twice
        return fig

    def finish(
        self,
        metrics: Mapping[str, float],
        deviations: Sequence[str] = (),
        items: Mapping[str, Mapping[str, float | None]] | None = None,
    ) -> dict[str, Any]:
        """Write items.csv, then results.json, last and atomically; returns its content.

        metrics: flat name → finite number; rates are fractions. deviations: sentences
        on what differs from the paper. items: test item → its value in some of the
        metrics, None or absent where it does not count. Raises ValueError if a metric
        is not a finite number or not the mean of its items.
        """
        for name, value in metrics.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"metric {name}={value!r} is not a finite number")
        if items:
            owner = {"arm": self.arm, "seed": self.params.seed}
            write_items(self.folder, owner, metrics, items)
        path = self.folder / "recipe.json"
        recipe = json.loads(path.read_bytes()) if path.is_file() else {}
        if verl := recipe.get("verl"):
            text = "trained by verl: {checkpoint} {verl_overrides}".format_map(verl)
            others = (s for s in deviations if not s.startswith("trained by TRL"))
            deviations = [*others, text.rstrip()]
        values = self.params.model_dump()
        for key, value in values.items():  # paths that only this machine has
            if isinstance(value, str) and Path(value).is_absolute():
                values[key] = Path(value).name
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


def start(
    notebook: str,
    params: RunParams,
    inputs: Iterable[Path] = (),
    depends_on: type[RunParams] | None = None,
    wait: bool = False,
    reward: Callable | None = None,
) -> Run:
    """Open the run's folder and keep what an earlier, killed run completed there.

    inputs: files that the run depends on. depends_on: the parameter class whose keys
    the run depends on, if not all. A folder that was made with other values of these
    or other inputs is moved aside to <name>.stale-<n>. wait: until another process has
    written the folder. reward: the user's own function; the run's folder is
    own/<its name>-s<seed>, and it depends on all that `identity` finds in the function.

    Raises RunError if an input is missing, cut off or made with other parameters, if
    another process writes the folder, or if its run.json can't be read; UserError if
    the reward can't be identified.
    """
    folder, inputs = run_folder(notebook, params), list(inputs)
    digests = {relative(path): _digest(path, params) for path in inputs}
    own = params if isinstance(params, OwnDataParams) else None
    if own and own.has_own_data and notebook == own.data_notebook:
        digests[OWN_DATA] = own.own_checksum()
    fields = type(params).model_fields
    keys = set((depends_on or type(params)).model_fields) - {"output_dir"}
    keys -= folders.SERVICE_KEYS
    for source in dict.fromkeys(path.parent for path in inputs):
        if differences := folders.describe_differences(source, params, keys):
            raise RunError(
                f"{relative(source)} was made with {differences}: run "
                f"{source.parent.name} again, or give another output_dir"
            )
    reward_source = ""
    if reward:
        name = identity.callable_name(reward)
        if not name.isidentifier():  # of a lambda
            raise RunError(
                f"the reward {name} has no name: define it by `def` with one"
            )
        folder = folder.parent / OWN / f"{name}-s{params.seed}"
        digests["reward"], reward_source = identity.describe_source(reward)
    lock = lock_folder(folder, wait)
    current = {"params": params.model_dump(include=keys), "inputs": digests}
    files = folder.iterdir() if folder.is_dir() else ()
    if any(file.suffix in (".json", ".jsonl", ".csv") for file in files):
        before = folders.read_record(folder)["identity"]
        # a parameter that was added later had its default; a removed one is ignored
        added = {k: fields[k].default for k in keys if not fields[k].is_required()}
        known = fields.keys() - folders.SERVICE_KEYS
        stored = {k: v for k, v in before["params"].items() if k in known}
        before["params"] = added | stored
        if before != current:
            if reward and before["inputs"].get("reward") != digests["reward"]:
                _print_change(folder / REWARD_SOURCE, reward_source)
            folders.move_aside(folder, before["params"], current["params"])
    folder.mkdir(exist_ok=True)
    record = folder / "run.json"
    if not record.exists():
        text = json.dumps({"identity": current, "started": folders.now()}, indent=1)
        write_atomically(record, text)
    if reward:
        write_atomically(folder / REWARD_SOURCE, reward_source)
    started = folders.read_record(folder)["started"]
    return Run(notebook, params, folder, digests, started, lock)


def _digest(path: Path, p: RunParams) -> str:
    """The SHA-256 of an input. Raises RunError if it is missing, was cut off, or is not
    what the run that wrote it recorded in its results.json."""
    content = path.read_bytes() if path.is_file() else b""
    digest = hashlib.sha256(content).hexdigest()
    cut_off = path.suffix == ".jsonl" and not content.endswith(b"\n")
    results = read_results(path.parent) if content and not cut_off else None
    changed = results and results["files"].get(path.name, digest) != digest
    if not content or cut_off or changed:
        fault = "changed" if changed else "cut off" if content else "missing"
        stem = path.parent.parent.name
        arguments = papermill_files(stem.split("_")[1], p.profile, p.variant)
        if p.output_dir != "outputs":
            arguments += f" -r output_dir {p.output_dir!r}"
        raise RunError(
            f"{relative(path)} is {fault}: run {stem} first, by\n"
            f"papermill notebooks/{stem}.ipynb {stem}.out.ipynb {arguments} "
            "--log-level ERROR"
        )
    return digest


def _print_change(stored: Path, source: str) -> None:
    """Print how a reward differs from the one of the earlier run, in ten lines."""
    before = stored.read_text("utf-8") if stored.is_file() else ""
    lines = difflib.unified_diff(
        before.splitlines(), source.splitlines(), "before", "now", lineterm="", n=0
    )
    changed = [line for line in lines if before and not line.startswith("@@")]
    if not changed:
        changed = [
            "not its source or that of what it uses, but a value that is not shown.",
            "If you changed none, one has a random order, as list(set(…)): sort it.",
        ]
    print("The reward has changed:", *changed[:8], sep="\n")
    if len(changed) > 8:
        print(f"… and {len(changed) - 8} more lines")
