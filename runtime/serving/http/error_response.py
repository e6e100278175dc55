"""An error as an HTTP response: V2's `{"error": sentence}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.request_errors import BadRequest, RequestError, Unauthenticated

if TYPE_CHECKING:
    from starlette.responses import Response

__all__ = ["AmbiguousEnd", "error_response"]


class AmbiguousEnd(BadRequest):
    """The end of the request is not certain, so the connection is closed after the answer."""


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
    return JSONResponse({"error": str(error), "code": error.code}, error.http_status, headers)
