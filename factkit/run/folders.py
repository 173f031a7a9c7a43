"""Run folders: where they are, which process may write them, and what made them."""

import itertools
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter
from typing_extensions import TypedDict  # noqa: UP035  pydantic's, before 3.12

from factkit.run.failures import UserError
from factkit.run.params import ROOT
from factkit.run.params.stages import RunParams, SweepParams

ENDING_S = 8.0  # a killed run's processes end within it: see run/child.py
# where services and reports are, and how much they take: no part of a run's identity
SERVICE_KEYS = frozenset(
    """judge_url search_url relevance_url judge_key judge_headers judge_concurrency
    judge_timeout judge_max_calls judge_gpus vllm_memory micro_batch_size
    report_to""".split()
)
# also how results are computed, and the run's name: data made with others are the same
NON_IDENTITY_KEYS = SERVICE_KEYS.union(
    """output_dir arm arms seed seeds rollouts num_processes vllm_tensor_parallel
    deepspeed lora_backend eval_batch_size max_context_length""".split()
)


class RunError(UserError):
    """A run can't be started as asked; the message says why and what to do."""


class Identity(TypedDict):
    """What a run depends on: its parameters, and its inputs' checksums."""

    params: dict[str, Any]
    inputs: dict[str, str]


class RunRecord(TypedDict):
    """The content of run.json."""

    identity: Identity
    started: str


def profile_folder(params: RunParams) -> Path:
    """outputs/<profile>, or outputs/<profile>-<variant> for a variant's runs."""
    name = "-".join(filter(None, (params.profile, params.variant)))
    return ROOT / params.output_dir / name


def run_folder(notebook: str, params: RunParams) -> Path:
    """outputs/<profile>/<notebook>/<arm>-s<seed>, or …/main-s0 if it has no arms."""
    name = "main-s0"
    if notebook.endswith("_train") and isinstance(params, SweepParams):
        name = f"{params.arm}-s{params.seed}"
    return profile_folder(params) / notebook / name


def relative(path: Path) -> str:
    """A path relative to the project root, if it lies below it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def lock_folder(folder: Path, wait: bool = False) -> FileLock:
    """Lock a run's folder for this process; the lock ends with the process.

    The lock's file stands beside the folder, which may be moved aside, and names its
    holder. Raises RunError if another process has it, unless `wait`.
    """
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
    holder = f"process {os.getpid()} on {platform.node()} since {now()}\n"
    path.write_text(holder, "utf-8")
    return lock


def read_record(folder: Path) -> RunRecord:
    """The content of a folder's run.json. Raises RunError if it can't be read."""
    path = folder / "run.json"
    try:
        return TypeAdapter(RunRecord).validate_json(path.read_bytes())
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RunError(
            f"{relative(path)} can't be read ({reason}), so nobody knows what made "
            f"the folder: move {relative(folder)} away"
        ) from None


def describe_differences(folder: Path, params: RunParams, keys: Iterable[str]) -> str:
    """Parameters among `keys` that a folder's run had with other values, in words.

    Leaves out NON_IDENTITY_KEYS. "" without differences, or without a run.json.
    """
    if not (folder / "run.json").is_file():
        return ""
    recorded = read_record(folder)["identity"]["params"]
    current = params.model_dump(include=set(keys) - NON_IDENTITY_KEYS)
    return _list_changes(
        recorded, {k: current[k] for k in sorted(current) if k in recorded}
    )


def move_aside(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Rename a folder to <name>.stale-<n> and print which parameters have changed."""
    names = (f"{folder.name}.stale-{number}" for number in itertools.count(1))
    paths = map(folder.with_name, names)
    aside = next(path for path in paths if not os.path.lexists(path))
    folder.rename(aside)
    changes = _list_changes(before, now) or "other input data or another reward"
    print(f"{relative(folder)} was made with {changes}: moved to {aside.name}")


def _list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}={before.get(key)!r} (now {value!r})"
        for key, value in now.items()
        if before.get(key) != value
    )
