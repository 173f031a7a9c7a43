"""The pages of the reference results are what the results say now."""

import re

from factkit.report import pages as report
from factkit.run import arms, runs
from factkit.run.params import ROOT

REMEDY = "write it anew: python -m factkit report --markdown"


def test_the_pages_are_made_of_the_present_results():
    papers = [report.PaperResults(name) for name in arms.find_papers()]
    pages = {f"{results.paper}.md": report.markdown(results) for results in papers}
    pages["claims.md"] = report.count_claims(papers)
    old = [
        name
        for name, page in pages.items()
        if (runs.REFERENCE / name).read_text(encoding="utf-8") != page
    ]
    order = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert not old and order == report.notebooks(), REMEDY


def test_a_page_shows_every_figure_of_the_paper_s_last_notebook():
    for paper in arms.find_papers():
        drawn = runs.REFERENCE.glob(f"tiny/*_{paper}_figures/main-s0/figures/*.png")
        page = (runs.REFERENCE / f"{paper}.md").read_text(encoding="utf-8")
        names = [path.name for path in drawn]
        assert names and all(name in page for name in names)


def test_links_of_the_front_page_lead_somewhere():
    for page in (ROOT / folder / "README.md" for folder in ("", "params", "notebooks")):
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8"))
        missing = [link for link in links if not (page.parent / link).exists()]
        assert not missing
