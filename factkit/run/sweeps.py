"""Run arms × seeds of a paper with Snakemake."""

import contextlib
import hashlib
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from factkit.run import child, folders, gpus, params, progress
from factkit.run.arms import find_papers
from factkit.run.failures import RunFailure, UserError, explain_storage, last_error
from factkit.run.files import cache_dir, write_atomically
from factkit.run.params import ROOT
from factkit.run.params.own import OWN_DATA
from factkit.run.results import read_results


class SweepError(RunFailure):
    """A run failed; the message says where to look."""


DRY_RUN = {"-n", "--dry-run", "--dryrun"}  # snakemake's names for it
# "total  4" and "1 of 4 steps" in snakemake's output: runs done, and all
STEPS = re.compile(r"(?:total +|(\d+) of )(\d+)")
# environment variables by which a user's own set-up would change a run
PERSONAL = re.compile(
    r"(SNAKEMAKE|JUPYTER|IPYTHON|PAPERMILL|MPL|MATPLOTLIB)|PYTHON(STARTUP|IOENCODING)$"
)


@dataclass(frozen=True)
class Sweep:
    """Arms × seeds of a paper at one setting, trained, compared and drawn by Snakemake.

    params: of each run, but for its arm and seed. ablations: also run the comparison of
    the arms. overrides: parameters with other values than the YAML files'.
    """

    paper: str
    params: Any
    arms: Sequence[str]
    seeds: Sequence[int]
    ablations: bool = False
    overrides: Mapping[str, object] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of the setting's runs."""
        return folders.profile_folder(self.params)

    @property
    def gpus_per_run(self) -> int:
        """GPUs of one run; 0 at the profiles for CPUs."""
        p = self.params
        on_cpu = p.profile in ("tiny", "laptop")
        return 0 if on_cpu else max(p.num_processes, p.vllm_tensor_parallel)

    def run(
        self,
        targets: Sequence[str] = (),
        jobs: int = 1,
        extra: Sequence[str] = (),
        label: str = "",
    ) -> None:
        """Run what is missing; a run that was killed is continued.

        targets: results files, by default those of the figures notebook. jobs: runs at
        a time. extra: arguments of snakemake, all of whose output is then shown. label:
        of a progress bar, in place of lines of text.

        Raises SweepError if a run fails or is interrupted; ParamError on an argument
        that snakemake does not have, and if a finished run was made with other values;
        UserError if a run needs more GPUs than there are, or the executor's jobs share
        no files.
        """
        if {"kubernetes", "--executor=kubernetes"} & {*extra}:
            raise UserError(
                "Snakemake's kubernetes executor gives a job no file but results.json, "
                "and runs read each other's folders: run the sweep in one pod, see "
                "params/README.md"
            )
        dry = bool(DRY_RUN & {*extra})
        remote = any(a.partition("=")[0] in ("--executor", "-e") for a in extra)
        visible = 0 if dry or remote else self._visible_gpus()
        self._refuse_other_values()
        renewed = ["--forcerun", "data"] if self.has_changed_data() else []
        self.folder.mkdir(parents=True, exist_ok=True)
        env = environment(1 if remote else jobs)
        if remote:  # runs share neither this machine's cores nor its terminal
            env |= {"FACTKIT_TTY": "", "TQDM_DISABLE": "1"}
        # Snakemake sets it to a rule's threads
        threads = int(env["OMP_NUM_THREADS"])
        cores = ["--jobs", str(jobs)] if remote else ["--cores", str(threads * jobs)]
        snakefile = str(Path(__file__).with_name("Snakefile"))
        general = ["--snakefile", snakefile, "--directory", str(ROOT)]
        general += ["--rerun-triggers", "mtime", *cores]
        general += ["--resources", f"gpu={visible}"] if visible else []
        general += ["--nolock", "--keep-going"]  # our own locks end with their process
        general += [] if dry else ["--quiet", "rules", "host"]
        config = ["--config", f"threads={threads}", f"sweep={self._config(visible)}"]
        profile = os.environ.get("SNAKEMAKE_PROFILE")
        if profile and "--profile" not in extra:
            print(f"SNAKEMAKE_PROFILE={profile} is ignored; to use it: -- --profile")
        rules = ["figures", "ablations"] if self.ablations else ["figures"]
        notebooks = find_papers()[self.paper].notebooks
        rules = [rule for rule in rules if rule in notebooks and not (dry or targets)]
        runs = [] if dry else self._needed_runs()
        calls = _calls(self.folder / f".{self.paper}.sweep.lock", runs, rules)
        where, started = folders.relative(self.folder), time.time()
        try:
            with contextlib.closing(calls):  # and the locks that it holds
                for runs_alone, options in calls:
                    wanted = runs_alone or targets  # before the options
                    command = [sys.executable, "-m", "snakemake", *wanted]
                    command += [*general, *extra, *renewed, *options, *config]
                    code, output = _run(command, env, label, bool(extra))
                    if code:
                        break
        except KeyboardInterrupt:
            raise SweepError(
                f"interrupted; finished runs below {where} stay, and the same command "
                "goes on with the rest"
            ) from None
        if code == 2:
            raise params.ParamError(
                f"snakemake does not take {' '.join(extra)} ({last_error(output)}); a "
                'list is one word, as --arms "sft ternary"'
            )
        if code:
            failed = _failed_runs(self.folder, started)
            causes = "\n".join(failed[:3])
            if not causes and extra:  # its output was shown
                causes = "snakemake failed; its output says why"
            causes = causes or _explain(output, where)
            count = f"runs that failed: {len(failed)}; " if failed else ""
            more = f"{count}a run's notebook.partial.ipynb below {where} shows more; "
            if not any(_partial_notebooks(self.folder, started)):
                more = "this is Snakemake's own error, no run's; "
            raise SweepError(
                f"{causes}\n{more}remove the cause, and the same command goes on with "
                "the rest"
            )

    def has_changed_data(self) -> bool:
        """Whether the data were made of other files of the user's than there are."""
        p = self.params
        if not p.has_own_data:
            return False
        data = read_results(folders.run_folder(p.data_notebook, p))
        return data is not None and data["inputs"].get(OWN_DATA) != p.own_checksum()

    def _visible_gpus(self) -> int:
        """The GPUs that runs may choose from, 0 if they need none."""
        needed = self.gpus_per_run
        visible = len(gpus.visible()) if needed else 0
        if visible < needed:
            raise UserError(
                f"a run takes {needed} GPU(s) (num_processes, vllm_tensor_parallel), "
                f"and {visible} are visible here: see CUDA_VISIBLE_DEVICES and "
                "nvidia-smi -L"
            )
        return visible

    def _config(self, visible: int) -> str:
        """The Snakefile's `sweep`; Snakemake would read a variant 1.10 as 1.1."""
        p = self.params
        config = {
            "paper": self.paper,
            "profile": p.profile,
            "variant": p.variant,
            "output_dir": p.output_dir,
            "arms": list(self.arms),
            "seeds": [str(seed) for seed in self.seeds],
            "ablations": "yes" if self.ablations else "",
            "starts": self._starts,
            "overrides": self._overrides_file(),
            "gpus": str(self.gpus_per_run),
            "slots": "yes" if visible else "",
        }
        return json.dumps(config, ensure_ascii=False)

    def _overrides_file(self) -> str:
        """The path of a parameter file with the overrides, "" without any: papermill
        takes a file, so that no value passes through a shell."""
        if not self.overrides:
            return ""
        text = yaml.safe_dump(dict(self.overrides))
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        path = self.folder / f".overrides-{digest}.yaml"
        write_atomically(path, text)
        return str(path)

    @property
    def _starts(self) -> dict[str, str]:
        """Arm → the arm from whose policy it starts, or ""."""
        table = find_papers()[self.paper].arms
        return {name: arm.find_start(self.params) for name, arm in table.items()}

    def run_folders(self, arms: Sequence[str]) -> list[Path]:
        """The folders of the training runs of arms with the sweep's seeds."""
        notebook = find_papers()[self.paper].notebooks["train"]
        runs = [{"arm": a, "seed": s} for a, s in itertools.product(arms, self.seeds)]
        of_runs = [self.params.model_copy(update=run) for run in runs]
        return [folders.run_folder(notebook, p) for p in of_runs]

    def _needed_runs(self) -> list[Path]:
        """The folders of the data and of all arms, with those that RL starts from."""
        arms = {*self.arms, *(self._starts[arm] for arm in self.arms)} - {""}
        data = find_papers()[self.paper].notebooks["data"]
        return [folders.run_folder(data, self.params), *self.run_folders([*arms])]

    def _refuse_other_values(self) -> None:
        """Raise ParamError if a finished run was made with other parameters."""
        notebooks = find_papers()[self.paper].notebooks
        stages = [notebooks[s] for s in ("data", "rewards") if s in notebooks]
        done = [folders.run_folder(notebook, self.params) for notebook in stages]
        for run in done + self.run_folders(self.arms):
            if not read_results(run):
                continue
            keys = type(self.params).model_fields
            if other := folders.describe_differences(run, self.params, keys):
                raise params.ParamError(
                    f"{folders.relative(run)} was made with {other}: give another "
                    "--output-dir, or move it away to have it made anew"
                )


