"""A user's own files: rows with questions, requests or claims, and documents.

`rows` reads them: `datasets` makes 7.0 of the answer "007", and nothing of "None".
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factkit.data import rows
from factkit.data.corpus import Document
from factkit.data.examples import (
    LABELS,
    LONG_FORM,
    MAX_QUESTION_CHARS,
    OPEN,
    DataError,
    Example,
    digest,
    hash_id,
)
from factkit.data.questions import distinct
from factkit.data.rows import Row, RowError
from factkit.data.sources import Loaded, collect
from factkit.run.files import list_files
from factkit.run.params.own import OWN

ROW_FILES = (".csv", ".jsonl", ".json", ".parquet")
TEXT_FILES = (".txt", ".md")
MAX_DOCUMENT_CHARS = 1_000_000
MAX_ANSWER_CHARS = MAX_QUESTION_CHARS
# a label in lower case, without a last s
LABEL_OF = {
    **{label.casefold(): label for label in LABELS},
    "supported": LABELS[0],
    "refuted": LABELS[1],
    "contradicted": LABELS[1],
    "nei": LABELS[2],
}


@dataclass(frozen=True)
class Fields:
    """The names of the fields of a user's rows.

    answer: its field holds one text or number, a list of them, or, with a separator,
    several in one text; empty for rows without answers. Of a claim it is the label.
    group: rows of one group are never in two splits; empty: each row is a group of its
    own. evidence: of a claim, the titles or ids of the documents that settle it, as
    answers are written.
    """

    question: str = "question"
    answer: str = "answer"
    separator: str = ""
    group: str = ""
    evidence: str = ""

    def group_of(self, row: Row, name: str) -> str:
        """The row's group; `name` where it has none."""
        value = row.get(self.group)
        return name if value is None else _plain(self.group, value) or name


def load_rows(
    path: Path, fields: Fields, example: Callable[[Row, Fields], Example]
) -> Loaded:
    """Make an example of each row of a file, and count each reason to drop one.

    path: .csv, .jsonl, .json or .parquet, the first three also packed (.gz, .bz2). A
    row is dropped as in `sources.collect`, and where its question repeats one. Raises
    DataError on another or a damaged file, and where no row has one of the fields or
    is usable.
    """
    values = list(read_rows(path))
    names = {name for value in values if isinstance(value, dict) for name in value}
    wanted = fields.question, fields.answer, fields.group, fields.evidence
    for name in filter(None, wanted):
        if names and name not in names:
            known = ", ".join(sorted(map(repr, names)))
            raise DataError(
                f"{path}: no field {name!r} among {known[:300]}; name the fields by "
                "question_field, answer_field, group_field …"
            )
    return collect(values, lambda row: example(row, fields), str(path), once=True)


def read_rows(path: Path) -> Iterator[Any]:
    """The rows of a file. Raises DataError on a file of another kind."""
    if _suffix(path) not in ROW_FILES:
        raise DataError(f"{path}: save it as one of {', '.join(ROW_FILES)}")
    yield from rows.read_file(path)


def question(row: Row, fields: Fields) -> Example:
    """A question with its short answers."""
    text = _plain(fields.question, row.get(fields.question))
    name = hash_id(OWN, text)
    return Example(
        id=name,
        question=text,
        answers=_texts(row, fields.answer, fields.separator, MAX_ANSWER_CHARS),
        entity=fields.group_of(row, name),
    )


def request(row: Row, fields: Fields) -> Example:
    """A request for a long answer; an answer is a reference to search evidence with."""
    text = _plain(fields.question, row.get(fields.question))
    name, answers = hash_id(OWN, text), []
    if fields.answer:
        answers = _texts(row, fields.answer, fields.separator, MAX_DOCUMENT_CHARS)
    return Example(
        id=name,
        question=text,
        answers=answers,
        entity=fields.group_of(row, name),
        label=LONG_FORM,
        meta={"kind": OPEN},
    )


