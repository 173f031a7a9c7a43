"""The corpora that Veri-R1's claims are verified in, as streams of entries.

| corpus | file | an entry |
|---|---|---|
| fever_pages | wiki-pages.zip, its folder or one of its files | three sentences |
| feverous_pages | feverous_wikiv1.db, or its pages as JSON lines | three sentences |
| scifact_corpus | corpus.jsonl | three sentences of an abstract |
| hover_pages | wiki_wo_links.db | a page's summary; for EX-FEVER, too |

Each reads its file once, a row at a time, and numbers sentences as the set's evidence
does (`retrieval.entries`). A row that is not of its corpus is a DataError with file,
row and value, at the time it is reached.
"""

import html
import json
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from factkit.datasets import rows
from factkit.datasets.claim_benchmarks import fever_text, fever_title
from factkit.datasets.examples import DataError
from factkit.datasets.long_form_prompts import existing
from factkit.datasets.rows import Row, RowError
from factkit.retrieval.chunks import Chunk
from factkit.retrieval.entries import entries_of_sentences, page_entry

SQLITE = b"SQLite format 3\0"

_LINE = re.compile(r"(\d{1,9})\t([^\t\n]*)")
_SENTENCE = re.compile(r"sentence_(\d{1,9})")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")


def fever_pages(path: str) -> Iterator[Chunk]:
    """FEVER's Wikipedia of June 2017 (CC BY-SA 3.0), 5.4 million summaries.

    Rows {id, text, lines}: the id is the title, a line of `lines` a sentence's number,
    the sentence and its links, between tabs. What of a line is no number and sentence
    belongs to the line before, and is links.
    """
    for name, found in _files(existing(path, folder=True), "wiki-*.jsonl"):
        yield from _entries(name, enumerate(found, start=1), _fever)


def feverous_pages(path: str) -> Iterator[Chunk]:
    """FEVEROUS's Wikipedia of December 2020 (CC BY-SA 3.0), without tables and lists.

    path: the SQLite file with wiki(id, data), or the pages, {title, sentence_0, …}, as
    JSON lines, plain or packed. Of links the text is kept.
    """
    file = existing(path)
    if _is_sqlite(file):
        found = (_titled(*row) for row in _table(file, "id, data", "wiki"))
    else:
        found = rows.of_file(file)
    yield from _entries(path, enumerate(found, start=1), _feverous)


def scifact_corpus(path: str) -> Iterator[Chunk]:
    """SciFact's 5,183 abstracts (ODC-By 1.0).

    Rows {doc_id, title, abstract: [sentence, …]}. Ids have the document's number, as
    `doc_id=4983_sentence_0`; the title is in the entry's text.
    """
    found = enumerate(rows.of_file(existing(path)), start=1)
    yield from _entries(path, found, _scifact)


def hover_pages(path: str) -> Iterator[Chunk]:
    """HotpotQA's Wikipedia of October 2017 (CC BY-SA 4.0), as HoVer's authors give it.

    path: the SQLite file with documents(id, text), 5.2 million summaries by title.
    """
    file = existing(path)
    if not _is_sqlite(file):
        raise DataError(f"{path}: no SQLite file; give the path of wiki_wo_links.db")
    found = _table(file, "id, text", "documents")
    yield from _entries(path, enumerate(found, start=1), _hover)


# ---- a row's entries


def _fever(row: Row) -> list[Chunk]:
    title = fever_title(rows.text(row, "id"))
    found = (_LINE.match(line) for line in rows.text(row, "lines").split("\n"))
    numbered = {int(line[1]): fever_text(line[2]) for line in found if line}
    # the first row of every file is empty
    return entries_of_sentences(title, numbered) if title else []


def _feverous(row: Row) -> list[Chunk]:
    found = ((_SENTENCE.fullmatch(name), text) for name, text in row.items())
    numbered = {
        int(name[1]): _without_links(rows.string(name[0], text))
        for name, text in found
        if name
    }
    return entries_of_sentences(rows.text(row, "title"), numbered)


def _without_links(text: str) -> str:
    """[[Hook_(film)|Hook]] → Hook"""
    return _LINK.sub(lambda found: found[1].replace("_", " "), text)


def _scifact(row: Row) -> list[Chunk]:
    number = row.get("doc_id")
    if not isinstance(number, int | str):
        raise RowError("doc_id: missing or not a number")
    abstract = rows.strings("abstract", row.get("abstract"))
    return entries_of_sentences(f"doc_id={number}", abstract, rows.text(row, "title"))


def _hover(row: Any) -> list[Chunk]:
    title, text = (rows.string(n, v) for n, v in zip(("id", "text"), row, strict=True))
    return [page_entry(html.unescape(title), text)] if text.strip() else []


def _entries(
    where: str,
    found: Iterable[tuple[int, Any]],
    entries: Callable[[Any], list[Chunk]],
) -> Iterator[Chunk]:
    """The entries of numbered rows, which are objects of JSON or tuples of a table."""
    for number, row in found:
        try:
            if isinstance(row, RowError):
                raise row
            if not isinstance(row, Mapping | tuple):
                raise RowError("not a JSON object")
            yield from entries(row)
        except RowError as error:
            raise DataError(
                f"{where}, row {number}: {error.args[0]}: {str(row)[:80]!r}; mend the "
                "row, or fetch the file again"
            ) from None


# ---- files


def _files(path: Path, pattern: str) -> Iterator[tuple[str, Iterable[Any]]]:
    """(name, rows) of a file, or of those in a folder or zip that match."""
    if zipfile.is_zipfile(path):
        yield from _zipped(path, pattern)
        return
    files = sorted(path.rglob(pattern)) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no file {pattern} in it")
    for file in files:
        yield str(file), rows.of_file(file)


def _zipped(path: Path, pattern: str) -> Iterator[tuple[str, Iterable[Any]]]:
    with zipfile.ZipFile(path) as packed:
        names = sorted(n for n in packed.namelist() if Path(n).match(pattern))
        if not names:
            raise DataError(f"{path}: no file {pattern} in it")
        for name in names:
            yield f"{path}, {name}", _member(packed, name)


def _member(packed: zipfile.ZipFile, name: str) -> Iterator[Any]:
    try:
        with packed.open(name) as lines:
            yield from map(_json, lines)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(
            f"{packed.filename}, {name}: damaged: {error}; fetch the file again"
        ) from None


def _titled(title: str, data: str) -> Any:
    """A page of FEVEROUS's table as its JSON lines have it."""
    page = _json(data)
    return {"title": title} | page if isinstance(page, dict) else page


def _json(written: bytes | str) -> Any:
    """A JSON value, or a RowError in its place."""
    try:
        return json.loads(written)
    except (ValueError, TypeError, RecursionError):
        return RowError("not JSON in UTF-8", written)


def _is_sqlite(file: Path) -> bool:
    with file.open("rb") as start:
        return start.read(len(SQLITE)) == SQLITE


def _table(file: Path, columns: str, table: str) -> Iterator[tuple]:
    """The rows of a table, as they are read."""
    uri = f"{file.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            yield from database.execute(f"SELECT {columns} FROM {table}")
    except sqlite3.Error as error:
        raise DataError(
            f"{file}: no SQLite file with {table}({columns}): {error}; fetch it again"
        ) from None
