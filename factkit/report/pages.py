"""A paper's results as a page in Markdown: printed, or outputs/reference/<paper>.md.

`python -m factkit report --markdown` writes the latter, from the reference results and
the notes in outputs/reference/notes/<paper>.md.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from factkit.report import claims, deviations, ledger, rules
from factkit.report.figures import tables
from factkit.run import params, past_runs, runs
from factkit.run.arms import find_papers

RULE = """\
Differences are paired over test items and seeds. Their 95 % intervals come from a model
with crossed random effects of items and seeds (`run/statistics.py`). Arms of two
settings are compared on the test items that both have. For a value of the training
curve, which has no items, the interval is over seeds only, and the row says so.

| column | meaning |
|---|---|
| holds, fails, undecided | the interval is on the claim's side, the other, or both |
| by chance | expected number of claims that hold if no arm differs from another |
| hold together | claims that hold after Holm's correction for all claims of the paper |
| in three worlds | of the claims that hold or fail and were also measured in two \
other fact worlds, or at `laptop` with two other splits: how many do so by the \
interval over worlds or splits |
| same answered | on the papers' pages: difference and verdict on the requests that \
both arms answered, which silence can't improve |
| not measurable | fewer than three seeds or twenty items, no stored items, or no \
variance at all |
| not run | mostly claims about other test sets and variants |
| not measurable here | the paper's page gives the reason |
"""


@dataclass(frozen=True)
class PaperResults:
    """A paper's results below `root` at some profiles, read once.

    A variant without runs there has the reference results; root None: these alone.
    """

    paper: str
    root: Path | None = None
    profiles: Sequence[str] = params.PROFILES

    @cached_property
    def stored(self) -> dict[str, claims.Results]:
        """Profile with runs → variant → results (`past_runs.stored`)."""
        by_profile = {
            profile: past_runs.stored(self.paper, profile, self.root)
            for profile in self.profiles
        }
        return {profile: results for profile, results in by_profile.items() if results}

    @cached_property
    def claims(self) -> pd.DataFrame:
        """All claims; ours and the verdict at each profile with runs.

        Columns: ("", claim, where, setting, paper, difference), then by profile those
        of `ledger.check`. Empty if the paper has no claims or no runs.
        """
        claimed = claims.read_claims(self.paper)
        if not claimed or not self.stored:
            return pd.DataFrame()
        parts = [ledger.check(claimed, results) for results in self.stored.values()]
        shared = ["claim", "where", "setting", "paper", "difference"]
        own = [part.drop(columns=shared) for part in parts]
        keys = ("", *self.stored)
        return pd.concat([parts[0][shared], *own], axis=1, keys=keys)


def summary(papers: Sequence[PaperResults]) -> pd.DataFrame:
    """Count each paper's verdicts at each profile with runs; `RULE` explains them."""
    before = ("holds", "fails", "undecided")
    after = ("one seed", "not measurable", "not run", claims.NOT_HERE)
    rows = {}
    for results in papers:
        table = results.claims
        for profile in dict.fromkeys(p for p, *_ in table.columns if p):
            words = table[profile]["verdict"]
            checked, same = ledger.over_worlds(table[profile])
            rows[results.paper, profile] = {
                "claims": len(words),
                **{word: (words == word).sum() for word in before},
                "by chance": f"{ledger.by_chance(words):.1f}",
                "hold together": (table[profile]["all together"] == "holds").sum(),
                "in three worlds": f"{same} of {checked}" if checked else "",
                **{word: (words == word).sum() for word in after},
            }
    return pd.DataFrame(rows).T


def write_pages() -> list[Path]:
    """Write each paper's page, the counted claims and notebooks/README.md."""
    papers = [PaperResults(name) for name in find_papers()]
    pages = {
        runs.REFERENCE / f"{results.paper}.md": markdown(results)
        for results in papers
        if results.stored
    }
    pages[runs.REFERENCE / "claims.md"] = count_claims(papers)
    pages[params.ROOT / "notebooks" / "README.md"] = notebooks()
    for path, page in pages.items():
        path.write_text(page, encoding="utf-8")
    return [*pages]


