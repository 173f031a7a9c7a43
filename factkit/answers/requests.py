"""The small profiles' requests, the filter for factual ones, and their evidence.

Small profiles ask of people of the fact world, or of leads.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.data import corpus, evidence
from factkit.data.bm25 import CorpusIndex
from factkit.data.corpus import Chunk, Document, Index
from factkit.data.examples import (
    COUNTED,
    MAX_QUESTION_CHARS,
    OPEN,
    Example,
    split_in_shares,
)
from factkit.data.sources import Loaded
from factkit.data.splits import Sets, in_set
from factkit.facts.leads import facts, requests
from factkit.facts.world import facts as world
from factkit.facts.world import requests as world_requests
from factkit.run import files
from factkit.verify import judge
from factkit.verify.judge import Form, free, word

if TYPE_CHECKING:
    from factkit.run.params.stages import RequestParams
    from factkit.verify.llm import LLM

Source = tuple[Index, Mapping[str, Document]]  # of evidence: its search, its documents

TEST_SHARE, DEV_SHARE = 0.3, 0.1  # of the fact world's people
# in p.requests_path; any other set may be there as <name>.jsonl
FILES = {
    "longfact": "longfact",
    "longfact_objects": "longfact",
    "biography": "prompt_entities.txt",
    "hotpotqa": "hotpotqa.json",
    "squad_v2": "squad_v2.json",
}

# ---- the sets of the small profiles; `meta["set"]` names the evaluation set


def people_of(
    p: "RequestParams", dev_share: float = DEV_SHARE, familiar: bool = False
) -> tuple[world.World, list[str], list[str], list[str]]:
    """The fact world, and whom its test, dev and training requests are about.

    familiar: only people whom the policy read of.
    """
    made = world.build_world(people=p.world_people, seed=p.world_seed)
    people = [
        s
        for s in made.people
        if not familiar or any(f.exposure for f in made.facts_of(s))
    ]
    random.Random(f"people {p.world_seed}").shuffle(people)
    test = round(TEST_SHARE * len(people))
    dev = test + round(dev_share * len(people))
    return made, people[:test], people[test:dev], people[dev:]


def world_sets(p: "RequestParams", familiar: bool = False) -> Sets:
    """Requests to tell of people, and for a number of facts: each an evaluation set.

    familiar: as `people_of` has it. The training splits share the people that dev and
    test leave, in the ratio of their requests; test holds p.test_requests of each set.
    """
    made, test, dev, rest = people_of(p, familiar=familiar)
    kinds = OPEN, COUNTED

    def drawn(people: Sequence[str], n: int, *kinds: str) -> list[Example]:
        """n requests of these kinds, or as many as there are."""
        every = [
            in_set(e, kind)
            for kind in kinds
            for e in world_requests.requests(made, people, kind)
        ]
        return random.Random("some").sample(every, min(n, len(every)))

    sizes = training_sizes(p)
    parts = split_in_shares(rest, sizes) | {"dev": dev}
    sizes["dev"] = p.dev_requests
    sets = {name: drawn(part, sizes[name], *kinds) for name, part in parts.items()}
    sets["test"] = [e for kind in kinds for e in drawn(test, p.test_requests, kind)]
    return sets


def lead_sets(p: "RequestParams") -> Sets:
    """Requests about the leads' subjects. Those about people, and about all else, are
    two evaluation sets with p.test_requests each, or as many as there are."""
    sizes = {"test": 2 * p.test_requests, "dev": p.dev_requests, **training_sizes(p)}
    parts = requests.split(facts.load(), sizes, p.split_seed)
    tests = requests.requests(parts.pop("test"), OPEN)
    sets = {k: requests.mixed(part, sizes[k]) for k, part in parts.items()}
    people = [e for e in tests if e.meta["topic"] == "people"][: p.test_requests]
    other = [e for e in tests if e.meta["topic"] != "people"][: p.test_requests]
    sets["test"] = people + other
    return {
        name: [
            in_set(e, "people" if e.meta["topic"] == "people" else "other")
            for e in examples
        ]
        for name, examples in sets.items()
    }


def training_sizes(p: "RequestParams") -> dict[str, int]:
    """Split → requests, of the splits that are trained on."""
    names = [name for name in p.splits if name not in ("dev", "test")]
    return {name: getattr(p, f"{name}_requests") for name in names}


def file_of(p: "RequestParams", name: str) -> str:
    """Where p.requests_path has the rows of a set; "" for the hub."""
    path = Path(p.requests_path) / FILES.get(name, f"{name}.jsonl")
    return str(path) if p.requests_path and path.exists() else ""


# ---- the filter for requests that ask for facts which can be checked


class Factual(Form):
    """The form of the filter's reply."""

    reason: free(200) = ""
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
    labels = [getattr(reply, "label", "failed") for reply in replies]
    counts = Counter({"kept": labels.count("yes"), "not factual": labels.count("no")})
    counts["failed"] = labels.count("failed")
    return [e for e, x in zip(examples, labels, strict=True) if x == "yes"], counts


# ---- the evidence of a run's requests


def gather(
    p: "RequestParams",
    examples: Sequence[Example],
    own: Mapping[str, str] | None = None,
    source: Source | None = None,
) -> tuple[dict[str, list[Document]], Counter[str]]:
    """Each request's documents, at most p.pages, and how many requests had which fate.

    own: request id → the base policy's answer, which is searched for where a request
    has no reference. With p.search_url from the web (Binary RAR App. C), else from the
    source or the embedded corpus, the documents that state the answer first.
    """
    own = own or {}
    examples = [
        e if any(e.answers) else e.model_copy(update={"answers": [own.get(e.id, "")]})
        for e in examples
    ]
    if p.search_url:
        from factkit.data import web

        cache, limits = files.cache_dir() / "web", (p.pages, p.least_pages)
        return web.run_online(examples, p.search_url, cache, *limits)
    index, documents = source or _embedded(p)
    return evidence.build_offline(examples, index, documents, p.pages, p.least_pages)


def _embedded(p: "RequestParams") -> Source:
    if p.requests == "world":
        every = world.documents(people_of(p)[0])
    else:  # each lead after its title: a chunk is to say whom it is about
        every = [
            Document(d.id, d.title, f"{d.title}: {d.text}", d.source)
            for d in corpus.load_leads()
        ]
    documents = {d.id: d for d in every}
    return CorpusIndex([Chunk(d.id, d.id, d.text, 0) for d in every]), documents
