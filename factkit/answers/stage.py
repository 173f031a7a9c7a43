"""Stages: results that are computed once into a file and then read from it."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from factkit.data.examples import read_rows, write_rows
from factkit.run.failures import writing
from factkit.run.files import write_atomically
from factkit.run.progress import progress_bar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")


@dataclass(frozen=True)
class Stage(Generic[Row]):
    """Rows (dataclasses) that are computed in parts and appended to a file.

    A killed run continues with the part in which it stopped. `score` fills in the
    verdicts of rows. Rows that `is_scored` rejects, since a judge failed on them, are
    scored again by the next run; they are not computed again.
    """

    path: Path
    kind: type[Row]
    score: Callable[[list[Row]], list[Row]]
    is_scored: Callable[[Row], bool]

    def run(
        self, n: int, part_size: int, compute: Callable[[int, int], list[Row]]
    ) -> list[Row]:
        """All n rows. compute(start, stop): the unscored rows of one part."""
        rows = self._read()
        if incomplete := len(rows) < n:
            rows = rows[: len(rows) // part_size * part_size]
        failed = [i for i, row in enumerate(rows) if not self.is_scored(row)]
        if failed:
            scored = self.score([rows[i] for i in failed])
            for i, row in zip(failed, scored, strict=True):
                rows[i] = row
        if incomplete or failed:
            write_rows(self.path, map(asdict, rows))
        label = self.path.stem if part_size < n else ""
        with progress_bar(n, label, "prompt", done=len(rows)) as bar:
            for start in range(len(rows), n, max(part_size, 1)):
                part = self.score(compute(start, min(start + part_size, n)))
                lines = [json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in part]
                with writing(self.path), self.path.open("a", encoding="utf-8") as file:
                    file.writelines(lines)
                rows += part
                bar.update(len(part))
        return rows

    def _read(self) -> list[Row]:
        """The rows in the file; a last line that was cut off is removed."""
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1]
        if lines != content:
            write_atomically(self.path, lines)
        return read_rows(self.path, self.kind) if lines else []


def compute_once(path: Path, compute: Callable[[], Any]) -> Any:
    """Return the JSON value in `path`, which is computed if there is no such file."""
    if not path.exists():
        write_atomically(path, json.dumps(compute(), ensure_ascii=False))
    return json.loads(path.read_text(encoding="utf-8"))
