"""The text of web pages, taken in processes of their own that can be given up.

There are pages of a few hundred kB on which a parser works for minutes.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass

from factkit import child

START_S = 120.0  # for a process to have its modules


@dataclass(frozen=True)
class Page:
    """A page that was read; `lack` says why there is no text."""

    title: str
    text: str
    lack: str = ""


class NotHad(Exception):
    """A search or a page failed; the message is the kind of reason, to be counted."""


class Extractor:
    """Processes that take pages' texts; one that works for too long is killed."""

    command = (sys.executable, "-m", "factkit.page_text")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._slots = asyncio.Semaphore(min(4, os.cpu_count() or 1))
        self._idle: list[Process] = []

    async def page(self, body: bytes, charset: str | None) -> Page:
        """A page's title and main text. charset: as its header says. Raises NotHad."""
        async with self._slots:
            process = self._idle.pop() if self._idle else await self._start()
            try:
                async with asyncio.timeout(self.limit_s):
                    process.stdin.write(_framed(json.dumps(charset).encode()))
                    process.stdin.write(_framed(body))
                    await process.stdin.drain()
                    found = json.loads(await _next(process))
            except TimeoutError:
                await _kill(process)
                raise NotHad("extraction took too long") from None
            except (OSError, asyncio.IncompleteReadError):
                await _kill(process)
                raise NotHad("extraction broke down") from None
            except BaseException:  # it is cancelled: the process is in the midst of it
                await _kill(process)
                raise
            self._idle.append(process)
        if isinstance(found, str):  # an exception's name
            raise NotHad(found)
        return Page(*found)

    async def aclose(self) -> None:
        """End the processes."""
        while self._idle:
            await _kill(self._idle.pop())

    async def _start(self) -> Process:
        process = await asyncio.create_subprocess_exec(
            *self.command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        try:
            async with asyncio.timeout(START_S):
                await _next(process)
        except BaseException as error:
            await _kill(process)
            if isinstance(error, TimeoutError | asyncio.IncompleteReadError):
                raise NotHad("extraction does not start") from None
            raise
        return process


async def _next(process: Process) -> bytes:
    """What a process says next."""
    size = await process.stdout.readexactly(8)
    return await process.stdout.readexactly(int.from_bytes(size))


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(8) + content


def extract(body: bytes, charset: str | None) -> tuple[str, str, str]:
    """A page's title and main text by trafilatura, and why there is none."""
    from trafilatura import bare_extraction

    try:
        html = body.decode(charset, "replace") if charset else body
    except LookupError:  # no such charset: let the page say
        html = body
    found = bare_extraction(html, with_metadata=True, include_comments=False)
    text = (found.text or "").strip() if found else ""
    return (found.title or "", text, "") if text else ("", "", "without text")


def main() -> None:
    """What a process runs: pages come by stdin, and go by stdout, until that ends."""
    import trafilatura  # noqa: F401  before it says that it is ready

    child.end_with_parent()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no page

    def read() -> bytes:
        return sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8)))

    found = None
    while True:
        out.write(_framed(json.dumps(found).encode()))
        out.flush()
        charset = read()
        if not charset:
            return
        try:
            found = extract(read(), json.loads(charset))
        except Exception as error:  # whatever a page meets is that page's failure
            found = type(error).__name__


if __name__ == "__main__":
    main()
