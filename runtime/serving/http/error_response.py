"""What fails, as an HTTP response: V2's `{"error": sentence}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.request_errors import BadRequest, NotFound, RequestError, Unauthenticated

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Scope

CODINGS: Final = ("gzip", "deflate")
"""Content codings that a body may have."""


class AmbiguousEnd(BadRequest):
    """The end of the request is not certain, so the connection is closed after the answer."""


class UnknownCoding(BadRequest):
    """The body has a content coding that is not taken; the answer's Accept-Encoding names those that are (RFC 9110
    §15.5.16)."""

    status = 415

    def __init__(self, coding: str) -> None:
        super().__init__(
            f"The Content-Encoding {coding[:100]} is not taken; send the body as {' or '.join(CODINGS)}, or without "
            "Content-Encoding."
        )


def error_response(error: RequestError) -> Response:
    """The response to a request that failed; `code` is gRPC's name of the error's kind."""
    from starlette.responses import JSONResponse

    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, AmbiguousEnd):
        headers["connection"] = "close"
    if isinstance(error, UnknownCoding):
        headers["accept-encoding"] = ", ".join(CODINGS)
    return JSONResponse({"error": str(error), "code": error.code}, error.http_status, headers)


def failure_response(error: Exception, scope: Scope) -> Response | None:
    """The response to a request that raised `error`; None for an error in this code.

    A client that has disconnected gets none: its status is only logged.
    """
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response

    if isinstance(error, RequestError):
        return error_response(error)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    if isinstance(error, HTTPException):  # what Starlette itself refuses: unknown addresses and methods
        sentence = f"There is no {scope['method']} {scope['path'][:200]}."
        status = error.status_code
        response = error_response(NotFound(sentence) if status == 404 else BadRequest(sentence, status=status))
        response.headers.update(error.headers or {})
        return response
    return None