def claim(row: Row, fields: Fields, pages: Mapping[str, str]) -> Example:
    """A claim with its label and gold evidence, which only NOT ENOUGH INFO may lack.

    pages: the title and the id of each document → the id of its entry. The group is by
    default the document of the first evidence.
    """
    text = _plain(fields.question, row.get(fields.question))
    told = _plain(fields.answer, row.get(fields.answer))
    label = LABEL_OF.get(told.casefold().rstrip("s"))
    if not label:
        raise RowError(f"{fields.answer}: {told[:30]!r} is none of {', '.join(LABELS)}")
    named = []
    if row.get(fields.evidence):
        named = _texts(row, fields.evidence, fields.separator, MAX_ANSWER_CHARS)
    if unknown := [title for title in named if title.casefold() not in pages]:
        raise RowError(f"{fields.evidence}: no document {unknown[0][:60]!r}")
    evidence = list(dict.fromkeys(pages[title.casefold()] for title in named))
    if not evidence and label != LABELS[-1]:
        raise RowError("no evidence")
    name = hash_id(OWN, text)
    return Example(
        id=name,
        question=text,
        answers=[label],
        entity=fields.group_of(row, [*evidence, name][0]),
        relation=label,  # splits take one of each in turn
        label=label,
        evidence=evidence,
        meta={"set": OWN, "hops": len(evidence) or 1},
    )


def _texts(row: Row, name: str, separator: str, most: int) -> list[str]:
    """The different texts of a field: of a list, or of one text with separators."""
    value = row.get(name)
    values = value if isinstance(value, list) else [value]
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            values = rows.texts(row, name)
        except RowError:  # a text that only begins so
            values = [value]
    if isinstance(value, str) and separator and values == [value]:
        values = value.split(separator)
    texts = [_plain(name, v) for v in values if v is not None]
    if any(len(text) > most for text in texts):
        raise RowError(f"{name} longer than {most} characters")
    return distinct(texts)


def _plain(name: str, value: Any) -> str:
    """A text without spaces around it, or a number as text: a table that lacks some
    years has the others as 1815.0."""
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value) if value.is_integer() else value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return rows.string(name, value).strip()


# ---- documents


def load_documents(path: Path) -> tuple[list[Document], Counter]:
    """A user's documents, and how many were dropped for which reason.

    path: a folder with .txt, .md and row files, at any depth, or one such file. A .txt
    or .md file is one document, its title a Markdown heading in its first line, else
    the file's name; a row is one with the fields `text` and, if it has them, `title`
    and `id`. Dropped are empty texts, repeated ones, those longer than
    MAX_DOCUMENT_CHARS, those that are not UTF-8, and files of another kind. Raises
    DataError on a damaged file of rows, and if no document is left.
    """
    path = rows.existing_path(path, folder=True)
    problems: Counter = Counter()
    documents: dict[str, Document] = {}
    texts: set[str] = set()
    for value in _document_values(path):
        try:
            if isinstance(value, RowError):
                raise value
            problem = _find_problem(value, documents, texts)
            if problem:
                raise RowError(problem)
        except RowError as error:
            problems[error.args[0]] += 1
            continue
        documents[value.id] = value
        texts.add(digest(value.text))
    if not documents:
        raise DataError(f"{path}: no usable document ({dict(problems)})")
    return list(documents.values()), problems


def _find_problem(document: Document, ids: Iterable[str], texts: set[str]) -> str:
    if not document.text:
        return "empty document"
    if len(document.text) > MAX_DOCUMENT_CHARS:
        return f"document longer than {MAX_DOCUMENT_CHARS} characters"
    if digest(document.text) in texts:
        return "duplicate text"
    return "duplicate id" if document.id in ids else ""


def _document_values(path: Path) -> Iterator[Document | RowError]:
    """Yield documents; a RowError takes the place of one that can't be read."""
    for file in list_files(path):
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        if _suffix(file) in ROW_FILES:
            for number, row in enumerate(read_rows(file), start=1):
                yield _row_document(row, f"{name}#{number}", name)
        elif file.suffix.casefold() in TEXT_FILES:
            try:
                yield _text_document(rows.open_text(file).read(), name, file.stem)
            except UnicodeDecodeError:
                yield RowError(f"not UTF-8: {name}")
        else:
            yield RowError(f"a {file.suffix or 'nameless'} file, not text")


def _text_document(text: str, name: str, title: str) -> Document:
    first, _, rest = text.strip().partition("\n")
    if first.startswith("# "):
        title, text = first.removeprefix("# ").strip(), rest
    return Document(name, title, text.strip(), name)


def _row_document(row: Any, name: str, source: str) -> Document | RowError:
    if isinstance(row, RowError):
        return row
    try:
        if not isinstance(row, dict):
            raise RowError("not a JSON object")
        text = _plain("text", row.get("text"))
        title = rows.optional(row, "title").strip() or name
        name = _plain("id", row["id"]) if row.get("id") is not None else name
    except RowError as error:
        return error
    return Document(name, title, text, source)


def _suffix(path: Path) -> str:
    plain = path.name.removesuffix(".gz").removesuffix(".bz2")
    return Path(plain).suffix.casefold()
