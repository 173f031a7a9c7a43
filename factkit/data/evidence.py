"""The per-prompt document cache DS_cache(x) of Binary RAR.

Ours: it is built from an embedded corpus, whose documents are always reliable;
`factkit.data.web` builds it from the web, as the paper does.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, Field

from factkit.data.bm25 import PromptIndex
from factkit.data.corpus import Document, Hit, Index, Tokenizer, chunk_documents
from factkit.data.examples import DataError, Example, read_rows, write_rows

Evidence = Mapping[str, Sequence[Document]]  # prompt id → its documents

# the fates of a prompt when its evidence is built
KEPT, TOO_FEW, NO_REFERENCE = "kept", "too few documents", "no reference response"


class _Row(BaseModel, extra="forbid"):
    id: str = Field(min_length=1)
    documents: list[Document] = Field(min_length=1)


def write_evidence(path: Path, evidence: Evidence) -> None:
    """Write rows {id, documents}, one per prompt.

    A document is {id, title, text, source}, without its `meta`.
    """
    fields = ("id", "title", "text", "source")
    rows = (
        {"id": i, "documents": [{f: getattr(d, f) for f in fields} for d in documents]}
        for i, documents in evidence.items()
    )
    write_rows(path, rows)


def read_evidence(path: Path) -> dict[str, list[Document]]:
    """Read what `write_evidence` wrote: prompt id → documents.

    Raises DataError as `read_rows`, and if a row repeats a prompt.
    """
    evidence: dict[str, list[Document]] = {}
    for number, row in enumerate(read_rows(path, _Row), start=1):
        if row.id in evidence:
            raise DataError(f"{path}, row {number}: id {row.id!r} is an earlier row's")
        evidence[row.id] = row.documents
    return evidence


class EvidenceCache:
    """DS_cache(x): each prompt's documents, searched by BM25 (Binary RAR §3.3, App. C).

    tokenizer: the policy's, a fast one; chunk_tokens: the length of a chunk. A prompt's
    index is built at its first search; the last 256 stay in memory.
    """

    def __init__(
        self, evidence: Evidence, tokenizer: Tokenizer, chunk_tokens: int
    ) -> None:
        self.evidence = evidence

        def index(prompt_id: str) -> PromptIndex:
            pages = evidence[prompt_id]
            return PromptIndex(chunk_documents(pages, tokenizer, chunk_tokens))

        self._index = lru_cache(maxsize=256)(index)

    def search(self, prompt_id: str, query: str, k: int) -> list[Hit]:
        """The prompt's k best chunks, best first; fewer if fewer share a word.

        Raises DataError for a prompt without evidence, ValueError if k < 1.
        """
        if prompt_id not in self.evidence:
            raise DataError(
                f"no evidence for prompt {prompt_id!r} (it is there for "
                f"{len(self.evidence)} prompts); build it for this data set"
            )
        return self._index(prompt_id).search(query, k)


def query_of(prompt: str, response: str, with_prompt: bool = True) -> str:
    """The query of C(x, y): prompt and response (Binary RAR §3.3).

    with_prompt=False: the response only, as in the paper's public code.
    """
    return f"{prompt}\n{response}" if with_prompt else response


def build_offline(
    examples: Iterable[Example],
    index: Index,
    documents: Mapping[str, Document],
    pages: int,
    at_least: int,
) -> tuple[dict[str, list[Document]], Counter[str]]:
    """Each prompt's documents from a corpus, and how many prompts had which fate.

    An example's `evidence` comes first, then the documents of the chunks that `index`
    ranks best for question and reference response (`answers[0]`), `pages` in total. An
    example with fewer than `at_least`, or without reference, is left out. documents:
    id → document, of the corpus of `index`. Ours; Binary RAR App. C searches the web.
    Raises DataError for an id that repeats, KeyError for an example's document that is
    not in `documents`.
    """
    evidence: dict[str, list[Document]] = {}
    counts = Counter({KEPT: 0, TOO_FEW: 0, NO_REFERENCE: 0})
    for example in check_ids(examples):
        if not (reference := reference_of(example)):
            counts[NO_REFERENCE] += 1
            continue
        best = _best_documents(index, query_of(example.question, reference), pages)
        ids = list(dict.fromkeys([*example.evidence, *best]))[:pages]
        counts[KEPT if len(ids) >= at_least else TOO_FEW] += 1
        if len(ids) >= at_least:
            evidence[example.id] = [documents[i] for i in ids]
    return evidence, counts


def check_ids(examples: Iterable[Example]) -> list[Example]:
    """The examples as a list. Raises DataError if two have the same id."""
    examples = list(examples)
    for example_id, n in Counter(e.id for e in examples).items():
        if n > 1:
            raise DataError(f"example {example_id!r} occurs {n} times; keep one")
    return examples


def reference_of(example: Example) -> str:
    """The reference response; "" if there is none."""
    return example.answers[0].strip() if example.answers else ""


def _best_documents(index: Index, query: str, n: int) -> list[str]:
    """The ids of the n documents with the best chunks, best first."""
    k = n
    while True:
        hits = index.search(query, k)
        ids = list(dict.fromkeys(hit.chunk.doc_id for hit in hits))
        if len(ids) >= n or len(hits) < k:
            return ids[:n]
        k *= 2  # several chunks were of one document
