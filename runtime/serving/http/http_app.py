"""The Open Inference Protocol over HTTP, as an ASGI application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..access_log import AccessLog
from ..inference.metadata import model_list, model_metadata, repository_index, server_metadata
from ..inference.service import Service
from ..settings import HttpSettings
from .accept import JSON, Endpoint, offering
from .bodies import BodyReader
from .docs import docs_routes
from .infer import Infer
from .middleware import LOG_FIELDS, ClientRequests, Guard

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp


def create_app(service: Service, settings: HttpSettings, log: AccessLog) -> ASGIApp:
    """The ASGI application for an entered service: the protocol, /metrics and, if enabled, the page."""
    from starlette.routing import Route

    bodies = BodyReader(limit=settings.max_body, budget=settings.budget, seconds=settings.body_timeout)
    infer, other = Infer(service, bodies), _Endpoints(service, bodies)
    model = "/v2/models/{model}"
    paths = (model, f"{model}/versions/{{version}}")
    routes: list[BaseRoute] = [Route(f"{path}/infer", infer, methods=["POST"]) for path in paths]
    routes += [Route(path, offering(JSON, other.model)) for path in paths]
    routes += [Route(f"{path}/ready", other.model_ready) for path in paths]
    routes += [
        Route("/v2", offering(JSON, other.server)),
        Route("/v2/models", offering(JSON, other.models)),
        Route("/v2/repository/index", offering(JSON, other.index), methods=["POST"]),
    ]
    routes += docs_routes(settings.root_path)
    if settings.page:
        from ..page import page_endpoint

        routes.append(Route("/", offering("text/html", page_endpoint(settings.root_path))))
    return _guarded([*routes, *_Health(service).routes()], service, settings, log)


def create_health_app(service: Service, settings: HttpSettings, log: AccessLog) -> ASGIApp:
    """The ASGI application of a second listener: health and /metrics alone, with the same checks as the first."""
    return _guarded(_Health(service).routes(), service, settings, log)


def _guarded(routes: Sequence[BaseRoute], service: Service, settings: HttpSettings, log: AccessLog) -> ASGIApp:
    from starlette.routing import Router

    # Guard answers for what fails: Starlette's application would put two more handlers of errors around each request.
    app: ASGIApp = Router(routes)
    if settings.trusted_proxies:
        app = ClientRequests(app, settings)
    return Guard(app, settings, log, service.metrics)


class _Endpoints:
    """The endpoints of the protocol except inference."""

    def __init__(self, service: Service, bodies: BodyReader) -> None:
        self._service = service
        self._bodies = bodies

    async def server(self, request: Request) -> Response:
        return _json(server_metadata())

    async def models(self, request: Request) -> Response:
        return _json(model_list(self._service))

    async def model(self, request: Request) -> Response:
        return _json(model_metadata(self._service.catalogue.get(*_address(request))))

    async def model_ready(self, request: Request) -> Response:
        model = self._service.catalogue.get(*_address(request))
        return _json({"name": model.name, "ready": self._service.ready}, 200 if self._service.ready else 503)

    async def index(self, request: Request) -> Response:
        body = await self._bodies.read(request)
        self._bodies.release(body)
        request.scope[LOG_FIELDS] = {"bytes_in": len(body)}
        return _json(repository_index(self._service))


class _Health:
    """The endpoints of health and metrics."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[BaseRoute]:
        from starlette.routing import Route

        # Health is answered whatever is accepted: its status is the answer.
        endpoints: dict[str, Endpoint] = {"/v2/health/live": self.live, "/v2/health/ready": self.ready}
        endpoints["/metrics"] = offering("text/plain", self.metrics)
        return [Route(path, endpoint) for path, endpoint in endpoints.items()]

    async def live(self, request: Request) -> Response:
        return _json({"live": True})

    async def ready(self, request: Request) -> Response:
        return _json({"ready": self._service.ready}, 200 if self._service.ready else 503)

    async def metrics(self, request: Request) -> Response:
        from starlette.responses import Response

        body, content_type = self._service.metrics.render()
        return Response(body, headers={"content-type": content_type})


def _address(request: Request) -> tuple[str, str]:
    return request.path_params["model"], request.path_params.get("version", "")


def _json(content: Any, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status)
