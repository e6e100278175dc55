"""The process: a socket, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...engines.errors import MissingExtraError, ServingError
from .access_log import AccessLog
from .connections import Limits, guarded_protocol
from .http.app import HttpSettings, create_app
from .http.middleware import is_loopback
from .inference.catalogue import Catalogue
from .inference.service import Service, ServiceSettings
from .metrics import Metrics

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["Extra", "ServerSettings", "bind", "event_loop", "is_exposed", "serve"]

Extra = Callable[[Service], AbstractAsyncContextManager[object]]
_KEEP_ALIVE = 15
_SPARE_FILES = 64


@dataclass(frozen=True)
class ServerSettings:
    """Everything a server can be told; see its parts."""

    service: ServiceSettings = field(default_factory=ServiceSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    limits: Limits = field(default_factory=Limits)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ServingError when the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(512)
        except OSError:
            listener.close()
            raise
        return listener
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ServingError(f"The address {host}, port {port}, cannot be used: {reason}; choose another.") from error


def event_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop's where that is installed, which takes less CPU time a request, else asyncio's."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def serve(
    catalogue: Catalogue,
    listener: socket.socket,
    settings: ServerSettings,
    *,
    log: AccessLog,
    announce: Callable[[], None] = lambda: None,
    routes: Sequence[BaseRoute] = (),
    extras: Sequence[Extra] = (),
) -> None:
    """Answers requests for the models of an open catalogue until SIGTERM or SIGINT, then answers those it accepted.

    `extras`: other transports for the same service, which start before HTTP does and stop after it; `announce` is
    called when requests are answered. Raises MissingExtraError.
    """
    uvicorn = _uvicorn()
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(Service(catalogue, settings.service, Metrics()))
        for extra in extras:
            await stack.enter_async_context(extra(service))
        config = uvicorn.Config(
            create_app(service, settings.http, log, routes),
            http=guarded_protocol(_with_files(settings.limits)),
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=int(settings.service.timeout) + 5,
        )
        # What is loaded by now stays: the collector need not look at it again and again while requests are answered.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        await _make_server(uvicorn, config, service, announce).serve(sockets=[listener])


def is_exposed(host: str) -> bool:
    """Whether other machines can reach a server that listens on `host`."""
    return not is_loopback(host)


def _make_server(uvicorn: Any, config: Any, service: Service, announce: Callable[[], None]) -> Any:
    class Server(uvicorn.Server):  # type: ignore[misc]
        """Ends with status 0 after a signal, as what it does then is what it was asked for."""

        should_exit: bool
        force_exit: bool

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            announce()

        def handle_exit(self, sig: int, frame: Any) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True
            service.refuse()

    return Server(config)


def _uvicorn() -> Any:
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingExtraError(f"{error.name} is not installed; install xbench-fast[serve].") from error
    return uvicorn


def _with_files(limits: Limits) -> Limits:
    """Fewer connections where the process may not open that many files."""
    try:
        import resource
    except ImportError:  # not on Windows
        return limits
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = limits.connections if soft == resource.RLIM_INFINITY else max(1, soft - _SPARE_FILES)
    return Limits(limits.headers, limits.body, limits.reading, min(limits.connections, room))
