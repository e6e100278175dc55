"""The ASGI middleware of the server: token, host names, access log and counters."""

from __future__ import annotations

import ipaddress
import logging
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from ..access_log import AccessLog
from ..bearer import Bearer
from ..metrics import Metrics
from ..protocol.request_errors import BadRequest, Internal, RequestError
from ..settings import HEALTH_PATHS, HttpSettings
from .connections import OVER_LIMIT
from .error_response import AmbiguousEnd, error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LOG_FIELDS", "Guard", "is_loopback"]

LOG_FIELDS = "xbench.log"
"""Key in an ASGI scope of the fields that an endpoint adds to its line in the access log."""

_LOG = logging.getLogger(__name__)


class Guard:
    """An ASGI middleware that applies the token, the open paths and `local_only` of the settings.

    With `local_only`, only host names that mean this machine are answered, so that no web page can reach the server
    through a name that resolves to this machine.
    """

    def __init__(self, app: ASGIApp, settings: HttpSettings, log: AccessLog, metrics: Metrics) -> None:
        self._app = app
        self._log = log
        self._metrics = metrics
        self._bearer = None if settings.token is None else Bearer(settings.token)
        self._open_paths = frozenset(settings.open_paths)
        self._local_only = settings.local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = sent = 0

        async def noted(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, noted)
        except RequestError as error:
            await error_response(error)(scope, receive, noted)
        # An error in this code: the client gets a general message, the log the details.
        except Exception:
            _LOG.exception("A request failed unexpectedly")
            if not status:
                await error_response(Internal())(scope, receive, noted)
        finally:
            self._note(scope, status, sent, time.perf_counter() - start)

    def _check(self, scope: Scope) -> None:
        from starlette.datastructures import Headers

        if scope["path"] not in HEALTH_PATHS:
            over = scope.get("state", {}).get(OVER_LIMIT)
            if over is not None:
                raise over()
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if "transfer-encoding" in headers and "content-length" in headers:
            raise AmbiguousEnd("The request has both Content-Length and Transfer-Encoding; send one of them.")
        if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
            raise BadRequest("The request must have one Host header.")
        if self._local_only and not _is_local("".join(hosts)):
            raise BadRequest("This server answers under the name localhost only; start it with --host to expose it.")
        if self._bearer is not None and scope["path"] not in self._open_paths:
            self._bearer.check(headers.get("authorization", "").encode("latin-1"))

    def _note(self, scope: Scope, status: int, sent: int, seconds: float) -> None:
        self._metrics.http_responses.labels(str(status)).inc()
        if not self._log.enabled:
            return
        client = scope.get("client") or ("", 0)
        fields = {"bytes_in": 0, **scope.get(LOG_FIELDS, {})}
        route = getattr(scope.get("route"), "path", "") or ("/" if scope["path"] == "/" else "other")
        self._log.write(
            client=client[0],
            method=scope["method"][:16],
            route=route,
            status=status,
            ms=round(seconds * 1e3, 2),
            bytes_out=sent,
            **fields,
        )


def is_loopback(name: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(256)
def _is_local(host: str) -> bool:
    """Whether the value of a Host header, with or without a port, means this machine."""
    text = host.strip()
    if text.startswith("["):
        return is_loopback(text[1:].partition("]")[0])
    return is_loopback(text.rpartition(":")[0] if text.count(":") == 1 else text)
