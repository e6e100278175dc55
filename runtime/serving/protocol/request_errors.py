"""The errors of requests; `code` is gRPC's name of an error, `status` its HTTP number."""

from __future__ import annotations

from typing import ClassVar

from ....engines.errors import (
    BundleError,
    ConfigError,
    ImageError,
    MissingExtraError,
    ServingError,
    XBenchError,
)


class RequestError(ServingError):
    """Base of the errors that are sent to a client; `retry_after`: seconds after which to try again, None: never."""

    code: ClassVar[str] = "INTERNAL"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, retry_after: int | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.http_status = self.status if status is None else status


class BadRequest(RequestError):
    """The request is malformed, or its image cannot be read."""

    code, status = "INVALID_ARGUMENT", 400


class Unauthenticated(RequestError):
    """The bearer token is missing or wrong."""

    code, status = "UNAUTHENTICATED", 401


class NotFound(RequestError):
    """The model, version or address does not exist."""

    code, status = "NOT_FOUND", 404


class Unimplemented(RequestError):
    """The protocol defines this call, but the server does not implement it."""

    code, status = "UNIMPLEMENTED", 501


class TooLarge(RequestError):
    """The request is larger than the server's limit."""

    code, status = "OUT_OF_RANGE", 413


class Overloaded(RequestError):
    """The queue limit is reached; nothing of this request was kept."""

    code, status = "RESOURCE_EXHAUSTED", 429


class Draining(RequestError):
    """The server is shutting down and accepts no new requests."""

    code, status = "UNAVAILABLE", 503


class DeadlineExceeded(RequestError):
    """The answer was not ready in time."""

    code, status = "DEADLINE_EXCEEDED", 504


class Internal(RequestError):
    """The engine or this code failed; the request may be valid."""

    code, status = "INTERNAL", 500

    def __init__(self, message: str = "The server failed unexpectedly; its log says more.") -> None:
        super().__init__(message)


def as_request_error(error: XBenchError) -> RequestError:
    """The error to send to a client for another one that occurred while its request was answered."""
    if isinstance(error, ImageError | ConfigError | BundleError | MissingExtraError):
        return BadRequest(str(error))
    return Internal(str(error))
