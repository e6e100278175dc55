"""The standard health service, grpc.health.v1.Health, by which orchestrators and proxies ask a gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from ..inference.service import Service
from ..protocol.request_errors import Draining, NotFound
from .calls import SERVICE, parsed

HEALTH_SERVICE: Final = "grpc.health.v1.Health"

_NAMES: Final = ("", SERVICE)  # "" is the server as a whole
_POLL: Final = 0.25  # seconds until a change is seen


class HealthCalls:
    """The methods by name. The server and its service are SERVING until the server shuts down."""

    def __init__(self, service: Service) -> None:
        from grpc_health.v1 import health_pb2

        self._service = service
        self._messages: Any = health_pb2

    def has_method(self, method: str) -> bool:
        """Whether the method exists."""
        return method in ("Check", "List", "Watch")

    async def answer(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        """The replies to a message, serialized: one, or of Watch one now and one when the status changes.

        Raises BadRequest, NotFound for a service that Check does not know, and Draining where a Watch ends.
        """
        messages = self._messages
        if method == "List":
            parsed(messages.HealthListRequest, data)
            states = {name: messages.HealthCheckResponse(status=self._status(name)) for name in _NAMES}
            yield bytes(messages.HealthListResponse(statuses=states).SerializeToString())
            return
        name = parsed(messages.HealthCheckRequest, data).service
        status = self._status(name)
        if method == "Check":
            if name not in _NAMES:
                raise NotFound(f"There is no service '{name[:200]}'; leave it empty, or ask for {SERVICE}.")
            yield self._reply(status)
            return
        yield self._reply(status)
        while self._service.ready:
            await asyncio.sleep(_POLL)
        if self._status(name) != status:
            yield self._reply(self._status(name))
        raise Draining("The server is shutting down.")

    def _status(self, name: str) -> int:
        kinds = self._messages.HealthCheckResponse
        if name not in _NAMES:
            return int(kinds.SERVICE_UNKNOWN)
        return int(kinds.SERVING if self._service.ready else kinds.NOT_SERVING)

    def _reply(self, status: int) -> bytes:
        return bytes(self._messages.HealthCheckResponse(status=status).SerializeToString())
