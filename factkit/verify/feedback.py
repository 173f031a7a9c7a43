"""Statement-level feedback on a response (RLFH §3.1): sentences, their statements, how
true and how informative each one is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from factkit import world as worlds
from factkit.datasets.examples import Example
from factkit.world import World


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


def world_annotator(world: World, examples: Mapping[str, Example]) -> Annotator:
    """Exact in the fact world, by `world.statements` and `world.verify`.

    A statement is vague where the world is silent. Informativeness (ours): 5, of the
    person that was asked about; 2, of somebody or something else, or more than the
    number of facts that was asked for; 1, stated before in the same response.
    examples: prompt id → the prompt.
    """

    def annotate(
        ids: Sequence[str], prompts: Sequence[str], responses: Sequence[str]
    ) -> list[list[Sentence] | None]:
        return [
            _in_world(world, examples[i], response)
            for i, response in zip(ids, responses, strict=True)
        ]

    return annotate


def _in_world(world: World, asked: Example, response: str) -> list[Sentence]:
    """The feedback on one response."""
    seen: set[tuple[str, str]] = set()
    wanted = asked.meta.get("wanted", float("inf"))
    found = []
    for sentence in worlds.sentences(response):
        statements = []
        for text in worlds.statements(world, sentence):
            fact, hedged = worlds.parse(world, text)
            key = fact.subject, fact.relation
            useful = fact.subject == asked.entity and len(seen) < wanted
            informative = 1 if key in seen else 5 if useful else 2
            seen.add(key)
            truth = _truth(worlds.verify(world, text), hedged)
            statements.append(Statement(text, truth, informative))
        if statements:
            found.append(Sentence(sentence, tuple(statements)))
    return found


def _truth(verified: worlds.Verification, hedged: bool) -> Truth:
    match verified:
        case "supported":
            return Truth.HEDGED_CORRECT if hedged else Truth.CORRECT
        case "contradicted":
            return Truth.HEDGED_WRONG if hedged else Truth.WRONG
    return Truth.VAGUE


def share_true(feedback: Sequence[Sentence] | None) -> float | None:
    """FactScore of a response: the share of its statements that are correct, hedged or
    not. None without statements, or if the annotator failed."""
    stated = [s.truth for sentence in feedback or () for s in sentence.statements]
    true = (Truth.CORRECT, Truth.HEDGED_CORRECT)
    return sum(t in true for t in stated) / len(stated) if stated else None
