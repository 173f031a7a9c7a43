"""The corpora that Veri-R1's claims are verified in, as streams of entries.

| corpus | file | an entry |
|---|---|---|
| wiki-pages | that folder, its zip or one of its files: FEVER's | three sentences |
| feverous_wikiv1.db | the SQLite file, or its pages as JSON lines | three sentences |
| wiki_wo_links.db | HoVer's SQLite file; for EX-FEVER, too | a page's summary |
| corpus.jsonl | SciFact's | three sentences of an abstract |

Each reads its file once, a row at a time, and numbers sentences as the set's evidence
does (`retrieval.entries`). A row that is not of its corpus is a DataError with file,
row and value, at the time it is reached.
"""

import html
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from factkit.datasets import rows
from factkit.datasets.examples import DataError
from factkit.datasets.rows import Row, RowError
from factkit.retrieval.chunks import Chunk
from factkit.retrieval.entries import entries_of_sentences, page_entry
from factkit.veri.benchmarks import fever_text, fever_title

SQLITE = b"SQLite format 3\0"

_LINE = re.compile(r"(\d{1,9})\t([^\t\n]*)")
_SENTENCE = re.compile(r"sentence_(\d{1,9})")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")


def entries(name: str, path: str | Path) -> Iterator[Chunk]:
    """The entries of one of `CORPORA`, as they are read."""
    files_of, entries_of = CORPORA[name]
    for where, values in files_of(rows.existing(path, folder=True)):
        for number, row in enumerate(values, start=1):
            try:
                if isinstance(row, RowError):
                    raise row
                if not isinstance(row, Mapping):
                    raise RowError("not a JSON object")
                yield from entries_of(row)
            except RowError as error:
                raise DataError(
                    f"{where}, row {number}: {error.args[0]}: {str(row)[:80]!r}; mend "
                    "the row, or fetch the file again"
                ) from None


# ---- a row's entries


def _fever(row: Row) -> list[Chunk]:
    """FEVER's Wikipedia of June 2017 (CC BY-SA 3.0), 5.4 million summaries.

    Rows {id, text, lines}: the id is the title, a line of `lines` a sentence's number,
    the sentence and its links, between tabs. What of a line is no number and sentence
    belongs to the line before, and is links.
    """
    title = fever_title(rows.text(row, "id"))
    lines = (_LINE.match(line) for line in rows.text(row, "lines").split("\n"))
    numbered = {int(line[1]): fever_text(line[2]) for line in lines if line}
    # the first row of every file is empty
    return entries_of_sentences(title, numbered) if title else []


def _feverous(row: Row) -> list[Chunk]:
    """FEVEROUS's Wikipedia of December 2020 (CC BY-SA 3.0), without tables and lists.

    Rows {title, sentence_0, …}. Of links the text is kept.
    """
    named = ((_SENTENCE.fullmatch(name), text) for name, text in row.items())
    numbered = {
        int(name[1]): _without_links(rows.string(name[0], text))
        for name, text in named
        if name
    }
    return entries_of_sentences(rows.text(row, "title"), numbered)


def _without_links(text: str) -> str:
    """[[Hook_(film)|Hook]] → Hook"""
    return _LINK.sub(lambda match: match[1].replace("_", " "), text)


def _hover(row: Row) -> list[Chunk]:
    """HotpotQA's Wikipedia of October 2017 (CC BY-SA 4.0), as HoVer's authors give it:
    5.2 million summaries by title."""
    title, text = rows.text(row, "id"), rows.text(row, "text")
    return [page_entry(html.unescape(title), text)] if text.strip() else []


def _scifact(row: Row) -> list[Chunk]:
    """SciFact's 5,183 abstracts (ODC-By 1.0).

    Rows {doc_id, title, abstract: [sentence, …]}. Ids have the document's number, as
    `doc_id=4983_sentence_0`; the title is in the entry's text.
    """
    number = row.get("doc_id")
    if not isinstance(number, int | str):
        raise RowError("doc_id: missing or not a number")
    abstract = rows.strings("abstract", row.get("abstract"))
    return entries_of_sentences(f"doc_id={number}", abstract, rows.text(row, "title"))


# ---- files: (name, rows) of each

Files = Iterator[tuple[str, Iterable[Any]]]


def _wiki_pages(path: Path) -> Files:
    """A file, or those of a folder or zip."""
    pattern = "wiki-*.jsonl"
    if zipfile.is_zipfile(path):
        packed = zipfile.ZipFile(path)
        names = [name for name in packed.namelist() if Path(name).match(pattern)]
        files = [zipfile.Path(packed, name) for name in names]
    else:
        files = list(path.rglob(pattern)) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no file {pattern} in it")
    for file in sorted(files, key=str):
        yield str(file), rows.json_lines(file)


def _json_lines(path: Path) -> Files:
    yield str(path), rows.of_file(path)


def _feverous_wiki(path: Path) -> Files:
    """Pages with their titles, which the database has apart from their JSON."""

    def page(row: Row) -> Any:
        data = row["data"]
        value = rows.parsed(data if isinstance(data, bytes) else str(data).encode())
        return {"title": row["id"]} | value if isinstance(value, dict) else value

    if _is_sqlite(path):
        yield str(path), map(page, _table(path, "id, data", "wiki"))
    else:
        yield from _json_lines(path)


def _hover_wiki(path: Path) -> Files:
    if not _is_sqlite(path):
        raise DataError(f"{path}: no SQLite file; give the path of wiki_wo_links.db")
    yield str(path), _table(path, "id, text", "documents")


def _is_sqlite(file: Path) -> bool:
    with rows.existing(file).open("rb") as start:
        return start.read(len(SQLITE)) == SQLITE


def _table(file: Path, columns: str, table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table, as they are read."""
    uri = f"{file.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.row_factory = sqlite3.Row
            yield from map(dict, database.execute(f"SELECT {columns} FROM {table}"))
    except sqlite3.Error as error:
        raise DataError(
            f"{file}: no SQLite file with {table}({columns}): {error}; fetch it again"
        ) from None


# name → what reads its rows, what makes entries of a row
CORPORA: dict[str, tuple[Callable[[Path], Files], Callable[[Row], list[Chunk]]]] = {
    "feverous_wikiv1.db": (_feverous_wiki, _feverous),
    "wiki_wo_links.db": (_hover_wiki, _hover),
    "wiki-pages": (_wiki_pages, _fever),
    "corpus.jsonl": (_json_lines, _scifact),
}
