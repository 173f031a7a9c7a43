"""What Veri-R1's policy is asked about a claim, searches in, or is given with it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from factkit import prompts, runs
from factkit.datasets.examples import Example
from factkit.evaluate import read_rows, write_rows
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.chunks import Chunk, listed
from factkit.retrieval.entries import shown
from factkit.search import Search, in_process, over_http
from factkit.world.trajectories import marked, marking

if TYPE_CHECKING:
    from factkit.veri.arms import VeriParams

# ---- what is searched


def write_entries(path: Path, entries: Sequence[Chunk]) -> None:
    """Write entries as JSON lines, byte-equal for equal entries."""
    write_rows(path, map(asdict, entries))


def searcher(p: "VeriParams") -> Search:
    """What a policy searches with: the service at p.search_url, or BM25 over the
    entries that the data run wrote."""
    if p.search_url:
        return over_http(p.search_url)
    entries = runs.run_folder(p.data_notebook, p) / "entries.jsonl"
    search = in_process(CorpusIndex(read_rows(entries, Chunk)))
    return marking(search) if p.claims == "world" else search


# ---- prompts


def asked(examples: Sequence[Example], p: "VeriParams") -> list[str]:
    """Each claim's prompt for a policy that searches (Fig 9)."""
    text = prompts.template(p.prompt_template)
    return [prompts.fill(text, claim=e.question) for e in examples]


def asked_offline(
    examples: Sequence[Example], given: Mapping[str, Sequence[Chunk]], p: "VeriParams"
) -> list[str]:
    """Each claim's prompt with its evidence among other texts (Fig 10)."""
    text = prompts.template(p.offline_template)
    return [
        prompts.fill(text, claim=e.question, evidence=listed(given[e.id]))
        for e in examples
    ]


def given_offline(
    examples: Sequence[Example],
    entries: Sequence[Chunk],
    search: Search,
    p: "VeriParams",
) -> dict[str, list[Chunk]]:
    """Claim id → its gold evidence and what a search for the claim finds, in a random
    order: "contextual sentences" (§2.2). At least p.context_entries are searched for.
    """
    wanted = {i for e in examples for i in e.evidence}
    pieces = {c.id: c for entry in entries for c in shown(entry) if c.id in wanted}
    hits = [[] for _ in examples]
    if p.context_entries:
        hits = search([e.question for e in examples], p.context_entries)
    given = {}
    for example, others in zip(examples, hits, strict=True):
        gold = {i: pieces[i] for i in example.evidence}
        if p.claims == "world":
            texts = {i: marked(c.text, example.question) for i, c in gold.items()}
            gold = {i: replace(c, text=texts[i]) for i, c in gold.items()}
        context = {c.id: c for entry in others for c in shown(entry)}
        mixed = list((context | gold).values())
        random.Random(f"given {example.id}").shuffle(mixed)
        given[example.id] = mixed
    return given


@dataclass(frozen=True)
class _Given:
    id: str
    texts: list[Chunk]


def write_given(path: Path, given: Mapping[str, Sequence[Chunk]]) -> None:
    """Write JSON lines {id, texts}, a claim a line."""
    write_rows(path, (asdict(_Given(i, list(texts))) for i, texts in given.items()))


def read_given(path: Path) -> dict[str, list[Chunk]]:
    """What `write_given` wrote."""
    return {row.id: row.texts for row in read_rows(path, _Given)}
