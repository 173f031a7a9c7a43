"""Documents, the sources of questions and evidence, and their chunks."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from factkit.data import assets

LEADS_CREDIT = "Wikipedia, CC BY-SA 4.0"
LEAD_FIELDS = ("title", "extract", "description", "topic")

# No-break and narrow spaces become plain ones; invisible joiners, which the leads have
# beside dashes and signs, are removed: they would split a word in two.
_SPACES = str.maketrans(
    dict.fromkeys("\u00a0\u202f\u2009\u200a", " ") | dict.fromkeys("\u2060\u200d", "")
)


@dataclass(frozen=True)
class Document:
    """A text with its title and credit; `meta`: further fields of the source."""

    id: str
    title: str
    text: str
    source: str
    meta: dict = field(default_factory=dict)


def load_leads() -> list[Document]:
    """The leads of English Wikipedia's vital articles, in the file's order.

    The asset `wikipedia-leads` has 10,033 documents. A document's id is its title, its
    text the extract; meta has description (may be empty) and topic. Raises AssetError
    if the file is missing or is not the pinned one.
    """
    documents = []
    rows = json.loads(assets.verified("wikipedia-leads").read_bytes())
    for row in rows.values():
        title, text, description, topic = (
            row[field].translate(_SPACES).strip() for field in LEAD_FIELDS
        )
        meta = {"description": description, "topic": topic}
        documents.append(Document(title, title, text, LEADS_CREDIT, meta))
    return documents


# ---- chunks

Tokenizer = Callable[..., Mapping[str, Any]]  # a fast transformers tokenizer, or alike


@dataclass(frozen=True)
class Chunk:
    """A piece of a document: an exact substring of its text, `n_tokens` tokens long."""

    id: str
    doc_id: str
    text: str
    n_tokens: int


@dataclass(frozen=True)
class Hit:
    """A chunk that a search found, with its score: BM25's, > 0, or a cosine."""

    chunk: Chunk
    score: float


def format_chunks(chunks: Iterable[Chunk]) -> str:
    """Chunks as a policy reads and cites them, one per line: `[[id]]: text`."""
    return "\n".join(f"[[{chunk.id}]]: {chunk.text}" for chunk in chunks)


class Index(Protocol):
    """An index: `CorpusIndex`, `PromptIndex` or `EntryIndex`."""

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best chunks, best first."""


def chunk_documents(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    chunk_tokens: int,
    overlap: int = 0,
) -> list[Chunk]:
    """Cut documents into chunks of at most `chunk_tokens` of the tokenizer's tokens.

    `tokenizer` is a fast transformers tokenizer; the cuts are at its offsets, so that a
    chunk is an exact substring and, without overlap, a document's chunks joined are its
    text. Consecutive chunks share `overlap` tokens. A character of several tokens
    (byte-level vocabularies) is never cut: such a chunk or overlap is a token or two
    shorter. Tokens are counted in the whole document. Ids are `<doc_id>#<i>`; a
    document without tokens has no chunk. Raises ValueError if overlap is not in
    [0, chunk_tokens), or a character has more than chunk_tokens tokens.
    """
    if not 0 <= overlap < chunk_tokens:
        raise ValueError(f"overlap={overlap}: must be in [0, {chunk_tokens=})")
    documents = list(documents)
    if not documents:
        return []
    offsets = tokenizer(
        [d.text for d in documents],
        add_special_tokens=False,
        return_offsets_mapping=True,
        verbose=False,
    )["offset_mapping"]
    return [
        Chunk(f"{document.id}#{i}", document.id, document.text[start:end], n_tokens)
        for document, spans in zip(documents, offsets, strict=True)
        for i, (start, end, n_tokens) in enumerate(
            _cut(spans, len(document.text), chunk_tokens, overlap)
        )
    ]


def _cut(
    spans: Sequence[tuple[int, int]], length: int, size: int, overlap: int
) -> list[tuple[int, int, int]]:
    """Chunks as (first character, end character, tokens), from the tokens' spans.

    A chunk ends at the first character of the next token, so that whitespace outside of
    tokens is kept.
    """
    n, pieces, start = len(spans), [], 0
    ends = list(itertools.accumulate((end for _, end in spans), max, initial=0))
    # a cut before token i falls between two characters
    may_cut = [spans[i][0] >= ends[i] for i in range(n)] + [True]
    while start < n:
        stop = min(start + size, n)
        while not may_cut[stop]:
            stop -= 1
        if stop <= start:
            raise ValueError(f"{size} tokens a chunk: one character takes more")
        first = spans[start][0] if start else 0
        end = spans[stop][0] if stop < n else length
        pieces.append((first, end, stop - start))
        if stop == n:
            break
        start = max(stop - overlap, start + 1)
        while not may_cut[start]:
            start += 1
    return pieces
