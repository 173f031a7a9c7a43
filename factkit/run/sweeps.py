"""Fan-out of a paper's runs with Snakemake: command lines, the plan, the call."""

import contextlib
import hashlib
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from factkit.run import child, gpus, params, progress, runs
from factkit.run.arms import find_papers
from factkit.run.failures import RunFailure, UserError, explain_storage, last_error
from factkit.run.files import cache_dir, write_atomically
from factkit.run.params import ROOT


class SweepError(RunFailure):
    """Some run failed; the message says where to look."""


DRY_RUN = {"-n", "--dry-run", "--dryrun"}  # snakemake's names for it
# of "total  4" and "1 of 4 steps", as snakemake says: how many runs are done, and all
STEPS = re.compile(r"(?:total +|(\d+) of )(\d+)")
# variables by which a user's own set-up would change what a run does
PERSONAL = re.compile(
    r"(SNAKEMAKE|JUPYTER|IPYTHON|PAPERMILL|MPL|MATPLOTLIB)|PYTHON(STARTUP|IOENCODING)$"
)


def snakemake(
    p: Any,
    paper: str,
    arms: Sequence[str],
    seeds: Sequence[int],
    targets: Sequence[str] = (),
    jobs: int = 1,
    ablations: bool = False,
    overrides: Mapping[str, object] | None = None,
    extra: Sequence[str] = (),
    bar: str = "",
) -> None:
    """Run what is missing of the paper's notebooks, arms and seeds.

    targets: results files, by default those of the figures notebook. jobs: runs at a
    time. overrides: values other than the YAML's. extra: further arguments of
    snakemake, which then shows all its output. A run that was killed is continued.
    bar: a label, for a bar of the runs in place of lines.
    Raises SweepError if a run fails or is interrupted, ParamError on an argument that
    snakemake does not have, and if a run that is done was made with other values;
    UserError if a run takes more GPUs than there are.
    """
    folder, dry = runs.profile_folder(p), bool(DRY_RUN & {*extra})
    elsewhere = any(a.partition("=")[0] in ("--executor", "-e") for a in extra)
    env = environment(1 if elsewhere else jobs)  # they share no cores of this machine
    if elsewhere:  # nor a terminal
        env |= {"FACTKIT_TTY": "", "TQDM_DISABLE": "1"}
    threads = int(env["OMP_NUM_THREADS"])  # which Snakemake sets to a rule's threads
    on_cpu = p.profile in ("tiny", "laptop")
    needed = 0 if on_cpu else max(p.num_processes, p.vllm_tensor_parallel)
    ours = needed and not dry and not elsewhere
    visible = len(gpus.visible()) if ours else 0
    if ours and visible < needed:
        raise UserError(
            f"a run takes {needed} GPU(s) (num_processes, vllm_tensor_parallel), and "
            f"{visible} are visible here: see CUDA_VISIBLE_DEVICES and nvidia-smi -L"
        )
    _refuse_other_values(p, paper, arms, seeds)
    folder.mkdir(parents=True, exist_ok=True)
    sweep = {  # snakemake types plain values: a variant 1.10 would be 1.1
        "paper": paper,
        "profile": p.profile,
        "variant": p.variant,
        "output_dir": p.output_dir,
        "arms": list(arms),
        "seeds": [str(seed) for seed in seeds],
        "ablations": "yes" if ablations else "",
        "cold_start": "yes" if getattr(p, "cold_start", True) else "",
        "overrides": _overrides_file(folder, overrides or {}),
        "gpus": str(needed),
        "slots": "yes" if visible else "",
    }
    command = [
        *(sys.executable, "-m", "snakemake", *targets),  # options would swallow them
        *("--snakefile", str(Path(__file__).with_name("Snakefile"))),
        *("--directory", str(ROOT), "--rerun-triggers", "mtime"),
        *(("--jobs", str(jobs)) if elsewhere else ("--cores", str(threads * jobs))),
        *(("--resources", f"gpu={visible}") if visible else ()),
        "--nolock",  # ours are released when their process dies, however it dies
        "--keep-going",
        *(() if dry else ("--quiet", "rules", "host")),
        *extra,
    ]
    config = ["--config", f"threads={threads}"]
    config.append(f"sweep={json.dumps(sweep, ensure_ascii=False)}")
    where, started = runs.relative(folder), time.time()
    if (profile := os.environ.get("SNAKEMAKE_PROFILE")) and "--profile" not in extra:
        print(f"SNAKEMAKE_PROFILE={profile} is ignored; to use it: -- --profile")
    own = find_papers()[paper]
    starts = {own.arms[arm].start for arm in arms} - {""}
    named = starts.union(arms) if getattr(p, "cold_start", True) else arms
    data = runs.run_folder(own.notebooks["data"], p)
    needed_runs = [data, *_folders(p, paper, named, seeds)]
    rules = ("figures", "ablations") if ablations else ("figures",)
    compared = [
        rule for rule in rules if rule in own.notebooks and not (dry or targets)
    ]
    calls = _calls(folder, () if dry else needed_runs, compared)
    try:
        with contextlib.closing(calls):  # and the locks that it holds
            for options in calls:
                call = [*command, *options, *config]
                code, output = _run(call, env, bar, bool(extra))
                if code:
                    break
    except KeyboardInterrupt:
        raise SweepError(
            f"interrupted; what is done below {where} stays, and the same command "
            "goes on with the rest"
        ) from None
    if code == 2:
        raise params.ParamError(
            f"snakemake does not take {' '.join(extra)} ({last_error(output)}); a list "
            'is one word, as --arms "sft ternary"'
        )
    if code:
        failed = _failed_runs(folder, started)
        shown = extra and "snakemake failed; its output says why"
        causes = "\n".join(failed[:3]) or shown or _explain(output, where)
        count = f"runs that failed: {len(failed)}; " if failed else ""
        raise SweepError(
            f"{causes}\n{count}a run's notebook.partial.ipynb below {where} shows "
            "more; when the cause is removed, the same command goes on with the rest"
        )


