"""Files as the hub and the authors of data sets keep them, byte for byte the same from
one writing to the next."""

import bz2
import csv
import gzip
import json
import sqlite3
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

Row = Mapping[str, Any]
ZIP_DATE = (2024, 1, 1, 0, 0, 0)


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def table(path: Path, rows: Sequence[Row]) -> None:
    """A parquet file, or `…-00000-of-0000N.parquet` shards where `*` stands for them:
    data/train-*-of-00014 becomes 14 files."""
    name, star, total = path.name.partition("-*-of-")
    shards = int(total) if star else 1
    for i in range(shards):
        file = f"{name}-{i:05}-of-{shards:05}.parquet" if star else path.name
        part = pyarrow.Table.from_pylist(list(rows[i::shards]))
        parquet.write_table(part, _made(path.with_name(file)))


def lines(rows: Iterable[Row]) -> bytes:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()


def json_lines(path: Path, rows: Iterable[Row]) -> None:
    """JSON lines, packed if the name ends so."""
    packs = {
        ".gz": lambda content: gzip.compress(content, mtime=0),
        ".bz2": bz2.compress,
    }
    pack = packs.get(path.suffix, bytes)
    _made(path).write_bytes(pack(lines(rows)))


def json_file(path: Path, value: Any) -> None:
    _made(path).write_text(json.dumps(value, ensure_ascii=False, indent=1), "utf-8")


def text_file(path: Path, text: str) -> None:
    _made(path).write_text(text, "utf-8")


def csv_file(path: Path, rows: Sequence[Row], delimiter: str = ",") -> None:
    with _made(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def database(path: Path, create: str, rows: Sequence[tuple]) -> None:
    """A SQLite file with one table, which `create` names first."""
    _made(path).unlink(missing_ok=True)
    name, marks = create.split("(")[0].split()[-1], ", ".join("?" * len(rows[0]))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(create)
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)


def archive(path: Path, contents: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(_made(path), "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in contents.items():
            packed.writestr(zipfile.ZipInfo(name, ZIP_DATE), content)


def card(folder: Path, configs: Mapping[str, Mapping[str, str]]) -> None:
    """A data set's README.md with its `configs:`, name → split → path pattern; the
    first is the default one."""
    rows = ["---", "configs:"]
    for name, splits in configs.items():
        rows += [f"- config_name: {json.dumps(name)}", "  data_files:"]
        for split, path in splits.items():
            rows += [f"  - split: {split}", f"    path: {path}"]
    text_file(folder / "README.md", "\n".join([*rows, "---", ""]))
