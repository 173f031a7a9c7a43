"""Evaluation of short and of long answers; its rows are kept as JSON lines, which a
run that starts again reads."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from factkit.assets import write_atomically
from factkit.datasets.examples import DataError

Row = TypeVar("Row")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a file whole or not at all, byte-equal for equal rows."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(lines))


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of a file as the dataclass `kind`; DataError on a row that is not of
    this kind."""
    parse, rows = TypeAdapter(kind).validate_json, []
    # lines of the bytes: those of a str would split responses, too
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            rows.append(parse(line))
        except (ValueError, TypeError) as error:
            problem = " ".join(str(error).split())[:240]
            raise DataError(
                f"{path}, row {number}: {problem}; remove the file and evaluate again"
            ) from None
    return rows
