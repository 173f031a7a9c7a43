"""The paper's claims (§3.1, App. E) and the corpora that they are verified in.

| set | file | evidence | labels | corpus: its entries |
|---|---|---|---|---|
| fever | its JSON lines | sentences | three | wiki-pages: three sentences |
| feverous | its JSON lines | sentences | three | feverous_wikiv1.db: the same |
| exfever | its CSV | pages | three | as HoVer |
| scifact | claims_….jsonl | sentences | three | corpus.jsonl: three sentences |
| hover | its JSON | pages | SUPPORT or not | wiki_wo_links.db: a page's summary |
| veri_r1 | the published .parquet or its JSON lines | as its rows' set | | |

An example's `question` is the claim, `label` one of LABELS, `answers` the
labels that count as right, `evidence` the ids of the gold evidence
(`retrieval.entries`), `entity` the page of the first, `meta["set"]` the set. In FEVER
and SciFact a claim of NOT ENOUGH INFO has no evidence.

What the paper leaves open is as in its published files (H0key-22/Veri-R1 on GitHub):
- Where FEVER offers several sets of evidence, each enough by itself, all of them are
  gold: so in each of the 91 of 900 published claims that have several. FEVEROUS and
  SciFact are read alike.
- HoVer's NOT_SUPPORTED may be refuted or lack information: any label but SUPPORT is
  right, and as for NOT ENOUGH INFO no evidence is needed (the last columns of Tables 7
  and 8 are equal). Its evidence is annotated by sentence; pages are scored.
- Of HoVer there are 500 claims a label (the paper's App. E says 448). The 237 of
  SciFact are of its training and its development claims.

Of FEVEROUS, claims are left out whose evidence is in tables, lists or titles. In the
published training file this was perhaps not so: in 9 % of its claims the annotator had
also marked such an element.
"""

import html
import random
import re
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, TypeAdapter, ValidationError

from factkit.data import rows
from factkit.data.corpus import Chunk
from factkit.data.entries import (
    entries_of_sentences,
    page_entry,
    page_id,
    page_of,
    sentence_id,
)
from factkit.data.examples import LABELS, DataError, Example, digest
from factkit.data.rows import Loaded, Row, RowError, Source

SUPPORT, REFUTE, NEI = LABELS
NOT_SUPPORTED = "NOT_SUPPORTED"  # HoVer's
WRITTEN = {
    **dict.fromkeys(("SUPPORT", "SUPPORTS", "SUPPORTED"), SUPPORT),
    **dict.fromkeys(("REFUTE", "REFUTES", "CONTRADICT"), REFUTE),
    "NOT ENOUGH INFO": NEI,
    NOT_SUPPORTED: NOT_SUPPORTED,
}
HOPS = 2  # of HoVer's claims (App. E)
ESCAPED = dict(zip("-LRB- -RRB- -LSB- -RSB- -COLON-".split(), "()[]:", strict=True))
WIKI = "wiki-*.jsonl"  # files of FEVER's Wikipedia
_SENTENCE = re.compile(r"(.+)_sentence_(\d{1,9})", re.DOTALL)
_LINE = re.compile(r"(\d{1,9})\t([^\t\n]*)")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")


def load(name: str, path: str) -> Loaded:
    """The claims of a set's file; see `rows.load`."""
    return rows.load(SOURCES, name, path)


def balanced(
    examples: Sequence[Example], per_label: int, labels: Sequence[str] = LABELS
) -> list[Example]:
    """`per_label` examples of each label (§3.2), drawn at random, in their order.

    labels: HoVer has SUPPORT and NOT ENOUGH INFO only. Raises DataError where a label
    has too few examples.
    """
    drawn: set[str] = set()
    for label in labels:
        ids = [e.id for e in examples if e.label == label]
        if len(ids) < per_label:
            raise DataError(
                f"{per_label} claims a label: there are {len(ids)} with {label!r}; "
                "ask for fewer, or add claims"
            )
        drawn |= set(random.Random(f"balanced 0 {label}").sample(ids, per_label))
    return [e for e in examples if e.id in drawn]


def _fever_text(written: str) -> str:
    """FEVER's text with brackets and colons for -LRB-, -COLON- and their like."""
    return re.sub("|".join(ESCAPED), lambda match: ESCAPED[match[0]], written)


def _fever_title(written: str) -> str:
    """A title of FEVER's as Wikipedia writes it: Hook_-LRB-film-RRB- → Hook (film)."""
    return _fever_text(written.replace("_", " "))


# ---- a row's claim


def _fever(row: Row) -> Example:
    """FEVER (Thorne et al. 2018): train.jsonl, paper_dev.jsonl and their like.

    Evidence is sets of [annotation, evidence, page, sentence], the last two null for
    NOT ENOUGH INFO.
    """
    named = tuple[Any, Any, str, NonNegativeInt] | tuple[Any, Any, None, None]
    groups = _field(row, "evidence", list[list[named]])
    items = [item for group in groups for item in group]
    gold = [sentence_id(_fever_title(page), n) for *_, page, n in items if page]
    return _claim("fever", row, gold)


