"""`xbench-fast serve`: bundles behind the Open Inference Protocol."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..host.sizes import parse_bytes
from .options import bundle_options, config_option, resolve_config

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from ..serving.access_log import AccessLog
    from ..serving.grpc.transport import GrpcTransport
    from ..serving.inference.models import ServedModel
    from ..serving.server import ServerSettings

__all__ = ["serve"]


@click.command("serve", short_help="Answer requests for exported models over HTTP and gRPC.")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="Bundle name, path to a bundle, or model name; can be repeated.  [default: every bundle found]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address; 0.0.0.0 exposes the server.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    help="Answer gRPC too, on this port; 0 takes a free one.  [default: HTTP only]",
)
@click.option(
    "--max-batch", type=click.IntRange(min=1), default=16, show_default=True, help="Images of an engine call."
)
@click.option(
    "--max-delay-ms",
    type=click.FloatRange(min=0, max=1000),
    default=2.0,
    show_default=True,
    help="How long the first image of a batch waits for others.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Images of a model that may be on their way; more are refused with status 429.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds for a request."
)
@click.option("--max-body", metavar="SIZE", default="64MiB", show_default=True, help="Largest request.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the token clients must send; the variable XBENCH_FAST_TOKEN does the same.",
)
@click.option("--prompt-set", help="Set that answers where a request names none.  [default: the one of most findings]")
@click.option("--engine", default=None, help="Engine, or auto for the best that runs here.  [default: auto]")
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of each engine, and of decoding.  [default: all cores]"
)
@click.option("--access-log/--no-access-log", default=True, show_default=True, help="One JSON line a request.")
@bundle_options
@config_option
def serve(
    models: tuple[str, ...],
    host: str,
    port: int,
    grpc_port: int | None,
    max_batch: int,
    max_delay_ms: float,
    queue: int,
    timeout: float,
    max_body: str,
    token_file: Path | None,
    prompt_set: str | None,
    engine: str | None,
    threads: int | None,
    access_log: bool,
    bundle_folders: tuple[Path, ...],
    config_file: Path | None,
) -> int:
    """Serve exported models over HTTP and gRPC, by the Open Inference Protocol (KServe V2).

    For research only: not a medical device. The server answers this machine alone unless --host says otherwise.
    SIGTERM or Ctrl-C stops it after the requests it accepted are answered.
    """
    from ...engines.base import EngineOptions
    from ..evaluation.pairing import select_bundles
    from ..host.machine import usable_cores
    from ..serving.access_log import AccessLog
    from ..serving.bearer import read_token
    from ..serving.http.app import HttpSettings
    from ..serving.inference.catalogue import Catalogue
    from ..serving.inference.service import ServiceSettings
    from ..serving.page import page_routes
    from ..serving.server import ServerSettings, bind, event_loop, is_exposed
    from ..serving.server import serve as run

    config = resolve_config(config_file, bundle_folders)
    token = read_token(token_file)
    cores = threads or config.eval.threads or usable_cores()
    settings = ServerSettings(
        service=ServiceSettings(max_batch, max_delay_ms / 1e3, queue, timeout, workers=cores),
        http=HttpSettings(max_body=parse_bytes(max_body, "--max-body"), token=token, local_only=not is_exposed(host)),
    )
    bundles = select_bundles(config, models)
    listener = bind(host, port)
    with (
        listener,
        Catalogue(
            bundles,
            engine=engine or config.eval.engine,
            threads=cores,
            options=EngineOptions(max_batch, say=partial(click.echo, err=True)),
            default_set=prompt_set,
        ) as catalogue,
    ):
        log = AccessLog(enabled=access_log)
        extras = [] if grpc_port is None else [_grpc(host, grpc_port, settings, log)]

        def announce() -> None:
            lines = _banner(listener, catalogue.models, exposed=is_exposed(host), guarded=token is not None)
            for line in [lines[0], *(f"grpc://{extra.address}" for extra in extras), *lines[1:]]:
                click.echo(line)

        with asyncio.Runner(loop_factory=event_loop) as runner:
            runner.run(
                run(catalogue, listener, settings, log=log, announce=announce, routes=page_routes(), extras=extras)
            )
    click.echo("Stopped; every accepted request was answered.", err=True)
    return 0


def _grpc(host: str, port: int, settings: ServerSettings, log: AccessLog) -> GrpcTransport:
    """gRPC under the limits of HTTP."""
    from ..serving.grpc.transport import GrpcSettings, GrpcTransport

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
        ),
        log,
    )


def _banner(listener: socket.socket, models: Mapping[str, ServedModel], *, exposed: bool, guarded: bool) -> list[str]:
    """What a user sees first: address and models in one line, then what the answers are worth."""
    from ..serving.inference.metadata import NOTICE, weights_notice

    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    lines = [f"{address}  {', '.join(f'{name} ({model.info.backend})' for name, model in models.items())}"]
    notices: dict[str, list[str]] = {}
    for name, model in models.items():
        notices.setdefault(weights_notice(model), []).append(name)
    lines += [f"{', '.join(names)}: {notice}" for notice, names in notices.items()]
    lines.append(NOTICE)
    if exposed and not guarded:
        lines.append("Other machines can reach this server and no token is asked for; see --token-file.")
    return lines
