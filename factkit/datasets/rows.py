"""Rows of data files and of the hub, and the fields in them."""

import ast
import csv
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from factkit.corpus import open_packed
from factkit.datasets.examples import DataError

Row = Mapping[str, Any]


class RowError(ValueError):
    """A row is no question of its source; the message is the problem's name."""


# ---- rows


def existing(path: str | Path, folder: bool = False) -> Path:
    """The file, or with `folder` also the folder, at a path; DataError if none is."""
    path = Path(path)
    if path.is_file() or (folder and path.is_dir()):
        return path
    raise DataError(f"{path}: no such file{' or folder' if folder else ''}")


def of_file(path: str | Path) -> Iterator[Any]:
    """The rows of a file: .csv, .parquet, or JSON or JSON lines, the last two also
    packed by gzip or bzip2.

    A RowError (problem, what was read) stands in place of a row that can't be read.
    Raises DataError on a missing file, and on one that can't be read as a whole.
    """
    path = existing(path)
    name = path.name.casefold().removesuffix(".gz").removesuffix(".bz2")
    if name.endswith(".csv"):
        rows = _csv_rows(path)
    elif name.endswith(".parquet"):
        rows = _parquet_rows(path)
    else:
        rows = _json_rows(path) if name.endswith(".json") else None
    yield from json_lines(path) if rows is None else rows


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            yield from csv.DictReader(lines)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}: not CSV in UTF-8: {error}; fetch the file again"
        ) from None


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path}: no parquet file: {error!r}; fetch the file again"
        ) from None


def json_lines(path: Path) -> Iterator[Any]:
    """The values of JSON lines, plain or packed, a RowError where there is none."""
    try:
        with open_packed(path) as lines:
            yield from map(parsed, lines)
    except (EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        yield RowError("file cut short or damaged", str(error))


def parsed(line: bytes) -> Any:
    """A line's JSON value, or a RowError."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return RowError("not UTF-8", line)
    except (ValueError, RecursionError):
        return RowError("not JSON", line)


def _json_rows(path: Path) -> Iterator[Any] | None:
    """The rows of a file that is one JSON value; None if it is JSON lines instead."""
    try:
        with open_packed(path) as file:
            value = json.loads(file.read().decode("utf-8"))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise DataError(
            f"{path}, line {error.lineno}, column {error.colno}: not JSON: "
            f"{error.msg}; fetch the file again"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 at byte {error.start}; save the file as UTF-8"
        ) from None
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cut short or damaged: {error}") from None
    except RecursionError:
        raise DataError(f"{path}: nested too deeply to be data") from None
    rows = value.get("data", [value]) if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise DataError(f"{path}: must hold a JSON list of rows, or {{data: [...]}}")
    return _flat(rows)


def _flat(rows: Iterable[Any]) -> Iterator[Any]:
    """Rows; SQuAD's articles become the rows that the hub makes of them."""
    for row in rows:
        if not isinstance(row, Mapping) or "paragraphs" not in row or "id" in row:
            yield row
            continue
        try:
            for paragraph in objects(row, "paragraphs"):
                shared = {"title": row.get("title"), "context": paragraph["context"]}
                for question in objects(paragraph, "qas"):
                    yield shared | dict(question)
        except (RowError, KeyError) as error:
            yield RowError(f"paragraphs: {error}", row.get("title"))


def of_hub(
    hub: str, config: str, split: str, stream: bool, file: str = ""
) -> Iterator[Any]:
    """The rows of a split of the data set `hub`, or of the file at that address.

    file: a file of the data set, in place of the split. Raises DataError if hub, data
    set, file or split can't be had.
    """
    import datasets
    from huggingface_hub import hf_hub_download

    try:
        if file:
            yield from of_file(hf_hub_download(hub, file, repo_type="dataset"))
        elif hub.startswith("https://"):
            yield from of_file(datasets.DownloadManager().download(hub))
        else:
            yield from datasets.load_dataset(
                hub, config or None, split=split, streaming=stream
            )
    except (OSError, ValueError) as error:
        raise DataError(
            f"{hub}, {file or f'split {split!r}'}: {error}; check the name and the "
            "network (HF_HUB_OFFLINE=0), or give the path of a local file"
        ) from error


# ---- fields


def string(name: str, value: object) -> str:
    """A value that must be text; RowError if it isn't, or has half a character."""
    if not isinstance(value, str):
        raise RowError(f"{name}: missing or not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RowError(f"{name}: half a character (a lone surrogate)") from None
    return value


def strings(name: str, value: object) -> list[str]:
    """A value that must be a list of texts."""
    if not isinstance(value, list):
        raise RowError(f"{name}: not a list of texts")
    return [string(name, item) for item in value]


def text(row: Row, *names: str) -> str:
    """The first of these fields that the row has."""
    given = [row[name] for name in names if name in row]
    return string(names[0], given[0] if given else None)


def optional(row: Row, *names: str) -> str:
    """The first of these fields that the row has, "" if none or null."""
    given = [row[name] for name in names if row.get(name) is not None]
    return string(names[0], given[0]) if given else ""


def texts(row: Row, *names: str) -> list[str]:
    """A list of texts, which may be written as a string; empty if none or null."""
    value = next((row[name] for name in names if row.get(name) is not None), [])
    if isinstance(value, str):
        value = _literal(value)
    return strings(names[0], value)


def _literal(written: str) -> object:
    """What a string says as JSON or, as CRAG's tools write lists, as Python."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(written)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return written


def objects(row: Row, name: str) -> list[Row]:
    """A list of objects within a row; empty if none or null."""
    value = row.get(name)
    value = [] if value is None else value
    if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
        raise RowError(f"{name}: not a list of objects")
    return value


def titled(row: Row, name: str, other: str) -> list[tuple[str, Any]]:
    """HotpotQA's (title, other) pairs: the hub's columns, or the authors' pairs."""
    value = row.get(name)
    value = [] if value is None else value
    try:
        if isinstance(value, Mapping):
            pairs = list(zip(value["title"], value[other], strict=True))
        else:
            pairs = [(title, rest) for title, rest in value]
    except (KeyError, TypeError, ValueError):
        raise RowError(f"{name}: not pairs of title and {other}") from None
    return [(string(name, title), rest) for title, rest in pairs]
