"""English Wikipedia of 1 April 2023, RLFH's retrieval corpus (§4.1), as published with
FActScore: a SQLite file of 20 GB, documents(title, text)."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from factkit.data.corpus import Chunk, Document
from factkit.data.examples import DataError
from factkit.run.files import file_checksum

SEPARATOR = "####SPECIAL####SEPARATOR####"  # between a page's passages of 256 tokens
_MARKS = re.compile(r"</?s>")  # at the ends of a passage
CREDIT = "English Wikipedia of 2023-04-01, CC BY-SA 3.0"
BY_HAND = (
    "fetch enwiki-20230401.db by hand, from the Google Drive that "
    "github.com/shmsw25/FActScore links to (file 1mekls6OGOKLmt7gYtHs0WGf5oTamTNat)"
)


class Wikipedia:
    """A mapping of titles to pages, and an iterable of all passages. key: the file's
    SHA-256. Raises DataError if the file is missing or is another one."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise DataError(f"wikipedia_path: no file {path}; {BY_HAND}")
        self.path, self.key = path, file_checksum(path)

    def __iter__(self) -> Iterator[Chunk]:
        """Each passage, after the title of its page, which is its doc_id."""
        for title, text in self._read(""):
            for i, passage in enumerate(_passages(text)):
                words = len(passage.split())
                yield Chunk(f"{title}#{i}", title, f"{title}\n{passage}", words)

    def __getitem__(self, title: str) -> Document:
        """The whole page; KeyError if there is none with this title."""
        for _, text in self._read("WHERE title = ?", title):
            return Document(title, title, "\n".join(_passages(text)), CREDIT)
        raise KeyError(title)

    def _read(self, where: str, *values: str) -> Iterator[tuple[str, str]]:
        uri = f"{self.path.resolve().as_uri()}?mode=ro"
        query = f"SELECT title, text FROM documents {where}"
        try:
            with closing(sqlite3.connect(uri, uri=True)) as database:
                yield from database.execute(query, values)
        except sqlite3.Error as error:
            raise DataError(
                f"{self.path}: no SQLite file with documents(title, text): {error}; "
                f"{BY_HAND}"
            ) from None


def _passages(text: str) -> list[str]:
    parts = (_MARKS.sub(" ", part) for part in text.split(SEPARATOR))
    return [passage for passage in (" ".join(p.split()) for p in parts) if passage]