def minutes() -> pd.DataFrame:
    """Minutes of the reference results, rounded up: one row per notebook, one column
    per profile; train notebooks have the range over arms, "0.3–2.5"."""

    def spent(seconds: pd.Series) -> str:
        ends = {math.ceil(s / 6) / 10 for s in (seconds.min(), seconds.max())}
        return "–".join(f"{end:.1f}" for end in sorted(ends))

    taken = pd.DataFrame(runs.all_results(runs.REFERENCE))
    taken = taken[taken.variant.fillna("") == ""]
    by_profile = taken.wall_s.groupby([taken.notebook, taken.profile])
    return by_profile.agg(spent).unstack(fill_value="")


def notebooks() -> str:
    """notebooks/README.md: order, minutes, a workshop, and what to try in each."""
    taken, rows, tasks = minutes(), [], []
    for path in sorted((params.ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        title = texts[0].partition("\n")[0].removeprefix("# ")
        own = taken.loc[path.stem] if path.stem in taken.index else {}
        link = f"[{path.stem}]({path.name})"
        kept = (runs.REFERENCE / "tiny" / path.stem).glob("*/notebook.ipynb")
        read = [f"[{run.parent.name}](../{runs.relative(run)})" for run in sorted(kept)]
        spent = [own.get(profile, "") for profile in ("tiny", "laptop")]
        rows.append([link, *spent, " ".join(read)])
        last = "".join(texts[-2:-1])
        task = re.search(r"\*\*Try this\.\*\*\s+(.+)", last, re.DOTALL)
        end = "" if title.endswith("?") else "."
        tasks += [f"**{title}{end}** {task[1].strip()}\n"] if task else []
    columns = ["notebook", "minutes at `tiny`", "at `laptop`", "executed at `tiny`"]
    table = pd.DataFrame(rows, columns=columns).to_markdown(index=False)
    names = ("notebooks.md", "workshop.md")
    order, plan = ((runs.REFERENCE / "notes" / n).read_text("utf-8") for n in names)
    return "\n".join([order, table, f"\n{plan}", "## Things to try\n", *tasks])


def count_claims(papers: Sequence[PaperResults]) -> str:
    """The page outputs/reference/claims.md, which counts the verdicts."""
    table = summary(papers).rename_axis(["paper", "profile"]).reset_index()
    return (
        "# The papers' claims, counted\n\n"
        "Made by `python -m factkit report --markdown`. Each paper's page lists its "
        "claims.\n\n" + table.to_markdown(index=False) + "\n\n" + RULE
    )


def markdown(results: PaperResults) -> str:
    """A paper's results, figures, arms, claims and deviations.

    For runs below a root also the reasons of claims without a verdict. Raises
    ParamError without runs.
    """
    paper, root, stored = results.paper, results.root, results.stored
    if not stored:
        raise params.ParamError(
            f"no finished run of {paper} at {', '.join(results.profiles)} below {root};"
            f" start with: python -m factkit reproduce {paper}"
        )
    own, folder = find_papers()[paper], root or runs.REFERENCE
    links = [
        f"[{stem.replace('_', ' ')}](../../notebooks/{stem}.ipynb)"
        for stem in own.notebooks.values()
    ]
    file = runs.REFERENCE / "notes" / f"{paper}.md"
    notes = file.read_text(encoding="utf-8") if file.is_file() else ""
    if root:
        notes = notes.replace("## In words", "## The reference results in words", 1)
    parts = [
        f"# {own.title}: what came out\n",
        "Made by `python -m factkit report --markdown` from the results beside this "
        "page.\nValues are percentages of held-out items: means over seeds with 95 % "
        "intervals.\n",
        f"Notebooks: {', '.join(links)}.\n",
        notes,
        "## Results\n",
    ]
    for profile, by_variant in stored.items():
        for variant, group in by_variant.items():
            name = "-".join(filter(None, (profile, variant)))
            group = rules.add_rules(group)
            table = tables.results_table(group, own.shown_metrics).to_markdown()
            parts.append(f"### `{name}`\n\n{_describe_runs(group)}\n\n{table}\n")
            parts += _same_answered_table(paper, group)
    parts.append("## The arms\n\n" + own.describe_arms().to_markdown() + "\n")
    for profile in stored:
        pattern = f"{profile}/*_{paper}_figures/main-s0/figures/*.png"
        figures = sorted(folder.glob(pattern))
        parts += [f"## Figures at `{profile}`\n"] if figures else []
        for path in figures:
            inside = path.relative_to(folder)
            parts.append(f"![{path.stem.replace('_', ' ')}]({inside})\n")
    parts += _list_claims(results.claims, list(stored)) if len(results.claims) else []
    differences = []
    for profile in stored:
        texts = deviations.of(paper, params.load(paper, profile), whole=True)
        sentences = "\n".join(f"- {text}" for text in texts)
        head = f"<details><summary>Profile {profile}</summary>"
        differences += [f"{head}\n\n{sentences}\n\n</details>\n"] if texts else []
    parts += ["## What differs from the paper\n", *differences] if differences else []
    return "\n".join([*parts, _list_reasons(results.claims)] if root else parts)


def _same_answered_table(paper: str, results: Sequence[Any]) -> list[str]:
    metric = find_papers()[paper].mean_over_answers
    if not metric:
        return []
    table = ledger.same_answered(paper, results, metric)
    name = metric.replace("_", " ")
    head = (
        f"Better answers, or silence? The change in {name} by training, in points, and "
        "its two parts: on\nthe requests answered both before and after training with "
        "the same seed, and by silence. Answered:\npercentage of requests. The rules "
        "are not trained. They leave out claims of the base policy's answers:\nall but "
        "the first, those of relations that it mostly gets wrong on train data, or "
        "those\nthat at most half of its samples on the same point agree with."
    )
    if "over first claims" in table:
        head += (
            "\nOver first claims: precision on the requests that both answered, less "
            "that of the base policy's\nfirst claims there."
        )
    head += "\n"
    text = table.to_markdown(disable_numparse=True)
    return [head, text + "\n"] if len(table) else []


def _list_claims(claims: pd.DataFrame, profiles: Sequence[str]) -> list[str]:
    words = [
        f"`{n}`: {ledger.in_words(claims[n]['verdict'])} "
        f"{ledger.count_checks(claims[n])}\n"
        for n in profiles
    ]
    names = ("ours", "same answered", "verdict", "all together", "three worlds")
    columns = [("", column) for column in ("claim", "where", "setting", "paper")]
    columns += [(n, c) for n in profiles for c in names if (n, c) in claims]
    flat = claims[columns].replace(r"\|", "/", regex=True)
    flat.columns = [" ".join(filter(None, names)) for names in flat.columns]
    table = flat.to_markdown(index=False) + "\n"
    return ["## The paper's claims\n", *words, table]


def _list_reasons(claims: pd.DataFrame) -> str:
    lines = []
    for profile in dict.fromkeys(p for p, *_ in claims.columns if p):
        why = claims[profile]["why"]
        for reason, group in claims["", "claim"].groupby(why[why != ""]):
            lines += [f"{profile}: {reason}:", *(f"    {claim}" for claim in group)]
    return "\n".join(lines)


def _describe_runs(results: Sequence[Any]) -> str:
    taken = [r["wall_s"] / 60 for r in results if "wall_s" in r]
    devices = sorted({r["device"] for r in results if "device" in r})
    named = {r.get("git", "none: ") for r in results}
    commits = sorted(name for name in named if not name.startswith("none: "))
    where = f"at {', '.join(commits)} on" if commits else "on"
    by_verl = sorted({r["arm"] for r in results if "verl" in r.get("recipe", {})})
    return (
        f"{len(results)} runs {where} {'; '.join(devices)}; "
        f"{min(taken):.1f} to {max(taken):.1f} minutes each."
        + (f" Trained by verl: {', '.join(by_verl)}." if by_verl else "")
    )
