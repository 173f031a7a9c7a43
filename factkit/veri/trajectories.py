"""What SFT learns from on the small profiles: trajectories of a scripted searcher.

Ours: the paper's are GPT-4o's (App. H). The script knows nothing of labels or gold
evidence. On the leads it searches for the claim as it stands, reads by wording alone
what was found, and compares. It has habits, as GPT-4o has, of whose answers the paper
finds 25 to 59 % right with their evidence (Table 1): mostly it cites all that it was
shown, and does not go on to a claim's second hop. So both ways come up in rollouts, and
RL can tell which one is paid.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factkit.datasets.examples import Example
from factkit.leads import facts
from factkit.leads.claims import hops_of
from factkit.leads.facts import Fact
from factkit.leads.reader import LeadReader
from factkit.retrieval.entries import shown
from factkit.search import Search
from factkit.verify.trajectory import LABELS, Turn, information
from factkit.world import facts as world
from factkit.world import trajectories as world_trajectories

if TYPE_CHECKING:
    from factkit.retrieval.chunks import Chunk
    from factkit.veri.arms import VeriParams

PRECISE, SECOND_HOP = 0.3, 0.4  # how often the script on the leads is it, goes on
NOTHING = "nothing"


def scripted(
    p: "VeriParams", examples: Sequence[Example], search: Search
) -> list[list[Turn]]:
    """A trajectory for each claim, in the fact world or of the leads."""
    rng = random.Random(f"scripted {p.world_seed}")
    if p.verifier == "leads":
        reader = LeadReader(facts.load())
        k = p.retrieved_entries
        return [by_reader(e.question, search, k, reader, rng) for e in examples]
    made = world.build_world(people=p.world_people, seed=p.world_seed)
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


def by_reader(
    claim: str, search: Search, k: int, reader: LeadReader, rng: random.Random
) -> list[Turn]:
    """The trajectory in which the leads' reader says what was found."""
    hops = hops_of(claim, reader)
    plan = ", ".join(hop.relation.replace("_", " ") for hop in hops)
    said, query, subject = f"<plan>{plan}</plan>\n", claim, hops[0].subject
    turns, seen, used = [], [], []
    for hop in hops:
        if used:
            if rng.random() >= SECOND_HOP:
                break
            subject = used[-1][1].object
            query = facts.statement(Fact(subject, hop.relation, hop.object))
        pieces = [piece for entry in search([query], k)[0] for piece in shown(entry)]
        seen += pieces
        turns += [
            Turn(f"{said}<search>{query}</search>", by_model=True),
            Turn(information(pieces), by_model=False),
        ]
        found = _stated(pieces, subject, hop.relation, reader)
        read = found[1].object if found else NOTHING
        said = (
            f"<think>{hop.object and f'Claim: {hop.object}. '}Found: {read}.</think>\n"
        )
        if not found:
            break
        used.append(found)
    turns.append(Turn(said + _answer(hops, used, seen, rng), by_model=True))
    return turns


def _stated(
    pieces: Sequence["Chunk"], subject: str, relation: str, reader: LeadReader
) -> tuple["Chunk", Fact] | None:
    """The first piece that states a relation of a subject, with the fact."""
    for piece in pieces:
        parsed = reader.parse(piece.text)
        if parsed and (parsed[0].subject, parsed[0].relation) == (subject, relation):
            return piece, parsed[0]
    return None


def _answer(
    hops: Sequence[Fact],
    used: Sequence[tuple["Chunk", Fact]],
    seen: Sequence["Chunk"],
    rng: random.Random,
) -> str:
    """The verdict; mostly with all that was seen for evidence."""
    label = LABELS[2]
    if len(used) == len(hops):
        label = LABELS[hops[-1].object != used[-1][1].object]
    cited = [piece for piece, _ in used] if label != LABELS[2] else []
    if rng.random() >= PRECISE:
        cited = seen
    ids = dict.fromkeys(f"[[{piece.id}]]" for piece in cited)
    return f"<answer>\nLabel: {label}\nEvidence: {', '.join(ids)}\n</answer>"
