"""The bodies of requests, within limits of size, memory and time, also of what a compressed body becomes."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from ..protocol.request_errors import BadRequest, Overloaded, TooLarge
from .error_response import AmbiguousEnd, UnknownCoding

if TYPE_CHECKING:
    from starlette.requests import Request

# Window sizes of zlib's decoder that ask for a header and a checksum: of gzip (RFC 1952), and of zlib (RFC 1950), which
# is HTTP's "deflate" (RFC 9110 §8.4.1.2).
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_STEP: Final = 1 << 18  # bytes that are decompressed before others have their turn, about a millisecond


class BodyReader:
    """Reads bodies of at most `limit` bytes, each within `seconds`; all bodies in memory take at most `budget` bytes.
    Used from one event loop."""

    def __init__(self, *, limit: int, budget: int, seconds: float) -> None:
        self._limit = limit
        self._budget = max(budget, limit)
        self._seconds = seconds
        self._held = 0

    async def read(self, request: Request) -> bytes:
        """The whole body, decompressed, which counts as in memory until it is passed to `release`.

        Raises BadRequest or TooLarge before a byte is read if the headers suffice, BadRequest for a damaged compressed
        body, TooLarge, Overloaded when all bodies together take too much, an error of status 408 when the bytes come
        too slowly, and Starlette's ClientDisconnect.
        """
        coding = self._check_headers(request)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                async for part in self._parts(request, coding):
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

    async def _parts(self, request: Request, coding: str) -> AsyncIterator[bytes]:
        """The body as it arrives; a compressed one as it becomes, in steps between which others have their turn."""
        from starlette.requests import ClientDisconnect

        received, decompressor = 0, Decompressor(coding) if coding else None
        more = True
        # Not Starlette's own stream, a second generator around this one.
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part, more = message.get("body", b""), message.get("more_body", False)
            if decompressor is None:
                yield part
                continue
            received += len(part)
            self._check_size(received)
            for step in decompressor.steps(part):
                yield step
                await asyncio.sleep(0)
        if decompressor is not None:
            decompressor.end()

    def _check_headers(self, request: Request) -> str:
        """Returns the content coding, empty for none."""
        coding = coding_of(request.headers.getlist("content-encoding"))
        length = request.headers.get("content-length")
        if length is not None:
            if not (length.isascii() and length.isdigit()) or len(length) > 18:
                raise BadRequest("Content-Length is not a number.")
            self._check_size(int(length))
        return coding

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise TooLarge(f"The body has more than the {self._limit} bytes this server takes (--max-body).")


class Decompressor:
    """Decompresses a body of a known coding, part by part. A body of gzip may have several members, one of deflate is
    one stream."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._window = _WINDOWS[coding]
        self._decoder = zlib.decompressobj(self._window)
        self._pending = False  # whether the decoder may hold more than it gave

    def steps(self, part: bytes) -> Iterator[bytes]:
        """What the part becomes, at most 256 KiB a step. Raises BadRequest."""
        rest = part
        while rest or self._pending:
            if self._decoder.eof:
                if self._window == _WINDOWS["deflate"]:
                    raise BadRequest("The body has bytes beyond the end of its deflate stream.")
                self._decoder = zlib.decompressobj(self._window)
            try:
                step = self._decoder.decompress(rest, _STEP)
            except zlib.error as error:
                raise BadRequest(f"The body is not {self._coding}, as its Content-Encoding says.") from error
            self._pending = not self._decoder.eof
            rest = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            yield step
            if not rest and len(step) < _STEP:
                return

    def end(self) -> None:
        """Raises BadRequest unless the body ended where its coding does."""
        if not self._decoder.eof:
            raise BadRequest(f"The body ends before its {self._coding} stream does.")


def coding_of(headers: list[str]) -> str:
    """The content coding in the values of Content-Encoding, empty for none. Raises UnknownCoding, also for several."""
    codings = [item.strip().lower() for item in ",".join(headers).split(",")]
    codings = [item for item in codings if item not in ("", "identity")]
    if len(codings) > 1 or (codings and codings[0] not in _WINDOWS):
        raise UnknownCoding(", ".join(codings))
    return codings[0] if codings else ""


class _Slow(AmbiguousEnd):
    code, status = "DEADLINE_EXCEEDED", 408
