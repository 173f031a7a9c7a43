"""The search among chunks by BM25.

Two libraries, one BM25 ranking. `bm25s` scores every word of every chunk once, when the
index is built, and then adds up columns: for a corpus that is asked often. `rank-bm25`
keeps word counts and scores at query time: for a handful of pages, built per prompt.
Both run BM25 with ATIRE's term frequency and BM25+'s always positive idf,

    score(q, d) = Σ_w∈q ln((N + 1) / n) · f (k1 + 1) / (f + k1 (1 - b + b |d| / L))

with N chunks of L words on average, n of them with word w, and f counts of w in d. The
idf of Okapi turns negative for a word in more than half of the chunks, which is every
interesting word of five pages on one subject; each library mends that in its own way.

`factkit.retrieval.dense` ranks by a text encoder's embeddings instead.
"""

import hashlib
import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from factkit import assets
from factkit.retrieval.chunks import Chunk, Hit

K1, B = 1.5, 0.75
# Part of the cache key: raise it whenever `tokenize` or the scoring changes.
INDEX_VERSION = 1
ARTICLES = frozenset(("a", "an", "the"))

_WORD = re.compile(r"\w+")


def tokenize(text: str) -> list[str]:
    """The words that both BM25 libraries see: casefolded, NFKC, no stemming.

    Stop words stay: leaving them out lowers the leads' recall@1 from 0.77 to 0.75.
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def without_diacritics(text: str) -> str:
    """The text with accents off: "Brasília" → "Brasilia"."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


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
    matches = np.flatnonzero(scores > 0)
    best = matches[top_places(scores[matches], k)]
    return [Hit(chunks[i], float(scores[i])) for i in best]


def top_places(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the k highest scores (N,), best first, ties in their order."""
    places = np.arange(len(scores))
    if len(scores) > k:
        # everything at or above the k-th score, so that ties are settled by order
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= threshold)
    return places[np.argsort(-scores[places], kind="stable")][:k]


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
    words = [w for w in tokenize(without_diacritics(text)) if w not in ARTICLES]
    return f" {' '.join(words)} " if words else ""
