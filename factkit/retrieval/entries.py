"""Entries: what a search finds to verify claims with, what evidence is called, and an
index of millions of them on disk.

Veri-R1 searches entries of three consecutive sentences (App. B, E). Its published data
names evidence in two ways:

| claims of | an entry | its id | evidence |
|---|---|---|---|
| FEVEROUS, FEVER, SciFact | three sentences | `NME_sentences_0_2` | `NME_sentence_2` |
| EX-FEVER, HoVer | a page's summary | `Vin Diesel` | `Vin Diesel` |

So an entry is found as a whole, and `shown` cuts it into what the model reads and may
cite: three sentences with an id each, or the page. The ids of evidence are those of the
published files; the id of an entry of sentences is ours (theirs: `NME<sent_id=0_2>`).

Sentences are numbered from 0 in their page, and an entry begins at every third. Titles
are in NFC, their square brackets round, since `[[id]]` marks an id. The text of an
entry begins with the title in a line of its own, as in the published corpus and in
`benchmarks.wikipedia_2018`: a sentence from the middle of a page says "he".
"""

import hashlib
import json
import re
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.assets import write_atomically
from factkit.corpus import Chunk, Document, Hit
from factkit.datasets.examples import DataError
from factkit.retrieval.bm25 import INDEX_VERSION, tokenize
from factkit.runs import progress_bar

if TYPE_CHECKING:
    import tantivy

SENTENCES = 3  # of an entry (Veri-R1 App. B)
MANIFEST = "manifest.json"
HEAP_BYTES = 64_000_000  # of words that wait to be written
SPARE = 16  # hits beyond k, among which ties with the k-th are settled

_SENTENCE = re.compile(r"(?P<page>.+)_sentence_\d{1,9}", re.DOTALL)
_ENTRY = re.compile(r"(?P<page>.+)_sentences_(?P<first>\d{1,9})_\d{1,9}", re.DOTALL)
_BRACKETS = str.maketrans("[]", "()")


def page_id(title: str) -> str:
    """A title as ids hold it: NFC, on one line, with round brackets for square ones."""
    return " ".join(unicodedata.normalize("NFC", title).translate(_BRACKETS).split())


def sentence_id(title: str, number: int) -> str:
    """The id of a page's sentence, counted from 0: evidence."""
    return f"{page_id(title)}_sentence_{number}"


def page_of(evidence: str) -> str:
    """The page of an id of evidence: a sentence's page, a page itself."""
    sentence = _SENTENCE.fullmatch(evidence)
    return sentence["page"] if sentence else evidence