def _feverous(row: Row) -> Example:
    """FEVEROUS (Aly et al. 2021): feverous_train_challenges.jsonl and its like.

    The first row of the official files is empty. Of a claim's sets of evidence those
    are gold that hold sentences only; a claim without such a set is dropped.
    """
    if not rows.text(row, "claim").strip():
        raise RowError("empty question")
    gold = []
    for annotation in rows.objects(row, "evidence"):
        elements = _field(annotation, "content", list[str])
        matches = [_SENTENCE.fullmatch(element) for element in elements]
        if all(matches):
            gold += [sentence_id(match[1], int(match[2])) for match in matches]
    if not gold:
        raise RowError("no evidence of sentences only")
    return _claim("feverous", row, gold, rows.optional(row, "challenge"))


def _exfever(row: Row) -> Example:
    """EX-FEVER (Ma et al. 2023): a CSV with claim, label and "golden entity".

    The rows have no id: it is a hash of the claim.
    """
    gold = [
        page_id(title.replace("_", " ")) for title in rows.texts(row, "golden entity")
    ]
    own_id = digest(rows.text(row, "claim").strip())
    return _claim("exfever", row | {"id": own_id}, gold, f"{len(set(gold))}hop")


def _scifact(row: Row) -> Example:
    """SciFact (Wadden et al. 2020): claims_train.jsonl, claims_dev.jsonl.

    Evidence is {document: [{sentences, label}, …]}. CONTRADICT is REFUTE, no evidence
    NOT ENOUGH INFO (App. E).
    """
    gold, labels = [], set()
    for document, rationales in _field(row, "evidence", dict[str, list[dict]]).items():
        for rationale in rationales:
            labels.add(_label(rationale))
            numbers = _field(rationale, "sentences", list[NonNegativeInt])
            gold += [sentence_id(f"doc_id={document}", n) for n in numbers]
    if len(labels) > 1:
        raise RowError("evidence for and against the claim")
    return _claim("scifact", row | {"label": labels.pop() if labels else NEI}, gold)


def _hover(row: Row) -> Example:
    """HoVer (Jiang et al. 2020): hover_dev_release_v1.1.json; claims of two hops."""
    if row.get("num_hops") != HOPS:
        raise RowError(f"not of {HOPS} hops")
    titles = [title for title, _ in rows.titled(row, "supporting_facts", "sentence")]
    gold = [page_id(html.unescape(title)) for title in titles]
    return _claim("hover", row | {"id": row.get("uid")}, gold, f"{HOPS}hop")


def _veri_r1(row: Row) -> Example:
    """Veri-R1's published claims: a .parquet file of its training or of a test set.

    Or the same as JSON lines {id, claim, label, evidence, source}. The 8,192 rows of
    its training file have 7,097 ids: rarer labels were drawn more than once, and that
    is dropped here ("duplicate id").
    """
    if "golden_answers" in row:  # of the parquet file
        source, gold = row.get("data_source"), row["golden_answers"]
        row = {"id": row.get("id"), "claim": row.get("question"), "source": source}
        row |= gold if isinstance(gold, Mapping) else {}
    source = rows.text(row, "source")
    if source not in SETS:
        raise RowError("source: none of " + ", ".join(SETS))
    evidence = _field(row, "evidence", list[str])
    if source == "fever":
        pages = [(page_of(e), e) for e in evidence]
        evidence = [_fever_title(page) + e.removeprefix(page) for page, e in pages]
    elif source == "hover":
        evidence = [html.unescape(page_of(e)) for e in evidence]
    own_id = str(_field(row, "id", int | str)).removeprefix("exfever_")
    return _claim(source, row | {"id": own_id}, map(page_id, evidence))


def _claim(name: str, row: Row, evidence: Iterable[str], relation: str = "") -> Example:
    """The example of a row, with each evidence once. RowError without evidence where
    the label is nothing without it."""
    gold, label = list(dict.fromkeys(evidence)), _label(row)
    if not gold and label != NEI:
        raise RowError("no evidence")
    own_id = f"{name}-{_field(row, 'id', int | str)}"
    hops = {"hover": HOPS, "exfever": len(gold) or 1}.get(name, 1)  # pages
    answers = [NEI, REFUTE] if label == NOT_SUPPORTED else [label]
    return Example(
        id=own_id,
        question=rows.text(row, "claim").strip(),
        answers=answers,
        entity=page_of(gold[0]) if gold else own_id,
        relation=relation,
        label=answers[0],
        evidence=gold,
        meta={"set": name, "hops": hops},
    )


def _label(row: Row) -> str:
    """One of LABELS, or HoVer's NOT_SUPPORTED; RowError on another."""
    written = rows.text(row, "label")
    if written not in WRITTEN:
        raise RowError(f"label: {written[:30]!r} is none that is known")
    return WRITTEN[written]


