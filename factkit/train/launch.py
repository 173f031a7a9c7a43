"""Run a train function here or by `accelerate launch`; record what made its model.

recipe.json in a model's folder records for each trainer the start, the rows and the
functions that make rewards and rollouts. A trainer with another recipe is rejected: it
would continue, or return, the model of another experiment. Parameters belong to the
run's identity (`runs.start`) instead, except where verl trained (`verl_checkpoints`).
"""

import contextlib
import functools
import hashlib
import inspect
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
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
    """Training in separate processes failed; the message ends with their log."""


class RecipeError(ParamError):
    """A folder holds a model that another recipe made."""


def made_once(train: Callable[..., Path], model: str = "model") -> Callable[..., Path]:
    """Decorate `train(..., folder, p)` to make folder/model once, in this process or,
    where `p` requires it, in processes of its own.

    An existing model is returned without training. For separate processes the call is
    written to folder/launch/<name>/job.json, functions by name; their output is passed
    on to stderr and kept in accelerate.log. `inspect.unwrap` gives the function that
    always trains in this process.

    Raises RecipeError if the folder has another recipe of this trainer or a model
    without a recipe; LaunchError if a process fails.
    """
    signature = inspect.signature(train)

    @functools.wraps(train)
    def call(*args: Any, **kwargs: Any) -> Path:
        arguments = signature.bind(*args, **kwargs).arguments
        p, folder = arguments["p"], arguments["folder"]
        _check_recipe(train.__name__, arguments, folder / model)
        if (folder / model).exists():
            return folder / model
        vllm_engine.free_gpus()
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 or not needs_own_processes(p):
            with enable_gradients():
                return train(*args, **kwargs)
        job = folder / "launch" / train.__name__ / "job.json"
        write_job(train, arguments, job)
        run_job(launch_command(p, job), job.with_name("accelerate.log"))
        return folder / model

    return call


def enable_gradients() -> AbstractContextManager[None]:
    """A context in which gradients are recorded, even where an interrupt has left
    `torch.no_grad` or `torch.inference_mode` switched on in this process."""
    import torch

    return torch.inference_mode(False)


# ---- separate processes


def needs_own_processes(p: HardwareParams) -> bool:
    """Whether training must run outside this process.

    Several GPUs need one process each. Unsloth must be imported before transformers,
    TRL and PEFT, which a notebook has already imported. vLLM returns GPU memory only
    when its process ends.
    """
    own_engine = p.rollouts == "vllm_colocate"
    return p.num_processes > 1 or p.lora_backend == "unsloth" or own_engine


