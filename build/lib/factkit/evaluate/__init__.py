"""Evaluation of short and of long answers: what both keep and count.

Rows are kept as JSON lines, which a run that starts again reads.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from factkit.assets import write_atomically
from factkit.datasets.examples import DataError

Row = TypeVar("Row")
EXPOSURE_EDGES = (0, 1, 4, 10, 40)  # times; a bin reaches to below the next


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


def shown(meta: dict[str, Any]) -> dict[str, Any]:
    """What a result keeps of an example's meta: not its texts."""
    return {k: v for k, v in meta.items() if k not in ("references", "reasoning")}


def exposure_bin(row: Any) -> int:
    """The lower edge of the bin of how often the policy read what was asked about (fact
    world)."""
    return max(e for e in EXPOSURE_EDGES if e <= row.meta["exposure"])


def flat(by: Mapping[str, Mapping[Any, Mapping[str, float]]]) -> dict[str, float]:
    """{"exposure_10_abstention": …} from {"exposure": {10: {"abstention": …}}}.

    `n` becomes the share of all questions.
    """
    metrics = {}
    for kind, groups in by.items():
        total = sum(group.get("n", 0) for group in groups.values())
        for key, group in groups.items():
            shares = {k: v / total if k == "n" else v for k, v in group.items()}
            metrics |= {f"{kind}_{key}_{k}": v for k, v in shares.items()}
    return metrics