def _field(row: Row, name: str, kind: Any) -> Any:
    """A field of that type; RowError if it is none."""
    try:
        return TypeAdapter(kind).validate_python(row.get(name))
    except ValidationError as error:
        raise RowError(f"{name}: {error.errors()[0]['msg']}") from None


# ---- a corpus's entries, row by row; sentences are numbered as the evidence is


def entries(
    name: str, path: str | Path, pages: AbstractSet[str] | None = None
) -> Iterator[Chunk]:
    """The entries of one of `CORPORA`, as they are read, or those of some pages: of a
    database no other page is read.

    Raises DataError, with file, row and value, on a row that is not of the corpus, once
    it is reached.
    """
    values_of, entries_of = CORPORA[name]
    values = values_of(rows.existing(path, folder=True), pages)
    for number, row in enumerate(values, start=1):
        try:
            if isinstance(row, RowError):
                raise row
            if not isinstance(row, Mapping):
                raise RowError("not a JSON object")
            made = entries_of(row)
            yield from (e for e in made if pages is None or e.doc_id in pages)
        except RowError as error:
            raise DataError(
                f"{path}, row {number}: {error.args[0]}: {str(row)[:80]!r}; mend "
                "the row, or fetch the file again"
            ) from None


def _fever_page(row: Row) -> list[Chunk]:
    """FEVER's Wikipedia of June 2017 (CC BY-SA 3.0), 5.4 million summaries.

    Rows {id, text, lines}: the id is the title, a line of `lines` a sentence's number,
    the sentence and its links, between tabs. What of a line is no number and sentence
    belongs to the line before, and is links. The first row of every file is empty.
    """
    title = _fever_title(rows.text(row, "id"))
    lines = (_LINE.match(line) for line in rows.text(row, "lines").split("\n"))
    numbered = {int(line[1]): _fever_text(line[2]) for line in lines if line}
    return entries_of_sentences(title, numbered) if title else []


def _feverous_page(row: Row) -> list[Chunk]:
    """FEVEROUS's Wikipedia of December 2020 (CC BY-SA 3.0), without tables and lists.

    Rows {title, sentence_0, sentence_1, …}; [[Hook_(film)|Hook]] is a link.
    """
    numbered = {}
    for name, value in row.items():
        if sentence := re.fullmatch(r"sentence_(\d{1,9})", name):
            text = rows.string(name, value)
            text = _LINK.sub(lambda link: link[1].replace("_", " "), text)
            numbered[int(sentence[1])] = text
    return entries_of_sentences(rows.text(row, "title"), numbered)


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
    title = f"doc_id={number}"
    return entries_of_sentences(title, sentences, rows.text(row, "title"))


def _wiki_pages(path: Path, pages: AbstractSet[str] | None) -> Iterator[Any]:
    """The rows of all files of a folder or zip."""
    files = list(path.rglob(WIKI))
    if zipfile.is_zipfile(path):
        packed = zipfile.ZipFile(path)
        names = [name for name in packed.namelist() if Path(name).match(WIKI)]
        files = [zipfile.Path(packed, name) for name in names]
    if not files:
        raise DataError(f"{path}: no folder or zip with files {WIKI}")
    for file in sorted(files, key=str):
        yield from rows.json_lines(file)


def _feverous_wiki(path: Path, pages: AbstractSet[str] | None) -> Iterator[Any]:
    """Pages with their titles, which the database has apart from their JSON."""
    for row in _table(path, pages, "id, data", "wiki"):
        page = rows.parsed(str(row["data"]).encode())
        yield {"title": row["id"]} | page if isinstance(page, dict) else page


def _table(
    file: Path, pages: AbstractSet[str] | None, columns: str, table: str
) -> Iterator[dict[str, Any]]:
    """The rows of a SQLite table, as they are read, or those of some pages: the titles
    are gone through in the table's index, and their rows alone are read."""

    def wanted(title: object) -> bool:
        names = {page_id(str(title)), page_id(html.unescape(str(title)))}
        return not pages.isdisjoint(names)

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


SETS = {
    "fever": Source(_fever),
    "feverous": Source(_feverous),
    "exfever": Source(_exfever),
    "scifact": Source(_scifact),
    "hover": Source(_hover),
}
SOURCES = SETS | {"veri_r1": Source(_veri_r1)}
CORPORA = {  # name → what reads its rows, what makes entries of a row
    "feverous_wikiv1.db": (_feverous_wiki, _feverous_page),
    "wiki_wo_links.db": (
        partial(_table, columns="id, text", table="documents"),
        _hover_page,
    ),
    "wiki-pages": (_wiki_pages, _fever_page),
    "corpus.jsonl": (lambda path, pages: rows.of_file(path), _abstract),
}
CORPUS_OF = {  # set → what it is verified in
    "fever": "wiki-pages",
    "feverous": "feverous_wikiv1.db",
    "exfever": "wiki_wo_links.db",
    "scifact": "corpus.jsonl",
    "hover": "wiki_wo_links.db",
}
