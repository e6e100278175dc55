"""`xbench-fast prepare`: decode the images once, before any model runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...engines.commands import echo
from ...engines.errors import ConfigError, RunError, XBenchError
from ..host.options import EvalConfig, EvaluationOptions
from .options.completing import BUNDLES, DATASETS
from .options.declared_options import options_of, repeated
from .options.shared_options import (
    Output,
    config_option,
    data_options,
    datasets_option,
    json_option,
    models_option,
    resolve_config,
)

if TYPE_CHECKING:
    from ...engines.geometry import Geometry
    from ..data.images.decoders import Decoder
    from ..results.loaded_dataset import LoadedDataset


@click.command()
@datasets_option("Dataset to prepare.", DATASETS, "all configured")
@models_option("Bundle to prepare for: its name or path, or a model's name.", BUNDLES, "every bundle found")
@repeated(
    "--geometry",
    "geometry_texts",
    metavar="MODE-SIZE-RESIZE-INTERPOLATION[-INTENSITY]",
    help="Geometry to prepare in place of the bundles' own, e.g. squash-224-224-bicubic. INTENSITY is stretched or "
    "equalised.",
)
@options_of(EvalConfig, "protocol", "threads", configured=True)
@options_of(EvaluationOptions, "cache", "cache_limit", "decoder", "bundles")
@data_options
@config_option
@json_option
def prepare(
    datasets: tuple[str, ...],
    models: tuple[str, ...],
    geometry_texts: tuple[str, ...],
    threads: int | None,
    cache: Path | None,
    cache_limit: str | None,
    decoder: str,
    protocol: str | None,
    bundles: tuple[Path, ...],
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
    output: Output,
) -> int:
    """Decode every image once, in the geometries the models need.

    An evaluation prepares an image when it needs it for the first time. This command does so ahead, without a model.
    The protocol must be the same as in the evaluation: medklip and mavl equalise the histogram of RSNA images first.
    The command can be interrupted and resumed, and several processes can run it at once.
    """
    if geometry_texts and models:
        raise ConfigError("--geometry and --model contradict each other; give one of them.")
    config = resolve_config(config_file, bundles, data, data_options, cache_limit)
    from ..data.images.decoders import choose_decoder
    from ..evaluation.pairing import configured_protocol, needed_geometries, select_bundles, select_datasets
    from ..evaluation.progress import progress_for
    from ..host.machine_record import usable_cores
    from ..host.paths import has_folder
    from ..results.loaded_dataset import load_dataset

    rules = configured_protocol(protocol or config.eval.protocol)
    fixed = [_geometry(text) for text in geometry_texts]
    selected = [] if fixed else select_bundles(config, models)
    chosen_datasets = select_datasets(config, datasets)
    if not chosen_datasets:
        raise ConfigError("No dataset is configured; give one with --data NAME=PATH or in xbench.toml.")
    folder = cache or config.cache or config.eval.out / "prepared"
    progress = progress_for(output.console())
    chosen, line = choose_decoder(decoder)
    if line:
        progress.say(line)
    rows: list[dict[str, Any]] = []
    for item in chosen_datasets:
        if not datasets and not has_folder(item.root):
            progress.say(f"{item.name}: skipped, its folder {item.root} does not exist or may not be entered")
            continue
        try:
            loaded = load_dataset(item)
            geometries = fixed or needed_geometries(selected, rules, loaded)
            if not geometries:
                progress.say(f"{item.name}: skipped, no bundle has a prompt set for it")
                continue
            workers, limit = threads or config.eval.threads or usable_cores(), config.cache_limit
            rows.append(_one(folder, loaded, geometries, workers, limit, chosen, progress))
        except RunError:
            raise
        except XBenchError as error:
            rows.append({"dataset": item.name, "error": str(error)})
            echo(f"Error: {item.name}: {error}", err=True)
    _tell_outdated(folder, progress)
    output.write({"cache": str(folder), "datasets": rows})
    if not rows:
        echo("Error: nothing was prepared; the lines above say why.", err=True)
    return 0 if rows and not any("error" in row for row in rows) else 1


def _one(
    folder: Path,
    loaded: LoadedDataset,
    geometries: list[Geometry],
    threads: int,
    limit: int | None,
    decoder: Decoder,
    progress: Any,
) -> dict[str, Any]:
    from ..data.cache.preparing import prepare as prepare_images
    from ..evaluation.cell_sources import CacheFolder, open_prepared

    def wait(store: Path) -> None:
        progress.say(f"{loaded.name}: waiting for another process that prepares {store}")

    keys = [geometry.key for geometry in geometries]
    opened = open_prepared(CacheFolder(folder, limit), loaded, geometries, progress.say, wait=wait, decoder=decoder)
    if opened is None:
        raise ConfigError(
            f"The prepared images of '{loaded.name}' in {', '.join(keys)} do not fit the cache limit; raise "
            "--cache-limit, or leave this dataset out: eval then decodes it without keeping anything."
        )
    with opened, progress.cell(f"{loaded.name}, {', '.join(keys)}", len(loaded.cases)) as advance:
        done = prepare_images(opened, range(len(loaded.cases)), threads, advance, decoder)
    progress.say(f"{loaded.name}, {', '.join(keys)}: {done}")
    names = [decoder.describe(geometry).partition(" ")[0] for geometry in geometries]
    return {"dataset": loaded.name, "geometries": keys, "decoders": names, **asdict(done)}


def _geometry(text: str) -> Geometry:
    from ...engines.errors import BundleError
    from ...engines.geometry import Geometry

    try:
        return Geometry.from_key(text)
    except BundleError as error:
        raise ConfigError(
            f"--geometry {text} is not of the form MODE-SIZE-RESIZE-INTERPOLATION[-INTENSITY], e.g. "
            "squash-224-224-bicubic or crop-224-224-bicubic."
        ) from error


def _tell_outdated(folder: Path, progress: Any) -> None:
    from ..data.cache.eviction import list_stores
    from ..host.sizes import format_bytes

    old = [store for store in list_stores(folder) if store.outdated]
    if old:
        size = format_bytes(sum(store.bytes for store in old))
        progress.say(f"{len(old)} stores ({size}) are of another reader version; xbench-fast cache prune deletes them")
