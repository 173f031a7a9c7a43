"""Store a paper's sweep as reference results: make reference PAPER=… PROFILE=….

Of each run: results.json, metrics.csv and items.csv. Samples of the main arm, which the
last figures read, and of runs that the reference has them of already. Figures of
notebooks without arms, of the main arm with seed 0 and of runs that the reference has
them of. At `tiny`, executed notebooks, to be read where nothing is installed.
"""

import base64
import io
import shutil
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from PIL import Image

from factkit.run import params, results, runs
from factkit.run.arms import find_papers

TABLES = (results.FILE, "metrics.csv", "items.csv")
SAMPLES = "samples.jsonl"
WIDGET = "application/vnd.jupyter.widget-view+json"
COLOURS = 64  # of a figure in a notebook: a third of its size, and no difference to see


def store(paper: str, folder: str) -> list[Path]:
    """Copy a paper's runs below outputs/<folder>; return where their copies are.

    Raises SystemExit if the arms were trained at several commits, or by code that was
    changed after one. Tables and figures may have been drawn later.
    """
    own = find_papers()[paper]
    made = [
        run
        for name in own.notebooks.values()
        for run in sorted(results.run_folders(params.ROOT / "outputs" / folder / name))
    ]
    trained = [run for run in made if run.parent.name == own.notebooks["train"]]
    commits = {(results.read_results(run) or {})["git"] for run in trained}
    if len(commits) != 1 or "+" in "".join(commits):
        raise SystemExit(
            f"arms in outputs/{folder} were trained at commits {sorted(commits)} (+: "
            "changed after it); a table has one: sweep again from a clean clone"
        )
    return [_store_run(run, own.main_arms[-1]) for run in made]


def _store_run(run: Path, main_arm: str) -> Path:
    kept = runs.REFERENCE.joinpath(*run.parts[-3:])
    alone = not run.parts[-2].endswith("_train")
    shown = alone or run.name == f"{main_arm}-s0"
    had = {path.name for path in kept.glob("*")}
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    sampled = run.name.startswith(f"{main_arm}-s") or SAMPLES in had
    for name in (*TABLES, *([SAMPLES] if sampled else [])):
        if (run / name).is_file():
            shutil.copy(run / name, kept)
    if (run / "figures").is_dir() and (shown or "figures" in had):
        shutil.copytree(run / "figures", kept / "figures")
    if run.parts[-3] == "tiny" and shown:
        root = f"{run.parents[3]}/"  # the run's own clone: nobody else has its path
        text = (run / "notebook.ipynb").read_text(encoding="utf-8").replace(root, "")
        nbformat.write(clean(nbformat.reads(text, 4)), kept / "notebook.ipynb")
    return kept


def clean(notebook: NotebookNode) -> NotebookNode:
    """The notebook without bars, widgets and papermill's times, its figures smaller."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        cell.outputs = [
            output
            for output in cell.outputs
            if output.get("name") != "stderr" and WIDGET not in output.get("data", {})
        ]
        for output in cell.outputs:
            if png := output.get("data", {}).get("image/png"):
                output["data"]["image/png"] = _shrink(png)
    return notebook


def _shrink(png: str) -> str:
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    smaller = io.BytesIO()
    image.quantize(COLOURS).save(smaller, "png", optimize=True)
    return base64.b64encode(smaller.getvalue()).decode()


if __name__ == "__main__":
    for stored in store(*sys.argv[1:]):
        print(runs.relative(stored))
