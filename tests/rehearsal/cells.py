"""The empty cells of the tables that a notebook shows, each with its reason.

A table of claims has its own word on each row, the verdict and why, which belongs to
the row's name here.
"""

import json
import re
from io import StringIO
from pathlib import Path

import yaml

EMPTY = "–"
REASONS = Path(__file__).with_name("empty_cells.yaml")
Cell = tuple[int, str, str]  # place of the notebook's cell, row, column


def empty(notebook: Path) -> list[Cell]:
    """The cells that hold a dash in the tables among a notebook's outputs."""
    import pandas as pd

    cells = []
    for place, cell in enumerate(json.loads(notebook.read_text("utf-8"))["cells"]):
        for output in cell.get("outputs", ()):
            page = "".join(output.get("data", {}).get("text/html", ""))
            if EMPTY not in page or "<table" not in page:
                continue
            for table in pd.read_html(StringIO(page)):
                table.columns = [_name(column) for column in table.columns]
                for row in table.astype(str).itertuples(index=False):
                    name, values = " ".join(row[:2]), dict(zip(table, row, strict=True))
                    if "why" in values:
                        name += " ({verdict}: {why})".format_map(values)
                    own = zip(table.columns[1:], row[1:], strict=True)
                    cells += [(place, name, c) for c, text in own if text == EMPTY]
    return cells


def _name(column: object) -> str:
    """A column's name, of all its levels."""
    levels = column if isinstance(column, tuple) else (column,)
    return " ".join(str(name) for name in levels if "Unnamed" not in str(name))


def unexplained(
    notebook: Path, stem: str, run: str = ""
) -> tuple[dict[Cell, str], list[Cell]]:
    """The empty cells with their reasons, and those that have none.

    stem: of the notebook's name, under which the reasons are listed: pattern of
    "cell row column" → reason. run: paper-profile-variant; "run stem" has its own.
    """
    listed = yaml.safe_load(REASONS.read_text("utf-8")) or {}
    reasons = listed.get(stem, {}) | listed.get(f"{run} {stem}", {})
    known: dict[Cell, str] = {}
    others = []
    for cell in empty(notebook):
        text = " ".join(map(str, cell))
        reason = next((r for mark, r in reasons.items() if re.search(mark, text)), "")
        if reason:
            known[cell] = reason
        else:
            others.append(cell)
    return known, others
