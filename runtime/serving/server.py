"""Run the server process: sockets, event loop, signals, and shutdown after the last answer."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from ...engines.errors import MissingExtraError, ServingError
from ...engines.extras import missing_package
from .access_log import AccessLog
from .http.chunks import limited_chunks
from .http.http_app import create_app, create_health_app
from .http.middleware import Connections, is_loopback
from .inference.served_models import Catalogue
from .inference.service import Service
from .prometheus_metrics import Metrics
from .settings import ServerSettings

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from starlette.types import ASGIApp

Extra = Callable[[Service], AbstractAsyncContextManager[object]]
_KEEP_ALIVE = 15  # seconds
_COLLECTED = 20_000  # new objects before a collection, as of some hundred requests
_HEAD = 1 << 16  # bytes of a request's line and headers, for h11; httptools has no limit


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ServingError when the address cannot be used."""
    try:
        family, socket_type, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket_type, protocol)
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
    """A new event loop: uvloop's where that is installed, which takes less CPU time per request, else asyncio's."""
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
    extras: Sequence[Extra] = (),
) -> None:
    """Answers requests for the models of an open catalogue until SIGTERM or SIGINT, then finishes the accepted ones.

    `extras`: other listeners for the same service, which start before the one for HTTP does and stop after it;
    `announce` is called when the server is ready. Raises MissingExtraError.
    """
    _import_uvicorn()
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(Service(catalogue, settings.service, Metrics()))
        for extra in extras:
            await stack.enter_async_context(extra(service))
        # All objects loaded so far are permanent: the garbage collector need not scan them while requests are answered.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        # Objects of the requests in flight are no garbage: with fewer than these, each request has a collection or two.
        stack.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(_COLLECTED)
        server = _make_server(create_app(service, settings.http, log), settings, service, announce)
        await server.serve(sockets=[listener])


def health_listener(listener: socket.socket, settings: ServerSettings, log: AccessLog) -> Extra:
    """Health and metrics on a separate listener, which answers however many connections the other has.

    Use it as one of `serve`'s extras. It answers until every accepted request is answered.
    """

    @asynccontextmanager
    async def answering(service: Service) -> AsyncIterator[None]:
        server = _make_server(create_health_app(service, settings.http, log), settings, service)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not (server.started or task.done()):  # signals go to the server that starts last
            await asyncio.sleep(0.01)
        try:
            yield
        finally:
            server.should_exit = True
            await task

    return answering


def is_exposed(host: str) -> bool:
    """Whether other machines can reach a server that listens on `host`."""
    return not is_loopback(host)


def _make_server(
    app: ASGIApp, settings: ServerSettings, service: Service, announce: Callable[[], None] = lambda: None
) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        """Exits with status 0 after a signal, as a shutdown by signal is no error."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if service.ready:
                announce()
            else:  # a signal arrived before this listener was ready
                self.should_exit = True

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True
            service.refuse()

    http, certificate = settings.http, settings.certificate
    config = uvicorn.Config(
        app,
        http=settings.parser,
        h11_max_incomplete_event_size=_HEAD,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=int(settings.service.timeout) + 5,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=bool(http.trusted_proxies),
        forwarded_allow_ips=[str(network) for network in http.trusted_proxies],
        server_header=False,
        ssl_certfile=None if certificate is None else certificate.certfile,
        ssl_keyfile=None if certificate is None else certificate.keyfile,
    )
    config.load()
    limits = Connections(settings.connections, http)
    # uvicorn only calls it: a factory does what a class would.
    config.http_protocol_class = limits.protocol(  # type: ignore[assignment]
        limited_chunks(config.http_protocol_class, http.max_body)
    )
    return Server(config)


def _import_uvicorn() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(missing_package(error.name or "uvicorn", "serve")) from error
