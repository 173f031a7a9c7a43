"""Error messages for users: the cause first, ten lines at most."""

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factkit.run.paths import cache_path

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

Check = tuple[str, str, bool, str]  # name, value, whether it is fine, remedy if not

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
        """The lines that IPython prints instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class UserError(KitError, ValueError):
    """The input to the kit is wrong; the message names the input and the fix."""


class RunFailure(KitError, RuntimeError):
    """A run, a download … failed without a mistake of the user."""


def require(checks: Iterable[Check]) -> None:
    """Raise UserError with the remedy of each check that is not fine."""
    failed = [f"{name}: {v}; {remedy}" for name, v, fine, remedy in checks if not fine]
    if failed:
        raise UserError("\n".join(failed))


def shorten(text: str) -> str:
    """A text without its middle if it takes more than LINES lines of WIDTH characters:
    the cause stands first in a message, and the fix last."""
    lines = [
        line[start : start + WIDTH]
        for line in text.strip().splitlines()
        for start in range(0, max(len(line), 1), WIDTH)
    ]
    if len(lines) <= LINES:
        return text
    return "\n".join([*lines[: LINES - 4], "…", *lines[-3:]])


def last_error(text: str) -> str:
    """The last line of a process's output that names an exception, else the last.

    torch puts "[rank1]: " before the lines of each of several processes.
    """
    exception = r"[\w.]*(?:Error|Exception|Interrupt)[^:\n]*: \S.*"
    named = re.findall(rf"(?m)^(?:\[rank\d+\]: )?({exception})", text)
    return [text, *text.strip().splitlines()[-1:], *named][-1]


# ---- files that can't be written


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Add the path to an exception of a full disk or an unwritable folder as a note."""
    try:
        yield
    except Exception as error:
        if explain_storage(error):
            error.add_note(str(path))
        raise


def explain_storage(error: BaseException) -> str:
    """A message on a full disk or an unwritable folder, "" for any other error."""
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
    elsewhere, file = "choose another folder, as with --output-dir", str(path)
    if file.startswith(str(cache_path())):
        elsewhere = "set FACTKIT_CACHE to another folder"
    elif "huggingface" in file or file.startswith(os.environ.get("HF_HOME", "\0")):
        elsewhere = "set HF_HOME to another folder"
    return (
        f"{path or 'a file'}: {problem}; {fix}, or {elsewhere}, and run the command "
        "again: finished parts are kept"
    )


def explain_in_notebooks(shell: "InteractiveShell") -> None:
    """Have a notebook show the message of `explain_storage` instead of a traceback."""

    def show(shell: Any, kind: type, error: Any, trace: Any, **options: Any) -> None:
        if message := explain_storage(error):
            error._render_traceback_ = lambda: [f"{kind.__name__}: {message}"]
        shell.showtraceback((kind, error, trace), **options)

    shell.set_custom_exc((Exception,), show)
