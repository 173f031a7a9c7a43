"""Chunks of documents, and the search among them by BM25.

Two libraries, one BM25 ranking. `bm25s` scores every word of every chunk once, when the
index is built, and then adds up columns: for a corpus that is asked often. `rank-bm25`
keeps word counts and scores at query time: for a handful of pages, built per prompt.
Both run BM25 with ATIRE's term frequency and BM25+'s always positive idf,

    score(q, d) = Σ_w∈q ln((N + 1) / n) · f (k1 + 1) / (f + k1 (1 - b + b |d| / L))

with N chunks of L words on average, n of them with word w, and f counts of w in d. The
idf of Okapi turns negative for a word in more than half of the chunks, which is every
interesting word of five pages on one subject; each library mends that in its own way.

`factkit.dense` ranks by a text encoder's embeddings instead.
"""

import hashlib
import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from factkit import assets
from factkit.corpus import Document
from factkit.datasets.examples import Example

K1, B = 1.5, 0.75
# Part of the cache key: raise it whenever `tokenize` or the scoring changes.
INDEX_VERSION = 1
ARTICLES = frozenset(("a", "an", "the"))

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Chunk:
    """A piece of a document: an exact substring of its text, `n_tokens` tokens long."""

    id: str
    doc_id: str
    text: str
    n_tokens: int


@dataclass(frozen=True)
class Hit:
    """A chunk found, and its score without unit.

    By BM25 the chunk shares a word with the query and score > 0; a dense index gives
    any chunk's cosine, in [-1, 1] up to the rounding of float16.
    """

    chunk: Chunk
    score: float


def listed(chunks: Iterable[Chunk]) -> str:
    """Chunks as a policy reads and cites them, a line each: `[[id]]: text`."""
    return "\n".join(f"[[{chunk.id}]]: {chunk.text}" for chunk in chunks)


class Index(Protocol):
    """What searches: `CorpusIndex`, `PromptIndex` or `dense.DenseIndex`."""

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best chunks, best first."""


def chunk_documents(
    documents: Iterable[Document], tokenizer, chunk_tokens: int, overlap: int = 0
) -> list[Chunk]:
    """Cut documents into chunks of at most `chunk_tokens` of the tokenizer's tokens.

    `tokenizer` is a fast transformers tokenizer; its offsets decide where to cut, so
    that a chunk is an exact substring and nothing is lost: without overlap a document's
    chunks joined give its text. Consecutive chunks share `overlap` tokens. Where a
    character is several tokens (byte-level vocabularies) it is never cut: such a chunk
    or overlap is a token or two shorter. Tokens are counted in the whole document.
    Ids are `<doc_id>#<i>`; a document without tokens gives no chunk.
    Raises ValueError if chunk_tokens < 1, overlap is not in [0, chunk_tokens), the
    tokenizer has no offsets, or one character takes more than chunk_tokens tokens.
    """
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens={chunk_tokens}; it must be at least 1")
    if not 0 <= overlap < chunk_tokens:
        raise ValueError(
            f"overlap={overlap}; it must be at least 0 and less than "
            f"chunk_tokens={chunk_tokens}"
        )
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"{type(tokenizer).__name__} gives no offsets; use a fast one")
    documents = list(documents)
    if not documents:
        return []
    offsets = tokenizer(
        [d.text for d in documents],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        truncation=False,
        padding=False,
        verbose=False,
    )["offset_mapping"]
    return [
        Chunk(f"{document.id}#{i}", document.id, document.text[start:end], n_tokens)
        for document, spans in zip(documents, offsets, strict=True)
        for i, (start, end, n_tokens) in enumerate(
            _cut(spans, len(document.text), chunk_tokens, overlap, document.id)
        )
    ]


def _cut(
    spans: Sequence[tuple[int, int]], length: int, size: int, overlap: int, doc_id: str
) -> list[tuple[int, int, int]]:
    """Chunks as (first character, end character, tokens), from the tokens' spans.

    A chunk reaches up to the first character of the token after it, so that whitespace
    which belongs to no token is kept.
    """
    n, pieces, start = len(spans), [], 0
    ends = np.maximum.accumulate([0] + [end for _, end in spans])
    # a cut before token i falls between two characters
    may_cut = [spans[i][0] >= ends[i] for i in range(n)] + [True]
    while start < n:
        stop = min(start + size, n)
        while not may_cut[stop]:
            stop -= 1
        if stop <= start:
            raise ValueError(
                f"chunk_tokens={size} is less than the tokens of one character: "
                f"{doc_id!r}, character {spans[start][0]}"
            )
        first = spans[start][0] if start else 0
        end = spans[stop][0] if stop < n else length
        pieces.append((first, end, stop - start))
        if stop == n:
            break
        start = max(stop - overlap, start + 1)
        while not may_cut[start]:
            start += 1
    return pieces


def tokenize(text: str) -> list[str]:
    """The words that both BM25 libraries see: casefolded, NFKC, no stemming.

    Stop words stay: leaving them out lowers the leads' recall@1 from 0.77 to 0.75.
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


