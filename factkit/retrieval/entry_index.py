"""An index of millions of entries on disk: BM25 by tantivy, built as a stream.

`bm25.CorpusIndex` keeps all texts, and while it builds all scores, in memory: good for
the tiny world and the leads. Here both are on disk, and memory-mapped: of a million
entries of 70 words a build takes 137 MB and a search 194 MB, most of it mapped, and
84 queries take a second. bm25s in ten shards takes 789 and 639 MB, with an idf of its
own in each shard; SQLite's FTS5 answers one query a second.

Words are those of `bm25.tokenize`, except that one of more than 65,530 bytes is
left out. The score is BM25 with the idf of Lucene,

    score(q, d) = Σ_w∈q ln(1 + (N - n + ½) / (n + ½)) f (k1 + 1) / (f + k1 l(d))
    l(d) = 1 - b + b |d| / L

with k1 = 1.2 and b = 0.75, which tantivy fixes, N entries of L words on average, n of
them with word w, and f counts of w in d. |d| is exact up to 40 words and rounded down
beyond. `CorpusIndex` has k1 = 1.5 and ln((N + 1) / n): among 1,289 entries of the leads
both find the same first entry for 99.8 % of the queries of eight of an entry's words,
and 96 % of the same first three.
"""

import hashlib
import json
import shutil
import warnings
from array import array
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from factkit.assets import write_atomically
from factkit.datasets.examples import DataError
from factkit.retrieval.bm25 import INDEX_VERSION, tokenize
from factkit.retrieval.chunks import Chunk, Hit

if TYPE_CHECKING:
    import tantivy

MANIFEST = "manifest.json"
# Part of the manifest: raise it whenever what `build` writes changes.
FORMAT = 1
HEAP_BYTES = 64_000_000  # of words that wait to be written
SPARE = 16  # hits beyond k, among which ties with the k-th are settled


