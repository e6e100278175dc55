"""uvicorn's two HTTP/1.1 protocols, each able to tell which part of a request it waits for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, Final

__all__ = ["WHEN_LOST", "best_parser", "with_h11", "with_httptools"]

WHEN_LOST: Final = "xbench.when_lost"
"""Key in an ASGI scope of a function that takes what is to be called when the connection is lost, or None to forget
it; it saves a task that waits for that. Not every server has it."""

_HEAD: Final = 1 << 16  # bytes of a request's line and headers, or of trailers; as h11 has it
_SLICE: Final = 1 << 12  # bytes parsed at once between requests: what follows may be many
_BODY_SLICE: Final = 1 << 14  # the same within a body of unknown length
_QUEUED: Final = 256  # requests of a connection that wait behind another


def best_parser() -> Any:
    """httptools' protocol where that is installed (a third of the CPU time), else h11's."""
    try:
        return with_httptools()
    except ImportError:
        return with_h11()


@cache
def with_h11() -> Any:
    """uvicorn's protocol with h11, and `awaited`."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class H11(H11Protocol):
        """h11 itself bounds heads and takes one request after another."""

        def awaited(self, *, starting: bool = False) -> tuple[str, Hashable]:
            """("headers" or "body", which request), or ("", 0) when nothing of a request is outstanding."""
            state = str(self.conn.their_state)
            if state == "SEND_BODY":
                return "body", id(self.cycle)
            if state == "IDLE" and (starting or self.conn.trailing_data[0] or _unwatched(self)):
                return "headers", id(self.cycle)
            return "", 0

    return H11


@cache
def with_httptools() -> Any:
    """uvicorn's protocol with httptools, `awaited`, and the bounds that h11 has by itself: on heads and trailers, on
    requests that are sent before the last one was answered, and one Host header. As with h11, an Upgrade that is
    offered is not taken, and the request is answered as any other (RFC 9110, 7.8). Raises ImportError."""
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class HttpTools(HttpToolsProtocol):
        """Bytes of a next request are held back until the one before is answered."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._part = ""
            self._number = 0
            self._unread = 0  # bytes since a head was complete or a piece of a body came
            self._left = 0  # bytes of this body that are still to come, where its length was announced
            self._held = bytearray()
            self._tell: Callable[[], None] | None = None
            self._declining = False  # the parser takes what follows this head for another protocol, but it is a body
            self._deaf = False  # to the head that a parser is told anew

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._tell is not None:
                self._tell()

        def when_lost(self, tell: Callable[[], None] | None) -> None:
            """Calls `tell` when the connection is lost, or at once if it is; None: nobody any more."""
            self._tell = tell
            if tell is not None and self.transport.is_closing():
                tell()
            elif tell is not None and not self._held:
                self.flow.resume_reading()  # only who reads learns of the end

        def awaited(self, *, starting: bool = False) -> tuple[str, Hashable]:
            """("headers" or "body", which request), or ("", 0) when nothing of a request is outstanding."""
            if starting or (not self._part and _unwatched(self)):
                return "headers", self._number + 1
            return ("", 0) if not self._part or self._busy() else (self._part, self._number)

        def data_received(self, data: bytes) -> None:
            if self._held:
                data, self._held = bytes(self._held) + data, bytearray()
            if len(data) > _SLICE or self._busy():
                self._feed(data)
            else:
                self._parse(data)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self._held:
                self.flow.pause_reading()
                self.loop.call_soon(self._go_on)

        def on_message_begin(self) -> None:
            if self._deaf:
                return
            self._part = "headers"
            self._number += 1
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            if not self._deaf:
                super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._part == "headers":  # trailers are not used
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if self._deaf:
                return
            if len(self.pipeline) >= _QUEUED:
                raise ValueError("too many requests at once")
            hosts = [value for name, value in self.headers if name == b"host"]
            if len(hosts) != 1 and (hosts or self.parser.get_http_version() == "1.1"):
                raise ValueError("not one Host header")
            self._part = "body"
            self._unread = 0
            self._left = _announced(self.headers)
            self.scope[WHEN_LOST] = self.when_lost  # type: ignore[typeddict-unknown-key]
            self._declining = self.parser.should_upgrade() and bool(_framing(self.headers))
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._unread = 0
            self._left = max(0, self._left - len(body))
            super().on_body(body)

        def on_message_complete(self) -> None:
            if self._declining:
                return
            self._part = ""
            self._unread = 0
            super().on_message_complete()

        def _busy(self) -> bool:
            """Whether what comes now must wait for an answer that is not complete."""
            if self.cycle is None or self.cycle.response_complete:
                return False
            return self._part != "body" or bool(self.pipeline)

        def _go_on(self) -> None:
            """As when the bytes held back came now."""
            if self._held and not self.transport.is_closing():
                self.data_received(b"")

        def _feed(self, data: bytes | memoryview) -> None:
            """Parses until a request is complete, and holds the rest."""
            position = 0
            with memoryview(data) as view:
                while position < len(view) and not self._busy() and not self.transport.is_closing():
                    length = self._left or _BODY_SLICE if self._part == "body" else _SLICE
                    piece = view[position : position + length]
                    position += len(piece)
                    self._parse(piece)
            if position < len(data) and not self.transport.is_closing():
                self._held += data[position:]
                self.flow.pause_reading()
            else:
                self._flow_on()

        def _flow_on(self) -> None:
            """Reads on, unless a body that nobody has taken yet is large."""
            if self.cycle is None or self.cycle.response_complete:
                self.flow.resume_reading()

        def _parse(self, data: bytes | memoryview) -> None:
            self._unread += len(data)
            self._unset_keepalive_if_required()
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._decline()
                self._feed(data[offer.args[0] :])
                return
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return
            if self._part and self._unread > _HEAD and not self.transport.is_closing():
                self.send_400_response("The headers are too long.")

        def _decline(self) -> None:
            """Goes on with the body of a request that offers another protocol, which the parser would skip."""
            if not self._declining:
                return
            self._declining = False
            self.parser = httptools.HttpRequestParser(self)
            with suppress(AttributeError):  # httptools before 0.6.3, as uvicorn has it
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._deaf = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\nHost: _\r\n" + _framing(self.headers) + b"\r\n")
            self._deaf = False

    return HttpTools


def _framing(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The lines of a head that say how long the body is; empty: there is none."""
    return b"".join(
        name + b": " + value + b"\r\n" for name, value in headers if name in (b"content-length", b"transfer-encoding")
    )


def _announced(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Bytes of a body whose head was accepted; 0 when it comes in chunks, or there is none."""
    lengths = [value for name, value in headers if name == b"content-length"]
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    return 0 if chunked or not lengths or not lengths[0].isdigit() else int(lengths[0])


def _unwatched(protocol: Any) -> bool:
    """Whether bytes that begin no request have stopped uvicorn's own timer of idle connections."""
    answered = protocol.cycle is not None and protocol.cycle.response_complete
    return answered and protocol.timeout_keep_alive_task is None and not protocol.transport.is_closing()
