"""Answers kept on disk as JSON, in a folder that any number of processes may share."""

import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import diskcache
from diskcache.core import DEFAULT_SETTINGS, MODE_RAW
from filelock import FileLock

T = TypeVar("T")

SETTINGS = DEFAULT_SETTINGS | {
    "eviction_policy": "none",  # by default it would drop the oldest beyond 1 GB
    "cull_limit": 0,
    "disk_compress_level": 1,  # this one tells a cache of JSON from diskcache's usual
    "disk_min_file_size": 2**30,  # values lie in the database, none in a file
    "sqlite_mmap_size": 0,  # a mapped file that another process cuts kills the reader
}


class JsonDisk(diskcache.JSONDisk):
    """JSON alone: diskcache's own disk reads pickles and files where a row says so."""

    def get(self, key: Any, raw: bool) -> Any:
        return super().get(key, raw=True)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode != MODE_RAW or filename is not None:
            raise ValueError("an entry that is no JSON")
        return super().fetch(mode, filename, value, read)

    def remove(self, file_path: str) -> None:
        """No entry has a file, whatever a row says."""


class Cache(diskcache.Cache):
    """JSON values by key. A fault in it costs what it holds, never what is asked for.

    A folder with another kind of cache, or a damaged one, is moved to
    <name>.damaged-<n> with a warning, and an empty cache takes its place.
    """

    def __init__(self, folder: Path) -> None:
        folder = Path(folder).absolute()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):  # no one sees a cache half made
            if why := _fault(folder / "cache.db"):
                aside = _free_name(folder)
                folder.rename(aside)
                warnings.warn(
                    f"{folder}: {why}; moved to {aside.name}, an empty one is used",
                    stacklevel=3,
                )
            super().__init__(str(folder), disk=JsonDisk, **SETTINGS)

    def kept(self, key: str, read: Callable[[Any], T]) -> T | None:
        """read(what is kept under a key); None without, or if `read` can't."""
        try:
            value = self.get(key, retry=True)
            return None if value is None else read(value)
        except Exception as error:  # of a row, or a file cut since it was opened
            self._warn("not read", error)
            return None

    def keep(self, key: str, value: Any) -> None:
        """Keep a JSON value, or warn that it can't be."""
        try:
            self.set(key, value, retry=True)
        except Exception as error:  # a full disk must not cost the answer
            self._warn("not cached", error)

    def _warn(self, what: str, error: Exception) -> None:
        why = str(error) or type(error).__name__
        warnings.warn(f"{self.directory}: {what}: {why}", stacklevel=3)


def _fault(file: Path) -> str:
    """Why a cache's database is not to be used; "" if it is sound, or not there."""
    if not file.exists():
        return ""
    try:
        with closing(sqlite3.connect(file, timeout=60)) as database:
            ((state,),) = database.execute("PRAGMA quick_check(1)").fetchall()
            settings = dict(database.execute("SELECT key, value FROM Settings"))
            rows = "SELECT 1 FROM Cache WHERE mode != ? OR filename NOT NULL LIMIT 1"
            others = database.execute(rows, (MODE_RAW,)).fetchall()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_ITS_FAULT:
            raise
        return f"a damaged cache ({error})"
    if state != "ok":
        return f"a damaged cache ({state.strip().splitlines()[-1]})"
    wanted = {key for key in SETTINGS if key.startswith(("disk_", "sqlite_"))}
    present = {key for key in settings if key.startswith(("disk_", "sqlite_"))}
    if others or present != wanted:
        return "a cache of another kind"
    return ""


_NOT_ITS_FAULT = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)


def _free_name(folder: Path) -> Path:
    n = 1
    while (aside := folder.with_name(f"{folder.name}.damaged-{n}")).exists():
        n += 1
    return aside
