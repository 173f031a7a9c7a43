"""The content of results.json: its schema, its checksums, and how both are checked."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # noqa: UP035  pydantic's, before 3.12

from factkit.run.failures import UserError
from factkit.run.files import write_atomically

FILE = "results.json"
ITEMS = "items.csv"
# judge calls of this process: asked, asked_again, failed
JUDGEMENTS: Counter[str] = Counter()
REQUIRED = (ITEMS, "metrics.csv")
CHECKED = (*REQUIRED, "samples.jsonl")  # which may be left out of a copy


class ResultsError(UserError):
    """A run's results are damaged, or those of another run."""


@with_config(ConfigDict(strict=True, extra="allow", allow_inf_nan=False))
class Results(TypedDict):
    """What results.json holds. metrics: rates are fractions. files: name → SHA-256 of
    the tables beside it. sha256: of all other fields (`checksum`)."""

    schema: Literal[1]
    notebook: str
    paper: str
    profile: str
    variant: str
    arm: str
    seed: int
    status: Literal["done"]
    params: dict[str, str | bool | int | float | None]
    inputs: dict[str, str]
    metrics: dict[str, int | float]
    wall_s: float
    started: str
    versions: dict[str, str]
    device: str
    git: str
    recipe: NotRequired[dict[str, dict[str, str]]]
    deviations: list[str]
    files: dict[str, str]
    sha256: str


class Identity(TypedDict):
    """What a run depends on: its parameters, and its inputs' checksums."""

    params: dict[str, Any]
    inputs: dict[str, str]


class RunRecord(TypedDict):
    """What run.json holds."""

    identity: Identity
    started: str


SCHEMA = TypeAdapter(Results)


def write_results(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Write results.json, last and atomically, with the checksums of the run's files.

    Returns its content. Raises ValidationError, a ValueError, if it is not of the
    schema.
    """
    files = {
        path.name: file_checksum(path)
        for path in sorted(folder.iterdir())
        if path.suffix in (".csv", ".json", ".jsonl")
        and path.name not in (FILE, "run.json")
    }
    results = {**content, "files": files}
    results["sha256"] = checksum(results)
    text = json.dumps(results, indent=1)
    SCHEMA.validate_json(text)
    write_atomically(folder / FILE, text)
    return results


def read_results(folder: Path) -> dict[str, Any] | None:
    """The content of a run's results.json, or None if the run is not done.

    Raises ResultsError, with the file, the reason and the fix, if it was damaged or
    changed, is not of this folder, or the tables beside it are not those of the run.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return None
    try:
        results = SCHEMA.validate_json(path.read_bytes())
        fault = next(_faults(results, folder), "")
    except ValidationError as error:
        last = error.errors(include_input=False, include_url=False)[-1]
        where = ".".join(map(str, last["loc"]))
        fault = f"{where or 'content'}: {last['msg']}"
        if where in ("files", "sha256"):
            fault = f"no checksums ({where}): an earlier version of factkit wrote it"
    except OSError as error:
        fault = f"can't be read: {error.strerror}"
    if fault:
        raise ResultsError(
            f"{path}: {fault}; remove this file and run the notebook again, which "
            "repeats only what is missing"
        )
    return {**results, "folder": str(folder)}


def run_folders(root: Path) -> Iterator[Path]:
    """The folders below `root` with a results.json, symbolic links followed; not those
    that were moved aside. Prints which run's folder is a link to nothing."""
    for place, folders, files in os.walk(root, followlinks=True):
        path = Path(place)
        folders[:] = [
            name
            for name in folders
            if ".stale-" not in name and not _is_loop(path / name)
        ]
        for name in filter(re.compile(r".+-s\d+").fullmatch, files):
            if not (path / name).exists():
                print(f"left out: {path / name} is a link to nothing")
        if FILE in (*files, *folders):
            yield path


def _is_loop(folder: Path) -> bool:
    """Whether a folder is a symbolic link to one that it lies in."""
    above = folder.parent.resolve
    return folder.is_symlink() and above().is_relative_to(folder.resolve())


def _faults(results: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """What is wrong with results of the right schema."""
    if results["sha256"] != checksum(results):
        yield "its content is not what its checksum (sha256) says: it was changed"
    setting = "-".join(filter(None, (results["profile"], results["variant"])))
    names = [f"{results['arm']}-s{results['seed']}"]
    if not results["notebook"].endswith("_train"):  # it may have no arms
        names.append("main-s0")
    places = [f"{setting}/{results['notebook']}/{name}" for name in names]
    if not folder.absolute().as_posix().endswith(tuple(f"/{p}" for p in places)):
        yield f"it holds the results of {places[0]}"
    for file in CHECKED:
        listed, path = results["files"].get(file), folder / file
        if not os.path.lexists(path):
            if listed and file in REQUIRED:
                yield f"{file} is missing"
        elif not listed:
            yield f"{file} is not a file of this run"
        elif not path.is_file() or file_checksum(path) != listed:
            yield f"{file} is not what its checksum says: it was cut off or changed"


def checksum(results: Mapping[str, Any]) -> str:
    """The SHA-256 of all fields but `sha256`, in the order of their names."""
    content = {key: value for key, value in results.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_checksum(path: Path) -> str:
    """A file's SHA-256: a gigabyte takes about a second."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
