"""Results of runs: results.json with its schema and checksums, and items.csv."""

import hashlib
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TextIO

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # noqa: UP035  pydantic's, before 3.12

from factkit.run import statistics
from factkit.run.failures import UserError
from factkit.run.files import file_checksum, write_atomically

if TYPE_CHECKING:
    import pandas as pd

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
    """The content of results.json. metrics: rates are fractions. files: name → SHA-256
    of the tables beside it. sha256: of all other fields (`checksum`)."""

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


SCHEMA = TypeAdapter(Results)


def write_results(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Write results.json atomically, with the checksums of the run's files.

    Returns its content. Raises ValidationError, a ValueError, against the schema.
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

    Raises ResultsError if it was damaged or changed, belongs to another folder, or does
    not match the tables beside it.
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
    """The folders below `root` with a results.json, also behind symbolic links, without
    stale ones. Prints which folder is a broken link."""
    for place, folders, files in os.walk(root, followlinks=True):
        path = Path(place)
        folders[:] = [
            name
            for name in folders
            if ".stale-" not in name and not _is_ancestor(path / name)
        ]
        for name in filter(re.compile(r".+-s\d+").fullmatch, files):
            if not (path / name).exists():
                print(f"left out: {path / name} is a link to nothing")
        if FILE in (*files, *folders):
            yield path


def _is_ancestor(folder: Path) -> bool:
    """Whether a folder is a symbolic link to one that it lies in."""
    parent = folder.parent.resolve
    return folder.is_symlink() and parent().is_relative_to(folder.resolve())


def _faults(results: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """The faults of results that have the right schema."""
    if results["sha256"] != checksum(results):
        yield "its content is not what its checksum (sha256) says: it was changed"
    setting = "-".join(filter(None, (results["profile"], results["variant"])))
    names = [f"{results['arm']}-s{results['seed']}"]
    if not results["notebook"].endswith("_train"):  # it may have no arms
        names.append("main-s0")
    expected = [f"{setting}/{results['notebook']}/{name}" for name in names]
    if not folder.absolute().as_posix().endswith(tuple(f"/{p}" for p in expected)):
        yield f"it holds the results of {expected[0]}"
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
    """The SHA-256 of all fields but `sha256`, sorted by name."""
    content = {key: value for key, value in results.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def all_results(*folders: Path) -> list[dict[str, Any]]:
    """The results of every finished run below the folders, sorted by their paths.

    Damaged runs are left out and printed.
    """
    paths = sorted(path for folder in folders for path in run_folders(folder))
    finished, damaged = [], []
    for path in paths:
        try:
            if results := read_results(path):
                finished.append(results)
        except ResultsError as error:
            damaged.append(error)
    for number, fault in enumerate(damaged, start=1):
        print(f"left out, damaged run {number} of {len(paths)}: {fault}")
    return finished


# ---- items


def write_items(
    folder: Path,
    owner: Mapping[str, Any],
    metrics: Mapping[str, float],
    items: Mapping[str, Mapping[str, float | None]],
) -> None:
    """Write items.csv: arm and seed (`owner`), item, then a column per metric.

    Raises ValueError if a metric is not the mean of its items, or ids are not unique.
    """
    import pandas as pd

    table = pd.DataFrame.from_dict(items, orient="index", dtype=float)
    for name in table:
        mean = statistics.mean_of(item_values(table, name))
        if name not in metrics or abs(mean - metrics[name]) > 1e-6:
            raise ValueError(
                f"items of {name}: their mean is {mean}, the metric is "
                f"{metrics.get(name)}; items are the terms of a metric's mean"
            )
    for position, (name, value) in enumerate(owner.items()):
        table.insert(position, name, value)
    text = table.to_csv(index_label="item", float_format="%.7g")
    ids = [str(item) for item in items]
    if ids != list(_parse_items(io.StringIO(text), metrics).item.unique()):
        raise ValueError("items: two have one id, or an id can't be written as text")
    write_atomically(folder / ITEMS, text)


def read_items(folder: Path | str) -> "pd.DataFrame | None":
    """A run's items, one row per item and one column per metric; None without any.

    Raises ResultsError as `read_results`, and on items of another arm or seed.
    """
    results = read_results(Path(folder))
    if results is None or ITEMS not in results["files"]:
        return None
    table = _parse_items(Path(folder, ITEMS), results["metrics"])
    owners = set(zip(table.pop("arm"), table.pop("seed"), strict=True))
    if owners != {(results["arm"], results["seed"])}:
        raise ResultsError(f"{Path(folder, ITEMS)}: items of {owners}; run it again")
    return table.set_index("item")


def _parse_items(source: Path | TextIO, metrics: Iterable[str]) -> "pd.DataFrame":
    """The table of an items.csv; ids stay text, also NA."""
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

    prefix: of the columns' names, for an iteration's metrics.
    """
    weight = statistics.WEIGHTS.get(metric)
    values = table[prefix + metric].to_numpy(dtype=float)
    weights = np.ones(len(table))
    if weight:
        weights = table[prefix + weight].to_numpy(dtype=float)
    counted = ~(np.isnan(values) | np.isnan(weights))
    pairs = zip(values[counted].tolist(), weights[counted].tolist(), strict=True)
    return dict(zip(table.index[counted].tolist(), pairs, strict=True))
