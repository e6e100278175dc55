"""Small writes that follow one another, joined into one: a response's head and body then take one system call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

__all__ = ["Joined"]

_SMALL: Final = 1 << 16


class Joined:
    """A transport whose small writes leave together, at the latest when the event loop turns. Everything else is the
    transport's own. `lingers` is called when it was closed with bytes the client has not taken yet."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, lingers: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""
        self._lingers = lingers
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        if self._held and len(data) <= _SMALL:
            data, self._held = self._held + data, b""
            self._transport.write(data)
        elif len(data) <= _SMALL:
            self._held = data
            self._loop.call_soon(self._flush)
        else:
            self._flush()
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._lingers()

    def abort(self) -> None:
        self._held = b""
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + len(self._held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._held:
            data, self._held = self._held, b""
            if not self._transport.is_closing():
                self._transport.write(data)
