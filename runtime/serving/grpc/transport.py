"""The gRPC listener (grpc.aio) in the server's event loop: limits, the token, status codes, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from urllib.parse import unquote

from ....engines.errors import MissingExtraError, ServingError
from ....engines.extras import missing_package
from ..access_log import AccessLog
from ..addresses import AddressShares
from ..bearer import Bearer
from ..certificate import Certificate
from ..inference.service import Service
from ..protocol.request_errors import BadRequest, DeadlineExceeded, Internal, Overloaded, RequestError, Unimplemented
from ..settings import GrpcSettings
from .calls import HEALTH, SERVICE, Call, Calls
from .health import HEALTH_SERVICE, HealthCalls
from .reflection import REFLECTION_SERVICES, Reflection

_LOG = logging.getLogger(__name__)
_IDLE_MS: Final = 300_000  # a connection without a call is closed after five minutes
_HEALTH: Final = 64  # calls of the health service at once, and as many that watch
_HEALTH_OF_ONE: Final = 8  # of one address
_HEALTH_SECONDS: Final = 5  # for the message of a health check, which strangers may send (docs/serve.md)
_LONGEST_NAME: Final = 4096  # bytes of a message of health or reflection, which is the name of a service or symbol
_LONGEST_SENTENCE: Final = 2000  # a status is sent in a header, whose size is limited


class GrpcTransport:
    """Use it as one of `serve`'s extras. `address` is "host:port" once it listens."""

    def __init__(self, settings: GrpcSettings, log: AccessLog) -> None:
        self.address = ""
        self._settings = settings
        self._log = log

    @asynccontextmanager
    async def __call__(self, service: Service) -> AsyncIterator[None]:
        """Answers calls until the context exits, then finishes the accepted ones.

        Raises MissingExtraError, and ServingError when the address cannot be used.
        """
        grpc = _grpc()
        settings = self._settings
        server = grpc.aio.server(
            options=(
                # Of a compressed message too: since grpcio 1.84 nothing beyond the limit is decompressed (1.83 did, and
                # refused it afterwards: 100 MB in memory for a message of 0.1 MB).
                ("grpc.max_receive_message_length", settings.max_body),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
                ("grpc.max_concurrent_streams", settings.calls),
                ("grpc.so_reuseport", 0),  # else a second server could share the port without an error
            )
        )
        server.add_generic_rpc_handlers((_handler(grpc, _Caller(grpc, service, settings, self._log)),))
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        try:
            port = _add_port(grpc, server, f"{host}:{settings.port}", settings.certificate)
        except RuntimeError as error:
            raise ServingError(
                f"The address {settings.host}, port {settings.port}, cannot be used for gRPC; choose another."
            ) from error
        self.address = f"{host}:{port}"
        await server.start()
        try:
            yield
        finally:
            await server.stop(settings.grace)


