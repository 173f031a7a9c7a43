"""Statement-level feedback on a response (RLFH §3.1): sentences, their statements, how
true and how informative each one is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Truth(StrEnum):
    """How a statement stands to the materials (§3.1.2); a hedge says that its author
    was not sure."""

    CORRECT = "correct"
    HEDGED_CORRECT = "hedged correct"
    VAGUE = "vague"
    HEDGED_WRONG = "hedged wrong"
    WRONG = "wrong"


@dataclass(frozen=True)
class Statement:
    """An atomic statement, in its own words.

    informativeness: 1 (useless) to 5 (answers the question), §3.1.3.
    """

    text: str
    truth: Truth
    informativeness: int


@dataclass(frozen=True)
class Sentence:
    """A sentence of the response and its statements, in order; at least one (§3.1.1:
    sentences without statements are left out)."""

    text: str
    statements: tuple[Statement, ...]


# (ids, prompts, responses) → each response's sentences, in order; [] if it states
# nothing, None if the annotator failed
Annotator = Callable[
    [Sequence[str], Sequence[str], Sequence[str]], list[list[Sentence] | None]
]


def share_true(feedback: Sequence[Sentence] | None) -> float | None:
    """FactScore of a response: the share of its statements that are correct, hedged or
    not. None without statements, or if the annotator failed."""
    stated = [s.truth for sentence in feedback or () for s in sentence.statements]
    true = (Truth.CORRECT, Truth.HEDGED_CORRECT)
    return sum(t in true for t in stated) / len(stated) if stated else None
