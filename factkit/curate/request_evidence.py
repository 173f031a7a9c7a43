"""The evidence of a run's requests: from the fact world, the leads, or the web."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from factkit import assets, corpus
from factkit.corpus import Document
from factkit.datasets.examples import Example
from factkit.datasets.world_prompts import OPEN
from factkit.retrieval import evidence
from factkit.retrieval.bm25 import CorpusIndex
from factkit.retrieval.chunks import Chunk
from factkit.verify.response import answers
from factkit.world import facts as world

if TYPE_CHECKING:
    from factkit.curate.drawn import Drawn
    from factkit.params.stages import RequestParams
    from factkit.rar.arms import RarParams
    from factkit.verify.exact import ExactEngine


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
    examples = [
        e
        if any(e.answers)
        else e.model_copy(update={"answers": [(own or {}).get(e.id, "")]})
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
            progress="evidence",
        )
    documents = embedded_documents(p)
    chunks = [Chunk(d.id, d.id, d.text, 0) for d in documents]
    by_id = {d.id: d for d in documents}
    index = CorpusIndex(chunks)
    return evidence.build_offline(examples, index, by_id, p.pages, p.least_pages)


def embedded_documents(p: "RequestParams") -> list[Document]:
    """The documents of the fact world, or the leads.

    A lead begins with its title: a chunk is to say whom it is about.
    """
    if p.requests == "world":
        made = world.build_world(people=p.world_people, seed=p.world_seed)
        return world.documents(made)
    return [
        Document(d.id, d.title, f"{d.title}: {d.text}", d.source)
        for d in corpus.load_leads()
    ]


def coverage_by_chunks(
    engine: "ExactEngine",
    found: evidence.Evidence,
    examples: Sequence[Example],
    drawn: Sequence["Drawn"],
    tokenizer,
    p: "RarParams",
) -> dict[tuple[bool, int], evidence.Coverage]:
    """How often retrieval finds what an error contradicts, in the fact world (A.3).

    Of responses drawn for examples, row by row, by whether the request is in the query
    and by how many chunks are retrieved: 1 … p.whole_chunks.
    """
    cache = evidence.EvidenceCache(found, tokenizer, p.whole_chunk_tokens)
    wrong = [
        (example, response, errors)
        for example, of in zip(examples, drawn, strict=True)
        for response in answers(of.responses)
        if (errors := _errors(engine, example.id, response))
    ]
    table = {}
    for asked in (True, False):
        hits = [
            cache.search(
                e.id, evidence.query_of(e.question, response, asked), p.whole_chunks
            )
            for e, response, _ in wrong
        ]
        for k in range(1, p.whole_chunks + 1):
            rows = ((of[2], h[:k]) for of, h in zip(wrong, hits, strict=True))
            table[asked, k] = evidence.coverage(rows)
    return table


def _errors(engine: "ExactEngine", prompt_id: str, response: str) -> list[list[str]]:
    """Of each claim that the world contradicts, the documents that do so."""
    stated = engine.claims(prompt_id, response)
    documents = (
        evidence.contradicting_documents(engine.facts.world, claim.text)
        for claim in stated
    )
    return [ids for ids in documents if ids]
