"""JSON values on disk, shared by processes, that survive damage."""

import json
import sqlite3
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from filelock import FileLock

FILE = "answers.db"  # of a cache's folder


class Cache:
    """JSON values by key. A fault in it costs what it holds, never what is asked for.

    The folder of a damaged one is moved to <name>.damaged-<time> with a warning, and an
    empty cache takes its place.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).absolute()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._one_at_a_time = threading.Lock()
        with FileLock(f"{self.folder}.lock"):  # no one sees a cache half made
            self.folder.mkdir(exist_ok=True)
            try:
                self._database = _opened(self.folder / FILE)
            except sqlite3.OperationalError:
                raise  # a full disk, say, or one that can't be written to
            except sqlite3.DatabaseError as error:
                aside = f"{self.folder.name}.damaged-{time.time_ns()}"
                self.folder.rename(self.folder.with_name(aside))
                self.folder.mkdir()
                self._database = _opened(self.folder / FILE)
                self._warn(f"damaged, moved to {aside}", error)

    def kept(self, key: str) -> Any:
        """The value that is kept under a key, or None."""
        try:
            with self._one_at_a_time:
                query = "SELECT value FROM Answers WHERE key = ?"
                row = self._database.execute(query, (key,)).fetchone()
            return None if row is None else json.loads(row[0])
        except Exception as error:  # of a row, or a file cut since it was opened
            self._warn("not read", error)

    def keep(self, key: str, value: Any) -> None:
        """Keep a JSON value, or warn that it can't be."""
        try:
            with self._one_at_a_time:
                change = "INSERT OR REPLACE INTO Answers VALUES (?, ?)"
                self._database.execute(change, (key, json.dumps(value)))
        except Exception as error:  # a full disk must not cost the answer
            self._warn("not cached", error)

    def _warn(self, what: str, error: Exception) -> None:
        warnings.warn(f"{self.folder}: {what}: {error}", stacklevel=3)


def _opened(file: Path) -> sqlite3.Connection:
    """A sound database. Raises DatabaseError on damage."""
    database = sqlite3.connect(
        file, timeout=60, isolation_level=None, check_same_thread=False
    )
    ((state,),) = database.execute("PRAGMA quick_check(1)").fetchall()
    if state != "ok":
        raise sqlite3.DatabaseError(state)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    table = "Answers (key TEXT PRIMARY KEY, value TEXT)"
    database.execute(f"CREATE TABLE IF NOT EXISTS {table}")
    return database
