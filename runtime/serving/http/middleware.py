"""Around the application: who may ask, under which host name, and what is noted of every response."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from functools import lru_cache
from typing import Any

from ..access_log import AccessLog
from ..bearer import Bearer
from ..metrics import Metrics
from ..protocol.errors import BadRequest, RequestError
from .error_response import error_body, error_headers

__all__ = ["Application", "Guard", "Message", "Receive", "Send", "is_loopback"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """An ASGI application around another one.

    token: what `Authorization: Bearer` must carry, None for no check; open_paths: paths that need no token (health, a
    page that asks for it). local_only: only host names that mean this machine are answered, so that no web page can
    reach the server through a name that was made to point here.
    """

    def __init__(
        self,
        app: Application,
        *,
        log: AccessLog,
        metrics: Metrics,
        token: str | None = None,
        open_paths: Collection[str] = (),
        local_only: bool = True,
    ) -> None:
        self._app = app
        self._log = log
        self._metrics = metrics
        self._bearer = Bearer(token)
        self._open_paths = frozenset(open_paths)
        self._local_only = local_only

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        seen = {"status": 0, "bytes": 0}

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
            elif message["type"] == "http.response.body":
                seen["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, noted)
        except RequestError as error:
            await _refuse(noted, error, close=_has_two_lengths(scope))
        finally:
            self._note(scope, seen, time.perf_counter() - start)

    def _check(self, scope: Message) -> None:
        headers = scope["headers"]
        if _has_two_lengths(scope):
            raise BadRequest("Content-Length and Transfer-Encoding stand together; send one of them.")
        if self._local_only and not is_loopback(_host_name(_header(headers, b"host"))):
            raise BadRequest("This server answers under the name localhost only; start it with --host to expose it.")
        if scope["path"] not in self._open_paths:
            self._bearer.check(_header(headers, b"authorization"))

    def _note(self, scope: Message, seen: dict[str, int], seconds: float) -> None:
        self._metrics.http(seen["status"])
        if not self._log.enabled:
            return
        client = scope.get("client") or ("", 0)
        self._log.write(
            client=client[0],
            method=scope["method"][:16],
            route=getattr(scope.get("route"), "path", "") or ("/" if scope["path"] == "/" else "other"),
            status=seen["status"],
            ms=round(seconds * 1e3, 2),
            bytes_in=int(scope.get("xbench.bytes_in", 0)),
            bytes_out=seen["bytes"],
            **scope.get("xbench.log", {}),
        )


@lru_cache(256)
def is_loopback(name: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _header(headers: Collection[tuple[bytes, bytes]], name: bytes) -> bytes:
    for key, value in headers:
        if key == name:
            return value
    return b""


def _host_name(value: bytes) -> str:
    """The name in a Host header, without its port and the brackets of an IPv6 address."""
    text = value.decode("latin-1").strip()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if text.count(":") == 1 else text


def _has_two_lengths(scope: Message) -> bool:
    """Whether a body's end is ambiguous: a proxy may take for a request what another one takes for a body."""
    return bool(_header(scope["headers"], b"transfer-encoding") and _header(scope["headers"], b"content-length"))


async def _refuse(send: Send, error: RequestError, *, close: bool = False) -> None:
    body = error_body(error)
    headers = [(key.encode(), value.encode()) for key, value in error_headers(error).items()]
    headers += [(b"content-length", str(len(body)).encode())]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
