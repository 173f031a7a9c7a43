"""Near duplicates of texts, by the words that they share."""

import re
from collections import Counter, defaultdict

SHINGLE = 3  # words


def shingles(text: str) -> set[tuple[str, ...]]:
    """The runs of SHINGLE words in small letters; a shorter text is one run."""
    words = re.findall(r"\w+", text.casefold())
    starts = range(max(1, len(words) - SHINGLE + 1))
    return {tuple(words[i : i + SHINGLE]) for i in starts}


class ShingleIndex:
    """An inverted index of texts by their shingles, for exact Jaccard similarities.

    A search costs as much as the texts that share a run of words with the query.
    """

    def __init__(self) -> None:
        self._labels: list[str] = []
        self._sizes: list[int] = []  # shingles of each text
        self._texts: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)

    def add(self, text: str, label: str) -> None:
        """Add a text; several may have one label."""
        runs = shingles(text)
        for run in runs:
            self._texts[run].append(len(self._labels))
        self._labels.append(label)
        self._sizes.append(len(runs))

    def nearest(self, text: str) -> tuple[str, float]:
        """Label and similarity |A ∩ B| / |A ∪ B| of the most similar text, the first on
        a tie; ("", 0.0) if none shares a shingle."""
        runs = shingles(text)
        shared = Counter(i for run in runs for i in self._texts.get(run, ()))
        best, first = 0.0, len(self._labels)
        for i, n in shared.items():
            similarity = n / (len(runs) + self._sizes[i] - n)
            if (similarity, -i) > (best, -first):
                best, first = similarity, i
        return (self._labels[first], best) if shared else ("", 0.0)
