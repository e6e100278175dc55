"""Reading the body of a request within limits of size, memory and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..protocol.request_errors import BadRequest, Overloaded, TooLarge
from .error_response import AmbiguousEnd

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["BodyReader"]


class BodyReader:
    """Reads bodies of at most `limit` bytes, each within `seconds`; all bodies in memory take at most `budget` bytes.
    Used from one event loop."""

    def __init__(self, *, limit: int, budget: int, seconds: float) -> None:
        self._limit = limit
        self._budget = max(budget, limit)
        self._seconds = seconds
        self._held = 0

    async def read(self, request: Request) -> bytes:
        """The whole body, which counts as in memory until it is passed to `release`.

        Raises BadRequest or TooLarge before a byte is read if the headers suffice, TooLarge, Overloaded when all bodies
        together take too much, an error of status 408 when the bytes come too slowly, and Starlette's ClientDisconnect.
        """
        self._check_headers(request)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                async for part in request.stream():
                    # Bytes are counted when they arrive: a large Content-Length alone costs a client nothing.
                    size += len(part)
                    self._held += len(part)
                    parts.append(part)
                    self._check_size(size)
                    if self._held > self._budget:
                        raise Overloaded("Too much is being received at once; try again later.", retry_after=1)
            if size == 0 and "upgrade" in request.headers:
                # httptools treats the following bytes as another protocol.
                raise AmbiguousEnd(
                    "The body was not read: the request offers another protocol; send it without Upgrade."
                )
        except BaseException as error:
            self._held -= size
            if isinstance(error, TimeoutError):
                raise _Slow(f"The body was not complete within {self._seconds:g} s.") from error
            raise
        return b"".join(parts)

    def release(self, body: bytes) -> None:
        """Counts a body as freed."""
        self._held -= len(body)

    def _check_headers(self, request: Request) -> None:
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise BadRequest("Compressed bodies are not taken; send it without Content-Encoding.", status=415)
        length = request.headers.get("content-length")
        if length is None:
            return
        if not (length.isascii() and length.isdigit()) or len(length) > 18:
            raise BadRequest("Content-Length is not a number.")
        self._check_size(int(length))

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise TooLarge(f"The body has more than the {self._limit} bytes this server takes (--max-body).")


class _Slow(AmbiguousEnd):
    code, status = "DEADLINE_EXCEEDED", 408