def train_arms(paper: str, p: Any) -> list[dict[str, Any]]:
    """Train the arms and seeds in `p.arms` and `p.seeds` that have no results yet, or
    results of other data; returns the results of all. Raises SweepError if a run fails.
    """
    files = params.load(paper, p.profile, variant=p.variant).model_dump()
    values = p.model_dump(exclude={"arm", "arms", "seed", "seeds", "output_dir"})
    changed = {key: value for key, value in values.items() if value != files[key]}
    sweep = Sweep(paper, p, p.arm_names, p.seed_numbers, overrides=changed)
    runs = sweep.run_folders(sweep.arms)
    missing = [folder for folder in runs if not read_results(folder)]
    print(f"{len(runs) - len(missing)} of {len(runs)} runs are done")
    if missing or sweep.has_changed_data():
        targets = [folders.relative(folder / "results.json") for folder in runs]
        sweep.run(targets, label="sweep")
    results = [result for folder in runs if (result := read_results(folder))]
    if len(results) < len(runs):
        raise SweepError("see the failed runs' notebook.partial.ipynb")
    return results


def _calls(
    lock: Path, needed: Sequence[Path], compared: Sequence[str]
) -> Generator[tuple[list[str], list[str]], None, None]:
    """Targets (none: the sweep's) and options of each call of Snakemake: one call, or
    two beside another sweep.

    Sweeps of one folder train at the same time: the first that locks a run makes it,
    the others wait for it. Those of one paper compare and draw one at a time, holding
    `lock`: a sweep that finds another one comparing trains first, then waits.
    compared: the rules that compare.
    """
    options, comparing = ["--rerun-incomplete"], FileLock(lock)
    with contextlib.ExitStack() as locks:

        def take(lock: FileLock) -> bool:
            with contextlib.suppress(Timeout):
                locks.enter_context(lock.acquire(timeout=0))
            return lock.is_locked

        for run in sorted(needed):  # in one order: no two sweeps wait for each other
            name = f".{run.parent.name}-{run.name}.sweep.lock"
            claim = FileLock(lock.with_name(name))
            while not take(claim):
                if options == ["--rerun-incomplete"]:
                    options = ["--ignore-incomplete"]  # the marks are the other's
                    print(f"waiting for another sweep's {run.parent.name}/{run.name} …")
                if _is_done(run):
                    break
                time.sleep(child.POLL_S)
        if not compared or take(comparing):
            yield [], options
            return
        yield [folders.relative(run / "results.json") for run in needed], options
    print("waiting for another sweep, which compares first …")
    with comparing:  # the other's comparison is of other arms
        yield [], [*options, "--forcerun", *compared]


