"""TruthRL's questions and the references that are retrieved for them (§4.1, App. C)."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from factkit.data import pages, sources
from factkit.data.bm25 import CorpusIndex, PromptIndex, answer_in_chunks
from factkit.data.corpus import Chunk, chunk_documents
from factkit.data.dense import DenseIndex, Encoder
from factkit.data.entry_index import cached_index
from factkit.data.examples import Example
from factkit.data.sources import Loaded
from factkit.facts.source import open_source
from factkit.papers.truthrl.withholding import withhold
from factkit.run.params.data import QuestionParams
from factkit.run.paths import from_root

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from factkit.policy.policy import Policy

Search = Callable[[Sequence[Example]], list[list[Chunk]]]


# ---- sources of questions


@dataclass(frozen=True)
class QuestionSource:
    """Where questions come from, and the corpus that their references come from.

    load: the questions, and how many were dropped for which reason. corpus: a name.
    make_search: tokenizer → a search of the corpus for each question's best chunks, at
    most `p.retrieved_chunks`. compares: it has comparison questions of its own.
    """

    load: Callable[[], Loaded]
    corpus: str
    make_search: Callable[..., Search]
    compares: bool = False

    def comparison_questions(self, test: Sequence[Example], n: int) -> list[Example]:
        """Test questions that offer the answer (Table 2): its own ones, or n made of
        test questions by `offer_answers`."""
        if self.compares:
            return [e for e in test if e.relation == "comparison"]
        return offer_answers(test, n)


def open_questions(p: QuestionParams, test_set: str = "") -> QuestionSource:
    """The source that `p.questions` names, or that of a further test set.

    CRAG's questions have web pages of their own; those of the other benchmarks are
    searched for in Wikipedia of 2018 (App. C); the fact world and the leads are their
    own corpora; a user's own questions come with the user's documents.
    """
    name = test_set or p.questions
    path = "" if test_set else from_root(p.questions_path)
    if name not in sources.SOURCES:
        facts = open_source(name, p)
        return QuestionSource(
            facts.questions,
            name,
            lambda tokenizer: _search(facts.passages(tokenizer, p.chunk_tokens), p),
        )
    load = partial(sources.load, name, path, all_splits=True)
    if name == "crag":
        search = partial(_search_own_pages, path, p)
        return QuestionSource(load, name, search, compares=True)
    return QuestionSource(load, "wikipedia", partial(_search_wikipedia, p))


def offer_answers(examples: Sequence[Example], n: int) -> list[Example]:
    """n of the questions, with the answer and another one on offer: "…, A or B?"

    The other one answers another question of the same relation.
    """
    by_relation: dict[str, list[str]] = {}
    for example in examples:
        by_relation.setdefault(example.relation, []).append(example.answers[0])
    rng = random.Random("offering 0")
    offers: list[Example] = []
    for example in examples:
        accepted = {answer.casefold() for answer in example.answers}
        answers = by_relation[example.relation]
        others = [answer for answer in answers if answer.casefold() not in accepted]
        if not others or len(offers) == n:
            continue
        choice = [example.answers[0], rng.choice(others)]
        rng.shuffle(choice)
        text = f"{example.question.rstrip('? ')}, {choice[0]} or {choice[1]}?"
        offers.append(example.model_copy(update={"question": text}))
    return offers


# ---- references


def withhold_evidence(
    examples: Sequence[Example], p: QuestionParams, tokenizer: "Tokenizer"
) -> list[Example]:
    """The questions whose top chunk states the answer, `p.withheld_evidence` of each
    relation with the answer cut out of it (`withhold`); all as they are if that is 0.
    """
    if not p.withheld_evidence:
        return list(examples)
    given = with_references({"": examples}, p, tokenizer)[""]
    return withhold(given, p.withheld_evidence)


def with_references(
    sets: Mapping[str, Sequence[Example]], p: QuestionParams, tokenizer: "Tokenizer"
) -> dict[str, list[Example]]:
    """The sets, each example with the top chunks for its question in its meta.

    A set of `p.eval_sets` is of that source, any other one of `p.questions`.
    `meta["references"]` holds one chunk per line, best first; `answer_in_references`
    says whether an answer occurs there. Without `p.retriever` nothing is added, and
    nothing to an example that has references already.
    """
    if not p.retriever:
        return {name: list(examples) for name, examples in sets.items()}
    searches: dict[str, Search] = {}  # by corpus
    with_chunks = {}
    for name, examples in sets.items():
        if all("references" in example.meta for example in examples):
            with_chunks[name] = list(examples)
            continue
        source = open_questions(p, name if name in p.eval_sets.split() else "")
        if source.corpus not in searches:
            searches[source.corpus] = source.make_search(tokenizer)
        rows = zip(examples, searches[source.corpus](examples), strict=True)
        with_chunks[name] = [_add_references(e, chunks) for e, chunks in rows]
    return with_chunks


def training_prompts(
    p: QuestionParams, examples: Sequence[Example], policy: "Policy"
) -> list[str]:
    """The prompts of training questions, with their references."""
    sets = with_references({"train": examples}, p, policy.tokenizer)
    return policy.format_prompts(sets["train"])


def _add_references(example: Example, chunks: Sequence[Chunk]) -> Example:
    meta = example.meta | {
        "references": "\n".join(" ".join(chunk.text.split()) for chunk in chunks),
        "answer_in_references": answer_in_chunks(example.answers, chunks),
    }
    return example.model_copy(update={"meta": meta})


def _search_wikipedia(p: QuestionParams, _: object) -> Search:
    passages = pages.Passages(
        from_root(p.wikipedia_path)
    )  # 21 million, never all in memory
    return _search(passages, p, passages.key)


def _search(chunks: Iterable[Chunk], p: QuestionParams, key: str = "") -> Search:
    """Search one corpus by BM25 or by `p.encoder`. key: of a stored index."""
    k = p.retrieved_chunks
    if p.retriever == "e5":
        dense = DenseIndex(chunks, Encoder(p.encoder), key)
        return lambda examples: [
            [hit.chunk for hit in hits]
            for hits in dense.search_all([e.question for e in examples], k)
        ]
    index = cached_index(chunks, key, "wikipedia") if key else CorpusIndex(chunks)
    return lambda examples: [
        [hit.chunk for hit in index.search(e.question, k)] for e in examples
    ]


def _search_own_pages(path: str, p: QuestionParams, tokenizer: "Tokenizer") -> Search:
    """Rank the chunks of each question's own pages by BM25."""
    documents = pages.crag_pages(path)

    def search(example: Example) -> list[Chunk]:
        own = documents.get(example.id, [])
        chunks = chunk_documents(own, tokenizer, p.chunk_tokens)
        hits = PromptIndex(chunks).search(example.question, p.retrieved_chunks)
        return [hit.chunk for hit in hits]

    return lambda examples: [search(example) for example in examples]
