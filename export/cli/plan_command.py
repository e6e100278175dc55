"""The command `xbench-export plan`, and `--backend`: TensorRT plans of bundles, for the GPU of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from ...engines.bundle import Bundle, find_bundles
from ...engines.commands import Choice, echo
from ...engines.errors import EngineError
from ...engines.plans.family import FAMILIES, GPU_BATCH, load_family


def require_backend(backend: str) -> None:
    """Raises EngineError when plans of `backend` cannot be built here, before anything slow is begun."""
    from ...engines.select import backend_status

    status = next(item for item in backend_status() if item.name == backend)
    if not status.usable:
        raise EngineError(f"No {backend} plan can be built here: {status.reason.rstrip('.')}.")


def build_plans(
    bundles: Sequence[Bundle], backend: str, batch: int, *, tf32: bool = False, say: Callable[[str], None]
) -> None:
    """Builds and keeps the plan of each bundle that has none that fits. Raises EngineError or MissingExtraError."""
    from ...engines.backends.gpu import current_gpu
    from ...engines.plans.key import Profile, plan_key
    from ...engines.plans.store import provide_plan

    family, gpu = load_family(backend), current_gpu()
    for bundle in bundles:
        key = plan_key(bundle, family, gpu, Profile.of(bundle, batch), tf32=tf32)
        plan = provide_plan(bundle, family, key, say=say)
        most = key.profile.batch[2]
        why = "" if most == batch else f" instead of {batch}, as its bundle.json states"
        say(f"{bundle.name}: {key.precision} plan for {gpu.name}, batches up to {most}{why}, {len(plan) / 1e6:.0f} MB")


@click.command("plan")
@click.argument("paths", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path))
@click.option(
    "--backend",
    type=Choice(list(FAMILIES)),
    default=next(iter(FAMILIES)),
    help="Kind of TensorRT.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=GPU_BATCH,
    help="Maximum batch of the plan. eval needs a plan for its --batch.",
)
@click.option("--tf32", is_flag=True, help="Let float32 matrix products round their inputs to TF32.")
def plan_command(paths: tuple[Path, ...], backend: str, batch: int, tf32: bool) -> int:
    """Build TensorRT plans of bundles for this machine's GPU.

    BUNDLE is a bundle or a folder of bundles. A plan is kept in the bundle and belongs to one GPU, one version of
    TensorRT and one profile; xbench-fast builds it by itself when it is missing, so this command only does it earlier.
    Its batches never exceed the largest_batch of bundle.json.
    """
    require_backend(backend)
    bundles = [Bundle.load(path) for folder in paths for path in find_bundles(folder) or [folder]]
    build_plans(bundles, backend, batch, tf32=tf32, say=lambda line: echo(line, err=True))
    return 0
