"""`xbench-fast serve`: bundles behind the Open Inference Protocol."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...engines.commands import Choice, echo
from ..host.options import EvalConfig, EvaluationOptions
from ..host.sizes import parse_bytes
from ..serving.settings import GrpcSettings, HttpSettings, ServerSettings, ServiceSettings
from .options.completing import BUNDLES
from .options.declared_options import options_of, repeated
from .options.shared_options import config_option, models_option, resolve_config

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from ..serving.access_log import AccessLog
    from ..serving.grpc.transport import GrpcTransport
    from ..serving.inference.served_models import ServedModel

PORT = click.IntRange(0, 65535)


@click.command("serve")
@models_option("Bundle to serve: its name or path, or a model's name.", BUNDLES, "every bundle found")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. 0.0.0.0 exposes the server.",
)
@click.option("--port", type=PORT, default=8000, show_default=True, help="Port of HTTP. 0 chooses a free one.")
@click.option("--grpc-port", type=PORT, help="Port of gRPC. 0 chooses a free one.  [default: HTTP only]")
@click.option(
    "--health-port",
    type=PORT,
    help="Second port of health checks and metrics, which connections to the first cannot block. 0 chooses a "
    "free one.  "
    "[default: the port of HTTP only]",
)
@click.option(
    "--max-batch",
    type=click.IntRange(min=1),
    default=ServiceSettings.max_batch,
    show_default=True,
    help="Maximum number of images per engine call.",
)
@click.option(
    "--max-delay-ms",
    type=click.FloatRange(min=0, max=1000),
    default=1e3 * ServiceSettings.max_delay,
    show_default=True,
    help="Maximum time in milliseconds that the first image of a batch waits for others.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    default=ServiceSettings.queue,
    show_default=True,
    help="Maximum number of images per model that are accepted and not yet answered. Further ones get status 429.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=ServiceSettings.timeout,
    show_default=True,
    help="Time in seconds after which an unanswered request gets status 504.",
)
@click.option(
    "--max-body",
    metavar="SIZE",
    default=f"{HttpSettings.max_body >> 20}MiB",
    show_default=True,
    help="Maximum size of a request.",
)
@click.option(
    "--feature-cache",
    metavar="SIZE",
    default=f"{ServiceSettings.feature_cache >> 20}MiB",
    show_default=True,
    help="Maximum size of the prepared pixels and features of recent images, which are kept in memory for further "
    "questions about them. 0 keeps none.",
)
@click.option(
    "--http-parser",
    type=Choice(["auto", "httptools", "h11"]),
    default=ServerSettings.parser,
    show_default=True,
    help="Parser of HTTP/1.1. h11 limits the size of headers and is slower. auto chooses httptools where it is "
    "installed.",
)
@click.option(
    "--client-connections",
    type=click.IntRange(min=0),
    default=HttpSettings.client_connections,
    show_default=True,
    help="Maximum number of HTTP connections per address. Further ones get answers to health checks only. 0 means no "
    "limit. With a limit, one address has at most half of the gRPC calls.",
)
@repeated(
    "--trusted-proxy",
    "proxies",
    metavar="ADDRESS",
    help="Address or network (10.0.0.0/8) of a proxy in front. Its connections are not limited, and its header "
    "X-Forwarded-For names the client.",
)
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Prefix of all paths behind a proxy, e.g. /xray, whether the proxy removes it or not.  [default: none]",
)
@click.option(
    "--certfile", type=click.Path(path_type=Path), metavar="FILE", help="Certificate (PEM) for TLS on every port."
)
@click.option(
    "--keyfile", type=click.Path(path_type=Path), metavar="FILE", help="Private key (PEM) of the certificate."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the token that clients must send. The variable XBENCH_FAST_TOKEN can hold it instead.",
)
@click.option(
    "--prompt-set",
    metavar="NAME",
    help="Prompt set for requests that name none.  [default: the one with the most findings]",
)
@options_of(EvalConfig, "engine", "gpu", "threads", configured=True)
@click.option("--access-log/--no-access-log", default=True, show_default=True, help="Log one JSON line per request.")
@options_of(EvaluationOptions, "bundles")
@config_option
def serve(
    models: tuple[str, ...],
    host: str,
    port: int,
    grpc_port: int | None,
    health_port: int | None,
    max_batch: int,
    max_delay_ms: float,
    queue: int,
    timeout: float,
    max_body: str,
    feature_cache: str,
    http_parser: str,
    client_connections: int,
    proxies: tuple[str, ...],
    root_path: str,
    certfile: Path | None,
    keyfile: Path | None,
    token_file: Path | None,
    prompt_set: str | None,
    engine: str | None,
    gpu: int | None,
    threads: int | None,
    access_log: bool,
    bundles: tuple[Path, ...],
    config_file: Path | None,
) -> int:
    """Serve exported models over HTTP and gRPC, by the Open Inference Protocol (KServe V2).

    For research only: not a medical device. The server answers only this machine unless --host exposes it, which should
    be behind a reverse proxy. SIGTERM or Ctrl-C stops the server after it has answered the requests that it accepted.
    """
    from ...engines.base import EngineOptions
    from ...engines.select import check_engine, choose
    from ..evaluation.pairing import select_bundles
    from ..host.machine_record import usable_cores
    from ..serving.access_log import AccessLog
    from ..serving.addresses import read_networks
    from ..serving.bearer import read_token
    from ..serving.certificate import read_certificate
    from ..serving.inference.served_models import Catalogue
    from ..serving.server import bind, event_loop, health_listener, is_exposed
    from ..serving.server import serve as run

    config = resolve_config(config_file, bundles)
    token = read_token(token_file)
    certificate = read_certificate(certfile, keyfile)
    cores = threads or config.eval.threads or usable_cores()
    kept = parse_bytes(feature_cache, "--feature-cache")
    service = ServiceSettings(max_batch, max_delay_ms / 1e3, queue, timeout, workers=cores, feature_cache=kept)
    http = HttpSettings(
        max_body=parse_bytes(max_body, "--max-body"),
        token=token,
        local_only=not is_exposed(host),
        page=True,
        client_connections=client_connections,
        trusted_proxies=read_networks(proxies),
        root_path=root_path.rstrip("/"),
    )
    settings = ServerSettings(service, http, parser=http_parser, certificate=certificate)
    config = config.with_settings(engine=engine, gpu=gpu)
    check_engine(config.eval.engine)
    if config.eval.gpu is not None:
        choose(config.eval.engine, config.eval.gpu)
    selected = select_bundles(config, models)
    with ExitStack() as stack:
        listener = stack.enter_context(bind(host, port))
        health = None if health_port is None else stack.enter_context(bind(host, health_port))
        catalogue = stack.enter_context(
            Catalogue(
                selected,
                engine=config.eval.engine,
                threads=cores,
                options=EngineOptions(max_batch, device=config.eval.gpu or 0, say=partial(echo, err=True)),
                default_set=prompt_set,
            )
        )
        log = AccessLog(enabled=access_log)
        grpc = None if grpc_port is None else _grpc(host, grpc_port, settings, log)

        def announce() -> None:
            secure = "" if certificate is None else "s"
            lines = _banner(f"http{secure}://{_address(listener)}", catalogue.models)
            if is_exposed(host):
                lines += _warnings(guarded=token is not None, secure=bool(secure))
            others = [] if grpc is None else [f"grpc{secure}://{grpc.address}"]
            others += [] if health is None else [f"http{secure}://{_address(health)}/v2/health/ready"]
            for line in [lines[0], *others, *lines[1:]]:
                echo(line)

        extras = [] if health is None else [health_listener(health, settings, log)]
        extras += [] if grpc is None else [grpc]
        with asyncio.Runner(loop_factory=event_loop) as runner:
            runner.run(run(catalogue, listener, settings, log=log, announce=announce, extras=extras))
    echo("Stopped; every accepted request was answered.", err=True)
    return 0


def _grpc(host: str, port: int, settings: ServerSettings, log: AccessLog) -> GrpcTransport:
    """gRPC under the limits of HTTP."""
    from ..serving.grpc.transport import GrpcTransport

    http = settings.http
    return GrpcTransport(
        GrpcSettings(
            host,
            port,
            max_body=http.max_body,
            budget=http.budget,
            reading=http.body_timeout,
            token=http.token,
            grace=settings.service.timeout + 5,
            shared=http.client_connections > 0,
            trusted_proxies=http.trusted_proxies,
            certificate=settings.certificate,
        ),
        log,
    )


def _banner(address: str, models: Mapping[str, ServedModel]) -> list[str]:
    """The first lines for a user: address and models in one line, then remarks on the answers."""
    from ..serving.inference.metadata import NOTICE, weights_notice

    lines = [f"{address}  {', '.join(f'{name} ({model.info.backend})' for name, model in models.items())}"]
    notices: dict[str, list[str]] = {}
    for name, model in models.items():
        notices.setdefault(weights_notice(model), []).append(name)
    lines += [f"{', '.join(names)}: {notice}" for notice, names in notices.items()]
    return [*lines, NOTICE]


def _warnings(*, guarded: bool, secure: bool) -> list[str]:
    """What the user of a server that other machines can reach should know."""
    if not guarded:
        return ["Other machines can reach this server and no token is asked for; see --token-file."]
    if not secure:
        return ["The token travels unencrypted; give --certfile and --keyfile, or put a proxy with TLS in front."]
    return []


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"
