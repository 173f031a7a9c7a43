"""What the papers print, as CSV files: tables, claims, set-ups, sizes of test sets.

`<paper>_table<n>.csv` holds a table in per cent, a row an arm; `<paper>_text.csv` what
the prose states.
"""

import csv
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

DEFAULT = {  # a paper's main setting, model, data set and judge
    "setting": ["with retrieval"],
    "model": [
        *("Llama3.1-8B-Inst", "Qwen3-8B", "Vicuna-7B"),
        *("Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct"),
    ],
    "dataset": ["CRAG"],
    "judge": ["Llama3.3-70B-Inst"],
}


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file as they are written: column → text."""
    with (files(__name__) / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read(name: str) -> "pd.DataFrame":
    """A file as a table, numbers as numbers."""
    import pandas as pd

    return pd.read_csv(str(files(__name__) / f"{name}.csv"))


def table(number: int, paper: str = "truthrl") -> "pd.DataFrame":
    """A table of the paper as it was printed, in per cent; a row an arm."""
    return read(f"{paper}_table{number}")


def of_paper(number: int, paper: str = "truthrl", **chosen: str) -> "pd.DataFrame":
    """A printed table, of its main model, data set and setting (`DEFAULT`), or of those
    chosen, as by setting="without retrieval"."""
    chosen_rows = table(number, paper)
    wanted = DEFAULT | {column: [value] for column, value in chosen.items()}
    for column in wanted.keys() & set(chosen_rows):
        chosen_rows = chosen_rows[chosen_rows[column].isin(wanted[column])]
    return chosen_rows


def test_sets(paper: str) -> "pd.DataFrame":
    """How many items of each test set the paper has and ours, and why they differ.

    ours: of the whole public file, as our loader gives it, where we had the file.
    """
    import pandas as pd

    sets = pd.DataFrame(rows("test_sets"))
    sets = sets[sets.paper == paper].drop(columns="paper").set_index("set")
    names = {"n": "the paper's", "loaded": "ours, whole", "why": "why they differ"}
    return sets.rename(columns=names)