def _is_done(run: Path) -> bool:
    """Whether a run has results of its notebook as it is."""
    with contextlib.suppress(FileNotFoundError):
        notebook = ROOT / "notebooks" / f"{run.parent.name}.ipynb"
        return (run / "results.json").stat().st_mtime >= notebook.stat().st_mtime
    return False


def _run(
    command: Sequence[str], env: Mapping[str, str], label: str, verbose: bool
) -> tuple[int, str]:
    """Run Snakemake; returns its exit status and output.

    Shows all output if `verbose`, else which run begins and how many are done, as a
    progress bar if it has a label.
    """
    lines = []
    text = {"text": True, "encoding": "utf-8", "errors": "replace"}
    with (
        child.reading(command, env=env, cwd=ROOT, **text) as process,
        progress.progress_bar(1, label, "run") as bar,
    ):
        for line in process.stdout or ():
            lines.append(line)
            steps, begins = STEPS.match(line), line.startswith("== ")
            usage = lines[0].startswith("usage:")  # a hundred lines of it
            if verbose and not usage or not label and (begins or steps and steps[1]):
                print(line, end="", flush=True)
            if steps:
                bar.n, bar.total = int(steps[1] or 0), int(steps[2])
            elif begins:
                bar.set_postfix_str("/".join(Path(line.strip()).parts[-2:]))
    return process.returncode, "".join(lines)