class _Caller:
    """Handles calls. All are handled as streams, since this code decides when the message of a stream is read: a call
    without the token or above a limit is refused before that. A client sees no difference."""

    def __init__(self, grpc: Any, service: Service, settings: GrpcSettings, log: AccessLog) -> None:
        self._grpc = grpc
        self._service = service
        self._settings = settings
        self._log = log
        self._bearer = Bearer(settings.token)
        self._calls = Calls(service)
        self._health = HealthCalls(service)
        self._reflection = Reflection(self._calls.methods)
        self._open = 0
        self._incoming = 0
        self._held = 0
        share = settings.shared
        self._of_client = AddressShares(settings.calls // 2 if share else 0, settings.trusted_proxies)
        self._from_client = AddressShares(settings.incoming // 2 if share else 0, settings.trusted_proxies)
        # Health needs no token, so its calls have limits of their own: they take no room of others, nor others theirs.
        self._checks, self._watches = (
            AddressShares(_HEALTH_OF_ONE if share else 0, settings.trusted_proxies, total=_HEALTH) for _ in range(2)
        )

    async def handle(self, service: str, method: str, context: Any) -> None:
        """One call, from its start to its end."""
        start = time.perf_counter()
        call, sent = Call(f"/{service}/{method}" if self._has_method(service, method) else "other"), 0
        refused: RequestError | None = None
        code = "CANCELLED"
        try:
            sent = await self._answer(service, method, call, context)
            code = "OK"
        except RequestError as error:
            refused, code = error, error.code
        # An error in this code: the client gets a general message, the log the details.
        except Exception:
            _LOG.exception("A gRPC call failed unexpectedly")
            refused, code = Internal(), Internal.code
        finally:
            self._note(context, call, code, sent, time.perf_counter() - start)
        if refused is not None:
            await self._refuse(context, refused)

    async def _answer(self, service: str, method: str, call: Call, context: Any) -> int:
        is_open = service == HEALTH_SERVICE or (service == SERVICE and method in HEALTH)
        if not is_open:
            self._bearer.check(_authorization(context))
        if not self._has_method(service, method):
            raise Unimplemented(f"{method[:200]} is not supported.")
        if service == HEALTH_SERVICE:
            return await self._answer_health(method, call, context)
        if service in REFLECTION_SERVICES:
            return await self._reflect(call, context)
        if is_open:
            reply = await self._calls.answer(method, call)
            await self._write(context, reply)
            return len(reply)
        self._calls.check_room(method)
        host = _host(context.peer())
        with self._account() as account, self._of_client.one_more(host):
            with self._from_client.one_more(host):
                call.data = await self._receive(context)
            account(len(call.data))
            call.remaining = context.time_remaining()
            reply = await self._calls.answer(method, call)
            await self._write(context, reply)
        return len(reply)

    async def _answer_health(self, method: str, call: Call, context: Any) -> int:
        sent = 0
        with (self._watches if method == "Watch" else self._checks).one_more(_host(context.peer())):
            call.data = _small(await self._read(context, _HEALTH_SECONDS) or b"")
            async for reply in self._health.answer(method, call.data):
                await self._write(context, reply)
                sent += len(reply)
        return sent

    async def _reflect(self, call: Call, context: Any) -> int:
        async def received() -> AsyncIterator[bytes]:
            while (message := await self._read(context, self._settings.reading)) is not None:
                call.data = _small(message)
                yield call.data

        sent = 0
        with self._account(), self._of_client.one_more(_host(context.peer())):
            async for reply in self._reflection.answers(received()):
                await self._write(context, reply)
                sent += len(reply)
        return sent

    def _has_method(self, service: str, method: str) -> bool:
        if service in REFLECTION_SERVICES:
            return self._reflection.has_method(method)
        return (self._health if service == HEALTH_SERVICE else self._calls).has_method(method)

    @contextmanager
    def _account(self) -> Iterator[Any]:
        """Counts a call, and its bytes when they are given to the function it yields. Raises Overloaded at a limit."""
        settings = self._settings
        if self._open >= settings.calls or self._incoming >= settings.incoming or self._held >= settings.budget:
            raise Overloaded("Too much is being received at once; try again later.", retry_after=1)
        self._open += 1
        size = 0

        def hold(count: int) -> None:
            nonlocal size
            size = count
            self._held += count

        try:
            yield hold
        finally:
            self._open -= 1
            self._held -= size

    async def _receive(self, context: Any) -> bytes:
        self._incoming += 1
        try:
            message = await self._read(context, self._settings.reading)
        finally:
            self._incoming -= 1
        if message is None:
            raise BadRequest("The call holds no message.")
        return message

    async def _read(self, context: Any, seconds: float) -> bytes | None:
        """The next message, None where the client sends no more. Raises DeadlineExceeded."""
        try:
            async with asyncio.timeout(seconds):
                message = await context.read()
        except TimeoutError as error:
            raise DeadlineExceeded(f"The message was not complete within {seconds:g} s.") from error
        return message if isinstance(message, bytes) else None

    async def _write(self, context: Any, reply: bytes) -> None:
        try:
            async with asyncio.timeout(self._settings.reading):
                await context.write(reply)
        except TimeoutError as error:
            raise DeadlineExceeded(f"The reply was not read within {self._settings.reading:g} s.") from error

    async def _refuse(self, context: Any, error: RequestError) -> None:
        trailing = () if error.retry_after is None else (("retry-after", str(error.retry_after)),)
        await context.abort(self._grpc.StatusCode[error.code], str(error)[:_LONGEST_SENTENCE], trailing)

    def _note(self, context: Any, call: Call, code: str, sent: int, seconds: float) -> None:
        self._service.metrics.grpc_calls.labels(code).inc()
        self._log.write(
            client=_host(context.peer()),
            method="gRPC",
            route=call.route,
            status=code,
            ms=round(seconds * 1e3, 2),
            bytes_in=len(call.data),
            bytes_out=sent,
            **call.noted,
        )


def _add_port(grpc: Any, server: Any, address: str, certificate: Certificate | None) -> int:
    if certificate is None:
        return int(server.add_insecure_port(address))
    pair = (certificate.keyfile.read_bytes(), certificate.certfile.read_bytes())
    return int(server.add_secure_port(address, grpc.ssl_server_credentials([pair])))


def _handler(grpc: Any, caller: _Caller) -> Any:
    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        """Every method of the server's services; for others the library answers that they do not exist."""

        def service(self, handler_call_details: Any) -> Any:
            service, _, method = handler_call_details.method.removeprefix("/").partition("/")
            if service not in (SERVICE, HEALTH_SERVICE, *REFLECTION_SERVICES):
                return None

            async def handle(_: Any, context: Any) -> None:
                await caller.handle(service, method, context)

            return grpc.stream_stream_rpc_method_handler(handle)

    return Handler()


def _authorization(context: Any) -> bytes:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            return value.encode() if isinstance(value, str) else bytes(value)
    return b""


def _small(message: bytes) -> bytes:
    """The message of a standard service, which no budget counts and a stream keeps. Raises BadRequest."""
    if len(message) > _LONGEST_NAME:
        raise BadRequest(f"The message has more than the {_LONGEST_NAME} bytes that a name may have.")
    return message


def _host(peer: str) -> str:
    """The address in gRPC's name of a peer: ipv4:127.0.0.1:5001, ipv6:%5B::1%5D:5001."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _grpc() -> Any:
    try:
        import grpc
        import grpc.aio
        import grpc_health.v1  # noqa: F401
        import grpc_reflection.v1alpha  # noqa: F401
        from google.protobuf import message  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(missing_package(error.name or "grpcio", "serve", user="The gRPC interface")) from error
    return grpc
