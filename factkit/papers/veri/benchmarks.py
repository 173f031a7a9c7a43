"""Veri-R1's published claims (§3.1, App. E) and the corpora that hold their evidence.

| set | evidence | labels | corpus: its entries |
|---|---|---|---|
| fever | sentences | three | wiki-pages: three sentences |
| feverous | sentences | three | feverous_wikiv1.db: three sentences |
| exfever | pages | three | as HoVer |
| scifact | sentences | three | corpus.jsonl: three sentences |
| hover | pages | SUPPORT or not | wiki_wo_links.db: a page's summary |

An example's `question` is the claim, `label` one of LABELS, `answers` the labels that
count as correct, `evidence` the ids of the gold evidence (`data.entries`), `entity` the
page of the first one, `meta["set"]` the set. In FEVER and SciFact a claim labelled NOT
ENOUGH INFO has no evidence.

What the paper leaves open is as in its published files (H0key-22/Veri-R1 on GitHub):
- Where FEVER has several sets of evidence, each sufficient by itself, all of them are
  gold: so in each of the 91 of 900 published claims that have several.
- HoVer's NOT_SUPPORTED may be refuted or lack information: any label but SUPPORT is
  correct, and as for NOT ENOUGH INFO no evidence is needed (the last columns of Tables
  7 and 8 are equal). Its evidence is annotated by sentence; pages are scored.
- Of HoVer there are 500 claims a label (App. E says 448). The 237 of SciFact are from
  its training and development claims.
- Of 9 % of FEVEROUS's training claims the annotators had also marked evidence in
  tables, lists or titles.
"""

import html
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from factkit.data import rows
from factkit.data.corpus import Chunk
from factkit.data.entries import entries_of_sentences, page_entry, page_id, page_of
from factkit.data.examples import LABELS, DataError, Example
from factkit.data.rows import Row, RowError
from factkit.data.sources import Loaded, collect

SUPPORT, REFUTE, NEI = LABELS
NOT_SUPPORTED = "NOT_SUPPORTED"  # HoVer's second label
KNOWN_LABELS = {
    **{label: label for label in LABELS},
    "SUPPORTS": SUPPORT,
    "REFUTES": REFUTE,
    "SUPPORTED": SUPPORT,
    "CONTRADICT": REFUTE,
    NOT_SUPPORTED: NOT_SUPPORTED,
}
HOPS = 2  # of HoVer's claims (App. E)
ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-COLON-": ":"}
WIKI_FILES = "wiki-*.jsonl"  # of FEVER's Wikipedia
_LINE = re.compile(r"(\d{1,9})\t([^\t\n]*)")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")


def load(path: str | Path) -> Loaded:
    """Load the claims of one of the published files; see `sources.collect`."""
    return collect(rows.read_file(path), _published_claim, str(path))


def _fever_text(text: str) -> str:
    """Replace FEVER's escapes, such as -LRB-, by the characters they stand for."""
    return re.sub("|".join(ESCAPES), lambda match: ESCAPES[match[0]], text)


def _fever_title(title: str) -> str:
    """Write a title of FEVER's as Wikipedia does: Hook_-LRB-film-RRB- → Hook (film)."""
    return _fever_text(title.replace("_", " "))


# ---- claims


def _published_claim(row: Row) -> Example:
    """Make an example of a row of a published .parquet file.

    JSON lines {id, claim, label, evidence, source} are read, too. The 8,192 rows of the
    training file have 7,097 ids: rarer labels were drawn more than once, and the
    repetitions are dropped ("duplicate id").
    """
    if "golden_answers" in row:  # of the parquet file
        source, gold = row.get("data_source"), row["golden_answers"]
        row = {"id": row.get("id"), "claim": row.get("question"), "source": source}
        row |= gold if isinstance(gold, Mapping) else {}
    source = rows.text(row, "source")
    if source not in CORPUS_OF:
        raise RowError("source: none of " + ", ".join(CORPUS_OF))
    evidence = _field(row, "evidence", list[str])
    if source == "fever":
        pages = [(page_of(e), e) for e in evidence]
        evidence = [_fever_title(page) + e.removeprefix(page) for page, e in pages]
    elif source == "hover":
        evidence = [html.unescape(page_of(e)) for e in evidence]
    gold = list(dict.fromkeys(map(page_id, evidence)))
    own_id = str(_field(row, "id", int | str)).removeprefix("exfever_")
    own_id = f"{source}-{own_id}"
    label = rows.text(row, "label")
    if label not in KNOWN_LABELS:
        raise RowError(f"label: {label[:30]!r} is none that is known")
    label = KNOWN_LABELS[label]
    if not gold and label != NEI:
        raise RowError("no evidence")
    answers = [NEI, REFUTE] if label == NOT_SUPPORTED else [label]
    hops = {"hover": HOPS, "exfever": len(gold) or 1}.get(source, 1)  # pages
    return Example(
        id=own_id,
        question=rows.text(row, "claim").strip(),
        answers=answers,
        entity=page_of(gold[0]) if gold else own_id,
        label=answers[0],
        evidence=gold,
        meta={"set": source, "hops": hops},
    )


def _field(row: Row, name: str, kind: Any) -> Any:
    """A field that must be of a type; RowError if it is not."""
    try:
        return TypeAdapter(kind).validate_python(row.get(name))
    except ValidationError as error:
        raise RowError(f"{name}: {error.errors()[0]['msg']}") from None


# ---- the corpora's entries; sentences are numbered as in the evidence


