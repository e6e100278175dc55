"""Chunks of a request whose announced size is beyond the limit of a body: refused when they are announced.

A recipient must guard against sizes that overflow (RFC 9112 §7.1). Without this check a chunk of 2^64-1 bytes keeps its
connection until the time for a body is over.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final

from ..protocol.request_errors import TooLarge

_SIZE: Final = re.compile(rb"[\r\n]*([0-9A-Fa-f]{1,32})[ \t]*(?:;|\r?\n)")
_KEPT: Final = 256  # bytes of the end of a head, or of a line with a size, that are kept where it comes in parts


def limited_chunks(base: type[Any], limit: int) -> type[Any]:
    """`base`, a protocol class of uvicorn, that ends a connection on which a chunk of more than `limit` bytes is
    announced, with status 413 if no answer has begun.

    httptools says that a chunk begins, but not how long it is: the line is found by counting what httptools has read.
    Where the count does not fit, nothing is refused here, and the limits of the body apply.
    """

    class Chunked(base):  # type: ignore[misc]
        # Names that differ from the names of uvicorn and of `Connections`, which share this class.
        transport: asyncio.Transport
        _chunk_data = b""
        _chunk_at = 0  # how much of _chunk_data is read: up to a head, a line with a size, or within a chunk
        _chunk_aligned = True
        _chunk_in_body = False

        def data_received(self, data: bytes) -> None:
            self._chunk_data, self._chunk_at = self._chunk_data + data, 0
            super().data_received(data)
            rest = self._chunk_data[self._chunk_at :]
            self._chunk_data = rest[:_KEPT] if self._chunk_in_body else rest[-_KEPT:]
            # h11 knows the size itself.
            self._check_chunk(getattr(getattr(getattr(self, "conn", None), "_reader", None), "_bytes_in_chunk", 0))

        def on_headers_complete(self) -> None:
            self._skip_chunk(b"\r\n\r\n")
            self._chunk_in_body = True
            super().on_headers_complete()

        def on_chunk_header(self) -> None:
            size = _SIZE.match(self._chunk_data, self._chunk_at)
            if size is not None and self._chunk_aligned:
                self._check_chunk(int(size[1], 16))
                self._chunk_at = size.end() - 1
            self._chunk_aligned = self._chunk_aligned and size is not None
            self._skip_chunk(b"\n")

        def on_body(self, body: bytes) -> None:
            self._chunk_at += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._chunk_in_body = False
            super().on_message_complete()

        def _skip_chunk(self, mark: bytes) -> None:
            start = self._chunk_data.find(mark, self._chunk_at)
            self._chunk_aligned = self._chunk_aligned and start >= 0
            self._chunk_at = max(self._chunk_at, start + len(mark))

        def _check_chunk(self, size: int) -> None:
            if size <= limit or self.transport.is_closing():
                return
            cycle = getattr(self, "cycle", None)
            if cycle is not None and not cycle.response_started:
                self.transport.write(_refusal(limit))
            self.transport.close()

    return Chunked


def _refusal(limit: int) -> bytes:
    error = TooLarge(f"A chunk has more than the {limit} bytes this server takes of a body (--max-body).")
    body = json.dumps({"error": str(error), "code": error.code}).encode()
    head = f"HTTP/1.1 {error.http_status} Content Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
