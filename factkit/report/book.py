"""The executed notebooks as HTML pages, with figures and equations, for offline use."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from factkit import UserError
from factkit.run import child, params, progress, runs, sweeps
from factkit.run.arms import find_papers

NOTEBOOKS = params.ROOT / "notebooks"
MATH = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?!\s)([^$]+?)(?<!\s)\$(?!\d)", re.S)
# browsers ignore variants of letters; Unicode has characters for them
UNICODE_LETTERS = {
    r"\mathbb 1": "𝟙",
    r"\mathbb E": "𝔼",
    r"\mathcal L": "ℒ",
    r"\mathcal{L}": "ℒ",
}
# nbconvert shows code in an output's Markdown in the font of text
CODE_STYLE = "<style>.highlight pre { font-family: monospace; margin: 0 }</style>"
CODE = re.compile(r"(```.*?```|`[^`]*`)", re.S)
REFERENCE_RUN = "*This is the run that the reference results are of.*"
NOT_RUN = "*This notebook has not been run here: its source, and reference figures.*"


class BookError(UserError):
    """A notebook of the book failed."""


def build(folder: Path, profile: str, output_dir: str = "outputs") -> list[Path]:
    """Write one page per notebook and index.html; return the paths.

    A page shows the notebook's run at the profile, else the reference results' run of
    it. Without either, notebooks that need no policy are executed, others are shown as
    source. Raises BookError if one fails.
    """
    sources = sorted(NOTEBOOKS.glob("*.ipynb"))
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    bar = progress.progress_bar(len(sources), "book", "notebook")
    for source in sources:
        executed = _find_or_execute(source, profile, output_dir)
        notebook = nbformat.read(executed or source, as_version=4)
        notes = []
        if executed is None:
            notes = [NOT_RUN, *_figures(source, profile)]
        elif executed.is_relative_to(runs.REFERENCE):
            notes = [REFERENCE_RUN]
        pages.append(folder / f"{source.stem}.html")
        _write(pages[-1], _prepare(notebook, notes))
        bar.update()
    bar.close()
    contents = (NOTEBOOKS / "README.md").read_text(encoding="utf-8")
    index = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(contents)])
    _write(folder / "index.html", index)
    return [*pages, folder / "index.html"]


def _run_of(source: Path, runs_folder: Path) -> Path:
    """The run that a page shows; of a train notebook the paper's main arm, or else
    another one."""
    folder = runs_folder / source.stem
    paper = find_papers().get(source.stem.split("_")[1])
    trains = source.stem.endswith("_train")
    own = folder / (f"{paper.main_arms[-1]}-s0" if paper and trains else "main-s0")
    return own if own.is_dir() else min(folder.glob("*-s0"), default=own)


def _needs_a_policy(stem: str) -> bool:
    name = stem.split("_")[1]
    if paper := find_papers().get(name):
        stages = {stem: stage for stage, stem in paper.notebooks.items()}
        by_hand = ["rewards"] if paper.rewards_by_hand else []
        return stages[stem] not in ("ablations", "figures", *by_hand)
    return name == "own" or stem.startswith("9")


def _find_or_execute(source: Path, profile: str, output_dir: str) -> Path | None:
    """The notebook of a stored run, here or among the reference results, or executed
    now; None if it needs a policy."""
    run = _run_of(source, params.ROOT / output_dir / profile)
    done = run / "notebook.ipynb"
    kept = _run_of(source, runs.REFERENCE / profile) / "notebook.ipynb"
    for path in (done, kept):
        if path.is_file():
            return path
    if _needs_a_policy(source.stem):
        return None
    done.parent.mkdir(parents=True, exist_ok=True)
    paper = source.stem.split("_")[1]
    values = params.ROOT / "params" / profile / f"{paper}.yaml"
    given = ["-f", str(values)] if values.is_file() else []
    given += ["-r", "output_dir", output_dir, "--no-progress-bar"]
    partial = done.with_name("notebook.partial.ipynb")
    command = (sys.executable, "-m", "papermill", str(source), str(partial), *given)
    process = subprocess.run(
        child.command(*command), env=sweeps.environment(), cwd=params.ROOT
    )
    if process.returncode:
        raise BookError(
            f"{source.name} failed: {runs.relative(partial)} shows the error"
        )
    os.replace(partial, done)
    return done


def _figures(source: Path, profile: str) -> list[str]:
    """The reference figures of a notebook's run, as Markdown."""
    run = _run_of(source, runs.REFERENCE / profile)
    drawn = sorted((run / "figures").glob("*.png"))
    return [f"![{path.stem}]({runs.relative(path)})" for path in drawn]


def _prepare(notebook: NotebookNode, notes: Sequence[str]) -> NotebookNode:
    """The notebook without progress bars and papermill's cell, with links above."""
    injected = "injected-parameters"
    cells = [c for c in notebook.cells if injected not in c.metadata.get("tags", [])]
    for cell in cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    above = "\n\n".join(["[contents](index.html)", *notes])
    notebook.cells = [nbformat.v4.new_markdown_cell(above), *cells]
    return notebook


def _write(path: Path, notebook: NotebookNode) -> None:
    """Write one page that loads no other file."""
    formulas: list[str] = []

    def keep(match: re.Match) -> str:
        display = "inline" if match[1] is None else "block"
        formulas.append(mathml(match[1] or match[2], display))
        return f"FORMULA{len(formulas) - 1}X"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts = CODE.split(cell.source)  # code stands at odd places
            parts[::2] = [MATH.sub(keep, part) for part in parts[::2]]
            cell.source = _link_pages("".join(parts))
    scripts = dict.fromkeys(
        ("mathjax_url", "require_js_url", "jquery_url", "mermaid_js_url"), ""
    )
    exporter = HTMLExporter(embed_images=True, **scripts)
    resources = {"metadata": {"name": path.stem, "path": str(params.ROOT)}}
    html, _ = exporter.from_notebook_node(notebook, resources)
    html = html.replace("</head>", f"{CODE_STYLE}</head>", 1)
    html = re.sub(r"FORMULA(\d+)X", lambda m: formulas[int(m[1])], html)
    path.write_text(html, encoding="utf-8")


def mathml(tex: str, display: str = "inline") -> str:
    """A formula in MathML. display: inline or block."""
    for letter, character in UNICODE_LETTERS.items():
        tex = tex.replace(letter, character)
    return convert(tex, display=display)


def _link_pages(text: str) -> str:
    """Markdown with links between notebooks as links to pages, and no other files."""
    text = re.sub(r"\]\((?:notebooks/)?(\w+)\.ipynb\)", r"](\1.html)", text)
    text = re.sub(r"(!\[[^\]]*\]\()\.\./", r"\1", text)  # of pictures, from the root
    text = re.sub(r"\]\(README\.md\)", "](index.html)", text)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:|\w+\.html|#)[^)]*\)", r"\1", text)
