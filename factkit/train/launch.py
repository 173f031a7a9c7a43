"""Running a train function in processes of its own, where the parameters ask for it."""

import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from factkit import child
from factkit.assets import write_atomically
from factkit.params.stages import HardwareParams, RunParams


class LaunchError(RuntimeError):
    """Training in processes of its own failed; the message ends with their log."""


def distributed(train: Callable[..., Path]) -> Callable[..., Path]:
    """Run `train(..., folder, p)` where `p` wants it: here, or under accelerate.

    Its arguments are written to folder/launch/<name>/job.json (functions by name, rows
    as JSON lines) and `accelerate launch` runs them in p.num_processes processes; what
    they print is passed on to stderr and kept in accelerate.log. Same call, same files,
    same result either way. A finished job is not launched again. `inspect.unwrap` gives
    the function that always runs here.

    Raises LaunchError if a process fails, ValueError on an argument that cannot be
    handed on.
    """
    signature = inspect.signature(train)

    @functools.wraps(train)
    def call(*args: Any, **kwargs: Any) -> Path:
        arguments = signature.bind(*args, **kwargs).arguments
        p, folder = arguments["p"], arguments["folder"]
        launched = int(os.environ.get("WORLD_SIZE", 1)) > 1
        if launched or not needs_own_processes(p):
            return train(*args, **kwargs)
        job = folder / "launch" / train.__name__
        if not _is_done(job, folder):
            _write_job(train, arguments, job)
            _free_gpus()
            _run_job(launch_command(p, job / "job.json"), job)
        return folder / (job / "result").read_text(encoding="utf-8")

    return call


def _free_gpus() -> None:
    """Give back what this process has cached and no longer uses of the GPUs' memory."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


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
    and "auto" in DeepSpeed's configuration is filled in from there.
    """
    job_itself = ["-m", "factkit.train.launch", str(job)]
    if p.num_processes == 1:
        return [sys.executable, *job_itself]
    return [
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
        *("--num_processes", str(p.num_processes), "--num_machines", "1"),
        *("--mixed_precision", "no", "--dynamo_backend", "no"),
        *("--main_process_port", "0"),  # any free one
        *job_itself,
    ]


def _write_job(train: Callable, arguments: dict[str, Any], job: Path) -> None:
    job.mkdir(parents=True, exist_ok=True)
    handed = {k: _to_json(k, value, job) for k, value in arguments.items()}
    content = {"function": _name(train), "arguments": handed}
    write_atomically(job / "job.json", json.dumps(content, indent=1))


def _to_json(name: str, value: Any, job: Path) -> Any:
    """An argument as JSON; rows go to a file of their own."""
    if isinstance(value, RunParams):
        return {"params": _name(type(value)), "values": value.model_dump()}
    if isinstance(value, Path):
        return {"path": str(value.absolute())}
    if callable(value):
        return {"function": _name(value)}
    if isinstance(value, str | int | float):
        return value
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in value)
    write_atomically(job / f"{name}.jsonl", lines)
    return {"rows": f"{name}.jsonl"}


def _from_json(value: Any, job: Path) -> Any:
    match value:
        case {"params": name, "values": values}:
            return _named(name).model_validate(values)
        case {"path": path}:
            return Path(path)
        case {"function": name}:
            return _named(name)
        case {"rows": file}:
            lines = (job / file).read_text(encoding="utf-8").split("\n")
            return [json.loads(line) for line in lines if line]
    return value


def _name(thing: Any) -> str:
    """module:name of a function or class; ValueError if that does not lead to it."""
    name = f"{thing.__module__}:{thing.__qualname__}"
    if thing.__module__ == "__main__" or "<" in name:
        raise ValueError(
            f"{thing.__qualname__} must be defined in a module, at its top: the "
            "processes that train import it by name"
        )
    return name


def _named(name: str) -> Any:
    module, _, qualname = name.partition(":")
    return getattr(importlib.import_module(module), qualname)


def _is_done(job: Path, folder: Path) -> bool:
    """Whether a job has finished and what it made is still there."""
    result = job / "result"
    return result.exists() and (folder / result.read_text(encoding="utf-8")).exists()


def _run_job(command: Sequence[str], job: Path) -> None:
    """Run a command, passing its output on; raises LaunchError if it fails.

    Its processes end with this one: else they and a rerun would train into one folder.
    """
    log = job / "accelerate.log"
    process = subprocess.Popen(
        child.command(*command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        with log.open("wb") as f:
            while chunk := process.stdout.read1():
                f.write(chunk)
                sys.stderr.write(chunk.decode("utf-8", "replace"))
    except BaseException:
        process.terminate()
        raise
    finally:
        code = process.wait()
    if code:
        tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        raise LaunchError(f"training failed with exit code {code}; {log} ends:\n{tail}")


def main(job_file: Path) -> None:
    """What each launched process runs: the job's function on the job's arguments."""
    child.end_with_parent()  # accelerate starts each in a session of its own
    job = job_file.parent
    content = json.loads(job_file.read_text(encoding="utf-8"))
    arguments = {k: _from_json(v, job) for k, v in content["arguments"].items()}
    if arguments["p"].lora_backend == "unsloth":
        import unsloth  # noqa: F401  before trl, transformers and peft: it patches them
    train = inspect.unwrap(_named(content["function"]))
    path = train(**arguments)
    if is_main_process():
        write_atomically(job / "result", str(path.relative_to(arguments["folder"])))


def is_main_process() -> bool:
    """Whether this is the process that writes files: the only one, or rank 0."""
    return os.environ.get("RANK", "0") == "0"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
