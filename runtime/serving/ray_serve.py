"""The server of `runtime/serving` as a deployment of Ray Serve: several replicas, on several machines.

    serve run xbench_fast.runtime.serving.ray_serve:build bundles=/shared/bundles replicas=4 gpus=0.5

Each replica is a complete server with its own engines and micro-batches; Ray Serve distributes requests over them.
Paths, bodies and responses are as with `xbench-fast serve`. V2 over gRPC is not available here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...engines.base import EngineOptions
from ...engines.bundle import find_bundles
from ...engines.errors import ConfigError, MissingExtraError, XBenchError
from ...engines.extras import missing_package
from ...engines.registry import did_you_mean
from ..host.sizes import parse_bytes
from .access_log import AccessLog
from .bearer import TOKEN_VARIABLE, read_token
from .http.http_app import create_app
from .inference.served_models import Catalogue
from .inference.service import Service
from .prometheus_metrics import Metrics
from .settings import HttpSettings, ServiceSettings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True)
class ReplicaSettings:
    """The settings of a replica; `bundles` must exist under these paths on every node that can run one."""

    bundles: tuple[Path, ...]
    engine: str = "auto"
    threads: int = 1
    prompt_set: str | None = None
    service: ServiceSettings = field(default_factory=ServiceSettings)
    http: HttpSettings = field(default_factory=lambda: HttpSettings(local_only=False))
    access_log: bool = True


class Replica:
    """An ASGI application that opens its engines at start-up and answers all accepted requests before it shuts down."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._app: Any = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except XBenchError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stack.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        settings = self._settings
        async with AsyncExitStack() as stack:
            catalogue = stack.enter_context(
                Catalogue(
                    settings.bundles,
                    engine=settings.engine,
                    threads=settings.threads,
                    options=EngineOptions(settings.service.max_batch),
                    default_set=settings.prompt_set,
                )
            )
            service = await stack.enter_async_context(Service(catalogue, settings.service, Metrics()))
            self._app = create_app(service, settings.http, AccessLog(enabled=settings.access_log))
            self._stack = stack.pop_all()


def application(settings: ReplicaSettings, *, replicas: int = 1, gpus: float = 0.0) -> Any:
    """The application for `ray.serve.run`; `gpus`: the share of a GPU each replica takes. Raises MissingExtraError."""
    serve = _import_serve()

    def replica() -> Replica:
        return Replica(settings)

    deployment = serve.deployment(
        serve.ingress(replica)(),
        name="xbench-fast",
        num_replicas=replicas,
        # A replica forms batches from concurrent requests, and rejects requests itself.
        max_ongoing_requests=2 * settings.service.queue,
        max_queued_requests=2 * settings.service.queue * replicas,
        ray_actor_options={"num_cpus": settings.threads, "num_gpus": gpus},
    )
    return deployment.bind()


def build(args: Mapping[str, str]) -> Any:
    """The application from KEY=VALUE pairs, as `serve run` and its configuration files give them.

    bundles (folder), model (names with commas; default: all), engine, threads, prompt_set, max_batch, max_delay_ms,
    queue, timeout, feature_cache (of each replica), token_file (else the variable XBENCH_FAST_TOKEN), replicas, gpus.
    Raises ConfigError for an unknown key or a value that does not fit.
    """
    values: dict[str, Any] = {
        "bundles": "",
        "model": "",
        "engine": "auto",
        "threads": 1,
        "prompt_set": "",
        "max_batch": ServiceSettings.max_batch,
        "max_delay_ms": 1e3 * ServiceSettings.max_delay,
        "queue": ServiceSettings.queue,
        "timeout": ServiceSettings.timeout,
        "feature_cache": str(ServiceSettings.feature_cache),
        "token_file": "",
        "replicas": 1,
        "gpus": 0.0,
    }
    for key, text in args.items():
        if key not in values:
            raise ConfigError(f"There is no setting '{key}': {did_you_mean(key, values)}.")
        try:
            values[key] = type(values[key])(text)
        except ValueError as error:
            raise ConfigError(f"{key}={text} is not a number.") from error
    for key, least in (("threads", 1), ("replicas", 1), ("gpus", 0)):
        if not least <= values[key] < math.inf:
            raise ConfigError(f"{key}={values[key]} must be at least {least}.")
    service = ServiceSettings(
        values["max_batch"],
        values["max_delay_ms"] / 1e3,
        values["queue"],
        values["timeout"],
        workers=values["threads"],
        feature_cache=parse_bytes(values["feature_cache"], "feature_cache"),
    )
    token = read_token(Path(values["token_file"]) if values["token_file"] else None)
    if token is None:
        print(f"No token is asked for; see token_file and {TOKEN_VARIABLE}.", file=sys.stderr)
    settings = ReplicaSettings(
        bundles=_bundles(values["bundles"], [name for name in values["model"].split(",") if name]),
        engine=values["engine"],
        threads=values["threads"],
        prompt_set=values["prompt_set"] or None,
        service=service,
        http=HttpSettings(local_only=False, token=token),
    )
    return application(settings, replicas=values["replicas"], gpus=values["gpus"])


def _bundles(folder: str, names: Sequence[str]) -> tuple[Path, ...]:
    bundles = {path.name: path.absolute() for path in find_bundles(Path(folder))} if folder else {}
    if not bundles:
        raise ConfigError(f"bundles={folder} holds no bundle; name the folder that xbench-export wrote to.")
    for name in names:
        if name not in bundles:
            raise ConfigError(f"There is no bundle called '{name}' in {folder}: {did_you_mean(name, bundles)}.")
    return tuple(path for name, path in bundles.items() if not names or name in names)


def _import_serve() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise MissingExtraError(missing_package(error.name or "ray", "scale")) from error
    return serve
