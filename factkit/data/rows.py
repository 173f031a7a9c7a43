"""The rows of a public set, from a file or the hub, and the examples made of them."""

import ast
import codecs
import csv
import hashlib
import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from factkit.data import assets
from factkit.data.corpus import Document
from factkit.data.examples import DataError, Example, numbered, problem_of

PACKED = {b"BZh": "bz2", b"\x1f\x8b": "gzip"}
REFUSED = {
    codecs.BOM_UTF16_LE: "written in UTF-16; save it as UTF-8",
    codecs.BOM_UTF16_BE: "written in UTF-16; save it as UTF-8",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"\xfd7zXZ\0": "packed by xz; unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it",
}
# by what reading shows a damaged file
DAMAGED = (ValueError, csv.Error, OSError, RecursionError, zipfile.BadZipFile)
Row = Mapping[str, Any]
Loaded = tuple[list[Example], Counter]


class RowError(ValueError):
    """A row is no question of its source; the message is the problem's name."""


# ---- rows; a RowError stands in place of one that can't be read


def existing(path: str | Path, folder: bool = False) -> Path:
    """The file, or with `folder` also the folder, at a path; DataError if none is."""
    if Path(path).is_file() or (folder and Path(path).is_dir()):
        return Path(path)
    raise DataError(f"{path}: no such file{' or folder' if folder else ''}")


def of_file(path: str | Path) -> Iterator[Any]:
    """The rows of a file: .csv, .parquet, or JSON or JSON lines; all but Parquet also
    packed by gzip or bzip2. Raises DataError on a file that can't be read as a whole.
    """
    path = existing(path)
    suffix = Path(path.name.removesuffix(".gz").removesuffix(".bz2")).suffix.casefold()
    if suffix == ".parquet":
        read = _parquet_rows
    else:
        read = {".csv": _csv_rows, ".json": _json_rows}.get(suffix, _lines)
    yield from whole(read, path)


def whole(read: Callable[[Any], Iterable[Any]], path: Any) -> Iterator[Any]:
    """Yield the rows that `read` gives of a file; DataError if the file is damaged."""
    try:
        yield from read(path)
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from error
    except DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{path}: damaged, or not what its name says: {reason}; fix it, or "
            "fetch it again"
        ) from error


def _parquet_rows(path: Path) -> Iterator[Any]:
    from pyarrow import parquet

    yield from parquet.read_table(path, page_checksum_verification=True).to_pylist()


def _csv_rows(path: Path) -> Iterator[Any]:
    """The rows of a CSV file whose cells are separated by commas."""
    csv.field_size_limit(2**31 - 1)  # of the process: a cell may hold a page
    with open_text(path) as lines:
        table = csv.DictReader((last := line for line in lines), strict=True)
        names = table.fieldnames or []
        named = [*filter(None, names)]  # spreadsheets add empty columns
        if len(names) == 1 and {";", "\t"} & {*names[0]} or len({*named}) < len(named):
            raise ValueError(
                f"the columns {names}: names must differ, separated by commas"
            )
        for row in table:
            if None in row:
                cells = f"line {table.line_num} has more cells than there are columns"
                raise ValueError(f"{cells}: a cell that holds a comma needs quotes")
            if None in row.values() and not last.endswith(("\n", "\r")):
                raise ValueError("its last line is cut off")
            yield row


def json_lines(path: Path) -> Iterator[Any]:
    """The values of JSON lines, plain or packed; DataError on a file cut short."""
    return whole(_lines, path)


def _lines(path: Path) -> Iterator[Any]:
    with open_packed(path) as lines:
        yield from _values(lines)


def _values(lines: Iterable[bytes]) -> Iterator[Any]:
    """The values of lines; ValueError on a last one that was cut off."""
    for line in lines:
        value = parsed(line)
        if isinstance(value, RowError) and not line.endswith((b"\n", b"\r")):
            raise ValueError(f"its last line is cut off, or {value.args[0]}")
        yield value


def parsed(line: bytes) -> Any:
    """A line's JSON value, or a RowError (problem, line)."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return RowError("not UTF-8", line)
    except (ValueError, RecursionError):
        return RowError("not JSON", line)


def _json_rows(path: Path) -> Iterator[Any]:
    """The rows of a JSON list, or of its field `data`; JSON lines are read, too.

    SQuAD's articles become the rows that the hub makes of them.
    """
    with open_packed(path) as file:
        content = file.read()
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        yield from _values(content.splitlines(keepends=True))
        return
    rows = value.get("data", [value]) if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise ValueError("must hold a JSON list of rows, or {data: [...]}")
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


def open_packed(path: Path) -> BinaryIO:
    """Open a file that is plain, gzip or bzip2: its first bytes tell, not its name.

    Reading raises OSError if a packed file is cut short or has anything else after its
    end. Raises DataError on another kind of archive, and on UTF-16.
    """
    with path.open("rb") as file:
        start = file.read(6)
    for magic, remedy in REFUSED.items():
        if start.startswith(magic):
            raise DataError(f"{path}: {remedy}")
    packing = next((kind for m, kind in PACKED.items() if start.startswith(m)), "")
    if not packing:
        return path.open("rb")
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(path.open("rb"), compression=packing))


def open_text(path: Path) -> TextIO:
    """Open a file of UTF-8, as `open_packed`; a byte order mark is no part of it."""
    return io.TextIOWrapper(open_packed(path), encoding="utf-8-sig", newline="")


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
    return string(names[0], next((row[name] for name in names if name in row), None))


def optional(row: Row, *names: str) -> str:
    """The first of these fields that the row has, "" if none or null."""
    return string(names[0], _first(row, names, ""))


def texts(row: Row, *names: str) -> list[str]:
    """A list of texts, which may be written as a string of JSON or, as CRAG's tools
    write lists, of Python; empty if none or null."""
    value = _first(row, names, [])
    for read in (json.loads, ast.literal_eval) if isinstance(value, str) else ():
        try:
            return strings(names[0], read(value))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return strings(names[0], value)


def objects(row: Row, name: str) -> list[Row]:
    """A list of objects within a row; empty if none or null."""
    value = _first(row, [name], [])
    if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
        raise RowError(f"{name}: not a list of objects")
    return value


def titled(row: Row, name: str, other: str) -> list[tuple[str, Any]]:
    """HotpotQA's (title, other) pairs: the hub's columns, or the authors' pairs."""
    value = _first(row, [name], [])
    try:
        if isinstance(value, Mapping):
            value = zip(value["title"], value[other], strict=True)
        return [(string(name, title), rest) for title, rest in value]
    except (KeyError, TypeError, ValueError):
        raise RowError(f"{name}: not pairs of title and {other}") from None


