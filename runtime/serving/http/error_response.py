"""An error as an HTTP response: V2's `{"error": sentence}`."""

from __future__ import annotations

import json

from ..protocol.errors import RequestError, Unauthenticated

__all__ = ["error_body", "error_headers"]


def error_body(error: RequestError) -> bytes:
    """The JSON of an error; `code` is gRPC's name of its kind."""
    return json.dumps({"error": str(error), "code": error.code}).encode()


def error_headers(error: RequestError) -> dict[str, str]:
    """Headers of an error's response."""
    headers = {"content-type": "application/json"}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    return headers
