"""The command `xbench-export wrap`: a ready ONNX file becomes a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...engines.commands import Choice, echo
from ...engines.errors import ConfigError
from .models_in_config import BUNDLE_NAME

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("wrap")
@click.argument("graph", type=_FILE)
@click.option("--name", required=True, metavar="MODEL-VARIANT", help="Name of the bundle, e.g. mine-224.")
@click.option(
    "--geometry",
    required=True,
    metavar="MODE:SIZE[:RESIZE[:INTERPOLATION]]",
    help="Preparation of an image for the graph: squash:224, crop:224:256:bicubic (torchvision's centre), "
    "floor_crop:224:256:bicubic (the centre of transformers), pad_crop:224:256:area.",
)
@click.option(
    "--features",
    required=True,
    type=_FILE,
    metavar="FILE",
    help="NPZ file with one float32 array [Q, D...] per prompt set.",
)
@click.option(
    "--prompts",
    required=True,
    type=_FILE,
    metavar="FILE",
    help="YAML or JSON file of prompts: the finding of each row, and its text.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the bundle.",
)
@click.option(
    "--saliency",
    "kind",
    type=Choice(["attention", "similarity", "activation", "gradient"]),
    default="similarity",
    help="Kind of values in the map: shares of attention, cosines, the part of the logit that each cell adds, or "
    "attention weighted by the gradient of the logit.",
)
@click.option("--description", default="as the wrapped graph computes it", help="Description of the map in words.")
@click.option("--logit-scale", type=float, default=1.0, help="Factor by which a cosine was multiplied.")
@click.option(
    "--smoothing",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="CELLS",
    help="Standard deviation of the Gaussian with which the graph smooths its map. 0 means none.",
)
@click.option(
    "--batch",
    type=click.IntRange(2, 1024),
    show_default="256 images up to 128 x 128 pixels, 64 up to 256 x 256, else 17",
    help="Maximum batch of the bundle. No command gives the graph a larger one.",
)
@click.option("--force", is_flag=True, help="Replace an existing bundle.")
def wrap_command(
    graph: Path,
    name: str,
    geometry: str,
    features: Path,
    prompts: Path,
    out: Path,
    kind: str,
    description: str,
    logit_scale: float,
    smoothing: float,
    batch: int | None,
    force: bool,
) -> int:
    """Make a bundle from a ready ONNX file.

    GRAPH takes pixels uint8 [batch, 1, S, S] and text float32 [findings, D...] and returns logits [batch, findings]
    (probability = sigmoid) and saliency [batch, findings, h, w], float32. It is run in batches of 1, 2, 3, 8, 9, 16 and
    17, of 64 and 256 where images are small, and of --batch: an image's result must not depend on its neighbours.
    bundle.json states the largest, and no command gives the graph more images at once. Refused are maps that
    show no place, logits that do not depend on the text, and probabilities instead of logits. There is no model to
    compare it with.
    """
    model, _, variant = name.partition("-")
    if not model or not variant:
        raise ConfigError(f"--name {name} has no variant; give two words joined by '-', for example mine-224.")
    if not BUNDLE_NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name} cannot name a bundle; use letters, digits, '_', '.' and '-', at most 64, as in mine-224."
        )
    if not graph.is_file():
        raise ConfigError(f"There is no file {graph}; give the path of the ONNX file.")
    from ...engines.prompts.prompt_files import read_prompt_file
    from ..libraries import require_packages
    from ..wrap import Facts, read_features, read_geometry, wrap

    require_packages()
    chosen: Any = kind
    facts = Facts(
        model, variant, "own", read_geometry(geometry), chosen, description, logit_scale, smoothing, largest_batch=batch
    )
    sets = read_features(features, read_prompt_file(prompts))
    bundle = wrap(graph, sets, facts, out, force=force, progress=lambda line: echo(line, err=True))
    echo(str(bundle.path))
    return 0
