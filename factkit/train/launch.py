"""Where a train function runs, and what its folder says of what made its model.

A folder's recipe.json says, for each trainer that worked in it, what it was given: the
start, the rows, and the functions that make rewards and rollouts. The same trainer with
another recipe is refused: it would go on with, or return, another thing's model.
Parameters are the run's identity (`runs.start`) and not part of it, but where verl
trained (`verl_checkpoints`): its recipe stands for that of any trainer.
"""

import functools
import hashlib
import importlib
import inspect
import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import factkit
from factkit.policy import vllm_engine
from factkit.run import child, identity
from factkit.run.failures import RunFailure, last_error
from factkit.run.files import write_atomically
from factkit.run.params import ParamError
from factkit.run.params.stages import HardwareParams, RunParams

RECIPE = "recipe.json"
VERL = "verl"  # the trainer's name there


class LaunchError(RunFailure):
    """Training in processes of its own failed; the message ends with their log."""


class RecipeError(ParamError):
    """A folder holds what another recipe made."""


def made_once(train: Callable[..., Path], model: str = "model") -> Callable[..., Path]:
    """Have `train(..., folder, p)` make folder/model once, by one recipe, and where `p`
    wants it: here, or in processes of its own.

    The model is complete or absent: where it is there, it is returned and nothing is
    trained. For processes the arguments are written to folder/launch/<name>/job.pickle,
    functions by name; what they print is passed on to stderr and kept in
    accelerate.log. `inspect.unwrap` gives the function that always runs here.

    Raises RecipeError if the folder has another recipe of this trainer, or a model of
    which nothing is known; LaunchError if a process fails.
    """
    signature = inspect.signature(train)

    @functools.wraps(train)
    def call(*args: Any, **kwargs: Any) -> Path:
        arguments = signature.bind(*args, **kwargs).arguments
        p, folder = arguments["p"], arguments["folder"]
        _check(train.__name__, arguments, folder / model)
        if (folder / model).exists():
            return folder / model
        vllm_engine.free_gpus()
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 or not needs_own_processes(p):
            return train(*args, **kwargs)
        job = folder / "launch" / train.__name__
        _write_job(train, arguments, job)
        _run_job(launch_command(p, job), job)
        return folder / model

    return call


def needs_own_processes(p: HardwareParams) -> bool:
    """Whether training is to run outside this process.

    Several GPUs need a process each. Unsloth must be imported before transformers, TRL
    and PEFT, which a notebook has imported already. And vLLM gives a GPU's memory back
    only when its process ends.
    """
    own_engine = p.rollouts == "vllm_colocate"
    return p.num_processes > 1 or p.lora_backend == "unsloth" or own_engine


