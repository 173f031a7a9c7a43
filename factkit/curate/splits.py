"""Splits by entity, with a balanced mix of relations."""

import random
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from factkit.datasets.examples import DataError, Example, refuse_overlap


def split_by_entity(
    examples: Sequence[Example], sizes: Mapping[str, int], seed: int = 0
) -> dict[str, list[Example]]:
    """Splits of the given sizes, no entity in two of them, relations mixed evenly.

    Entities are dealt to the splits at random in proportion to `sizes`; each split
    then takes one question of every relation in turn until it is full.
    Raises DataError if there are too few questions.
    """
    rng = random.Random(f"split {seed}")
    entities = sorted({e.entity.casefold() for e in examples})
    owners = rng.choices(list(sizes), weights=list(sizes.values()), k=len(entities))
    owner = dict(zip(entities, owners, strict=True))
    splits = {}
    for name, size in sizes.items():
        pool = [e for e in examples if owner[e.entity.casefold()] == name]
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
