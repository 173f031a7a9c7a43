"""Searching chunks in memory by BM25.

`rank-bm25` is the reference and the choice for a prompt's few pages: it scores at query
time. `bm25s` gives the same ranking and scores for a corpus that many queries search:
it scores every word of every chunk when the index is built (10,033 leads: 0.3 ms a
query, against 31 ms). Both use ATIRE's term frequency and BM25+'s always positive idf,

    score(q, d) = Σ_w∈q ln((N + 1) / n) · f (k1 + 1) / (f + k1 (1 - b + b |d| / L))

with N chunks of L words on average, n of them with word w, and f counts of w in d.
Okapi's idf is negative for a word in more than half of the chunks, as every interesting
word of five pages on one subject is. What does not fit into memory is in `entry_index`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from factkit.data.corpus import Chunk, Hit
from factkit.data.spelling import fold

K1, B = 1.5, 0.75
# Part of the manifest of an `EntryIndex`: raise it whenever `tokenize` changes.
INDEX_VERSION = 2
GROUP = 64  # scores
ARTICLES = frozenset(("a", "an", "the"))

# Thai, Lao, Burmese, Khmer, Japanese, Chinese: no spaces between words
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_UNSPACED}]")
_SIGNS = "\u0900-\u0963\u0966-\u0dff"  # of Indian scripts: vowels are part of a word
WORD = re.compile(rf"[{_UNSPACED}]+|(?:[^\W{_UNSPACED}]|[{_SIGNS}])+")


def tokenize(text: str) -> list[str]:
    """The words of a text, casefolded and without diacritics (`fold`), not stemmed.

    A text of which more than a quarter is in a script without spaces becomes pairs of
    its characters; a name in such a script inside other text is one word. Stop words
    stay: without them the leads' recall@1 falls from 0.77 to 0.75.
    """
    words = WORD.findall(fold(text).casefold())
    if text.isascii():
        return words
    unspaced = sum(len(word) for word in words if _RUN.match(word))
    return _in_pairs(words) if 4 * unspaced > len(text) else words


def _in_pairs(words: Sequence[str]) -> list[str]:
    """Cut the words of a script without spaces into pairs of their characters."""
    return [
        word[i : i + 2] if _RUN.match(word) else word
        for word in words
        for i in range(max(len(word) - 1, 1) if _RUN.match(word) else 1)
    ]


class PromptIndex:
    """BM25 by `rank-bm25` over a prompt's few pages."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.chunks = list(chunks)
        words = [tokenize(chunk.text) for chunk in self.chunks]
        self._bm25 = self._build(words) if any(words) else None

    def _build(self, words: list[list[str]]) -> Any:
        from rank_bm25 import BM25Plus

        # delta only adds the same constant to every chunk's score
        return BM25Plus(words, k1=K1, b=B, delta=0)

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best chunks, best first; ties in the chunks' order.

        Fewer than k, or none, where fewer chunks share a word with the query.
        Raises ValueError if k < 1.
        """
        if k < 1:
            raise ValueError(f"k={k}; it must be at least 1")
        words = tokenize(query)
        if not words or self._bm25 is None:
            return []
        scores = self._bm25.get_scores(words)  # (N,)
        best = top_k(scores, k, least=np.nextafter(0, 1))
        return [Hit(self.chunks[i], float(scores[i])) for i in best]


class CorpusIndex(PromptIndex):
    """BM25 by `bm25s` over a whole corpus, with the hits of `PromptIndex`."""

    def _build(self, words: list[list[str]]) -> Any:
        import bm25s

        variant = {"method": "atire", "idf_method": "bm25+", "dtype": "float64"}
        bm25 = bm25s.BM25(k1=K1, b=B, **variant)
        bm25.index(words, create_empty_token=False, show_progress=False)
        return bm25


def top_k(scores: np.ndarray, k: int, least: float = -np.inf) -> np.ndarray:
    """Indices of the k highest scores (N,), best first, ties in their order.

    least: leave out scores below it.
    """
    groups = len(scores) // GROUP
    if groups > k:
        maxima = scores[: groups * GROUP].reshape(GROUP, groups).max(axis=0)
        # k groups have a score of at least this, so the k-th score is not below it
        least = max(least, np.partition(maxima, -k)[-k])
    indices = np.flatnonzero(scores >= least)
    return indices[np.argsort(-scores[indices], kind="stable")[:k]]


def answer_in_chunks(answers: Sequence[str], chunks: Sequence[Chunk]) -> bool:
    """Whether a chunk has an answer's words in a row, so that retrieval could help.

    Words are compared without diacritics and articles. "yes" and "no" never count: a
    text may have them by chance.
    """
    wanted = {_phrase(answer) for answer in answers} - {"", " yes ", " no "}
    texts = [_phrase(chunk.text) for chunk in chunks]
    return any(phrase in text for phrase in wanted for text in texts)


def _phrase(text: str) -> str:
    """A text's words without articles, between single spaces."""
    words = _in_pairs(WORD.findall(fold(text).casefold()))
    words = [word for word in words if word not in ARTICLES]
    return f" {' '.join(words)} " if words else ""
