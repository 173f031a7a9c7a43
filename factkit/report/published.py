"""The papers' published values, CSV files in papers/<paper>/published/.

`table<n>.csv`: a table in per cent, one row per arm; `text.csv`: values in the text;
`claims.csv`: tested inequalities; `setup.csv`: hyper-parameters; `deviations.csv`:
differences here; `test_sets.csv`: sizes of test sets.
"""

import csv
from pathlib import Path

import pandas as pd

from factkit.run.arms import find_papers


def _file(paper: str, name: str) -> Path:
    papers = Path(__file__).parents[1] / "papers"
    return papers / paper / "published" / f"{name}.csv"


def read_rows(paper: str, name: str) -> list[dict[str, str]]:
    """The rows of a file as they are written, {column: text}; none without the file."""
    path = _file(paper, name)
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_table(number: int | str, paper: str) -> pd.DataFrame:
    """A table of the paper as it was printed, in per cent, one row per arm."""
    return pd.read_csv(_file(paper, f"table{number}"))


def select_rows(number: int, paper: str, **chosen: str) -> pd.DataFrame:
    """A printed table restricted to the paper's main setting, model, data set and judge
    (`main_setting`), or to the given values, as in setting="without retrieval"."""
    table = read_table(number, paper)
    wanted = dict(find_papers()[paper].main_setting)
    wanted |= {column: (value,) for column, value in chosen.items()}
    for column in wanted.keys() & set(table):
        table = table[table[column].isin(wanted[column])]
    return table


def test_sets(paper: str) -> pd.DataFrame:
    """How many items each test set has in the paper and here, and why they differ.

    "ours, whole": the size of the whole public file, where it was available.
    """
    sets = pd.DataFrame(read_rows(paper, "test_sets")).set_index("set")
    names = {"n": "the paper's", "loaded": "ours, whole", "why": "why they differ"}
    return sets.rename(columns=names)
