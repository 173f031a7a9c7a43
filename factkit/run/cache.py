"""A cache of JSON values on disk that processes share and that survives damage."""

import json
import sqlite3
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from filelock import FileLock

FILE = "answers.db"  # in the cache's folder


class Cache:
    """JSON values by key, in an SQLite file that any number of processes may share.

    A value that cannot be read or written causes a warning, never an error. A damaged
    folder is moved to <name>.damaged-<time>, with a warning, and replaced by an empty
    one. Raises OSError or sqlite3.OperationalError if the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).absolute()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        with FileLock(f"{self.folder}.lock"):  # one process at a time checks the file
            try:
                self._database = _open(self.folder)
            except sqlite3.OperationalError:  # a full or read-only disk
                raise
            except sqlite3.DatabaseError as error:
                damaged = f"{self.folder.name}.damaged-{time.time_ns()}"
                self.folder.rename(self.folder.with_name(damaged))
                self._database = _open(self.folder)
                self._warn(f"damaged, moved to {damaged}", error)

    def get(self, key: str) -> Any:
        """Return the value stored under a key, or None."""
        try:
            row = self._execute("SELECT value FROM Answers WHERE key = ?", key)
            return json.loads(row[0]) if row else None
        except Exception as error:
            self._warn("not read", error)

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value under a key."""
        try:
            text = json.dumps(value)
            self._execute("INSERT OR REPLACE INTO Answers VALUES (?, ?)", key, text)
        except Exception as error:
            self._warn("not cached", error)

    def _execute(self, statement: str, *values: str) -> tuple[str] | None:
        with self._lock:
            return self._database.execute(statement, values).fetchone()

    def _warn(self, problem: str, error: Exception) -> None:
        warnings.warn(f"{self.folder}: {problem}: {error}", stacklevel=3)


def _open(folder: Path) -> sqlite3.Connection:
    """Open the database and check it. Raises sqlite3.DatabaseError if it is damaged."""
    folder.mkdir(exist_ok=True)
    database = sqlite3.connect(
        folder / FILE, timeout=60, isolation_level=None, check_same_thread=False
    )
    (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        raise sqlite3.DatabaseError(state)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    table = "Answers (key TEXT PRIMARY KEY, value TEXT)"
    database.execute(f"CREATE TABLE IF NOT EXISTS {table}")
    return database
