"""The command `xbench-export triton`: bundles become a Triton model repository."""

from __future__ import annotations

from pathlib import Path

import click

from ...engines.bundle import Bundle, find_bundles
from ...engines.commands import Choice, echo
from ...engines.errors import ConfigError
from ...engines.registry import did_you_mean
from ..triton.model_config import TritonLimits

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("triton")
@click.option(
    "--model",
    "models",
    metavar="NAME",
    multiple=True,
    required=True,
    help="Bundle to write: its name, a model's name, or all. Can be repeated.",
)
@click.option(
    "--bundles",
    type=_FOLDER,
    show_default="the first of 'bundles' in xbench.toml, else bundles",
    metavar="DIR",
    help="Folder that holds bundles.",
)
@click.option(
    "--out", required=True, type=_FOLDER, metavar="DIR", help="Folder of the model repository. Models are added to it."
)
@click.option(
    "--prompt-set",
    "sets",
    metavar="NAME",
    multiple=True,
    show_default="all",
    help="Prompt set to write. Can be repeated.",
)
@click.option(
    "--backend",
    type=Choice(["onnxruntime", "tensorrt"]),
    default="onnxruntime",
    help="Backend of Triton that runs the models.",
)
@click.option(
    "--plans",
    type=_FOLDER,
    metavar="DIR",
    help="Folder with <model>--<set>.plan for --backend tensorrt. Without it plans are built here, which needs the "
    "version of TensorRT and the GPU of Triton.",
)
@click.option(
    "--device",
    type=Choice(["gpu", "cpu"]),
    default="gpu",
    help="Device on which Triton runs. On a CPU a single image is run as two, so that it gets the bits it has "
    "in a batch.",
)
@click.option("--jpeg", is_flag=True, help="Add ensembles that take JPEG files, decoded and resized by DALI.")
@click.option("--text-input", is_flag=True, help="Add the graph that takes text features. It is not batched.")
@click.option(
    "--max-batch",
    type=click.IntRange(1, 1024),
    default=TritonLimits.batch,
    help="Maximum number of images per engine call.",
)
@click.option(
    "--max-delay-ms",
    type=click.FloatRange(0, 1000),
    default=TritonLimits.delay / 1000,
    help="Maximum time in milliseconds that the first image of a batch waits for others.",
)
@click.option(
    "--queue", type=click.IntRange(1), default=TritonLimits.queue, help="Maximum number of requests that wait."
)
@click.option(
    "--instances",
    type=click.IntRange(1, 64),
    default=TritonLimits.instances,
    help="Number of copies of each engine.",
)
@click.option("--force", is_flag=True, help="Replace models that exist.")
def triton_command(
    models: tuple[str, ...],
    bundles: Path | None,
    out: Path,
    sets: tuple[str, ...],
    backend: str,
    plans: Path | None,
    device: str,
    jpeg: bool,
    text_input: bool,
    max_batch: int,
    max_delay_ms: float,
    queue: int,
    instances: int,
    force: bool,
) -> int:
    """Write a Triton model repository from bundles.

    Each prompt set of a bundle becomes a model <bundle>--<set>: pixels uint8 [batch, 1, S, S] in; logits and saliency
    out, one entry a finding (labels.txt has their names), as xbench-fast serve answers for that set. The text features
    are part of the graph, so that Triton can join requests into batches; the last bits of an answer can depend on its
    batch, unlike the answers of serve. Nothing is fetched, torch is not needed.

    \b
    Examples:
      xbench-export triton --model all --bundles bundles --out model_repository
      xbench-export triton --model kad --prompt-set vindr --device cpu --out model_repository
    """
    from ..triton.repository import RepositoryChoices, write_repository
    from .models_in_config import read_models

    if backend == "tensorrt" and device == "cpu":
        raise ConfigError("--backend tensorrt needs a GPU; leave --device cpu out.")
    if plans is not None and backend != "tensorrt":
        raise ConfigError("--plans goes with --backend tensorrt.")
    if text_input and backend == "tensorrt":
        raise ConfigError("--text-input goes with --backend onnxruntime.")
    instance_kind = "KIND_CPU" if device == "cpu" else "KIND_GPU"
    limits = TritonLimits(
        max_batch, round(max_delay_ms * 1000), queue, instances=instances, instance_kind=instance_kind
    )
    choices = RepositoryChoices(sets, backend == "tensorrt", plans, device == "cpu", jpeg, text_input, force, limits)
    chosen = _chosen(bundles or read_models().out or Path("bundles"), models)
    for name in write_repository(chosen, out, choices, lambda line: echo(line, err=True)):
        echo(str(out / name))
    return 0


def _chosen(folder: Path, names: tuple[str, ...]) -> list[Bundle]:
    """The bundles of a folder that are called `names`, or are of models called so. Raises ConfigError, BundleError."""
    paths = find_bundles(folder)
    if not paths:
        raise ConfigError(
            f"There is no bundle in {folder}; make one with xbench-export or name its folder by --bundles."
        )
    if "all" in names:
        return [Bundle.load(path) for path in paths]
    chosen: dict[str, Bundle] = {}
    listed = {path.name: Bundle.load(path, check_hashes=False) for path in paths}
    for name in names:
        wanted = [key for key in listed if key == name] or [
            key for key, bundle in listed.items() if bundle.manifest.model == name
        ]
        if not wanted:
            raise ConfigError(f"There is no bundle called '{name}' in {folder}: {did_you_mean(name, listed)}.")
        chosen |= {key: Bundle.load(listed[key].path) for key in wanted}
    return list(chosen.values())
