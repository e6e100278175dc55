"""Time limits on connections, which uvicorn does not have: a client that sends or reads slowly is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from .joined import Joined
from .parsers import best_parser

__all__ = ["Limits", "guarded_protocol"]

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b'content-length: 33\r\n\r\n{"error": "Too many connections"}'
)


@dataclass(frozen=True)
class Limits:
    """Seconds until a request's headers, its body, and the reading of its answer must be complete; and how many
    connections there may be."""

    headers: float = 15.0
    body: float = 65.0
    reading: float = 60.0
    connections: int = 512


def guarded_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's HTTP/1.1 protocol with `limits`."""
    base: Any = best_parser()

    class Guarded(base):  # type: ignore[misc]
        """One timer runs while a request comes in, another while an answer does not go out."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._incoming: asyncio.TimerHandle | None = None
            self._outgoing: asyncio.TimerHandle | None = None
            self._phase: tuple[str, Hashable] = ("", 0)

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(Joined(transport, self.loop, self._await_reader))
            if len(self.connections) > limits.connections:
                self.transport.write(_BUSY)
                self.transport.close()
            else:
                self._watch(starting=True)

        def data_received(self, data: bytes) -> None:
            if not (self.flow.write_paused or self.transport.is_closing()):
                self._forget_reader()  # a client that asks on reads
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._incoming, self._outgoing):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._await_reader()

        def resume_writing(self) -> None:
            super().resume_writing()
            if not self.transport.is_closing():
                self._forget_reader()

        def timeout_keep_alive_handler(self) -> None:
            if self.transport.get_write_buffer_size():
                # Not idle: uvicorn's time runs from when the answer was handed over, not from when it was read.
                self._await_reader()
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
            else:
                super().timeout_keep_alive_handler()

        def _await_reader(self) -> None:
            """Starts the timer of a client that must take what was written, unless it runs."""
            if self._outgoing is None:
                self._outgoing = self.loop.call_later(limits.reading, self.transport.abort)

        def _forget_reader(self) -> None:
            if self._outgoing is not None:
                self._outgoing.cancel()
                self._outgoing = None

        def _watch(self, *, starting: bool = False) -> None:
            """Starts the timer of the part that is awaited, if it is not that of before."""
            phase = self.awaited(starting=starting)
            if phase == self._phase:
                return
            self._phase = phase
            if self._incoming is not None:
                self._incoming.cancel()
                self._incoming = None
            if phase[0]:
                seconds = limits.body if phase[0] == "body" else limits.headers
                self._incoming = self.loop.call_later(seconds, self.transport.abort)

    return Guarded
