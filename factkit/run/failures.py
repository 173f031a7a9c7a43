"""Error messages for users: the cause first, ten lines at most."""

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from factkit.run.paths import cache_path

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

Check = tuple[str, str, bool, str]  # what, found, whether that is fine, else the remedy

LINES, WIDTH = 10, 70  # of a message, in a terminal of 80 columns with what precedes
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_ACCESS = {errno.EROFS, errno.EACCES, errno.EPERM}
# the same in the words of safetensors, SQLite, PyTorch and Arrow
FULL_TEXT = re.compile(
    r"No space left on device|Disk quota exceeded|File too large"
    r"|database or disk is full|PytorchStreamWriter failed writing"
)
NO_ACCESS_TEXT = re.compile(
    r"Read-only file system|readonly database|unable to open database file"
)


class KitError(Exception):
    """An error with a message for users: it names the cause first, then the fix."""

    def __str__(self) -> str:
        return shorten(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Lines that IPython prints in place of the stack, which would not help."""
        return [f"{type(self).__name__}: {self}"]


class UserError(KitError, ValueError):
    """The input to the kit is wrong; the message names the input and the fix."""


class RunFailure(KitError, RuntimeError):
    """Something failed that is no mistake of the user's, as a run or a download."""


def require(checks: Iterable[Check]) -> None:
    """Raise UserError with the remedy of each check that is not fine."""
    wrong = [
        f"{what}: {found}; {remedy}" for what, found, ok, remedy in checks if not ok
    ]
    if wrong:
        raise UserError("\n".join(wrong))


def shorten(text: str) -> str:
    """A text as it is, or without its middle if it takes more than LINES lines of WIDTH
    characters: the cause stands first in a message, and the fix last."""
    lines = text.strip().splitlines()
    if sum(map(_height, lines)) <= LINES:
        return text
    backwards = [line[::-1] for line in reversed(lines)]
    tail = [line[::-1] for line in reversed(_first(backwards, 3))]
    return "\n".join([*_first(lines, LINES - 4), "…", *tail])


def _height(line: str) -> int:
    return max(1, -(-len(line) // WIDTH))


def _first(lines: Iterable[str], height: int) -> list[str]:
    """The first lines that take a height, the last of them cut off where need be."""
    taken = []
    for line in lines:
        if height <= 0:
            break
        taken.append(line[: height * WIDTH])
        height -= _height(line)
    return taken


def last_error(text: str) -> str:
    """The last line of a process's output that names an exception and its message.

    Without such a line, the last line.
    """
    named = re.findall(r"(?m)^[\w.]*(?:Error|Exception|Interrupt)[^:\n]*: \S.*", text)
    return [text, *text.strip().splitlines()[-1:], *named][-1]


# ---- files that can't be written


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Note the path on the exception if it can't be written: that of a full disk names
    no file."""
    try:
        yield
    except Exception as error:
        if explain_storage(error):
            error.add_note(str(path))
        raise


def explain_storage(error: BaseException) -> str:
    """A message on a full disk or an unwritable folder: the path and the fix.

    "" if the error has another cause.
    """
    if isinstance(error, KitError):  # it names its own fix
        return ""
    code = error.errno if isinstance(error, OSError) else None
    notes = getattr(error, "__notes__", ())
    path = getattr(error, "filename", None) or next(iter(notes), "")
    if code in FULL or FULL_TEXT.search(str(error)):
        problem, fix = "the disk is full", "free some space on it"
    elif code in NO_ACCESS and path or NO_ACCESS_TEXT.search(str(error)):
        reason = os.strerror(code) if code else str(error)
        problem, fix = f"no access ({reason})", "allow it"
    else:
        return ""
    return (
        f"{path or 'a file'}: {problem}; {fix}, or {_alternative(str(path))}, and "
        "run the command again: finished parts are kept"
    )


def _alternative(path: str) -> str:
    """The setting that puts a file elsewhere."""
    if path.startswith(str(cache_path())):
        return "set FACTKIT_CACHE to another folder"
    if "huggingface" in path or path.startswith(os.environ.get("HF_HOME", "\0")):
        return "set HF_HOME to another folder"
    return "choose another folder, as with --output-dir"


def explain_in_notebooks(shell: "InteractiveShell") -> None:
    """In a notebook, show the message of `explain_storage` in place of a stack."""

    def show(shell, kind, error, trace, tb_offset=None):
        if message := explain_storage(error):
            error._render_traceback_ = lambda: [f"{kind.__name__}: {message}"]
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    shell.set_custom_exc((Exception,), show)