def entries_of_sentences(
    title: str, sentences: Sequence[str] | Mapping[int, str], heading: str = ""
) -> list[Chunk]:
    """A page's entries of three consecutive sentences.

    sentences: in their order, or number → sentence where some numbers are missing. What
    is empty keeps its number; three empty ones are no entry. heading: what to begin
    the text with instead of the title. An id names three sentences, even where the page
    ends sooner. `n_tokens` counts words between spaces.
    """
    if not isinstance(sentences, Mapping):
        sentences = dict(enumerate(sentences))
    page, heading = page_id(title), " ".join((heading or title).split())
    groups: dict[int, list[str]] = {}
    for number, sentence in sorted(sentences.items()):
        if sentence := " ".join(sentence.split()):
            lines = groups.setdefault(number // SENTENCES, [""] * SENTENCES)
            lines[number % SENTENCES] = sentence
    entries = []
    for group, lines in groups.items():
        first, text = group * SENTENCES, "\n".join([heading, *lines]).rstrip("\n")
        name = f"{page}_sentences_{first}_{first + SENTENCES - 1}"
        entries.append(_chunk(name, page, text))
    return entries


def document_entries(document: Document) -> list[Chunk]:
    """A document's entries of three sentences, split by pysbd (`verify.response`).

    The published corpora come split; theirs are numbers that no other splitting gives.
    """
    from factkit.verify.response import sentences

    return entries_of_sentences(document.title, sentences(document.text))


def page_entry(title: str, text: str) -> Chunk:
    """A page's summary as one entry, whose id is the page's (EX-FEVER, HoVer)."""
    heading, body = " ".join(title.split()), " ".join(text.split())
    return _chunk(page_id(title), page_id(title), f"{heading}\n{body}")


def shown(entry: Chunk) -> list[Chunk]:
    """What of an entry the model reads and may cite: its sentences, or the page.

    The title is in the id and no longer in the text. Raises ValueError on a chunk that
    is no entry: its text has no title in a line of its own.
    """
    _, *lines = entry.text.split("\n")
    if not lines:
        raise ValueError(f"{entry.id!r} is no entry: {entry.text[:60]!r} has no title")
    sentences = _ENTRY.fullmatch(entry.id)
    if not sentences:
        return [_chunk(entry.id, entry.doc_id, " ".join(lines))]
    return [
        _chunk(sentence_id(sentences["page"], number), entry.doc_id, line)
        for number, line in enumerate(lines, int(sentences["first"]))
        if line
    ]


def _chunk(name: str, page: str, text: str) -> Chunk:
    return Chunk(name, page, text, len(text.split()))


# ---- the index


class EntryIndex:
    """BM25 by tantivy over a folder that `build_index` wrote; for several threads.

    `CorpusIndex` keeps all texts in memory: good for the tiny world and the leads. Here
    they are on disk, and memory-mapped: of a million entries of 70 words a build takes
    137 MB and a search 194 MB, and 84 queries take a second. Words are those of
    `bm25.tokenize`. The score is BM25 with the idf of Lucene,

        score(q, d) = Σ_w∈q ln(1 + (N - n + ½) / (n + ½)) f (k1 + 1) / (f + k1 l(d))
        l(d) = 1 - b + b |d| / L

    with k1 = 1.2 and b = 0.75, which tantivy fixes, N entries of L words on average, n
    of them with word w, and f counts of w in d. |d| is exact up to 40 words and rounded
    down beyond.

    `manifest` holds the corpus's name, its number of entries and the SHA-256 of their
    ids and texts, and how it is ranked. Raises DataError if the folder holds no such
    index, not the whole of it, or one that another version wrote.
    """

    def __init__(self, folder: Path) -> None:
        import tantivy

        try:
            self.manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if self.manifest["how"] != _how():
                raise ValueError("one of another version")
            # it locks the folder for a moment, so it must be able to write there
            index = tantivy.Index.open(str(folder))
            self._schema, self._searcher = index.schema, index.searcher()
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(
                f"{folder}: no index, not the whole of one, or not where it can be "
                f"written ({error}); build it by `python -m factkit index-entries`"
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


def build_index(entries: Iterable[Chunk], folder: Path, name: str) -> Path:
    """Build the index of a corpus called `name`, from a stream of its entries.

    The folder appears when it is complete: a build that was killed leaves a hidden one
    beside it, which the next build removes. Memory stays at about 150 MB. Raises
    DataError if the folder is there already, or without an entry.
    """
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if folder.exists():
            raise DataError(f"{folder}: there already; remove it to build it anew")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            content = {"name": name, "how": _how()} | _write(entries, partial, name)
            write_atomically(partial / MANIFEST, json.dumps(content, indent=2))
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial)
            raise
    return folder


def _write(entries: Iterable[Chunk], folder: Path, name: str) -> dict[str, Any]:
    """Index the entries; how many they are, and their SHA-256."""
    import tantivy

    # words: what is searched for, by count; entry: as it was; place: its number
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("words", tokenizer_name="spaces", index_option="freq")
    schema.add_bytes_field("entry", stored=True)
    schema.add_unsigned_field("place", fast=True)
    index = tantivy.Index(schema.build(), path=str(folder))
    spaces = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    index.register_tokenizer("spaces", spaces)
    # one thread keeps the entries' order; at the end of `with` all is on disk
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
    """What decides what is found, apart from the entries."""
    words = f"words of factkit.retrieval.tokenize, version {INDEX_VERSION}"
    return f"tantivy {version('tantivy')}: BM25, k1=1.2, b=0.75; {words}"
