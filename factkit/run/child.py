"""Processes that end with the one that started them, however that one ends."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

POLL_S = 0.5
GRACE_S = 5.0  # between asking processes to end and ending them


def cores() -> int:
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def command(*arguments: str) -> list[str]:
    """A command line that runs `arguments` under a watching process.

    When this process dies, even by SIGKILL, or ends the watching process, `arguments`
    and the processes that they started end, too.
    """
    return [sys.executable, "-m", "factkit.run.child", str(os.getpid()), *arguments]


@contextlib.contextmanager
def reading(arguments: Sequence[str], **options: Any) -> Iterator[subprocess.Popen]:
    """A process of `command` whose output is read from its `stdout`; options: of Popen.

    The process has ended after the block; an exception in the block terminates it.
    """
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    try:
        yield process
    except BaseException:
        process.terminate()
        raise
    finally:
        process.wait()


def main(parent: int, arguments: Sequence[str]) -> int:
    """Run the arguments and watch the parent; returns their exit status.

    In a session of its own, so that a signal to the parent's process group, such as a
    batch system's SIGKILL, leaves this process alive to end the arguments.
    """
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    child = subprocess.Popen(
        arguments, start_new_session=True, preexec_fn=end_with_parent
    )
    code = None
    try:
        while code is None and os.getppid() == parent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(POLL_S)
    finally:
        if code != 0:  # the child, and the processes of its group
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(GRACE_S)
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return 1 if code is None else code if code >= 0 else 128 - code


def end_with_parent() -> None:
    """Ask Linux to end this process when its parent dies; elsewhere do nothing."""
    set_parent_death_signal = 1  # linux/prctl.h
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").prctl(set_parent_death_signal, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
