"""Prompts of profile `tiny` for long answers: requests to tell of people of the world.

Ours; in place of WildChat, Biography, PopQA and IFEval (Binary RAR §4).
"""

import random
from collections.abc import Sequence

from factkit.datasets.examples import Example
from factkit.world import texts as world_text
from factkit.world.facts import World, biography, document_id, question

OPEN, COUNTED, MAY_ABSTAIN, BEST_GUESS = "open", "counted", "may_abstain", "best_guess"


def requests(world: World, people: Sequence[str], kind: str) -> list[Example]:
    """A request a person; `answers[0]` is a true reference.

    kind: open (tell of a person; `reference` is a whole biography) | counted (tell one,
    two or three facts: `meta["wanted"]`) | may_abstain, best_guess (a short question a
    fact, with and without leave to abstain). The evidence is every fact of the person.
    """
    return [
        example
        for i, person in enumerate(people)
        for example in _requests(world, person, kind, i)
    ]


def mixed(world: World, people: Sequence[str], n: int, seed: int) -> list[Example]:
    """n requests of all kinds but best_guess, drawn without repeats: half of them open,
    a quarter each counted and short. Raises ValueError if there are not as many."""
    rng = random.Random(f"prompts {world.seed} {seed}")
    shares = {OPEN: n - 2 * (n // 4), COUNTED: n // 4, MAY_ABSTAIN: n // 4}
    drawn = []
    for kind, share in shares.items():
        pool = requests(world, people, kind)
        if share > len(pool):
            raise ValueError(
                f"{n} prompts: {len(people)} people give {len(pool)} {kind} requests, "
                f"not {share}"
            )
        drawn += rng.sample(pool, share)
    rng.shuffle(drawn)
    return drawn


def _requests(world: World, person: str, kind: str, i: int) -> list[Example]:
    facts = world.facts_of(person)
    shared = {
        "entity": person,
        "evidence": [document_id(fact) for fact in facts],
    }
    meta = {"kind": kind, "exposure": round(sum(f.exposure for f in facts) / 4)}
    if kind in (OPEN, COUNTED):
        wordings = world_text.BIOGRAPHY_QUESTIONS
        if kind == COUNTED:
            meta["wanted"] = 1 + i % len(world_text.COUNTS)
            wordings = [world_text.request(person, meta["wanted"])]
        return [
            Example(
                id=f"{person} {kind} {number}",
                question=wording.format(s=person),
                answers=[biography(world, person)],
                meta=meta,
                **shared,
            )
            for number, wording in enumerate(wordings)
        ]
    ask = world_text.MAY_ABSTAIN if kind == MAY_ABSTAIN else "{question}"
    return [
        Example(
            id=f"{person} {fact.relation} {kind}",
            question=ask.format(question=question(fact, i)),
            answers=[fact.object],
            relation=fact.relation,
            meta=meta | {"exposure": fact.exposure},
            **shared,
        )
        for fact in facts
    ]