class EntryIndex:
    """BM25 over an index's folder that `build` wrote; for several threads at a time.

    `manifest` holds the corpus's name, its number of entries and the SHA-256 of their
    ids and texts, how it is ranked, and when it was built. Raises DataError if the
    folder holds no such index, not the whole of it, or one that another version wrote.
    """

    def __init__(self, folder: Path) -> None:
        import tantivy

        folder = Path(folder)
        self.manifest = _manifest(folder)
        try:
            # it locks the folder for a moment, so it must be able to write there
            index = tantivy.Index.open(str(folder))
            self._schema, self._searcher = index.schema, index.searcher()
        except (ValueError, OSError) as error:
            raise DataError(
                f"{folder}: {error}; put the index where it can be written, or build "
                "it anew"
            ) from None

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best entries, best first; ties in the entries' order.

        Of more than k + 16 entries that tie, any k. Fewer than k, or none, where fewer
        entries share a word with the query. Raises ValueError if k < 1.
        """
        import tantivy

        if k < 1:
            raise ValueError(f"k={k}; it must be at least 1")
        should = tantivy.Occur.Should
        terms = [
            (should, tantivy.Query.term_query(self._schema, "words", word, "freq"))
            for word in tokenize(query)
        ]
        any_word = tantivy.Query.boolean_query(terms)
        hits = self._searcher.search(any_word, k + SPARE, count=False).hits
        places = self._searcher.fast_field_values("place", [at for _, at in hits])
        ranked = sorted(
            (-score, place, at) for (score, at), place in zip(hits, places, strict=True)
        )
        return [Hit(self._entry(at), -score) for score, _, at in ranked[:k]]

    def _entry(self, at: "tantivy.DocAddress") -> Chunk:
        return Chunk(*json.loads(bytes(self._searcher.doc(at)["entry"][0])))


def build(entries: Iterable[Chunk], folder: Path, name: str) -> Path:
    """Build the index of a corpus called `name`, from a stream of its entries.

    The folder appears when it is complete: a build that was killed leaves a hidden one
    beside it, which the next build removes. Memory stays at about 150 MB and 8 bytes an
    entry, with the bar of its progress. Ids that repeat are counted in the manifest and
    warned of. Raises DataError if the folder is there already, without an entry, or, by
    id, for text that UTF-8 can't hold.
    """
    from filelock import FileLock

    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if folder.exists():
            raise DataError(f"{folder}: there already; remove it to build it anew")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            counts = _write(entries, partial, name)
            if not counts["entries"]:
                raise DataError(f"{name}: not one entry to index; see to its source")
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        built = datetime.now(UTC).isoformat(timespec="seconds")
        content = {"name": name} | counts | _how() | {"built": built}
        content |= {"files": _sizes(partial)}
        write_atomically(partial / MANIFEST, json.dumps(content, indent=2))
        partial.rename(folder)
    return folder


def _write(entries: Iterable[Chunk], folder: Path, name: str) -> dict[str, Any]:
    """Index the entries; how many they are, how many ids repeat, and their SHA-256."""
    import tantivy

    from factkit.runs import progress_bar

    index = tantivy.Index(_schema(), path=str(folder))
    spaces = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    index.register_tokenizer("spaces", spaces)
    # one thread keeps the entries' order; at the end of `with` all is on disk
    writer = index.writer(HEAP_BYTES, num_threads=1)
    digest, seen = hashlib.sha256(), array("Q")
    bar = progress_bar(
        length_hint(entries) or None, f"index of {name}", unit=" entries"
    )
    with writer, bar:
        for place, entry in enumerate(entries):
            packed = _packed(entry)
            document = tantivy.Document()
            document.add_text("words", " ".join(tokenize(entry.text)))
            document.add_bytes("entry", packed)
            document.add_unsigned("place", place)
            writer.add_document(document)
            digest.update(packed)
            hashed = hashlib.blake2b(entry.id.encode(), digest_size=8).digest()
            seen.append(int.from_bytes(hashed))
            bar.update()
    repeated = len(seen) - len(np.unique(np.array(seen)))
    if repeated:
        warnings.warn(f"{name}: {repeated} ids repeat", stacklevel=3)
    counts = {"entries": len(seen), "repeated_ids": repeated}
    return counts | {"sha256": digest.hexdigest()}


def _schema() -> "tantivy.Schema":
    """words: what is searched for, by count; entry: as it was; place: its number."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("words", tokenizer_name="spaces", index_option="freq")
    builder.add_bytes_field("entry", stored=True)
    builder.add_unsigned_field("place", fast=True)
    return builder.build()


def _packed(entry: Chunk) -> bytes:
    """An entry as JSON. Raises DataError if it holds half a character."""
    row = [entry.id, entry.doc_id, entry.text, entry.n_tokens]
    try:
        return json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise DataError(
            f"entry {entry.id!r}: {half!r} is half a character; mend the text"
        ) from None


def _how() -> dict[str, Any]:
    """What decides what is found, apart from the entries."""
    return {
        "format": FORMAT,
        "words": f"factkit.retrieval.tokenize, version {INDEX_VERSION}",
        "ranking": "BM25, k1=1.2, b=0.75, idf of Lucene",
        "library": f"tantivy {version('tantivy')}",
    }


def _sizes(folder: Path) -> dict[str, int]:
    """The index's files with their sizes in bytes."""
    paths = (p for p in folder.iterdir() if not p.name.startswith("."))
    return {p.name: p.stat().st_size for p in sorted(paths) if p.name != MANIFEST}


def _manifest(folder: Path) -> dict[str, Any]:
    """A folder's manifest, held against what is there. Raises DataError."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = content["files"]
    except (OSError, ValueError, LookupError, TypeError):
        raise DataError(
            f"{folder}: no index, or not the whole of one; build it by "
            "factkit.retrieval.entry_index.build"
        ) from None
    for key, value in _how().items():
        if content.get(key) != value:
            raise DataError(
                f"{folder / MANIFEST}: {key} is {content.get(key)!r}, but this is "
                f"{value!r}; build the index anew"
            )
    if files != _sizes(folder):
        raise DataError(
            f"{folder}: its files are not those that {MANIFEST} names; copy it anew, "
            "or build it"
        )
    return content
