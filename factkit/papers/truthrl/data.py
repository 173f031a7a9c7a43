"""TruthRL's questions and the references that are retrieved for them (§4.1, App. C)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from factkit.data import pages, sources
from factkit.data.bm25 import CorpusIndex, PromptIndex, answer_in_chunks
from factkit.data.corpus import Chunk, chunk_documents
from factkit.data.dense import DenseIndex, Encoder
from factkit.data.entry_index import cached_index
from factkit.data.examples import Example
from factkit.facts.source import open_source
from factkit.run.params.stages import QuestionParams

Search = Callable[[Sequence[Example]], list[list[Chunk]]]


# ---- questions


def questions(p: QuestionParams) -> tuple[list[Example], Counter]:
    """The questions that `p.questions` names, and how many were dropped for what."""
    if p.questions in sources.SOURCES:
        return sources.load(p.questions, p.questions_path, all_splits=True)
    return open_source(p.questions, p).questions()


# ---- references


def with_references(
    sets: Mapping[str, Sequence[Example]], p: QuestionParams, tokenizer
) -> dict[str, list[Example]]:
    """The sets, each example with the top chunks for its question in its meta.

    A set is of the benchmark whose name it has, any other one of `p.questions`. CRAG's
    questions have web pages of their own; those of the other benchmarks are searched
    for in Wikipedia of 2018; the fact world and the leads are their own corpora.
    `meta["references"]` holds a chunk a line, best first; `answer_in_references` says
    whether an answer occurs there: not every reference helps. Without `p.retriever`
    nothing is added.
    """
    if not p.retriever:
        return {name: list(examples) for name, examples in sets.items()}
    search = cache(lambda source: _searcher(source, p, tokenizer))
    given = {}
    for name, examples in sets.items():
        source = name if name in sources.SOURCES else p.questions
        if source in sources.SOURCES and source != "crag":
            source = "wikipedia"
        pairs = zip(examples, search(source)(examples), strict=True)
        given[name] = [_referring(example, chunks) for example, chunks in pairs]
    return given


def _referring(example: Example, chunks: Sequence[Chunk]) -> Example:
    more = {
        "references": "\n".join(" ".join(chunk.text.split()) for chunk in chunks),
        "answer_in_references": answer_in_chunks(example.answers, chunks),
    }
    return example.model_copy(update={"meta": example.meta | more})


def _searcher(source: str, p: QuestionParams, tokenizer) -> Search:
    """Examples → each one's best chunks, at most `p.retrieved_chunks`.

    source: crag, whose questions' own pages BM25 ranks, or what is ranked by BM25 or by
    `p.encoder`, as `p.retriever` says: world, leads, or Wikipedia of 2018 (App. C).
    """
    k = p.retrieved_chunks
    if source == "crag":
        path = p.questions_path if p.questions == source else ""
        of_question = pages.crag_pages(path)

        def of_own_pages(example: Example) -> list[Chunk]:
            own = chunk_documents(
                of_question.get(example.id, []), tokenizer, p.chunk_tokens
            )
            return [hit.chunk for hit in PromptIndex(own).search(example.question, k)]

        return lambda examples: [of_own_pages(example) for example in examples]
    if source == "wikipedia":  # of 21 million passages never all are in memory
        chunks = pages.Passages(p.wikipedia_path)
        key = chunks.key
    else:
        chunks, key = open_source(source, p).passages(tokenizer, p.chunk_tokens), ""
    if p.retriever == "e5":
        dense = DenseIndex(chunks, Encoder(p.encoder), key)
        return lambda examples: [
            [hit.chunk for hit in hits]
            for hits in dense.search_all([e.question for e in examples], k)
        ]
    index = cached_index(chunks, key, source) if key else CorpusIndex(chunks)
    return lambda examples: [
        [hit.chunk for hit in index.search(e.question, k)] for e in examples
    ]
