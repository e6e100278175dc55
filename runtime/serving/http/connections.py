"""Limits on open connections, in all and of one address. Connections above a limit may still ask for health."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from ..addresses import AddressShares, client_key, is_in
from ..protocol.request_errors import Overloaded
from ..settings import HEALTH_PATHS, HttpSettings
from .error_response import AmbiguousEnd

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["OVER_LIMIT", "ClientRequests", "Connections"]

OVER_LIMIT: Final = "xbench.over_limit"
"""Key in the state of an ASGI scope: the error to raise on a connection above a limit, unless health is asked for."""

_SPARE: Final = 64  # connections above a limit that may ask for health, in all
_SPARE_OF_ONE: Final = 8  # of one address
_SPARE_SECONDS: Final = 5


class Connections:
    """The connections of one listener: at most `most`, and of an address as many as the settings say.

    A connection above a limit is kept for a few seconds: health checks are answered on it, other requests refused. Few
    of these are kept at once; further ones are closed without an answer. Used from one event loop.
    """

    def __init__(self, most: int, settings: HttpSettings) -> None:
        self._most = most
        self._most_of_one = settings.client_connections
        self._trusted = settings.trusted_proxies
        self._open: Counter[str] = Counter()
        self._spare: Counter[str] = Counter()

    def protocol(self, base: type[Any]) -> type[asyncio.Protocol]:
        """`base`, a protocol class of uvicorn, under these limits."""
        limits = self

        class Limited(base):  # type: ignore[misc]
            app_state: dict[str, Any]  # uvicorn copies it to the scope of each request

            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                self.app_state = dict(self.app_state)
                self._counted = limits.enter(transport, self.app_state)

            def connection_lost(self, error: Exception | None) -> None:
                counter, key = self._counted
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]
                super().connection_lost(error)

        return Limited

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


class ClientRequests:
    """ASGI middleware behind trusted proxies, which name their clients: at most `client_connections` requests of a
    client at once."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._shares = AddressShares(settings.client_connections, settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises Overloaded."""
        if scope.get("path") in HEALTH_PATHS:
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
