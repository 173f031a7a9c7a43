"""Reading the rows of JSON, JSON lines, CSV and Parquet files, and their fields.

`datasets` stops at or converts what is counted and named here: a row that is not UTF-8
or JSON, a file that is cut off, a field whose type differs between rows, the id "NA".
"""

import ast
import codecs
import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from factkit.data.examples import DataError

PACKED = {b"BZh": "bz2", b"\x1f\x8b": "gzip"}
REFUSED = {
    codecs.BOM_UTF16_LE: "written in UTF-16; save it as UTF-8",
    codecs.BOM_UTF16_BE: "written in UTF-16; save it as UTF-8",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"\xfd7zXZ\0": "packed by xz; unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it",
}
# that reading a damaged file raises
READ_ERRORS = (ValueError, csv.Error, OSError, RecursionError, zipfile.BadZipFile)
Row = Mapping[str, Any]


class RowError(ValueError):
    """A row can't be used; the message is the name of the problem, to be counted."""


# ---- reading; a RowError takes the place of a row that can't be read


def existing_path(path: str | Path, folder: bool = False) -> Path:
    """A path as Path. Raises DataError unless a file (with `folder`: or folder) is
    there."""
    if Path(path).is_file() or (folder and Path(path).is_dir()):
        return Path(path)
    raise DataError(f"{path}: no such file{' or folder' if folder else ''}")


def read_file(path: str | Path) -> Iterator[Any]:
    """Yield the rows of a .csv, .parquet, JSON or JSON lines file.

    All but Parquet may be packed by gzip or bzip2. Raises DataError on a file that
    can't be read to its end.
    """
    path = existing_path(path)
    suffix = Path(path.name.removesuffix(".gz").removesuffix(".bz2")).suffix.casefold()
    readers = {".csv": _csv_rows, ".json": _json_rows, ".parquet": _parquet_rows}
    yield from read_whole(readers.get(suffix, _lines), path)


def read_json_lines(path: Path) -> Iterator[Any]:
    """Yield the values of JSON lines, plain or packed, whatever the file's name."""
    return read_whole(_lines, path)


def read_whole(read: Callable[[Any], Iterable[Any]], path: Any) -> Iterator[Any]:
    """Yield what `read` gives of a file; DataError if the file is damaged."""
    try:
        yield from read(path)
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from error
    except READ_ERRORS as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{path}: damaged, or not what its name says: {reason}; fix it, or "
            "fetch it again"
        ) from error


def _parquet_rows(path: Path) -> Iterator[Any]:
    from pyarrow import parquet

    yield from parquet.read_table(path, page_checksum_verification=True).to_pylist()


def _csv_rows(path: Path) -> Iterator[Any]:
    csv.field_size_limit(2**31 - 1)  # of the process: a cell may hold a page
    with open_text(path) as lines:
        table = csv.DictReader((last := line for line in lines), strict=True)
        columns = table.fieldnames or []
        named = [*filter(None, columns)]  # spreadsheets add empty columns
        one = len(columns) == 1 and {";", "\t"} & {*columns[0]}
        if one or len({*named}) < len(named):
            raise ValueError(
                f"the columns {columns}: names must differ, separated by commas"
            )
        for row in table:
            if None in row:
                cells = f"line {table.line_num} has more cells than there are columns"
                raise ValueError(f"{cells}: a cell that holds a comma needs quotes")
            if None in row.values() and not last.endswith(("\n", "\r")):
                raise ValueError("its last line is cut off")
            yield row


def _lines(path: Path) -> Iterator[Any]:
    with open_packed(path) as lines:
        yield from _values(lines)


def _values(lines: Iterable[bytes]) -> Iterator[Any]:
    """Parse lines; ValueError on a last one that was cut off."""
    for line in lines:
        value = parse_json(line)
        if isinstance(value, RowError) and not line.endswith((b"\n", b"\r")):
            raise ValueError(f"its last line is cut off, or {value.args[0]}")
        yield value


def parse_json(line: bytes) -> Any:
    """A line's JSON value, or a RowError (problem, line)."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return RowError("not UTF-8", line)
    except (ValueError, RecursionError):
        return RowError("not JSON", line)


def _json_rows(path: Path) -> Iterator[Any]:
    """Yield the rows of a JSON list, of its field `data`, or of JSON lines.

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
    """Open a file that is plain, gzip or bzip2 by its first bytes.

    Reading raises OSError if a packed file is truncated or followed by anything else.
    Raises DataError on another kind of archive, and on UTF-16.
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
    """Open a file of UTF-8, as `open_packed`, without a byte order mark."""
    return io.TextIOWrapper(open_packed(path), encoding="utf-8-sig", newline="")


# ---- fields; each raises a RowError that names the field


def string(name: str, value: object) -> str:
    """A value that must be text, without a lone surrogate."""
    if not isinstance(value, str):
        raise RowError(f"{name}: missing or not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RowError(f"{name}: half a character (a lone surrogate)") from None
    return value


def _strings(name: str, value: object) -> list[str]:
    if not isinstance(value, list):
        raise RowError(f"{name}: not a list of texts")
    return [string(name, item) for item in value]


def text(row: Row, *names: str) -> str:
    """The first of these fields that the row has."""
    return string(names[0], next((row[name] for name in names if name in row), None))


def optional(row: Row, *names: str) -> str:
    """The first of these fields that is not null, else ""."""
    return string(names[0], _first(row, names, ""))


def texts(row: Row, *names: str) -> list[str]:
    """The first of these fields that is not null, a list of texts, else [].

    A list may be written as a string of JSON or, as CRAG's tools do, of Python.
    """
    value = _first(row, names, [])
    for read in (json.loads, ast.literal_eval) if isinstance(value, str) else ():
        try:
            return _strings(names[0], read(value))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return _strings(names[0], value)


def objects(row: Row, name: str) -> list[Row]:
    """A field that is a list of objects; [] if missing or null."""
    value = _first(row, [name], [])
    if not isinstance(value, list) or not all(isinstance(v, Mapping) for v in value):
        raise RowError(f"{name}: not a list of objects")
    return value


def titles(row: Row, name: str) -> list[str]:
    """The titles of HotpotQA's (title, sent_id) pairs: the hub's columns or the
    authors' pairs."""
    pairs = _first(row, [name], [])
    try:
        if isinstance(pairs, Mapping):
            pairs = zip(pairs["title"], pairs["sent_id"], strict=True)
        return [string(name, title) for title, _ in pairs]
    except (KeyError, TypeError, ValueError):
        raise RowError(f"{name}: not pairs of title and sent_id") from None


def _first(row: Row, names: Iterable[str], default: Any) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), default)
