"""Requests of the small profiles for papers 3 and 4: people of the fact world, leads.

No entity is in two splits. `meta["set"]` of a test request names the evaluation set
that it is of: two in the fact world, two of leads (ours). `file_of` is where the
profiles of the papers have theirs.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.datasets import world_prompts
from factkit.datasets.examples import Example
from factkit.datasets.world_prompts import COUNTED, OPEN
from factkit.leads import facts, requests
from factkit.world import facts as world
from factkit.world.facts import World

if TYPE_CHECKING:
    from factkit.params.stages import RequestParams

TEST_SHARE, DEV_SHARE = 0.3, 0.1  # of the fact world's people
# in p.requests_path; any other set may be there as <name>.jsonl
FILES = {
    "longfact": "longfact",
    "longfact_objects": "longfact",
    "biography": "prompt_entities.txt",
    "hotpotqa": "hotpotqa.json",
    "squad_v2": "squad_v2.json",
}

Sets = dict[str, list[Example]]


def world_sets(p: "RequestParams", familiar: bool = False) -> Sets:
    """Requests to tell of people, and for a number of facts: each an evaluation set.

    familiar: only of people whom the policy read of. The training splits share the
    people that dev and test leave, in the ratio of their requests; test holds
    p.test_requests of each set.
    """
    made = world.build_world(people=p.world_people, seed=p.world_seed)
    people = [
        s
        for s in made.people
        if not familiar or any(f.exposure for f in made.facts_of(s))
    ]
    random.Random(f"people {p.world_seed}").shuffle(people)
    n_test, n_dev = (round(s * len(people)) for s in (TEST_SHARE, DEV_SHARE))
    test, dev = people[:n_test], people[n_test : n_test + n_dev]
    rest = people[n_test + n_dev :]
    wanted = training_sizes(p)
    sets, begin, total = {}, 0, 0
    for name, n in wanted.items():
        total += n
        end = round(len(rest) * total / sum(wanted.values()))
        sets[name] = _mixed(made, rest[begin:end], n)
        begin = end
    sets["dev"] = _mixed(made, dev, p.dev_requests)
    sets["test"] = [
        example
        for kind in (OPEN, COUNTED)
        for example in _some(_of(made, test, kind), p.test_requests)
    ]
    return sets


def lead_sets(p: "RequestParams") -> Sets:
    """Requests about the leads' subjects. Those about people, and about all else, are
    two evaluation sets with p.test_requests each, or as many as there are."""
    sizes = {"test": 2 * p.test_requests, "dev": p.dev_requests, **training_sizes(p)}
    parts = requests.split(facts.load(), sizes, p.split_seed)
    test = _named(requests.requests(parts.pop("test"), OPEN))
    sets = {k: _named(requests.mixed(part, sizes[k])) for k, part in parts.items()}
    sets["test"] = [
        example
        for name in ("people", "other")
        for example in [e for e in test if e.meta["set"] == name][: p.test_requests]
    ]
    return sets


def _named(examples: Sequence[Example]) -> list[Example]:
    """The examples as of the set "people", or of all "other"."""
    return [
        in_set(e, "people" if e.meta["topic"] == "people" else "other")
        for e in examples
    ]


def training_sizes(p: "RequestParams") -> dict[str, int]:
    """Split → requests, of the splits that are trained on."""
    names = [name for name in p.splits if name not in ("dev", "test")]
    return {name: getattr(p, f"{name}_requests") for name in names}


def in_set(example: Example, name: str) -> Example:
    """The example as one of an evaluation set."""
    return example.model_copy(update={"meta": example.meta | {"set": name}})


def file_of(p: "RequestParams", name: str) -> str:
    """Where p.requests_path has the rows of a set; "" for the hub."""
    if not p.requests_path:
        return ""
    path = Path(p.requests_path) / FILES.get(name, f"{name}.jsonl")
    return str(path) if path.exists() else ""


def _mixed(made: World, people: Sequence[str], n: int) -> list[Example]:
    """n requests of both kinds, or as many as there are."""
    return _some([e for kind in (OPEN, COUNTED) for e in _of(made, people, kind)], n)


def _of(made: World, people: Sequence[str], kind: str) -> list[Example]:
    return [in_set(e, kind) for e in world_prompts.requests(made, people, kind)]


def _some(examples: list[Example], limit: int) -> list[Example]:
    return random.Random("some").sample(examples, min(limit, len(examples)))
