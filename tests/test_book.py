"""The notebooks as pages: links lead on, equations are drawn, nothing is fetched."""

import re
import shutil
import subprocess

import nbformat
import pytest

from factkit.report import book


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """All pages of the sources, as if nothing had been run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book, "_find_or_execute", lambda *_: None)
        return book.build(tmp_path_factory.mktemp("book"), "tiny")


@pytest.mark.slow
def test_each_notebook_is_a_page_whose_links_lead_to_pages(pages):
    names = {path.name for path in pages}
    assert names == {f"{s.stem}.html" for s in book.NOTEBOOKS.glob("*.ipynb")} | {
        "index.html"
    }
    lost = {}
    for path in pages:
        text = path.read_text("utf-8")
        links = re.findall(r'href="([^"#]+)"', text)
        links = [link for link in links if not link.startswith(("http", "data:"))]
        assert "index.html" in links or path.name == "index.html"
        lost[path.name] = set(links) - names
        fetched = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="([^"]+)', text)
        lost[path.name] |= {url[:80] for url in fetched if url.startswith("http")}
    assert {name: links for name, links in lost.items() if links} == {}


def test_code_and_prices_keep_their_dollars(tmp_path):
    cell = nbformat.v4.new_markdown_cell("`$A` and `$B` cost $5 or $6, $x_1$")
    book._write(tmp_path / "a.html", nbformat.v4.new_notebook(cells=[cell]))
    text = (tmp_path / "a.html").read_text("utf-8")
    assert "<code>$A</code>" in text
    assert "$5 or $6" in text
    assert text.count("<math") == 1


@pytest.mark.slow
def test_reference_figures_stand_where_nothing_was_run(pages):
    (train,) = [path for path in pages if path.stem == "12_truthrl_train"]
    assert train.read_text("utf-8").count("data:image/png;base64") >= 2


def test_progress_bars_and_papermill_s_cell_are_left_out():
    cell = nbformat.v4.new_code_cell("1")
    cell.outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="10%|#"),
        nbformat.v4.new_output("stream", name="stdout", text="kept"),
    ]
    given = nbformat.v4.new_code_cell(
        "a = 1", metadata={"tags": ["injected-parameters"]}
    )
    shown = book._prepare(nbformat.v4.new_notebook(cells=[given, cell]), [])
    assert [o.text for o in shown.cells[1].outputs] == ["kept"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")
def test_a_browser_shows_an_equation(pages):
    (train,) = [path for path in pages if path.stem == "12_truthrl_train"]
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    shown = subprocess.run(
        ["chromium", *flags, f"file://{train}"], capture_output=True, text=True
    )
    assert re.search(r"<math[^>]*>.*?<mfrac>", shown.stdout, re.DOTALL)


def test_the_page_of_the_workshop_shows_a_run_whose_name_is_its_reward_s(tmp_path):
    (workshop,) = book.NOTEBOOKS.glob("90_*.ipynb")
    done = tmp_path / "tiny" / workshop.stem / "generous-s0" / "notebook.ipynb"
    done.parent.mkdir(parents=True)
    done.touch()
    assert book._find_or_execute(workshop, "tiny", str(tmp_path)) == done
