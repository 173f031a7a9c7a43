"""A BM25 index of millions of entries on disk, built from a stream."""

import hashlib
import json
from collections.abc import Iterable
from importlib.metadata import version
from operator import length_hint
from pathlib import Path
from typing import Any

from filelock import FileLock

from factkit.data.bm25 import INDEX_VERSION, tokenize
from factkit.data.corpus import Chunk, Hit
from factkit.data.examples import DataError
from factkit.run.files import cache_dir, whole_folder, write_atomically
from factkit.run.progress import progress_bar

MANIFEST = "manifest.json"
HEAP_BYTES = 64_000_000  # of words that wait to be written
SPARE = 16  # hits beyond k, among which ties with the k-th are settled


class EntryIndex:
    """BM25 by tantivy over a folder that `build_index` wrote; for several threads.

    The texts are memory-mapped. Words are those of `bm25.tokenize`. The score is BM25
    as in `bm25`, but with Lucene's idf, ln(1 + (N - n + ½) / (n + ½)), and k1 = 1.2 and
    b = 0.75, which tantivy fixes. A text's length is exact up to 40 words and rounded
    down beyond.

    `manifest`: the corpus's name, its entries' number and SHA-256, how it is ranked.
    Raises DataError if the folder holds no index, or one of another version.
    """

    def __init__(self, folder: Path) -> None:
        import tantivy

        try:
            self.manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if self.manifest["how"] != _how():
                raise ValueError("one of another version")
            # tantivy locks the folder for a moment, so it must be writable
            index = tantivy.Index.open(str(folder))
            self._schema, self._searcher = index.schema, index.searcher()
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(
                f"{folder}: no index, not the whole of one, or not where it can be "
                f"written ({error}); build it by `python -m factkit fetch veri`"
            ) from None

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best entries, best first; ties in the entries' order.

        If more than k + 16 entries tie, any k of them. Fewer than k if fewer entries
        share a word with the query. Raises ValueError if k < 1.
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
        return [
            Hit(Chunk(*json.loads(bytes(self._searcher.doc(at)["entry"][0]))), -score)
            for score, _, at in ranked[:k]
        ]


def build_index(entries: Iterable[Chunk], folder: Path, name: str) -> Path:
    """Build the index of a corpus called `name`, from a stream of its entries.

    The folder appears when it is complete; a killed build leaves a hidden one, which
    the next build removes. Memory stays at about 150 MB. Raises DataError if the folder
    exists, or without an entry.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if folder.exists():
            raise DataError(f"{folder}: there already; remove it to build it anew")
        with whole_folder(folder) as partial:
            content = {"name": name, "how": _how()} | _write(entries, partial, name)
            write_atomically(partial / MANIFEST, json.dumps(content, indent=2))
    return folder


def cached_index(entries: Iterable[Chunk], key: str, name: str) -> EntryIndex:
    """A corpus's index in the cache folder, built at its first use. key: identifies the
    corpus and its version."""
    digest = hashlib.sha256(f"{key} {_how()}".encode()).hexdigest()[:32]
    folder = cache_dir() / "bm25" / digest
    if not folder.exists():
        try:
            build_index(entries, folder, name)
        except DataError:
            if not folder.exists():  # else another process was first
                raise
    return EntryIndex(folder)


def _write(entries: Iterable[Chunk], folder: Path, name: str) -> dict[str, Any]:
    """Index the entries; returns their number and SHA-256."""
    import tantivy

    # words: searched for, with counts; entry: as JSON; place: its number
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("words", tokenizer_name="spaces", index_option="freq")
    schema.add_bytes_field("entry", stored=True)
    schema.add_unsigned_field("place", fast=True)
    index = tantivy.Index(schema.build(), path=str(folder))
    spaces = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    index.register_tokenizer("spaces", spaces)
    # one thread keeps the entries' order; `with` waits until all is on disk
    writer = index.writer(HEAP_BYTES, num_threads=1)
    digest, count = hashlib.sha256(), 0
    bar = progress_bar(length_hint(entries) or None, f"index of {name}", " entries")
    with writer, bar:
        for count, entry in enumerate(entries, start=1):
            row = [entry.id, entry.doc_id, entry.text, entry.n_tokens]
            document = tantivy.Document()
            document.add_text("words", " ".join(tokenize(entry.text)))
            document.add_bytes("entry", json.dumps(row).encode())
            document.add_unsigned("place", count)
            writer.add_document(document)
            digest.update(json.dumps(row).encode())
            bar.update()
    if not count:
        raise DataError(f"{name}: not one entry to index; see to its source")
    return {"entries": count, "sha256": digest.hexdigest()}


def _how() -> str:
    """What determines the hits, apart from the entries."""
    words = f"words of factkit.data.bm25.tokenize, version {INDEX_VERSION}"
    return f"tantivy {version('tantivy')}: BM25, k1=1.2, b=0.75; {words}"
