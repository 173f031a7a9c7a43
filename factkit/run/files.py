"""Files that are written whole or not at all, and the cache folder."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from factkit.run.failures import RunFailure, writing
from factkit.run.paths import cache_path


def cache_dir() -> Path:
    """The cache folder. Raises RunFailure if it can't be created."""
    folder = cache_path()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFailure(
            f"{folder}, the cache folder, can't be created ({error.strerror}): set "
            "FACTKIT_CACHE to a folder that can be written"
        ) from None
    return folder


def file_checksum(path: Path) -> str:
    """A file's SHA-256: a gigabyte takes about a second."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_files(path: Path) -> list[Path]:
    """The files below a folder, sorted, without hidden ones; of a file, itself."""
    if not path.is_dir():
        return [path]
    return [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that readers see the whole old or the whole new one, also after a
    power failure. Text is written as UTF-8."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data = content.encode() if isinstance(content, str) else content
    try:
        with writing(path), temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # it must not hide the first error
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to fill; it appears as `folder` after the block, complete. If the
    block fails, nothing is left."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with writing(folder):
            partial.mkdir()
            yield partial
            rename_whole(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def rename_whole(partial: Path, folder: Path) -> None:
    """Rename a folder after all its files are on the disk."""
    for path in partial.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    partial.rename(folder)
