"""Questions and requests made into splits that share no entity, and their evidence.

The small profiles of papers 3 and 4 ask of people of the fact world, or of leads.
"""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import assets, corpus
from factkit.corpus import Document
from factkit.datasets import world_prompts
from factkit.datasets.examples import (
    MAX_QUESTION_CHARS,
    DataError,
    Example,
    refuse_overlap,
)
from factkit.datasets.rows import Loaded
from factkit.datasets.world_prompts import COUNTED, OPEN
from factkit.leads import facts, requests
from factkit.retrieval import evidence
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.chunks import Chunk
from factkit.verify import judge
from factkit.verify.replies import Form, read, word
from factkit.world import facts as world

if TYPE_CHECKING:
    from factkit.llm import LLM
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


# ---- splits


def split_by_entity(
    examples: Sequence[Example],
    sizes: Mapping[str, int],
    seed: int = 0,
    relations: Collection[str] = (),
    even: bool = True,
) -> Sets:
    """Splits of the given sizes, no entity and no question in two of them.

    Entities are dealt to the splits at random in proportion to `sizes`; those that
    share a question go together, and a split that chance left short is filled up from
    those that have more than they need. even: each split takes one question of every
    relation in turn until it is full, else any; of `relations` alone if some are named:
    no entity changes its split by that. Raises DataError if there are too few.
    """
    rng = random.Random(f"split {seed}")
    group = _together(examples)
    groups = sorted(set(group.values()))
    owners = rng.choices(list(sizes), weights=list(sizes.values()), k=len(groups))
    owner = dict(zip(groups, owners, strict=True))
    _fill_up(owner, Counter(group[e.entity.casefold()] for e in examples), sizes, seed)
    splits = {}
    for name, size in sizes.items():
        pool = [e for e in examples if owner[group[e.entity.casefold()]] == name]
        pool = [e for e in pool if not relations or e.relation in relations]
        rng.shuffle(pool)
        by_relation: dict[str, list[Example]] = {}
        for example in pool:
            by_relation.setdefault(even and example.relation, []).append(example)
        turns = chain.from_iterable(zip_longest(*by_relation.values()))
        splits[name] = [e for e in turns if e is not None][:size]
        if len(splits[name]) < size:
            raise DataError(
                f"{name}={size}: only {len(pool)} of {len(examples)} prompts are left "
                "for this split; ask for fewer"
            )
        rng.shuffle(splits[name])
    refuse_overlap(splits)
    return splits


# as they come: the mix of relations is kept
split_prompts = partial(split_by_entity, even=False)


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
        group[top(entity)] = top(first.setdefault(example.question.casefold(), entity))
    return {entity: top(entity) for entity in group}


# ---- the sets of the small profiles; `meta["set"]` names the evaluation set


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
    rest = people[n_test + n_dev :]

    def of(part: Sequence[str], *kinds: str, n: int) -> list[Example]:
        """n requests of these kinds, or as many as there are."""
        every = [
            in_set(e, kind)
            for kind in kinds
            for e in world_prompts.requests(made, part, kind)
        ]
        return random.Random("some").sample(every, min(n, len(every)))

    wanted = training_sizes(p)
    sets, begin, total = {}, 0, 0
    for name, n in wanted.items():
        total += n
        end = round(len(rest) * total / sum(wanted.values()))
        sets[name] = of(rest[begin:end], OPEN, COUNTED, n=n)
        begin = end
    dev = people[n_test : n_test + n_dev]
    sets["dev"] = of(dev, OPEN, COUNTED, n=p.dev_requests)
    sets["test"] = []
    for kind in (OPEN, COUNTED):
        sets["test"] += of(people[:n_test], kind, n=p.test_requests)
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
    path = Path(p.requests_path) / FILES.get(name, f"{name}.jsonl")
    return str(path) if p.requests_path and path.exists() else ""


# ---- the filter for requests that ask for facts which can be checked


class Factual(Form):
    """The form of the filter's reply."""

    reason: str = ""
    label: word("yes", "no")


def keep_factual(llm: "LLM", examples: Sequence[Example]) -> Loaded:
    """The prompts that ask for facts which can be checked, by an LLM (Binary RAR §4.2,
    App. D).

    Returns them and how many were kept, not factual, or failed: where the LLM gave no
    readable answer the prompt is dropped, too, but counted as failed.
    """
    fields = [
        {"prompt": e.question, "response": "".join(e.answers[:1])[:MAX_QUESTION_CHARS]}
        for e in examples
    ]
    replies = judge.ask(llm, "filter_factual", fields, Factual, 128, "filtering")
    labels = [getattr(read(reply, Factual), "label", "failed") for reply in replies]
    counts = Counter({"kept": labels.count("yes"), "not factual": labels.count("no")})
    counts["failed"] = labels.count("failed")
    return [e for e, x in zip(examples, labels, strict=True) if x == "yes"], counts


# ---- the evidence of a run's requests


def wanting(sets: Mapping[str, Sequence[Example]]) -> list[Example]:
    """The requests whose answers are held against evidence: all of train, and of the
    others the open ones, since short answers are held against their references."""
    return [
        example
        for name, rows in sets.items()
        for example in rows
        if name == "train" or example.meta["kind"] == OPEN
    ]


def gather(
    p: "RequestParams",
    examples: Sequence[Example],
    own: Mapping[str, str] | None = None,
) -> tuple[dict[str, list[Document]], Counter[str]]:
    """Each request's documents, at most p.pages, and how many requests had which fate.

    own: request id → the base policy's answer, which is searched for where a request
    has no reference. With p.search_url from the web (Binary RAR App. C), else from the
    embedded corpus, the documents that state the answer first.
    """
    own = own or {}
    examples = [
        e if any(e.answers) else e.model_copy(update={"answers": [own.get(e.id, "")]})
        for e in examples
    ]
    if p.search_url:
        from factkit import web

        return web.run_online(
            examples,
            p.search_url,
            assets.cache_dir() / "web",
            pages=p.pages,
            at_least=p.least_pages,
        )
    if p.requests == "world":
        made = world.build_world(people=p.world_people, seed=p.world_seed)
        every = world.documents(made)
    else:  # each lead after its title: a chunk is to say whom it is about
        every = [
            Document(d.id, d.title, f"{d.title}: {d.text}", d.source)
            for d in corpus.load_leads()
        ]
    documents = {d.id: d for d in every}
    index = CorpusIndex([Chunk(d.id, d.id, d.text, 0) for d in every])
    return evidence.build_offline(examples, index, documents, p.pages, p.least_pages)
