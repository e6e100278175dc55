"""The inference endpoint of HTTP: a body in, within limits of size, memory and time; the outputs of a model out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..inference.service import Service
from ..protocol.interface import OUTPUTS
from ..protocol.request_errors import BadRequest, Overloaded, TooLarge
from .codec import HEADER_LENGTH, DecodedRequest, check_content_type, decode_infer, encode_infer, json_length
from .error_response import AmbiguousEnd
from .files import LINES, PICTURE, as_lines, as_picture, decode_file, lines_of, picture_of, preferred
from .middleware import LOG_FIELDS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = [
    "BodyReader",
    "Infer",
]


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


T = TypeVar("T")
_SHORT = 1 << 16  # bytes or numbers of JSON whose work takes about as long as passing them to a thread
_SMALL = 1 << 20  # the same for raw bytes


class Infer:
    """Answers POST /v2/models/NAME/infer."""

    def __init__(self, service: Service, bodies: BodyReader) -> None:
        self._service = service
        self._bodies = bodies

    async def answer(self, request: Request) -> Response:
        """The answer to a request. Raises RequestError, and Starlette's ClientDisconnect if the client disconnects."""
        from starlette.responses import Response

        service, name = self._service, request.path_params["model"]
        noted: dict[str, Any] = {}
        request.scope[LOG_FIELDS] = noted
        with service.counted(name):
            noted["model"] = service.catalogue.get(name, request.path_params.get("version", "")).name
            is_file = check_content_type(request.headers.get("content-type", ""))
            # A full queue is refused before the images are read.
            service.check_room(name)
            body = await self._bodies.read(request)
        try:
            noted["bytes_in"] = len(body)
            with service.counted(name):
                if is_file:
                    decoded = decode_file(name, body, request.query_params.multi_items())
                else:
                    length = request.headers.get(HEADER_LENGTH)
                    short = json_length(length, len(body)) < _SHORT and len(body) < _SMALL
                    decoded = await service.work(partial(decode_infer, name, body, length), short=short)
                accept = request.headers.get("accept", "")
                form = preferred(accept) if PICTURE in accept or LINES in accept else ""
                if form:
                    other = as_picture if form == PICTURE else as_lines
                    decoded = DecodedRequest(other(decoded.request), frozenset())
            noted |= {"images": decoded.request.count, "outputs": sorted(decoded.request.outputs & OUTPUTS.keys())}
            answer = await _while_connected(request, service.infer(decoded.request))
        finally:
            self._bodies.release(body)
        if form == PICTURE:
            picture, headers = picture_of(answer)
            return Response(picture, headers=headers, media_type=PICTURE)
        if form == LINES:
            return Response(lines_of(answer), headers={"vary": "accept"}, media_type=LINES)
        in_json = sum(array.size for key, array in answer.outputs.items() if key not in decoded.binary)
        data, head = await service.work(partial(encode_infer, answer, decoded.binary), short=in_json < _SHORT)
        if head is None:
            return Response(data, media_type="application/json")
        return Response(data, headers={HEADER_LENGTH: str(head)}, media_type="application/octet-stream")


async def _while_connected(request: Request, answering: Coroutine[Any, Any, T]) -> T:
    """The result of `answering`, which is cancelled when the client disconnects. Raises ClientDisconnect."""
    from starlette.requests import ClientDisconnect

    this = asyncio.current_task()
    assert this is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = this.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await answering
    except asyncio.CancelledError:
        # The condition is true if `watch` alone cancelled the task.
        if gone and this.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        watching.cancel()