def launch_command(p: HardwareParams, job: Path) -> list[str]:
    """The command line that runs a job in p.num_processes processes on this machine.

    TrainingArguments set precision and DeepSpeed. The processes share all cores,
    whatever OMP_NUM_THREADS says, because ZeRO-3's offload runs Adam on them.
    """
    job_command = ["-m", "factkit.train.launch", str(job)]
    if p.num_processes == 1:
        return [sys.executable, *job_command]
    options = {
        "num_processes": p.num_processes,
        "num_machines": 1,
        "mixed_precision": "no",
        "dynamo_backend": "no",
        "main_process_port": 0,  # any free one
        "num_cpu_threads_per_process": max(1, child.cores() // p.num_processes),
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    accelerate = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    return [*accelerate, *arguments, *job_command]


def is_main_process() -> bool:
    """Whether this process writes files: the only one, or rank 0."""
    return os.environ.get("RANK", "0") == "0"


def write_job(train: Callable, arguments: Mapping[str, Any], job: Path) -> None:
    """Write a call of `train` as JSON: rows as they are, parameters with their class,
    functions by name.

    Raises ValueError on a function that other processes can't import by its name.
    """
    name = f"{train.__module__}:{train.__name__}"
    call = {"train": name, "arguments": dict(arguments)}
    text = json.dumps(call, default=_encode)
    job.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(job, text)


def _encode(value: Any) -> dict[str, Any]:
    if isinstance(value, RunParams):
        return {"$params": _import_name(type(value)), "values": value.model_dump()}
    if isinstance(value, Path):
        return {"$path": str(value)}
    if isinstance(value, functools.partial):
        given = {"arguments": value.args, "keywords": value.keywords}
        return {"$partial": value.func} | given
    if callable(value):
        return {"$function": _import_name(value)}
    raise TypeError(f"{value!r:.80} can't be written as JSON")


def _decode(content: dict[str, Any]) -> Any:
    match content:
        case {"$params": name, "values": values}:
            return pkgutil.resolve_name(name).model_construct(**values)
        case {"$path": path}:
            return Path(path)
        case {"$partial": function, "arguments": args, "keywords": keywords}:
            return functools.partial(function, *args, **keywords)
        case {"$function": name}:
            return pkgutil.resolve_name(name)
    return content


def _import_name(function: Callable) -> str:
    """module:name of a function or class."""
    module, found = function.__module__, None
    name = f"{module}:{getattr(function, '__qualname__', '<object>')}"
    with contextlib.suppress(ValueError, ImportError, AttributeError):
        found = pkgutil.resolve_name(name)
    if module == "__main__" or found is not function:
        raise ValueError(
            f"{identity.callable_name(function)} must be defined in a module, at its "
            "top: the processes that train import it by name"
        )
    return name


def run_job(command: Sequence[str], log: Path) -> None:
    """Run a command and pass its output on; raises LaunchError if it fails.

    Its processes end with this one, so that they and a rerun never train in one folder.
    """
    with child.reading(command) as process, log.open("wb") as file:
        # a pipe's is a BufferedReader, which the hint of Popen does not say
        while chunk := process.stdout.read1():  # type: ignore[union-attr]
            file.write(chunk)
            sys.stderr.write(chunk.decode("utf-8", "replace"))
    if code := process.returncode:
        cause = last_error(log.read_text(encoding="utf-8", errors="replace"))
        raise LaunchError(f"training failed with exit code {code}: {cause}\nlog: {log}")


def main(job: Path) -> None:
    """Run a job in one launched process."""
    child.end_with_parent()  # accelerate starts each in a session of its own
    text = job.read_text("utf-8")
    if json.loads(text)["arguments"]["p"]["values"]["lora_backend"] == "unsloth":
        # its engine may sleep, and takes the share of memory that we name
        os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
        os.environ["UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE"] = "1"
        import unsloth  # noqa: F401  before trl, transformers and peft: it patches them
    call = json.loads(text, object_hook=_decode)
    train = inspect.unwrap(pkgutil.resolve_name(call["train"]))
    train(**call["arguments"])


# ---- recipes


def _check_recipe(trainer: str, arguments: Mapping[str, Any], model: Path) -> None:
    """Record the recipe of `trainer`, or compare it with the recorded one."""
    folder, path = model.parent, model.parent / RECIPE
    if not os.path.lexists(path) and (model / RECIPE).is_file():
        write_atomically(path, (model / RECIPE).read_bytes())
    recipes = read_recipes(folder)
    recipe = {
        name: argument_identity(value)
        for name, value in arguments.items()
        if not isinstance(value, RunParams | Path) and value is not None
    }
    if of_verl := recipes.get(VERL):
        recipe |= {k: str(v) for k, v in arguments["p"].model_dump().items()}
        recipe = {k: v for k, v in recipe.items() if k in of_verl}
        recipes[trainer] = {k: of_verl[k] for k in recipe}
    if recorded := recipes.get(trainer):
        require_same(folder, recorded, recipe)
        return
    if model.exists():
        raise RecipeError(
            f"{model}: nothing says what made it; move {folder} away, or "
            "take another output_dir"
        )
    folder.mkdir(parents=True, exist_ok=True)
    recipes[trainer] = recipe
    write_atomically(path, json.dumps(recipes, indent=1))


def require_same(
    folder: Path, before: Mapping[str, str], recipe: Mapping[str, str]
) -> None:
    """Raises RecipeError with the differences if another recipe made a folder."""
    if before != recipe:
        differences = [
            f"{name}={before.get(name)!r} (now {value!r})"
            for name, value in recipe.items()
            if value != before.get(name)
        ]
        raise RecipeError(
            f"{folder} was made with {', '.join(differences)}: move it away, or give "
            "this run an arm or output_dir of its own"
        )


def read_recipes(folder: Path) -> dict[str, dict[str, str]]:
    """The content of a folder's recipe.json, {} without one. Raises RecipeError if it
    is damaged."""
    path = folder / RECIPE
    if not os.path.lexists(path):
        return {}
    try:
        schema = TypeAdapter(dict[str, dict[str, str]])
        return schema.validate_json(path.read_bytes())
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RecipeError(
            f"{path} can't be read ({reason}), so nobody knows what made the models "
            f"beside it: move {path.parent} away"
        ) from None


def function_identity(function: Callable) -> str:
    """A function's name with what identifies its behaviour.

    The kit's functions: module, name and the kit's version, so that moving code makes
    no run stale, then functions that a user assigned into their module, and a partial's
    keywords. Any other function: a digest of all that it uses.
    """
    if isinstance(function, functools.partial) and _is_kits(function.func):
        given = [f", {k}={function_identity(f)}" for k, f in function.keywords.items()]
        return function_identity(function.func) + "".join(given)
    if not _is_kits(function):
        name = identity.callable_name(function)
        return f"{name} {identity.source_digest(function)}"
    # only the last two parts: a module may move from one room to another
    module = ".".join(function.__module__.split(".")[-2:])
    name = f"factkit.{module}.{function.__qualname__}"
    libraries = (Path(factkit.__file__).parent, sys.prefix, sys.base_prefix)
    replaced = [
        f", with {key} {identity.source_digest(value)}"
        for key, value in sorted(vars(sys.modules[function.__module__]).items())
        if inspect.isfunction(value) and not _is_below(value, *libraries)
    ]
    return f"{name} of factkit {version('factkit')}" + "".join(replaced)


def _is_kits(function: Callable) -> bool:
    kit = Path(factkit.__file__).parent
    return inspect.isfunction(function) and _is_below(function, kit)


def _is_below(function: Callable, *folders: Path | str) -> bool:
    path = Path(function.__code__.co_filename)
    return any(path.is_relative_to(folder) for folder in folders)


def argument_identity(value: Any) -> str:
    """A function's identity, a model's name with its recipe, or a digest of rows."""
    if callable(value):
        return function_identity(value)
    if isinstance(value, str):  # a model's folder, or its name on the hub
        path = Path(value) / RECIPE
        recipe = path.read_text("utf-8") if path.is_file() else ""
        made_by = f" made by {_digest(recipe)}" if path.is_file() else ""
        return f"{Path(value).name}{made_by}"
    rows = [json.dumps(row, sort_keys=True, default=str) for row in value]
    return f"{len(rows)} rows {_digest(*rows)}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
