"""What a run does otherwise than the paper, from the parameters themselves.

factkit/published/<paper>_setup.csv holds what a paper states of its set-up: parameter,
the paper's value, section, meaning. Each parameter with another value is a deviation,
at every profile; `deviations` in <paper>/train.py adds those that no parameter shows.
"""

import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from factkit import arms, published

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

    from factkit.params.stages import RunParams


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
    """What a paper states of its set-up, from published/<paper>_setup.csv."""
    return [Stated(**row) for row in published.rows(f"{paper}_setup")]


def of(paper: str, p: "RunParams", whole: bool = False) -> list[str]:
    """The deviations of a run with parameters `p`, as sentences.

    Of parameters, those that the run's arm depends on; whole: those of all arms.
    """
    reads = type(p) if whole else arms.table(paper)[p.arm].reads
    sentences = list(pkgutil.resolve_name(f"factkit.{paper}.train:deviations")(p))
    for row in stated(paper):
        value = getattr(p, row.key)
        if row.key in reads.model_fields and not row.is_met(value):
            shown = "none" if value == "" else value
            theirs = f"the paper: {row.paper} ({row.section})"
            sentences.append(f"{row.meaning}: {shown}; {theirs}")
    return sentences


def table(paper: str, p: "RunParams") -> "Styler":
    """All deviations at a profile, of whichever arm; a row each."""
    import pandas as pd

    title = f"What profile {p.profile} {p.variant}".rstrip()
    rows = pd.DataFrame({f"{title} does otherwise": of(paper, p, whole=True)})
    return rows.style.hide(axis="index").set_properties(**{"text-align": "left"})