def entries(
    name: str, path: str | Path, pages: AbstractSet[str] | None = None
) -> Iterator[Chunk]:
    """Yield the entries of one of `CORPORA`, all of them or those of some pages.

    Of a database only the rows of `pages` are read. Raises DataError with file, row and
    value once a row is reached that is not of the corpus.
    """
    read_rows, entries_of = CORPORA[name]
    for number, row in enumerate(
        read_rows(rows.existing_path(path, True), pages), start=1
    ):
        try:
            if isinstance(row, RowError):
                raise row
            if not isinstance(row, Mapping):
                raise RowError("not a JSON object")
            for entry in entries_of(row):
                if pages is None or entry.doc_id in pages:
                    yield entry
        except RowError as error:
            raise DataError(
                f"{path}, row {number}: {error.args[0]}: {str(row)[:80]!r}; mend "
                "the row, or fetch the file again"
            ) from None


def _fever_page(row: Row) -> list[Chunk]:
    """FEVER's Wikipedia of June 2017 (CC BY-SA 3.0), 5.4 million summaries.

    Rows {id, text, lines}: the id is the title; each line of `lines` has a sentence's
    number, the sentence and its links, separated by tabs. A line without a number
    continues the links of the line before. The first row of every file is empty.
    """
    title = _fever_title(rows.text(row, "id"))
    lines = (_LINE.match(line) for line in rows.text(row, "lines").split("\n"))
    sentences = {int(line[1]): _fever_text(line[2]) for line in lines if line}
    return entries_of_sentences(title, sentences) if title else []


def _feverous_page(row: Row) -> list[Chunk]:
    """FEVEROUS's Wikipedia of December 2020 (CC BY-SA 3.0), without tables and lists.

    Rows {id, data}: the title, and JSON {title, sentence_0, sentence_1, …}, in which
    [[Hook_(film)|Hook]] is a link.
    """
    page = rows.parse_json(str(row["data"]).encode())
    if not isinstance(page, Mapping):
        raise page if isinstance(page, RowError) else RowError("not a JSON object")
    title, sentences = rows.text({"title": row["id"], **page}, "title"), {}
    for name, value in page.items():
        if sentence := re.fullmatch(r"sentence_(\d{1,9})", name):
            text = rows.string(name, value)
            text = _LINK.sub(lambda link: link[1].replace("_", " "), text)
            sentences[int(sentence[1])] = text
    return entries_of_sentences(title, sentences)


def _hover_page(row: Row) -> list[Chunk]:
    """HotpotQA's Wikipedia of October 2017 (CC BY-SA 4.0), as HoVer's authors give it:
    5.2 million summaries by title."""
    title, text = rows.text(row, "id"), rows.text(row, "text")
    return [page_entry(html.unescape(title), text)] if text.strip() else []


def _abstract(row: Row) -> list[Chunk]:
    """SciFact's 5,183 abstracts (ODC-By 1.0).

    Rows {doc_id, title, abstract: [sentence, …]}. Ids have the document's number, as
    `doc_id=4983_sentence_0`; the title is in the entry's text.
    """
    number, sentences = _field(row, "doc_id", int), _field(row, "abstract", list[str])
    page = f"doc_id={number}"
    return entries_of_sentences(page, sentences, rows.text(row, "title"))


def _wiki_rows(path: Path, _: AbstractSet[str] | None) -> Iterator[Any]:
    """Read all of FEVER's files in a folder or zip."""
    files: list[Any] = list(path.rglob(WIKI_FILES))
    if zipfile.is_zipfile(path):
        packed = zipfile.ZipFile(path)
        names = [name for name in packed.namelist() if Path(name).match(WIKI_FILES)]
        files = [zipfile.Path(packed, name) for name in names]
    if not files:
        raise DataError(f"{path}: no folder or zip with files {WIKI_FILES}")
    for file in sorted(files, key=str):
        yield from rows.read_json_lines(file)


def _table_rows(
    file: Path, pages: AbstractSet[str] | None, columns: str, table: str
) -> Iterator[dict[str, Any]]:
    """Read a SQLite table. For `pages` the titles are looked up in the table's index,
    and only their rows are read."""

    def wanted(title: object) -> bool:
        names = {page_id(str(title)), page_id(html.unescape(str(title)))}
        return pages is None or not pages.isdisjoint(names)

    uri, query = f"{file.resolve().as_uri()}?mode=ro", f"SELECT {columns} FROM {table}"
    if pages is not None:
        query += f" WHERE id IN (SELECT id FROM {table} WHERE wanted(id))"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.row_factory = sqlite3.Row
            database.create_function("wanted", 1, wanted, deterministic=True)
            yield from map(dict, database.execute(query))
    except sqlite3.Error as error:
        raise DataError(
            f"{file}: no SQLite file with {table}({columns}): {error}; fetch it again"
        ) from None


# file → what reads its rows, what makes entries of a row
CORPORA: dict[str, tuple[Callable[..., Iterator], Callable[..., list[Chunk]]]] = {
    "feverous_wikiv1.db": (
        partial(_table_rows, columns="id, data", table="wiki"),
        _feverous_page,
    ),
    "wiki_wo_links.db": (
        partial(_table_rows, columns="id, text", table="documents"),
        _hover_page,
    ),
    "wiki-pages": (_wiki_rows, _fever_page),
    "corpus.jsonl": (lambda path, _: rows.read_file(path), _abstract),
}
CORPUS_OF = {  # set → what its claims are verified in
    "fever": "wiki-pages",
    "feverous": "feverous_wikiv1.db",
    "exfever": "wiki_wo_links.db",
    "scifact": "corpus.jsonl",
    "hover": "wiki_wo_links.db",
}
