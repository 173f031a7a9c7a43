"""What SFT learns from on the small profiles: trajectories of a scripted searcher.

Ours: the paper's are GPT-4o's (App. H). The script knows nothing of labels or gold
evidence. It searches once, for the claim as it stands, as a pipeline of one step does.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit import world
from factkit.curate import world_trajectories
from factkit.datasets.examples import Example
from factkit.entries import shown
from factkit.search_client import Search
from factkit.verify.trajectory import LABELS, NEI, Turn, information

if TYPE_CHECKING:
    import numpy as np

    from factkit.params import VeriParams
    from factkit.retrieval import Chunk

SURE = 0.5  # probability of a verdict from which on a sentence counts
PLAN = "<plan>Search for the claim and compare.</plan>"
NOTHING = "Nothing that was found settles it."


def scripted(
    p: "VeriParams", examples: Sequence[Example], search: Search
) -> list[list[Turn]]:
    """A trajectory for each claim, in the fact world or of the leads."""
    if p.verifier == "leads":
        return by_verifier(examples, search, p.retrieved_entries)
    made = world.build_world(people=p.world_people, seed=p.world_seed)
    rng = random.Random(f"scripted {p.world_seed}")
    return [
        world_trajectories.online(
            made,
            e.question,
            lambda query, k: search([query], k)[0],
            world_trajectories.PLAIN,
            rng,
        )
        for e in examples
    ]


def by_verifier(
    examples: Sequence[Example], search: Search, k: int
) -> list[list[Turn]]:
    """Trajectories in which the kit's own verifier (02) reads what was found."""
    from factkit.verify.embedded import embedded_verifier

    found = [
        [piece for entry in entries for piece in shown(entry)]
        for entries in search([e.question for e in examples], k)
    ]
    pairs = [
        (piece.text, e.question)
        for e, of in zip(examples, found, strict=True)
        for piece in of
    ]
    rows = iter(embedded_verifier().probabilities(pairs))
    return [
        _told(e.question, of, [next(rows) for _ in of])
        for e, of in zip(examples, found, strict=True)
    ]


def _told(
    claim: str, pieces: "Sequence[Chunk]", rows: "Sequence[np.ndarray]"
) -> list[Turn]:
    """One search, the sentences that settle the claim, and the verdict.

    rows: of each piece the probabilities that it supports, contradicts or neither.
    """
    scores = [max((float(row[k]) for row in rows), default=0.0) for k in (0, 1)]
    best = scores.index(max(scores))
    used = [piece for piece, row in zip(pieces, rows, strict=True) if row[best] > SURE]
    thought = " ".join(piece.text for piece in used) or NOTHING
    evidence = ", ".join(f"[[{piece.id}]]" for piece in used)
    label = LABELS[best] if used else NEI
    return [
        Turn(f"{PLAN}\n<search>{claim}</search>", by_model=True),
        Turn(information(pieces), by_model=False),
        Turn(
            f"<think>{thought}</think>\n"
            f"<answer>\nLabel: {label}\nEvidence: {evidence}\n</answer>",
            by_model=True,
        ),
    ]