def _first(row: Row, names: Iterable[str], default: Any) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), default)


# ---- examples


@dataclass(frozen=True)
class Source:
    """Where a set's rows are, and what they mean.

    hub: a Hugging Face id, or the address of a file or of an archive (.zip); "" for a
    set that is not there.
    file: one of the data set's files, in place of a split. splits: the last one is
    evaluated on. once: a text that is there already is dropped, too: for prompts to
    train on, never for a published test set. read: the rows at a local path, which
    may be that of what an address gave.
    """

    example: Callable[[Row], Example | Document]
    hub: str = ""
    config: str = ""
    file: str = ""
    splits: tuple[str, ...] = ("train",)
    once: bool = False
    read: Callable[[str], Iterable[Any]] = of_file


def load(
    sources: Mapping[str, Source],
    name: str,
    path: str = "",
    limit: int | None = None,
    whole: bool = False,
) -> Loaded:
    """A set's examples, `limit` at most, and a count of each reason to drop a row.

    path: a local file of the set's rows; without it they come from the hub, streamed if
    `limit` is given: of the split that is evaluated on, or, `whole`, of all. Raises
    DataError on an unknown name, on a file or hub that can't be read, and where no row
    is usable.
    """
    if name not in sources:
        raise DataError(f"{name}: no such data set; known: {', '.join(sources)}")
    source = sources[name]
    splits = source.splits if whole else source.splits[-1:]
    rows = values(source, name, path, splits, stream=limit is not None)
    return collected(rows, source.example, path or source.hub, limit, source.once)


def values(
    source: Source, name: str, path: str, splits: Iterable[str], stream: bool = False
) -> Iterator[Any]:
    """The rows of a file, or of splits of the hub."""
    if path:
        return iter(source.read(path))
    if not source.hub:
        raise DataError(f"{name} is not on the hub; give the path of its files")
    return chain.from_iterable(_of_hub(source, split, stream) for split in splits)


def local(source: Source, path: str = "") -> Path:
    """A source's one file, fetched if it is not here: that of a path, of the hub or of
    an address. Raises DataError."""
    import datasets
    from huggingface_hub import hf_hub_download

    if path:
        return existing(path)
    hub = assets.of_hub(source.hub)
    try:
        if hub != source.hub:  # here already
            file = Path(hub, source.file)
        elif source.file:
            file = hf_hub_download(hub, source.file, repo_type="dataset")
        else:
            file = datasets.DownloadManager().download(hub)
    except (OSError, ValueError) as error:
        raise _unavailable(hub, source.file, error) from error
    return existing(file)


def sha256(path: Path) -> str:
    """A file's SHA-256: 5 GB take seconds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unavailable(hub: str, part: str, error: Exception) -> DataError:
    return DataError(
        f"{hub}, {part}: {error}; check the name and the network (HF_HUB_OFFLINE=0), "
        "or give the path of a local file"
    )


def _of_hub(source: Source, split: str, stream: bool) -> Iterator[Any]:
    import datasets

    hub = assets.of_hub(source.hub)
    try:
        if source.file:
            yield from of_file(local(source))
        elif source.hub.startswith("https://"):
            path, packed = str(local(source)), hub.endswith(".zip")
            manager = datasets.DownloadManager()
            yield from source.read(manager.extract(path) if packed else path)
        else:
            config = source.config or None
            yield from datasets.load_dataset(hub, config, split=split, streaming=stream)
    except (OSError, ValueError) as error:
        raise _unavailable(hub, source.file or f"split {split!r}", error) from error


def collected(
    values: Iterable[Any],
    example: Callable[[Any], Example],
    where: str,
    limit: int | None = None,
    once: bool = False,
) -> Loaded:
    """The examples of rows, `limit` at most, and a count of each reason to drop one.

    A row is dropped that is no JSON object in UTF-8 with its source's fields, or whose
    example has a problem (`examples.problem_of`). Raises DataError if no row is usable.
    """
    problems: Counter = Counter()
    examples: dict[str, Example] = {}
    questions: set[str] = set()
    for value in values:
        try:
            if isinstance(value, RowError):
                raise value
            if not isinstance(value, Mapping):
                raise RowError("not a JSON object")
            made = numbered(example(value), examples)
            if problem := problem_of(made, examples):
                raise RowError(problem)
            if once and made.question.casefold() in questions:
                raise RowError("duplicate question")
        except RowError as error:
            problems[error.args[0]] += 1
            continue
        examples[made.id] = made
        questions.add(made.question.casefold())
        if len(examples) == limit:
            break
    if not examples:
        raise DataError(f"{where}: no usable row ({dict(problems)})")
    return list(examples.values()), problems
