"""Reading the body of a request within limits of size, memory and time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from ..protocol.errors import BadRequest, Overloaded, RequestError, TooLarge

__all__ = ["BodyReader", "Disconnected", "Share"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Disconnected(Exception):
    """The client went away; there is nobody to answer."""


class BodyReader:
    """Reads bodies of at most `limit` bytes, all that are held at once together of at most `budget`, each within
    `seconds`. Used from one event loop."""

    def __init__(self, *, limit: int, budget: int, seconds: float) -> None:
        self._limit = limit
        self._budget = max(budget, limit)
        self._seconds = seconds
        self.held = 0

    @contextmanager
    def account(self) -> Iterator[Share]:
        """Counts what is read in it, until it is left."""
        share = Share(self)
        try:
            yield share
        finally:
            self.held -= share.size

    def check_length(self, content_length: str | None) -> None:
        """Raises BadRequest or TooLarge before a byte is read. Memory is counted when it is filled, not when it is
        announced: announcing costs a client nothing."""
        if content_length is None:
            return
        if not (content_length.isascii() and content_length.isdigit()) or len(content_length) > 18:
            raise BadRequest("Content-Length is not a number.")
        self._check_size(int(content_length))

    async def read(self, receive: Receive, share: Share, content_length: str | None) -> bytes:
        """The whole body. Raises Disconnected, the errors above, Overloaded when all bodies together take too much, or
        an error of status 408 when the bytes come too slowly."""
        self.check_length(content_length)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Disconnected
                    part = message.get("body", b"")
                    if part:
                        self._check_size(share.size + len(part))
                        share.grow(len(part))
                        parts.append(part)
                    if self.held > self._budget:
                        raise Overloaded("Too much is being received at once; try again later.", retry_after=1)
                    if not message.get("more_body", False):
                        return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError as error:
            raise _Slow(f"The body was not complete within {self._seconds:g} s.") from error

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise TooLarge(f"The body has more than the {self._limit} bytes this server takes (--max-body).")


class Share:
    """What one request holds of the budget, in bytes."""

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self.size = 0

    def grow(self, size: int) -> None:
        self._reader.held += size
        self.size += size


class _Slow(RequestError):
    code, status = "DEADLINE_EXCEEDED", 408
