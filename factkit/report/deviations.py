"""What a run does otherwise than the paper, from the parameters themselves.

papers/<paper>/published/setup.csv holds what a paper states of its set-up: parameter,
the paper's value, section, meaning. Each parameter with another value is a deviation,
at every profile. papers/<paper>/published/deviations.csv has those that no parameter
shows: a sentence and when it holds; {parameter} stands for its value in both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from factkit.report import published
from factkit.run.arms import find_papers

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

    from factkit.run.params.stages import RunParams


@dataclass(frozen=True)
class Stated:
    """A value that a paper states.

    paper: in YAML's syntax, " | " between those of several models. reason: why
    profile h100_full has another, empty where it must not.
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


def of(paper: str, p: "RunParams", whole: bool = False) -> list[str]:
    """The deviations of a run with parameters `p`, as sentences.

    Of parameters, those that the run's arm depends on; whole: those of all arms.
    """
    arm = find_papers()[paper].arms[p.arm]
    values = p.model_dump() | {"algorithm": arm.algorithm}
    sentences = [
        row["sentence"].format_map(values)
        for row in published.read_rows(paper, "deviations")
        if _holds(row["when"].format_map(values), values)
    ]
    reads = type(p) if whole else arm.reads
    for row in stated(paper):
        value = getattr(p, row.key)
        if row.key in reads.model_fields and not row.is_met(value):
            shown = "none" if value == "" else value
            theirs = f"the paper: {row.paper} ({row.section})"
            sentences.append(f"{row.meaning}: {shown}; {theirs}")
    return sentences


def _holds(when: str, values: Mapping[str, Any]) -> bool:
    """Whether all of `when` is so: `key=value|value` names what a parameter, or the
    arm's algorithm, is one of; `key!=value|value` what it is none of."""
    for key, differs, named in re.findall(r"(\w+)(!?)=(\S*)", when):
        if (str(values[key]) in named.split("|")) == bool(differs):
            return False
    return True


def table(paper: str, p: "RunParams") -> "Styler":
    """All deviations at a profile, of whichever arm; a row each."""
    import pandas as pd

    title = f"What profile {p.profile} {p.variant}".rstrip()
    rows = pd.DataFrame({f"{title} does otherwise": of(paper, p, whole=True)})
    return rows.style.hide(axis="index").set_properties(**{"text-align": "left"})
