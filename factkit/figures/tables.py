"""Tables in which colour says what a response was worth."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from factkit.verify.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

BACKGROUND = {
    Outcome.CORRECT: "background-color: #cfe2f3",
    Outcome.ABSTAIN: "background-color: #eeeeee; font-style: italic",
    Outcome.WRONG: "background-color: #f9d5c3",
}


def outcome_colours(table: "pd.DataFrame", outcome_of: Mapping[str, str]) -> "Styler":
    """Colour response columns by their outcome: blue correct, grey abstains, red wrong.

    outcome_of: response column → the column that holds its outcome.
    """
    style = table.style.hide(axis="index")
    for column, outcome_column in outcome_of.items():
        colours = [BACKGROUND[Outcome(o)] for o in table[outcome_column]]
        style = style.apply(lambda _, c=colours: c, subset=[column])
    return style