def _calls(
    folder: Path, needed: Sequence[Path], compared: Sequence[str]
) -> Iterator[list[str]]:
    """Options of each call of Snakemake for a sweep: one, or two beside another sweep.

    Sweeps of a folder train at the same time: the first that claims a run makes it, the
    others wait until it is done. They compare and draw one at a time: whoever finds
    another with this right trains first, and then waits. compared: the rules for it.
    """
    from filelock import FileLock, Timeout

    options, last = ["--rerun-incomplete"], FileLock(folder / ".sweep.lock")
    with contextlib.ExitStack() as held:

        def take(lock: FileLock) -> bool:
            with contextlib.suppress(Timeout):
                held.enter_context(lock.acquire(timeout=0))
            return lock.is_locked

        for run in sorted(needed):  # in one order: no two sweeps wait for each other
            claim = FileLock(folder / f".{run.parent.name}-{run.name}.sweep.lock")
            while not take(claim):
                if options == ["--rerun-incomplete"]:
                    options = ["--ignore-incomplete"]  # the marks are the other's
                    print(f"waiting for another sweep's {run.parent.name}/{run.name} …")
                if _is_done(run):
                    break
                time.sleep(child.POLL_S)
        if not compared or take(last):
            yield options
            return
        yield [*options, "--until", "train"]
    print("waiting for another sweep, which compares first …")
    with last:  # whose comparison is of other arms
        yield [*options, "--forcerun", *compared]


def _is_done(run: Path) -> bool:
    """Whether a run has results of its notebook as it is."""
    with contextlib.suppress(FileNotFoundError):
        notebook = ROOT / "notebooks" / f"{run.parent.name}.ipynb"
        return (run / "results.json").stat().st_mtime >= notebook.stat().st_mtime
    return False


def _folders(
    p: Any, paper: str, arms: Sequence[str], seeds: Sequence[int]
) -> list[Path]:
    """The folders of the training runs of arms and seeds."""
    notebook = find_papers()[paper].notebooks["train"]
    each = itertools.product(arms, seeds)
    runs_of = [p.model_copy(update={"arm": arm, "seed": seed}) for arm, seed in each]
    return [runs.run_folder(notebook, own) for own in runs_of]


def _refuse_other_values(
    p: Any, paper: str, arms: Sequence[str], seeds: Sequence[int]
) -> None:
    """Snakemake leaves what is done: it must have been made with the values of `p`."""
    notebooks = find_papers()[paper].notebooks
    stages = [notebooks[s] for s in ("data", "rewards") if s in notebooks]
    done = [runs.run_folder(notebook, p) for notebook in stages]
    for made in done + _folders(p, paper, arms, seeds):
        keys = type(p).model_fields
        if runs.read_results(made) and (other := runs.made_otherwise(made, p, keys)):
            raise params.ParamError(
                f"{runs.relative(made)} was made with {other}: give another "
                "--output-dir, or move it away to have it made anew"
            )


