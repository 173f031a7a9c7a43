"""Answers kept on disk as JSON, in a folder that any number of processes may share."""

import json
import sqlite3
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

T = TypeVar("T")

FILE = "answers.db"
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


class Cache:
    """JSON values by key. A fault in it costs what it holds, never what is asked for.

    The folder of a damaged one is moved to <name>.damaged-<n> with a warning, and an
    empty cache takes its place.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._one_at_a_time = threading.Lock()
        with FileLock(f"{self.folder}.lock"):  # no one sees a cache half made
            try:
                self._database = _opened(self.folder / FILE)
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", DAMAGE[0]) & 0xFF not in DAMAGE:
                    raise  # a full disk, say, or one that can't be written to
                aside = _free_name(self.folder)
                self.folder.rename(aside)
                self.folder.mkdir()
                self._database = _opened(self.folder / FILE)
                warnings.warn(
                    f"{self.folder}: a damaged cache ({error}); moved to {aside.name}, "
                    "an empty one is used",
                    stacklevel=2,
                )

    def kept(self, key: str, read: Callable[[Any], T]) -> T | None:
        """read(what is kept under a key); None without, or if `read` can't."""
        try:
            with self._one_at_a_time:
                query = "SELECT value FROM Answers WHERE key = ?"
                row = self._database.execute(query, (key,)).fetchone()
            return None if row is None else read(json.loads(row[0]))
        except Exception as error:  # of a row, or a file cut since it was opened
            self._warn("not read", error)
            return None

    def keep(self, key: str, value: Any) -> None:
        """Keep a JSON value, or warn that it can't be."""
        try:
            with self._one_at_a_time:
                change = "INSERT OR REPLACE INTO Answers VALUES (?, ?)"
                self._database.execute(change, (key, json.dumps(value)))
        except Exception as error:  # a full disk must not cost the answer
            self._warn("not cached", error)

    def close(self) -> None:
        """Close the file; what is asked for afterwards is not kept."""
        self._database.close()

    def _warn(self, what: str, error: Exception) -> None:
        why = str(error) or type(error).__name__
        warnings.warn(f"{self.folder}: {what}: {why}", stacklevel=3)


def _opened(file: Path) -> sqlite3.Connection:
    """A sound database. Raises DatabaseError on damage, or on another one."""
    database = sqlite3.connect(
        file, timeout=60, isolation_level=None, check_same_thread=False
    )
    try:
        ((state,),) = database.execute("PRAGMA quick_check(1)").fetchall()
        if state != "ok":
            raise sqlite3.DatabaseError(state.strip().splitlines()[-1])
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        table = "Answers (key TEXT PRIMARY KEY, value TEXT)"
        database.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        database.execute("SELECT key, value FROM Answers LIMIT 1")
    except BaseException:
        database.close()
        raise
    return database


def _free_name(folder: Path) -> Path:
    n = 1
    while (aside := folder.with_name(f"{folder.name}.damaged-{n}")).exists():
        n += 1
    return aside
