"""The Open Inference Protocol over HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ....engines.errors import ConfigError
from ..access_log import AccessLog
from ..inference.metadata import model_metadata, repository_index, server_metadata
from ..inference.service import Service
from ..parsers import WHEN_LOST
from ..protocol.errors import BadRequest, Internal, NotFound, RequestError
from ..protocol.requests import OUTPUTS
from .body import BodyReader, Disconnected, Share
from .codec import HEADER_LENGTH, decode_infer, encode_infer, json_length
from .error_response import error_body, error_headers
from .middleware import Application, Guard, Message, Receive, Send

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Route

__all__ = ["HttpSettings", "create_app"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_HEADER_LENGTH = HEADER_LENGTH.encode()
_SHORT = 1 << 16  # bytes or numbers of JSON that take about as long as handing them to a thread
_SMALL = 1 << 20  # the same of raw bytes
Endpoint = Callable[["Request"], Awaitable["Response"]]


@dataclass(frozen=True)
class HttpSettings:
    """max_body: bytes of a request; budget: bytes of all bodies in memory at once; body_timeout: seconds until a body
    must be there; token: what a client must send, None for no check; local_only: whether only host names of this
    machine are answered; open_paths: what needs no token."""

    max_body: int = 64 << 20
    budget: int = 1 << 30
    body_timeout: float = 60.0
    token: str | None = None
    local_only: bool = True
    open_paths: tuple[str, ...] = ("/", "/v2/health/live", "/v2/health/ready")

    def __post_init__(self) -> None:
        """Raises ConfigError for a limit that lets no request in."""
        if self.max_body < 1:
            raise ConfigError(f"The largest request (--max-body) is {self.max_body} bytes; it must be at least 1.")


def create_app(
    service: Service, settings: HttpSettings, log: AccessLog, routes: Sequence[BaseRoute] = ()
) -> Application:
    """The ASGI application for an entered service; `routes` are added to those of the protocol and of /metrics.

    Requests that infer, most of all, do not pass through Starlette.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    api = _Api(service, settings)
    model = "/v2/models/{model}"
    version = model + "/versions/{version}"
    table: list[tuple[str, str, Endpoint]] = [
        ("GET", "/v2", api.server),
        ("GET", "/v2/health/live", api.live),
        ("GET", "/v2/health/ready", api.ready),
        *(("GET", path, api.model) for path in (model, version)),
        *(("GET", f"{path}/ready", api.model_ready) for path in (model, version)),
        ("POST", "/v2/repository/index", api.index),
        ("GET", "/metrics", api.metrics),
    ]
    infer = [Route(f"{path}/infer", _Infer(service, api.bodies), methods=["POST"]) for path in (model, version)]
    app = Starlette(
        routes=infer + [Route(path, endpoint, methods=[method]) for method, path, endpoint in table] + list(routes),
        exception_handlers={
            RequestError: _told,
            HTTPException: _told_by_starlette,
            Disconnected: _nobody,
            Exception: _told,
        },
    )
    return Guard(
        _Direct(app, infer),
        log=log,
        metrics=service.metrics,
        token=settings.token,
        open_paths=settings.open_paths,
        local_only=settings.local_only,
    )


class _Api:
    """The endpoints but for the one that infers."""

    def __init__(self, service: Service, settings: HttpSettings) -> None:
        self._service = service
        self.bodies = BodyReader(limit=settings.max_body, budget=settings.budget, seconds=settings.body_timeout)

    async def server(self, request: Request) -> Response:
        return _json(server_metadata())

    async def live(self, request: Request) -> Response:
        return _json({"live": True})

    async def ready(self, request: Request) -> Response:
        return _json({"ready": self._service.ready}, 200 if self._service.ready else 503)

    async def model(self, request: Request) -> Response:
        return _json(model_metadata(self._service.catalogue.get(*_address(request.scope))))

    async def model_ready(self, request: Request) -> Response:
        model = self._service.catalogue.get(*_address(request.scope))
        return _json({"name": model.name, "ready": self._service.ready}, 200 if self._service.ready else 503)

    async def index(self, request: Request) -> Response:
        with self.bodies.account() as share:
            await _read(request.scope, _headers(request.scope), request.receive, self.bodies, share)
        return _json(repository_index(self._service))

    async def metrics(self, request: Request) -> Response:
        from starlette.responses import Response

        body, kind = self._service.metrics.render()
        return Response(body, headers={"content-type": kind})


