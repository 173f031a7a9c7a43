"""Splits of examples that share no entity."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest

from factkit.data.examples import DataError, Example, refuse_overlap

Sets = dict[str, list[Example]]


def in_set(example: Example, name: str) -> Example:
    """The example with the name of its evaluation set in meta."""
    return example.model_copy(update={"meta": example.meta | {"set": name}})


def split_by_entity(
    examples: Sequence[Example],
    sizes: Mapping[str, int],
    seed: int = 0,
    relations: Collection[str] = (),
    even: bool = True,
) -> Sets:
    """Splits of the given sizes that share no entity and no question.

    Entities are assigned at random in proportion to `sizes`; those that share a
    question stay together, and a split that is too small gets entities of those with
    more than they need. even: each split takes one question of every relation in turn
    until it is full, else any. relations: use only these; no entity changes its split.
    Raises DataError if there are too few.
    """
    rng = random.Random(f"split {seed}")
    group = _together(examples)
    groups = sorted(set(group.values()))
    owners = rng.choices(list(sizes), weights=list(sizes.values()), k=len(groups))
    owner = dict(zip(groups, owners, strict=True))
    _fill_up(owner, Counter(group[e.entity.casefold()] for e in examples), sizes, seed)
    splits = {}
    for name, size in sizes.items():
        pool = [
            e
            for e in examples
            if owner[group[e.entity.casefold()]] == name
            and (not relations or e.relation in relations)
        ]
        rng.shuffle(pool)
        by_relation: dict[str, list[Example]] = {}
        for example in pool:
            by_relation.setdefault(example.relation if even else "", []).append(example)
        turns = chain.from_iterable(zip_longest(*by_relation.values()))
        if len(pool) < size:
            raise DataError(
                f"{name}={size}: only {len(pool)} of {len(examples)} prompts are left "
                "for this split; ask for fewer"
            )
        splits[name] = list(filter(None, turns))[:size]
        rng.shuffle(splits[name])
    refuse_overlap(splits)
    return splits


# keeps the mix of relations
split_prompts = partial(split_by_entity, even=False)


def _fill_up(
    owner: dict[str, str],
    members: Mapping[str, int],
    sizes: Mapping[str, int],
    seed: int,
) -> None:
    """Move groups from splits with spare questions to splits that are too small."""
    spare = Counter({name: -size for name, size in sizes.items()})
    for group, name in owner.items():
        spare[name] += members[group]
    for group in random.Random(f"fill {seed}").sample(list(owner), len(owner)):
        short, n = min(spare, key=spare.__getitem__), members[group]
        if spare[short] >= 0:
            return
        if spare[owner[group]] >= n:
            spare.update({owner[group]: -n, short: n})
            owner[group] = short


def _together(examples: Sequence[Example]) -> dict[str, str]:
    """Each entity's group: the entities that share a question, named by one of them.

    A published set may have a question twice, about two entities.
    """
    group: dict[str, str] = {}
    first: dict[str, str] = {}

    def root(entity: str) -> str:
        while group.setdefault(entity, entity) != entity:
            entity = group[entity]
        return entity

    for example in examples:
        entity = example.entity.casefold()
        question = example.question.casefold()
        group[root(entity)] = root(first.setdefault(question, entity))
    return {entity: root(entity) for entity in group}
