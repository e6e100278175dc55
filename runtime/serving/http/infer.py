"""The inference endpoint of HTTP: a body in, the outputs of a model out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..inference.service import Service
from ..protocol.interface import OUTPUTS
from ..protocol.multipart import RELATED
from .accept import BINARY, JSON, accepted
from .bodies import BodyReader
from .body_files import (
    LINES,
    PICTURE,
    as_lines,
    as_objects,
    as_picture,
    decode_file,
    lines_of,
    objects_of,
    picture_of,
)
from .http_codec import (
    HEADER_LENGTH,
    DecodedRequest,
    check_content_type,
    decode_infer,
    encode_infer,
    is_raw,
    json_length,
)
from .middleware import LOG_FIELDS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

_FORMS = (JSON, PICTURE, LINES, BINARY, RELATED)
_FORMS_OF_RAW = (BINARY, JSON, PICTURE, LINES, RELATED)
_OTHERS: Final = {PICTURE: as_picture, LINES: as_lines, RELATED: as_objects}


T = TypeVar("T")
_WATCHED: Final = 0.05
"""Seconds after which an answer is worth watching whether its client is still there: a task for each request costs as
much as parsing it, and most answers are ready before."""
_SHORT = 1 << 16  # bytes or numbers of JSON whose work takes about as long as passing them to a thread
_SMALL = 1 << 20  # the same for raw bytes


class Infer:
    """Answers POST /v2/models/NAME/infer."""

    def __init__(self, service: Service, bodies: BodyReader) -> None:
        self._service = service
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application: Starlette would put one more handler of errors around a function of a request."""
        from starlette.requests import Request

        response = await self.answer(Request(scope, receive, send))
        await response(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        """The answer to a request. Raises RequestError, and Starlette's ClientDisconnect if the client disconnects."""
        from starlette.responses import Response

        service, name = self._service, request.path_params["model"]
        noted: dict[str, Any] = {}
        request.scope[LOG_FIELDS] = noted
        body = b""
        try:
            with service.counted(name):
                noted["model"] = service.catalogue.get(name, request.path_params.get("version", "")).name
                content_type, length = request.headers.get("content-type", ""), request.headers.get(HEADER_LENGTH)
                is_file, is_zero = check_content_type(content_type), length is not None and length.strip("0") == ""
                forms = _FORMS_OF_RAW if is_zero else _FORMS
                form = accepted(request.headers.getlist("accept"), forms)
                # A full queue is refused before the images are read.
                service.check_room(name)
                body = await self._bodies.read(request)
                noted["bytes_in"] = len(body)
                if is_file or is_raw(content_type, length, body):
                    decoded = decode_file(
                        name, body, request.query_params.multi_items(), raw=is_zero and form == BINARY
                    )
                else:
                    short = json_length(length, len(body)) < _SHORT and len(body) < _SMALL
                    decoded = await service.work(partial(decode_infer, name, body, length), short=short)
                if form in _OTHERS:
                    decoded = DecodedRequest(_OTHERS[form](decoded.request), frozenset())
            noted |= {"images": decoded.request.count, "outputs": sorted(decoded.request.outputs & OUTPUTS.keys())}
            answer = await _while_connected(request, service.infer(decoded.request))
        finally:
            self._bodies.release(body)
        if form == PICTURE:
            picture, headers = picture_of(answer)
            return Response(picture, headers=headers, media_type=PICTURE)
        if form == LINES:
            return Response(lines_of(answer), headers={"vary": "accept"}, media_type=LINES)
        if form == RELATED:
            content, media_type = await service.work(partial(objects_of, answer), short=False)
            return Response(content, headers={"vary": "accept", "content-type": media_type})
        in_json = sum(array.size for key, array in answer.outputs.items() if key not in decoded.binary)
        data, head = await service.work(partial(encode_infer, answer, decoded.binary), short=in_json < _SHORT)
        # Raw tensors that the request asks for need the binary form, whatever Accept says; its JSON may be all of it.
        if head is None and form == BINARY:
            head = len(data)
        if head is None:
            return Response(data, media_type=JSON)
        return Response(data, headers={HEADER_LENGTH: str(head)}, media_type=BINARY)


async def _while_connected(request: Request, answering: Coroutine[Any, Any, T]) -> T:
    """The result of `answering`, which is cancelled when the client disconnects. Raises ClientDisconnect."""
    from starlette.requests import ClientDisconnect

    this = asyncio.current_task()
    assert this is not None
    gone = False
    watching: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = this.cancel()

    def start() -> None:
        nonlocal watching
        watching = asyncio.create_task(watch())

    starting = asyncio.get_running_loop().call_later(_WATCHED, start)
    try:
        return await answering
    except asyncio.CancelledError:
        # The condition is true if `watch` alone cancelled the task.
        if gone and this.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        starting.cancel()
        if watching is not None:
            watching.cancel()
