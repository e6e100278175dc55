"""What a request passes before its endpoint: limits on open connections, token, host names, access log and counters.

Connections above a limit may still ask for health.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from ..access_log import AccessLog
from ..addresses import AddressShares, client_key, is_in
from ..bearer import Bearer
from ..prometheus_metrics import Metrics
from ..protocol.request_errors import BadRequest, Internal, Overloaded
from ..settings import HEALTH_PATHS, HttpSettings
from .error_response import AmbiguousEnd, error_response, failure_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OVER_LIMIT: Final = "xbench.over_limit"
"""Key in the state of an ASGI scope: the error to raise on a connection above a limit, unless health is asked for."""

_SPARE: Final = 64  # connections above a limit that may ask for health, in all
_SPARE_OF_ONE: Final = 8  # of one address
_SPARE_SECONDS: Final = 5
"""Connections above the limits answer health checks, and end after this (docs/serve.md): one client with many
connections could otherwise stop the health of the server."""


class Connections:
    """The connections of one listener: at most `most`, and of an address as many as the settings say.

    A connection above a limit is kept for a few seconds: health checks are answered on it, other requests refused. Few
    of these are kept at once; further ones are closed without an answer. Used from one event loop.

    uvicorn's own limit_concurrency does not do: it has no limit for an address, and refuses health checks too.
    """

    def __init__(self, most: int, settings: HttpSettings) -> None:
        self._most = most
        self._most_of_one = settings.client_connections
        self._trusted = settings.trusted_proxies
        self._open: Counter[str] = Counter()
        self._spare: Counter[str] = Counter()

    def protocol(self, make: Callable[..., Any]) -> Callable[..., CountedConnection]:
        """A factory of connections under these limits, as uvicorn calls `make`, its own."""

        def counted(*, app_state: dict[str, Any], **options: Any) -> CountedConnection:
            state = dict(app_state)  # of this connection; uvicorn copies it to the scope of each request
            return CountedConnection(self, make(app_state=state, **options), state)

        return counted

    def enter(self, transport: asyncio.Transport, state: dict[str, Any]) -> tuple[Counter[str], str]:
        """Counts a connection and notes in the `state` of its requests whether it is above a limit; returns the counter
        and the key in it."""
        host = str((transport.get_extra_info("peername") or ("",))[0])
        key = client_key(host)
        over: type[_Full | _OneTooMany] | None = None
        if self._open.total() >= self._most:
            over = _Full
        elif 0 < self._most_of_one <= self._open[key] and not is_in(host, self._trusted):
            over = _OneTooMany
        counter = self._open if over is None else self._spare
        counter[key] += 1
        if over is not None:
            state[OVER_LIMIT] = over
            if self._spare.total() > _SPARE or self._spare[key] > _SPARE_OF_ONE:
                transport.abort()
            else:
                asyncio.get_running_loop().call_later(_SPARE_SECONDS, transport.abort)
        return counter, key


class CountedConnection(asyncio.Protocol):
    """A connection that is counted while it lasts; `inner`, a protocol of uvicorn, does everything else."""

    def __init__(self, limits: Connections, inner: Any, state: dict[str, Any]) -> None:
        self._limits = limits
        self._inner = inner
        self._state = state

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)
        self._counter, self._key = self._limits.enter(cast("asyncio.Transport", transport), self._state)

    def connection_lost(self, error: Exception | None) -> None:
        self._counter[self._key] -= 1
        if not self._counter[self._key]:
            del self._counter[self._key]
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        keep_open: bool | None = self._inner.eof_received()
        return keep_open

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class ClientRequests:
    """ASGI middleware behind trusted proxies, which name their clients: at most `client_connections` requests of a
    client at once."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._shares = AddressShares(settings.client_connections, settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises Overloaded."""
        if route_path(scope) in HEALTH_PATHS:
            await self._app(scope, receive, send)
            return
        with self._shares.one_more((scope.get("client") or ("",))[0]):
            await self._app(scope, receive, send)


class _Full(AmbiguousEnd):
    code, status = "UNAVAILABLE", 503

    def __init__(self) -> None:
        super().__init__("The server has as many connections as it takes; try again later.", retry_after=1)


class _OneTooMany(Overloaded, AmbiguousEnd):
    def __init__(self) -> None:
        sentence = "Your address has as many connections as one client may have (--client-connections)."
        super().__init__(sentence, retry_after=1)


LOG_FIELDS = "xbench.log"
"""Key in an ASGI scope of the fields that an endpoint adds to its line in the access log."""

_LOG = logging.getLogger(__name__)

# RFC 3986 §3.2.2: an IPv6 address is in brackets, and after them only a port may follow.
_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9.-]+))(?::[0-9]{0,5})?")


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
        self._root = settings.root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = sent = 0
        scope["app"] = self._app  # so that Starlette raises what it refuses and does not answer in plain text
        self._add_prefix(scope)

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
        except Exception as error:
            response = failure_response(error, scope)
            if response is None or status:  # an error in this code: the client gets a general message, the log the rest
                _LOG.exception("A request failed unexpectedly")
            if not status:
                await (response or error_response(Internal()))(scope, receive, noted)
        finally:
            self._note(scope, status, sent, time.perf_counter() - start)

    def _add_prefix(self, scope: Scope) -> None:
        """Puts every path below the prefix, if there is one, as ASGI has it: the root_path is part of the path."""
        if not self._root:
            return
        path = scope["path"]
        if path == self._root:
            path = f"{path}/"
        elif not path.startswith(f"{self._root}/"):
            path = self._root + path
        scope["root_path"], scope["path"] = self._root, path

    def _check(self, scope: Scope) -> None:
        if route_path(scope) not in HEALTH_PATHS:
            over = scope.get("state", {}).get(OVER_LIMIT)
            if over is not None:
                raise over()
        # ASGI's names are in lower case.
        names = [name for name, _ in scope["headers"]]
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if b"transfer-encoding" in names and b"content-length" in names:
            raise AmbiguousEnd("The request has both Content-Length and Transfer-Encoding; send one of them.")
        if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
            raise BadRequest("The request must have one Host header.")
        if self._local_only and not _is_local("".join(hosts)):
            raise BadRequest("This server answers under the name localhost only; start it with --host to expose it.")
        if self._bearer is not None and route_path(scope) not in self._open_paths:
            self._bearer.check(b", ".join(value for name, value in scope["headers"] if name == b"authorization"))

    def _note(self, scope: Scope, status: int, sent: int, seconds: float) -> None:
        self._metrics.child(self._metrics.http_responses, str(status)).inc()
        if not self._log.enabled:
            return
        client = scope.get("client") or ("", 0)
        fields = {"bytes_in": 0, **scope.get(LOG_FIELDS, {})}
        route = getattr(scope.get("route"), "path", "") or ("/" if route_path(scope) == "/" else "other")
        self._log.write(
            client=client[0],
            method=scope["method"][:16],
            route=route,
            status=status,
            ms=round(seconds * 1e3, 2),
            bytes_out=sent,
            **fields,
        )


def route_path(scope: Scope) -> str:
    """The path of a request below the server's prefix: that by which Starlette finds its endpoint."""
    path: str = scope["path"]
    root = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def is_loopback(name: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if name.lower().removesuffix(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(256)
def _is_local(host: str) -> bool:
    """Whether the value of a Host header, with or without a port, means this machine; it may hold nothing else."""
    match = _HOST.fullmatch(host)
    return match is not None and is_loopback(match["address"] or match["name"])
