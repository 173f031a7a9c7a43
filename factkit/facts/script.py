"""A script that searches for claims' evidence and verifies them, with habits.

Ours: the paper's SFT learns from GPT-4o's trajectories (App. H). On the small profiles
it learns from this script, which knows the grammar of the sentences and nothing of a
claim's label or gold evidence.
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from factkit.data.corpus import Chunk
from factkit.data.entries import split_entry
from factkit.data.examples import LABELS
from factkit.facts.source import Find
from factkit.verify.trajectory import Turn, format_information

# the piece that states a fact, and the fact with `subject`, `relation` and `object`
Found = tuple[Chunk, Any]
Chain = list[Found]  # one for each hop read


class Reader(Protocol):
    """Reads and writes the sentences of the fact world or of the leads."""

    def hops(self, claim: str) -> list[Any]:
        """The facts that a claim rests on; of two, the first lacks the object and the
        second the subject. Raises ValueError on another sentence."""

    def fact(self, text: str) -> Any | None:
        """The fact that an entry's sentence states."""

    def plan(self, hops: Sequence[Any]) -> str:
        """What the script plans to look up."""

    def query(self, subject: str, hop: Any) -> str:
        """A search for a hop in the script's own words."""

    def thought(self, subject: str, hop: Any, found: Found | None) -> str:
        """The thought about what was found of a subject; `found` is None if nothing."""

    def tag(self, name: str, text: str) -> str:
        """A text between tags."""


@dataclass(frozen=True)
class Habits:
    """How often the script does something, in [0, 1].

    own_words: searches for what it wants to know, and not for the claim as it stands.
    second_hop: continues with a claim's second hop. precise: cites what it used, and
    not all that it was shown. guess: answers with any label. malformed: forgets a tag.
    reads_ahead: takes up what a search happens to show of the second hop.
    """

    own_words: float = 0.0
    second_hop: float = 0.0
    precise: float = 0.0
    guess: float = 0.0
    malformed: float = 0.0
    reads_ahead: bool = True


# What SFT learns from: better and worse ways. Of GPT-4o's answers, too, only 25 to 59 %
# are right with their evidence (Table 1).
TAUGHT = Habits(second_hop=0.6, precise=0.5, reads_ahead=False)


def search_and_verify(
    reader: Reader, claim: str, find: Find, habits: Habits, rng: random.Random
) -> list[Turn]:
    """The script's trajectory for a claim (Fig 9). ValueError if it can't be parsed."""
    hops = reader.hops(claim)
    text, subject = reader.tag("plan", reader.plan(hops)) + "\n", hops[0].subject
    turns, pieces, chain = [], [], []
    for number, hop in enumerate(hops):
        if number and not _happens(habits.second_hop, rng):
            break
        own_words = number > 0 or _happens(habits.own_words, rng)
        query = reader.query(subject, hop) if own_words else claim
        found = [piece for entry in find(query) for piece in split_entry(entry)]
        pieces += found
        turns.append(Turn(text + reader.tag("search", query), by_model=True))
        turns.append(Turn(format_information(found), by_model=False))
        chain = read_chain(reader, hops, pieces)
        read = chain[number] if number < len(chain) else None
        text = reader.tag("think", reader.thought(subject, hop, read)) + "\n"
        if read is None:
            break
        subject = read[1].object
    if not habits.reads_ahead:
        chain = chain[: len(turns) // 2]  # a turn of the script and a result each
    text += verdict(hops, chain, pieces, habits, rng)
    return forget_tag([*turns, Turn(text, by_model=True)], habits, rng)


def read_chain(reader: Reader, hops: Sequence[Any], pieces: Iterable[Chunk]) -> Chain:
    """What the pieces state of the hops, each with its piece, as far as they go."""
    by_key: dict[tuple[str, str], Found] = {}
    for piece in pieces:
        if fact := reader.fact(piece.text):
            by_key.setdefault((fact.subject, fact.relation), (piece, fact))
    chain, subject = [], hops[0].subject
    for hop in hops:
        if (subject, hop.relation) not in by_key:
            break
        chain.append(by_key[subject, hop.relation])
        subject = chain[-1][1].object
    return chain


def verdict(
    hops: Sequence[Any],
    chain: Chain,
    pieces: Sequence[Chunk],
    habits: Habits,
    rng: random.Random,
) -> str:
    """The answer to a claim. Only NOT ENOUGH INFO may cite nothing."""
    support, refute, unknown = LABELS
    label = unknown
    if len(chain) == len(hops):
        label = support if chain[-1][1].object == hops[-1].object else refute
    if _happens(habits.guess, rng) and pieces:
        label = rng.choice(LABELS)
    cited = list(pieces)
    if _happens(habits.precise, rng) and (chain or label == unknown):
        cited = [] if label == unknown else [piece for piece, _ in chain]
    evidence = ", ".join(dict.fromkeys(f"[[{piece.id}]]" for piece in cited))
    return f"<answer>\nLabel: {label}\nEvidence: {evidence}\n</answer>"


def forget_tag(turns: list[Turn], habits: Habits, rng: random.Random) -> list[Turn]:
    """Leave out one of the policy's tags, never a search's, as often as by habit."""
    if not _happens(habits.malformed, rng):
        return turns
    places = [
        (i, tag)
        for i, turn in enumerate(turns)
        if turn.by_model
        for tag in re.finditer(r"</?(?:plan|think|answer)> ?", turn.text)
    ]
    i, tag = rng.choice(places)
    text = turns[i].text[: tag.start()] + turns[i].text[tag.end() :]
    return [*turns[:i], Turn(text, by_model=True), *turns[i + 1 :]]


def _happens(share: float, rng: random.Random) -> bool:
    return share > 0 and rng.random() < share
