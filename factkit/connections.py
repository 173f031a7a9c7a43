"""Connections of the kit's web services, bounded in number and in time.

uvicorn waits for the rest of a request's head as long as the client likes, and takes
any number of such connections: half-sent heads kept everyone else out.
"""

import asyncio
import logging
import resource
import time

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0  # for a request's head to arrive
STALL_S = 60.0  # that a client may leave a reply unread
HEAD_BYTES = 16 * 2**10
MOST = 512  # connections at once


def most_at_once() -> int:
    """Connections that a service keeps: far fewer than files that it may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, max(files // 4, 1))


def protocol(most: int, head_s: float = HEAD_S) -> type[H11Protocol]:
    """uvicorn's protocol for a server of `most` connections.

    One beyond them takes the place of the oldest whose request is not wholly there; if
    there is none, it is not kept itself.
    """
    waiting: dict[H11Protocol, None] = {}  # connections without a whole request

    class Connection(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None
        _stall_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._see()
            if len(self.connections) > most:
                oldest = next(iter(waiting))
                oldest.transport.abort()
                oldest.connections.discard(oldest)
                waiting.pop(oldest)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._see()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._see()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            waiting.pop(self, None)
            self._head_timer = _stop(self._head_timer)
            self._stall_timer = _stop(self._stall_timer)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stall_timer = self.loop.call_later(STALL_S, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stall_timer = _stop(self._stall_timer)

        def _see(self) -> None:
            """Note whether a head is there, and its body."""
            head = self.cycle is not None and not self.cycle.response_complete
            if head and not self.cycle.more_body:
                waiting.pop(self, None)
            elif not self.transport.is_closing():
                waiting.setdefault(self)
            if head:
                self._head_timer = _stop(self._head_timer)
            elif self._head_timer is None:
                abort = self.transport.abort
                self._head_timer = self.loop.call_later(head_s, abort)

    return Connection


def _stop(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer; what takes its place."""
    if timer is not None:
        timer.cancel()


class Seldom(logging.Filter):
    """Lets a record a minute through, without its stack trace."""

    next_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if time.monotonic() < self.next_at:
            return False
        self.next_at = time.monotonic() + 60
        record.exc_info = None
        return True
