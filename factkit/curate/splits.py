"""Splits that share no entity: with an even mix of relations, or as it comes."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, zip_longest

from factkit.datasets.examples import DataError, Example, refuse_overlap


def split_by_entity(
    examples: Sequence[Example],
    sizes: Mapping[str, int],
    seed: int = 0,
    relations: Collection[str] = (),
) -> dict[str, list[Example]]:
    """Splits of the given sizes, no entity in two of them, relations mixed evenly.

    Entities are dealt to the splits at random in proportion to `sizes`; those that
    share a question go together, and a split that chance left short is filled up from
    those that have more than they need. Each split then takes one question of every
    relation in turn until it is full, of `relations` alone if some are named: no entity
    changes its split by that. Raises DataError if there are too few questions.
    """
    rng = random.Random(f"split {seed}")
    group = _together(examples)
    groups = sorted(set(group.values()))
    owners = rng.choices(list(sizes), weights=list(sizes.values()), k=len(groups))
    owner = dict(zip(groups, owners, strict=True))
    members = Counter(group[e.entity.casefold()] for e in examples)
    _fill_up(owner, members, sizes, seed)
    splits = {}
    for name, size in sizes.items():
        pool = [e for e in examples if owner[group[e.entity.casefold()]] == name]
        pool = [e for e in pool if not relations or e.relation in relations]
        rng.shuffle(pool)
        by_relation: dict[str, list[Example]] = {}
        for example in pool:
            by_relation.setdefault(example.relation, []).append(example)
        turns = zip_longest(*by_relation.values())
        mixed = [e for e in chain.from_iterable(turns) if e is not None]
        if len(mixed) < size:
            raise DataError(
                f"{name}_questions={size}: only {len(mixed)} questions are left for "
                f"this split of {len(examples)}; ask for fewer"
            )
        splits[name] = mixed[:size]
        rng.shuffle(splits[name])
    refuse_overlap(splits)
    return splits


def split_prompts(
    examples: Sequence[Example], sizes: Mapping[str, int], seed: int = 0
) -> dict[str, list[Example]]:
    """Splits of the given sizes, drawn at random, no entity or text in two of them.

    Unlike `split_by_entity` it keeps the mix of kinds as it is.
    Raises DataError if there are too few examples.
    """
    order = list(examples)
    random.Random(f"prompts {seed}").shuffle(order)
    splits: dict[str, list[Example]] = {}
    owner: dict[str, str] = {}  # of an entity or a text
    taken: set[str] = set()  # ids
    for name, size in sizes.items():
        split: list[Example] = []
        for example in order:
            keys = (example.entity.casefold(), example.question.casefold())
            free = example.id not in taken and {owner.get(k, name) for k in keys}
            if len(split) < size and free == {name}:
                split.append(example)
                owner |= dict.fromkeys(keys, name)
                taken.add(example.id)
        if len(split) < size:
            raise DataError(
                f"{name}={size}: only {len(split)} of {len(examples)} prompts are left "
                "for this split; ask for fewer"
            )
        splits[name] = split
    refuse_overlap(splits)
    return splits


def first_of_each(examples: Sequence[Example], n: int) -> list[Example]:
    """The first n examples of each relation, in their order."""
    seen: Counter = Counter()
    chosen = []
    for example in examples:
        seen[example.relation] += 1
        if seen[example.relation] <= n:
            chosen.append(example)
    return chosen


def _fill_up(
    owner: dict[str, str],
    members: Mapping[str, int],
    sizes: Mapping[str, int],
    seed: int,
) -> None:
    """Give groups of splits with questions to spare to the splits that lack some."""
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
    """Each entity's group: the entities that share a question, by one of their names.

    A published set may hold a question twice, about two entities.
    """
    group: dict[str, str] = {}
    first: dict[str, str] = {}

    def top(entity: str) -> str:
        while group.setdefault(entity, entity) != entity:
            entity = group[entity]
        return entity

    for example in examples:
        entity = example.entity.casefold()
        other = first.setdefault(example.question.casefold(), entity)
        group[top(entity)] = top(other)
    return {entity: top(entity) for entity in group}
