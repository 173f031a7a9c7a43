"""Differences between a run and the paper, from the run's parameters.

papers/<paper>/published/setup.csv has the paper's set-up: parameter, value, section,
meaning. Each parameter with another value is a deviation. deviations.csv beside it has
deviations without a parameter: a sentence and its condition; {parameter} stands for a
value in both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import yaml
from pandas.io.formats.style import Styler

from factkit.report import published
from factkit.run.arms import find_papers
from factkit.run.params.stages import SweepParams


@dataclass(frozen=True)
class Stated:
    """A value that a paper states.

    paper: in YAML's syntax, " | " between the values of several models. reason: why
    profile h100_full has another value; empty if it must not.
    """

    key: str
    paper: str
    section: str
    meaning: str
    reason: str = ""

    def is_met(self, value: Any) -> bool:
        """Whether a parameter's value is one that the paper states."""
        texts = [text.strip() for text in self.paper.split(" | ")]
        return str(value) in texts or value in map(yaml.safe_load, texts)


def stated(paper: str) -> list[Stated]:
    """What a paper states of its set-up, from published/setup.csv."""
    return [Stated(**row) for row in published.read_rows(paper, "setup")]


def of(paper: str, p: SweepParams, whole: bool = False) -> list[str]:
    """The deviations of a run with parameters `p`, as sentences.

    whole: of all arms that the notebooks compare and of all parameters, not only of
    the run's arm and those that it reads.
    """
    arms = find_papers()[paper].arms
    rows = published.read_rows(paper, "deviations")
    sentences: dict[str, None] = {}
    for name in p.arms.split() if whole else [p.arm]:
        own = {"arm": name, "algorithm": arms[name].algorithm}
        values = p.model_dump() | own
        sentences |= {
            row["sentence"].format_map(values): None
            for row in rows
            if _holds(row["when"].format_map(values), values)
        }
    reads = type(p) if whole else arms[p.arm].reads
    for row in stated(paper):
        value = getattr(p, row.key)
        if row.key in reads.model_fields and not row.is_met(value):
            shown = "none" if value == "" else value
            theirs = f"the paper: {row.paper} ({row.section})"
            sentences[f"{row.meaning}: {shown}; {theirs}"] = None
    return [*sentences]


def _holds(when: str, values: Mapping[str, Any]) -> bool:
    """Whether parameters and the arm's algorithm meet all conditions, `key=value|value`
    or `key!=value|value`."""
    for key, differs, named in re.findall(r"(\w+)(!?)=(\S*)", when):
        if (str(values[key]) in named.split("|")) == bool(differs):
            return False
    return True


def table(paper: str, p: SweepParams) -> Styler:
    """All deviations at a profile, one row each."""
    title = f"Deviations of {p.profile} {p.variant}".rstrip()
    rows = pd.DataFrame({title: of(paper, p, whole=True)})
    return rows.style.hide(axis="index").set_properties(**{"text-align": "left"})