class _Direct:
    """Leads requests that infer to their endpoint before Starlette looks for one: they are most of all."""

    def __init__(self, app: Application, routes: Sequence[Route]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            for route in self._routes:
                if found := route.path_regex.match(scope["path"]):
                    scope.update(route=route, path_params=found.groupdict())
                    await route.app(scope, receive, send)
                    return
        await self._app(scope, receive, send)


class _Infer:
    """The endpoint that infers, as an ASGI application of its own."""

    def __init__(self, service: Service, bodies: BodyReader) -> None:
        self._service = service
        self._bodies = bodies

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            data, head = await self._answer(scope, receive)
        except RequestError as error:
            await _told(scope, error)(scope, receive, send)
            return
        except Disconnected as error:
            await _nobody(scope, error)(scope, receive, send)
            return
        # A fault of this code: the client is told that there was one, the log which.
        except Exception as error:
            _LOG.exception("A request to infer failed unexpectedly")
            await _told(scope, error)(scope, receive, send)
            return
        headers = [(b"content-length", b"%d" % len(data))]
        if head is None:
            headers.append((b"content-type", b"application/json"))
        else:
            headers.append((b"content-type", b"application/octet-stream"))
            headers.append((_HEADER_LENGTH, b"%d" % head))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    async def _answer(self, scope: Message, receive: Receive) -> tuple[bytes, int | None]:
        """The body, and the length of its JSON part where raw bytes follow it."""
        name, version = _address(scope)
        noted: dict[str, Any] = {}
        with self._bodies.account() as share:
            with self._service.counted(name):
                self._service.catalogue.get(name, version)
                noted["model"] = name
                scope["xbench.log"] = noted
                # A full queue is told before the images are read.
                self._service.check_room(name)
                headers = _headers(scope)
                body = await _read(scope, headers, receive, self._bodies, share)
                length = headers.get(_HEADER_LENGTH)
                told = None if length is None else length.decode("latin-1")
                short = json_length(told, len(body)) < _SHORT and len(body) < _SMALL
                decoded = await self._service.work(partial(decode_infer, name, body, told), short=short)
            noted |= {"images": decoded.request.count, "outputs": sorted(decoded.request.outputs & OUTPUTS.keys())}
            answer = await _unless_gone(self._service.infer(decoded.request), scope, receive)
        in_json = sum(array.size for key, array in answer.outputs.items() if key not in decoded.binary)
        return await self._service.work(partial(encode_infer, answer, decoded.binary), short=in_json < _SHORT)


async def _read(
    scope: Message, headers: Mapping[bytes, bytes], receive: Receive, bodies: BodyReader, share: Share
) -> bytes:
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise BadRequest("Compressed bodies are not taken; send it without Content-Encoding.", status=415)
    length = headers.get(b"content-length")
    body = await bodies.read(receive, share, None if length is None else length.decode("latin-1"))
    scope["xbench.bytes_in"] = len(body)
    return body


def _headers(scope: Message) -> dict[bytes, bytes]:
    """Headers by name; of those that stand twice, the first."""
    return dict(reversed(scope["headers"]))


async def _unless_gone(answering: Coroutine[Any, Any, T], scope: Message, receive: Receive) -> T:
    """The result of `answering`, which is given up when the client goes away: nobody waits for it any more."""
    this = asyncio.current_task()
    assert this is not None
    given_up = over = False

    def give_up(_: object = None) -> None:
        nonlocal given_up
        if not over:
            given_up = this.cancel()

    forget = _when_gone(scope, receive, give_up)
    try:
        return await answering
    except asyncio.CancelledError:
        # Cancelled by this function alone: nobody else wants the task to end.
        if given_up and this.uncancel() == 0:
            raise Disconnected from None
        raise
    finally:
        over = True
        forget()


def _when_gone(scope: Message, receive: Receive, tell: Callable[..., None]) -> Callable[[], object]:
    """Has `tell` called once the client is gone, until what is returned is called."""
    when_lost: Callable[[Callable[[], None] | None], None] | None = scope.get(WHEN_LOST)
    if when_lost is not None:
        when_lost(tell)
        return partial(when_lost, None)
    watch = asyncio.create_task(_gone(receive))
    watch.add_done_callback(tell)
    return watch.cancel


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _address(scope: Message) -> tuple[str, str]:
    return scope["path_params"]["model"], scope["path_params"].get("version", "")


def _json(content: Any, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status)


def _told(_: object, error: Exception) -> Response:
    from starlette.responses import Response

    if not isinstance(error, RequestError):
        error = Internal("The server failed unexpectedly; its log says more.")
    return Response(error_body(error), error.http_status, headers=error_headers(error))


def _told_by_starlette(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself: unknown addresses and methods."""
    status = getattr(error, "status_code", 404)
    sentence = f"There is no {request.method} {request.url.path[:200]}."
    response = _told(request, NotFound(sentence) if status == 404 else BadRequest(sentence, status=status))
    response.headers.update(getattr(error, "headers", None) or {})
    return response


def _nobody(_: object, error: Exception) -> Response:
    """The client is gone; the status is only noted."""
    from starlette.responses import Response

    return Response(status_code=499)