class CorpusIndex:
    """BM25 by `bm25s` over a whole corpus: slow to build once, fast to ask.

    With `cache` the index is kept in `assets.cache_dir()/bm25` under a hash of the
    chunks' texts and opened from there, memory-mapped, the next time.
    """

    def __init__(self, chunks: Iterable[Chunk], cache: bool = True):
        self.chunks = list(chunks)
        self._bm25 = _open_or_build(self.chunks, cache) if self.chunks else None

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best chunks, best first; ties in the chunks' order.

        Fewer than k, or none, where fewer chunks share a word with the query.
        Raises ValueError if k < 1.
        """
        return _best(self.chunks, self._bm25, query, k)


class PromptIndex:
    """BM25 by `rank-bm25` over a prompt's few pages: built at the first search.

    The same text gives the same ranking and the same scores as `CorpusIndex`.
    """

    def __init__(self, chunks: Iterable[Chunk]):
        self.chunks = list(chunks)

    @cached_property
    def _bm25(self):
        from rank_bm25 import BM25Plus

        words = [tokenize(chunk.text) for chunk in self.chunks]
        # delta only adds the same constant to every chunk's score
        return BM25Plus(words, k1=K1, b=B, delta=0) if any(words) else None

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best chunks, as `CorpusIndex.search`. Raises ValueError if k < 1."""
        return _best(self.chunks, self._bm25, query, k)


def _best(chunks: Sequence[Chunk], bm25, query: str, k: int) -> list[Hit]:
    """The k chunks to which either library gives the highest positive score."""
    if k < 1:
        raise ValueError(f"k={k}; it must be at least 1")
    words = tokenize(query)
    if bm25 is None or not words:
        return []
    scores = bm25.get_scores(words)  # (N,)
    found = np.flatnonzero(scores > 0)
    best = found[top_places(scores[found], k)]
    return [Hit(chunks[i], float(scores[i])) for i in best]


def top_places(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the k highest scores (N,), best first, ties in their order."""
    found = np.arange(len(scores))
    if len(scores) > k:
        # everything at or above the k-th score, so that ties are settled by order
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        found = np.flatnonzero(scores >= threshold)
    return found[np.argsort(-scores[found], kind="stable")][:k]


def index_hash(how: str, chunks: Iterable[Chunk]) -> str:
    """What an index is cached under: a hash of how it is made and the chunks' texts."""
    digest = hashlib.sha256(how.encode())
    for chunk in chunks:
        # the length keeps ["ab", "c"] and ["a", "bc"] apart
        digest.update(f"{len(chunk.text)} {chunk.text}".encode())
    return digest.hexdigest()[:32]


def _open_or_build(chunks: Sequence[Chunk], cache: bool):
    """The corpus's bm25s index, or None if no chunk has a word."""
    import bm25s

    how = f"{INDEX_VERSION} {bm25s.__version__} {K1} {B}"
    folder = assets.cache_dir() / "bm25" / index_hash(how, chunks)
    if cache and folder.is_dir():
        return bm25s.BM25.load(folder, mmap=True, show_progress=False)
    words = [tokenize(chunk.text) for chunk in chunks]
    if not any(words):
        return None
    bm25 = bm25s.BM25(k1=K1, b=B, method="atire", idf_method="bm25+", dtype="float64")
    bm25.index(words, create_empty_token=False, show_progress=False)
    if cache:
        _save(bm25, folder)
    return bm25


def _save(bm25, folder: Path) -> None:
    """Save an index so that a reader sees none or the whole of it."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    bm25.save(temporary, show_progress=False)
    try:
        temporary.rename(folder)
    except OSError:  # another process was first, with the same content
        shutil.rmtree(temporary)


def answer_in_chunks(answers: Sequence[str], chunks: Sequence[Chunk]) -> bool:
    """Whether an answer's words occur in a chunk, in a row: could retrieval help here?

    Words as `tokenize` gives them, without articles and diacritics. "yes" and "no"
    never count: they stand in a text by chance, as other very short answers may.
    """
    wanted = {_phrase(answer) for answer in answers} - {"", " yes ", " no "}
    texts = [_phrase(chunk.text) for chunk in chunks]
    return any(phrase in text for phrase in wanted for text in texts)


def _phrase(text: str) -> str:
    """A text's words without articles, each between two spaces; "" without words."""
    plain = "".join(
        c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)
    )
    words = [word for word in tokenize(plain) if word not in ARTICLES]
    return f" {' '.join(words)} " if words else ""


def recall_at_k(
    index: Index, examples: Sequence[Example], ks: Iterable[int]
) -> dict[int, float]:
    """The share of examples with a gold document among the top k chunks, for each k.

    An example's gold documents are its `evidence`, its query is its question.
    Raises ValueError without examples, or if one has no evidence.
    """
    ks = sorted(ks)
    if not examples or not ks:
        raise ValueError("recall needs at least one example and one k")
    for example in examples:
        if not example.evidence:
            raise ValueError(f"example {example.id} has no evidence to be found")
    found = dict.fromkeys(ks, 0)
    for example in examples:
        hits = index.search(example.question, ks[-1])
        gold = [hit.chunk.doc_id in example.evidence for hit in hits]
        for k in ks:
            found[k] += any(gold[:k])
    return {k: found[k] / len(examples) for k in ks}