def _run(
    command: Sequence[str], env: Mapping[str, str], bar: str, verbose: bool
) -> tuple[int, str]:
    """Run Snakemake; its exit status and output.

    Shown of it: all if `verbose`, else which run begins and how many are done; with a
    label, as a bar.
    """
    lines = []
    text = {"text": True, "encoding": "utf-8", "errors": "replace"}
    with (
        child.reading(command, env=env, cwd=ROOT, **text) as process,
        progress.progress_bar(1, bar, "run") as shown,
    ):
        for line in process.stdout:
            lines.append(line)
            steps, begins = STEPS.match(line), line.startswith("== ")
            usage = lines[0].startswith("usage:")  # a hundred lines of it
            if verbose and not usage or not bar and (begins or steps and steps[1]):
                print(line, end="", flush=True)
            if steps:
                shown.n, shown.total = int(steps[1] or 0), int(steps[2])
            elif begins:
                shown.set_postfix_str("/".join(Path(line.strip()).parts[-2:]))
    return process.returncode, "".join(lines)


def _failed_runs(folder: Path, since: float) -> list[str]:
    """Each run below the folder that failed since a time, with its error."""
    causes = []
    for path in sorted(folder.glob("*/*/notebook.partial.ipynb")):
        cells = []
        if path.stat().st_mtime >= since:
            with contextlib.suppress(ValueError):  # a full disk has cut it off
                cells = json.loads(path.read_text("utf-8"))["cells"]
        for output in itertools.chain(*(cell.get("outputs", ()) for cell in cells)):
            if output["output_type"] == "error":
                own = output["traceback"] if len(output["traceback"]) == 1 else ()
                error = "".join(own) or f"{output['ename']}: {output['evalue']}"
                causes.append(f"{runs.relative(path.parent)}: {error.splitlines()[0]}")
    return causes


def _explain(output: str, where: str) -> str:
    """Why Snakemake failed, by its output, where no notebook says it."""
    failure = RuntimeError(cause := last_error(output))
    failure.add_note(where)
    if "DeadKernelError" in cause:
        return (
            f"{cause}: a run's process was killed, most often because memory ran out; "
            "free some, or run fewer --jobs"
        )
    return explain_storage(failure) or cause


def _overrides_file(folder: Path, overrides: Mapping[str, object]) -> str:
    """The path of a parameter file with the overrides, or nothing without any.

    papermill takes a file, so that no value passes through a shell.
    """
    if not overrides:
        return ""
    text = yaml.safe_dump(dict(overrides))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f".overrides-{digest}.yaml"
    write_atomically(path, text)
    return str(path)


def train_arms(paper: str, p: Any) -> list[dict[str, Any]]:
    """The results of the arms and seeds that `p.arms` and `p.seeds` name, after those
    without results were trained. Raises SweepError if a run fails."""
    arms, seeds = p.arm_names, p.seed_numbers
    folders = _folders(p, paper, arms, seeds)
    missing = [folder for folder in folders if not runs.read_results(folder)]
    print(f"{len(folders) - len(missing)} of {len(folders)} runs are done")
    if missing:
        own = params.load(paper, p.profile, variant=p.variant).model_dump()
        named = {"arm", "arms", "seed", "seeds", "output_dir"}
        values = p.model_dump(exclude=named)
        changed = {key: v for key, v in values.items() if v != own[key]}
        targets = [runs.relative(folder / "results.json") for folder in folders]
        more = {"overrides": changed, "bar": "sweep"}
        snakemake(p, paper, arms, seeds, targets, **more)
    results = [r for folder in folders if (r := runs.read_results(folder))]
    if len(results) < len(folders):
        raise SweepError("see the failed runs' notebook.partial.ipynb")
    return results


def environment(jobs: int = 1) -> dict[str, str]:
    """The environment of a run: this interpreter's programs, offline, few threads.

    Two threads a run, or one where as many runs as cores go on at a time. A user's own
    settings of Snakemake, Jupyter, IPython and Matplotlib do not reach a run, and it
    writes nothing into the home folder but the cache.
    """
    threads = max(1, min(2, child.cores() // jobs))
    programs = str(Path(sys.executable).parent)
    named = hasattr(os, "ttyname") and sys.stderr.isatty()  # Windows has no names
    terminal = os.ttyname(2) if named else ""
    home, cache = Path(os.path.expanduser("~")), cache_dir()
    moved = {}
    if "XDG_CACHE_HOME" not in os.environ and not os.access(home, os.W_OK):
        models = os.environ.get("HF_HOME", f"{home}/.cache/huggingface")
        moved = {"XDG_CACHE_HOME": str(cache), "HF_HOME": models}
    return {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": "3000",  # asleep at once they lag; spinning on, they crawl
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