def launch_command(p: HardwareParams, job: Path) -> list[str]:
    """The command line that runs a job in p.num_processes processes of this machine.

    Precision and DeepSpeed are TrainingArguments' business: they are set in one place,
    and "auto" in DeepSpeed's configuration is filled in from there. All cores are
    shared out, whatever OMP_NUM_THREADS says: ZeRO-3's offload runs Adam on them.
    """
    job_itself = ["-m", "factkit.train.launch", str(job)]
    if p.num_processes == 1:
        return [sys.executable, *job_itself]
    threads = max(1, child.cores() // p.num_processes)
    return [
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
        *("--num_processes", str(p.num_processes), "--num_machines", "1"),
        *("--mixed_precision", "no", "--dynamo_backend", "no"),
        *("--main_process_port", "0"),  # any free one
        *("--num_cpu_threads_per_process", str(threads)),
        *job_itself,
    ]


def is_main_process() -> bool:
    """Whether this is the process that writes files: the only one, or rank 0."""
    return os.environ.get("RANK", "0") == "0"


def _check(trainer: str, arguments: Mapping[str, Any], model: Path) -> None:
    """Write down what `trainer` was given, or hold it to what is written down."""
    folder, written = model.parent, model.parent / RECIPE
    if not os.path.lexists(written) and (model / RECIPE).is_file():
        write_atomically(written, (model / RECIPE).read_bytes())
    recipes = read_recipes(folder)
    recipe = {
        name: argument_identity(value)
        for name, value in arguments.items()
        if not isinstance(value, RunParams | Path) and value is not None
    }
    if made := recipes.get(VERL):
        recipe |= {k: str(v) for k, v in arguments["p"].model_dump().items()}
        recipe = {k: v for k, v in recipe.items() if k in made}
        recipes[trainer] = {k: made[k] for k in recipe}
    before = recipes.get(trainer)
    if before is None:
        if model.exists():
            raise RecipeError(
                f"{model}: nothing says what made it; move {folder} away, or "
                "take another output_dir"
            )
        folder.mkdir(parents=True, exist_ok=True)
        recipes[trainer] = recipe
        write_atomically(written, json.dumps(recipes, indent=1))
    else:
        require_same(folder, before, recipe)


def require_same(
    folder: Path, before: Mapping[str, str], recipe: Mapping[str, str]
) -> None:
    """Raises RecipeError, with what differs, if a folder was made by another recipe."""
    if before != recipe:
        differing = [
            f"{name}={before.get(name)!r} (now {value!r})"
            for name, value in recipe.items()
            if value != before.get(name)
        ]
        raise RecipeError(
            f"{folder} was made with {', '.join(differing)}: move it away, or give "
            "this run an arm or output_dir of its own"
        )


def read_recipes(folder: Path) -> dict[str, dict[str, str]]:
    """What a folder's recipe.json holds, if there is one. Raises RecipeError if it is
    damaged."""
    path = folder / RECIPE
    if not os.path.lexists(path):
        return {}
    try:
        kind = TypeAdapter(dict[str, dict[str, str]])
        return kind.validate_json(path.read_bytes())
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RecipeError(
            f"{path} can't be read ({reason}), so nobody knows what made the models "
            f"beside it: move {path.parent} away"
        ) from None


def function_identity(function: Callable) -> str:
    """The name of a function and what it is made of.

    The kit's own are known by their name and the kit's version, so that moving code
    makes no run stale; what was put into their module from outside is named, too, and
    a partial one with what it was given. Any other has a digest of all that it uses.
    """
    if isinstance(function, functools.partial) and _is_kits(function.func):
        given = [f", {k}={function_identity(f)}" for k, f in function.keywords.items()]
        return function_identity(function.func) + "".join(given)
    if not _is_kits(function):
        name = identity.callable_name(function)
        return f"{name} {identity.source_digest(function)}"
    # the last two parts alone: a module may move from one room to another
    module = ".".join(function.__module__.split(".")[-2:])
    name = f"factkit.{module}.{function.__qualname__}"
    replaced = [
        f", with {key} {identity.source_digest(value)}"
        for key, value in sorted(vars(sys.modules[function.__module__]).items())
        if inspect.isfunction(value)
        and not _comes_from(
            value, Path(factkit.__file__).parent, sys.prefix, sys.base_prefix
        )
    ]
    return f"{name} of factkit {version('factkit')}" + "".join(replaced)


def _is_kits(function: Callable) -> bool:
    """Whether it is a function of the kit."""
    own = Path(factkit.__file__).parent
    return inspect.isfunction(function) and _comes_from(function, own)


def argument_identity(value: Any) -> str:
    """What stands for an argument: a function's name, a model's recipe, a digest."""
    if callable(value):
        return function_identity(value)
    if isinstance(value, str):  # a model's folder, or its name on the hub
        own = Path(value) / RECIPE
        made_by = f" made by {_digest(own.read_text('utf-8'))}" if own.is_file() else ""
        return f"{Path(value).name}{made_by}"
    rows = [json.dumps(row, sort_keys=True, default=str) for row in value]
    return f"{len(rows)} rows {_digest(*rows)}"


def _comes_from(function: Callable, *folders: Path | str) -> bool:
    path = Path(function.__code__.co_filename)
    return any(path.is_relative_to(folder) for folder in folders)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _write_job(train: Callable, arguments: Mapping[str, Any], job: Path) -> None:
    """Raises ValueError on a function that the processes could not import."""
    functions = list(filter(callable, arguments.values()))
    for f in functions:
        functions += f.keywords.values() if isinstance(f, functools.partial) else ()
    for value in (getattr(f, "func", f) for f in functions):
        if value.__module__ == "__main__" or "<" in value.__qualname__:
            raise ValueError(
                f"{value.__qualname__} must be defined in a module, at its top: the "
                "processes that train import it by name"
            )
    job.mkdir(parents=True, exist_ok=True)
    with (job / "job.pickle").open("wb") as file:
        pickle.dump((train.__module__, train.__name__, dict(arguments)), file)


def _run_job(command: Sequence[str], job: Path) -> None:
    """Run a command, passing its output on; raises LaunchError if it fails.

    Its processes end with this one: else they and a rerun would train into one folder.
    """
    log = job / "accelerate.log"
    with child.reading(command) as process, log.open("wb") as f:
        while chunk := process.stdout.read1():
            f.write(chunk)
            sys.stderr.write(chunk.decode("utf-8", "replace"))
    if code := process.returncode:
        cause = last_error(log.read_text(encoding="utf-8", errors="replace"))
        raise LaunchError(f"training failed with exit code {code}: {cause}\nlog: {log}")


def main(job: Path) -> None:
    """What each launched process runs: the job's function on the job's arguments."""
    child.end_with_parent()  # accelerate starts each in a session of its own
    module, name, arguments = pickle.loads((job / "job.pickle").read_bytes())
    if arguments["p"].lora_backend == "unsloth":
        # its engine can sleep, with the share of memory that we name and no other
        os.environ |= {"UNSLOTH_VLLM_STANDBY": "1"}
        os.environ |= {"UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE": "1"}
        import unsloth  # noqa: F401  before trl, transformers and peft: it patches them
    train = inspect.unwrap(getattr(importlib.import_module(module), name))
    train(**arguments)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
