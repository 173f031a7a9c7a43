"""Responses to look at, coloured by what they are worth."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from factkit.verify.outcome import Outcome, Support
from factkit.verify.response import answers

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

    from factkit.evaluate.long_form import Checked

BLUE, GREY, RED = (f"background-color: {c}" for c in ("#cfe2f3", "#eeeeee", "#f9d5c3"))
BACKGROUND = {
    Outcome.CORRECT: BLUE,
    Outcome.ABSTAIN: f"{GREY}; font-style: italic",
    Outcome.WRONG: RED,
}
SUPPORT_BACKGROUND = {  # the more serious, the later
    Support.SUPPORTED: BLUE,
    Support.INCONCLUSIVE: GREY,
    Support.CONTRADICTED: RED,
}
SERIOUS = list(SUPPORT_BACKGROUND)


def outcome_colours(table: "pd.DataFrame", outcome_of: Mapping[str, str]) -> "Styler":
    """Colour response columns by their outcome: blue correct, grey abstains, red wrong.

    outcome_of: response column → the column that holds its outcome.
    """
    style = table.style.hide(axis="index")
    for column, outcome_column in outcome_of.items():
        colours = [BACKGROUND[Outcome(o)] for o in table[outcome_column]]
        style = style.apply(lambda _, c=colours: c, subset=[column])
    return style


def claim_colours(rows: Sequence[tuple[str, "Checked", "Checked"]]) -> "Styler":
    """Requests with two answers each, a claim's sentence in the colour of its support:
    blue supported, red contradicted, grey neither; what is no claim has none."""
    import pandas as pd

    table = pd.DataFrame(
        [(escape(prompt), _coloured(b), _coloured(a)) for prompt, b, a in rows],
        columns=["request", "before", "after"],
    )
    style = table.style.hide(axis="index")
    return style.set_properties(**{"text-align": "left", "vertical-align": "top"})


def _coloured(row: "Checked") -> str:
    """An answer as HTML, each sentence marked by the worst support of its claims."""
    (answer,) = answers([row.response])
    worst: dict[str, Support] = {}
    for claim, support in zip(row.claims or (), row.supports, strict=True):
        if support:
            supports = support, worst.get(claim.sentence, support)
            worst[claim.sentence] = max(supports, key=SERIOUS.index)
    longest = sorted(worst, key=len, reverse=True)  # one may hold another
    pattern = "|".join(map(re.escape, longest)) or "$"
    parts = re.split(f"({pattern})", answer)
    spans = {
        text: f'<span style="{SUPPORT_BACKGROUND[support]}">{escape(text)}</span>'
        for text, support in worst.items()
    }
    return "".join(spans.get(part) or escape(part) for part in parts)