def _partial_notebooks(folder: Path, since: float) -> list[Path]:
    """The notebooks of runs below the folder that ended early, after a time."""
    paths = sorted(folder.glob("*/*/notebook.partial.ipynb"))
    return [path for path in paths if path.stat().st_mtime >= since]


def _failed_runs(folder: Path, since: float) -> list[str]:
    """Each run below the folder that failed since a time, with its error."""
    causes = []
    for path in _partial_notebooks(folder, since):
        cells = []
        with contextlib.suppress(ValueError):  # a full disk has cut it off
            cells = json.loads(path.read_text("utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        for output in outputs:
            if output["output_type"] == "error":
                error = f"{output['ename']}: {output['evalue']}"
                if len(output["traceback"]) == 1:  # the kit's own errors
                    error = output["traceback"][0]
                run = folders.relative(path.parent)
                causes.append(f"{run}: {error.splitlines()[0]}")
    return causes


def _explain(output: str, where: str) -> str:
    """Why Snakemake failed, by its output, if no notebook tells."""
    failure = RuntimeError(cause := last_error(output))
    failure.add_note(where)
    if "DeadKernelError" in cause:
        return (
            f"{cause}: a run's process was killed, most often because memory ran out; "
            "free some, or run fewer --jobs"
        )
    return explain_storage(failure) or cause


def environment(jobs: int = 1) -> dict[str, str]:
    """The environment of a run: this interpreter's programs, no network, few threads.

    A run has two threads, or one if `jobs` needs the cores. It does not see a user's
    settings of Snakemake, Jupyter, IPython and Matplotlib, and writes nothing into the
    home folder except the cache.
    """
    threads = max(1, min(2, child.cores() // jobs))
    programs = str(Path(sys.executable).parent)
    has_name = hasattr(os, "ttyname") and sys.stderr.isatty()  # not on Windows
    terminal = os.ttyname(2) if has_name else ""
    home, cache = Path(os.path.expanduser("~")), cache_dir()
    moved = {}
    if "XDG_CACHE_HOME" not in os.environ and not os.access(home, os.W_OK):
        models = os.environ.get("HF_HOME", f"{home}/.cache/huggingface")
        moved = {"XDG_CACHE_HOME": str(cache), "HF_HOME": models}
    return {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        **{k: v for k, v in os.environ.items() if not PERSONAL.match(k)},
        "PYTHONUTF8": "1",
        **moved,
        "IPYTHONDIR": str(cache / "ipython"),
        "JUPYTER_DATA_DIR": str(cache / "jupyter"),
        "MPLCONFIGDIR": str(cache / "matplotlib"),
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        **({"FACTKIT_TTY": terminal} if terminal else {"TQDM_DISABLE": "1"}),
    }
