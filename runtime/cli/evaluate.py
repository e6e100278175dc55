"""`xbench-fast eval`: bundles x datasets -> a run directory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...engines.errors import ConfigError
from ..host.config import EvalConfig
from .options import (
    bundle_options,
    cache_limit_option,
    cache_option,
    config_option,
    data_options,
    decoder_option,
    resolve_config,
)
from .scaling import scaling_options

if TYPE_CHECKING:
    from ..evaluation.options import Options, Outcome
    from ..host.config import Config
    from .scaling import Scale

__all__ = ["evaluate"]


@click.command("eval")
@click.option("--all", "everything", is_flag=True, help="Every bundle found x every dataset configured.")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="Bundle name, path to a bundle, model name, baseline:ones, :center, :chance, or maps:FOLDER; can be repeated.",
)
@click.option("--dataset", "names", multiple=True, help="Dataset name; can be repeated.")
@click.option(
    "--engine",
    metavar="NAME",
    help="tensorrt, tensorrt-rtx, onnxruntime-cuda, onnxruntime-cpu, or auto for the first of these that runs here; "
    "auto takes tensorrt-rtx on GPUs its makers name.  [default: auto]",
)
@click.option(
    "--build/--no-build",
    default=None,
    help="Whether a TensorRT plan may be built, which takes minutes, once.  [default: build]",
)
@click.option(
    "--tf32/--no-tf32",
    default=None,
    help="Whether float32 products on a GPU may round their inputs to TF32.  [default: no-tf32]",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Run directory; an existing one is resumed.  [default: run]"
)
@click.option(
    "--protocol",
    metavar="NAME",
    help="Whose evaluation is followed: default, paper, chexlocalize, medklip or mavl.  [default: default]",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N cases of each dataset.")
@click.option("--batch", type=click.IntRange(min=1), help="Images per batch.  [default: 16]")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Threads of the engine and of decoding, with --cluster of each worker.  [default: all cores]",
)
@cache_option
@cache_limit_option
@click.option("--no-cache", is_flag=True, help="Decode every image for every model; nothing is kept.")
@decoder_option
@click.option(
    "--chunk",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Cases per part file: what a killed run repeats at most.",
)
@scaling_options
@bundle_options
@data_options
@config_option
def evaluate(
    everything: bool,
    models: tuple[str, ...],
    names: tuple[str, ...],
    engine: str | None,
    build: bool | None,
    tf32: bool | None,
    out: Path | None,
    protocol: str | None,
    limit: int | None,
    batch: int | None,
    threads: int | None,
    cache: Path | None,
    cache_limit: str | None,
    no_cache: bool,
    decoder: str,
    chunk: int,
    scale: Scale,
    bundle_folders: tuple[Path, ...],
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
) -> int:
    """Evaluate models on datasets.

    Results go to a run directory that can be interrupted and resumed: finished work is kept and never computed again
    unless its inputs changed. --model alone means all datasets, --dataset alone all models. Baselines are reference
    maps that need neither a bundle nor images; their rows stand beside those of the models. maps:FOLDER evaluates
    saliency maps of your own, one file for each case and finding: FOLDER/CASE/FINDING.npy, .npz or grey .png, or
    FOLDER/CASE_FINDING_map.npy, or FOLDER/CASE.npz with one array for each finding.

    A protocol says how maps are normalised, cut and counted. It belongs to the result: another protocol is another
    computation, in the same run directory if you like, and the report follows the last one.
    """
    if everything == bool(models or names):
        raise ConfigError("Say what to evaluate: --all, or --model and --dataset (not both ways at once).")
    if cache is not None and no_cache:
        raise ConfigError("--cache and --no-cache contradict each other; give one of them.")
    scale.check(decoder=decoder, cache=cache)
    config = resolve_config(config_file, bundle_folders, data, data_options, cache_limit)
    place, kept = scale.place(out or config.eval.out, config.cache)
    settings = EvalConfig(
        engine=engine or config.eval.engine,
        batch=batch or config.eval.batch,
        threads=threads or config.eval.threads,
        out=place,
        protocol=_protocol(protocol or config.eval.protocol),
        build=config.eval.build if build is None else build,
        tf32=config.eval.tf32 if tf32 is None else tf32,
    )
    config = replace(config, eval=settings, cache=None if no_cache else cache or kept)
    from ..evaluation.options import Options
    from ..host.machine import usable_cores

    options = Options(
        engine=config.eval.engine,
        batch=config.eval.batch,
        threads=config.eval.threads or usable_cores(),
        limit=limit,
        chunk=chunk,
        skip_absent=not names,
        protocol=config.eval.protocol,
        shard=scale.shard,
    )
    try:
        with ExitStack() as stack:
            outcome = _evaluate(config, options, models, names, decoder, scale, stack)
    except KeyboardInterrupt:
        click.echo(
            f"Interrupted; what is finished is kept in {config.eval.out}, the same command goes on from there.",
            err=True,
        )
        return 130
    if not outcome.failed and not outcome.computed + outcome.reused:
        click.echo("Error: nothing was evaluated, because every pair was skipped; the lines above say why.", err=True)
        return 1
    return 1 if outcome.failed else 0


def _evaluate(
    config: Config,
    options: Options,
    models: tuple[str, ...],
    names: tuple[str, ...],
    decoder_name: str,
    scale: Scale,
    stack: ExitStack,
) -> Outcome:
    from ...engines.base import EngineOptions
    from ...engines.select import ENGINES, choose, open_engine
    from ...metrics_gpu.sweep.sweep import sweep
    from ..evaluation.pairing import needed_geometries, select_bundles, select_datasets
    from ..evaluation.progress import progress_for
    from ..evaluation.reference.baselines import split_baselines
    from ..evaluation.reference.map_files import split_maps
    from ..evaluation.runner import Runner
    from ..evaluation.sources import source_opener
    from ..images.decoders import CPU, choose_decoder
    from ..results.run_directory import RunDirectory
    from .scaling import on_cluster, work_plan
    from .terminal import make_console

    datasets = select_datasets(config, names)
    if not datasets:
        raise ConfigError("No dataset is configured; give one with --data NAME=PATH or in xbench.toml.")
    baselines, others = split_baselines(models)
    maps, others = split_maps(others)
    bundles = select_bundles(config, others) if others or not models else []
    progress = progress_for(make_console())
    chosen, cluster, line = options.engine, None, ""
    if bundles and scale.cluster is not None:
        if options.engine != "auto":
            ENGINES.load(options.engine)
        workers = stack.enter_context(scale.open(scale.cluster, config.eval.threads))
        options = replace(options, threads=workers.threads)
        names_used = [item.name for item in datasets]
        cluster = on_cluster(workers, work_plan(config, options, bundles, names_used, decoder_name))
        chosen, line = cluster.engine, f"{workers}: {cluster.described.line}"
    elif bundles:
        chosen, line = choose(options.engine)
        ENGINES.load(chosen)
    if bundles:
        _check_engine(chosen, config, decoder_name)
        progress.say(line)
    decoder, told = choose_decoder(decoder_name) if bundles and cluster is None else (CPU, None)
    if told:
        progress.say(told)
    everyone = [*(path.name for path in bundles), *baselines, *(folder.name for folder in maps)]
    with RunDirectory(config.eval.out) as run:
        run.begin(_provenance(config, options, everyone, decoder.name if cluster is None else decoder_name, scale))
        runner = Runner(
            run,
            replace(options, engine=chosen),
            progress,
            open_engine=partial(
                open_engine,
                options=EngineOptions(
                    max_batch=options.batch, build=config.eval.build, tf32=config.eval.tf32, say=progress.say
                ),
            ),
            open_source=source_opener(
                config.cache,
                progress.say,
                geometries=partial(needed_geometries, bundles),
                limit=config.cache_limit,
                decoder=decoder,
                threads=options.threads,
            ),
            sweep=sweep,
            decoder=decoder,
        )
        begin = runner.evaluate if cluster is None else partial(cluster.evaluate, run, progress)
        outcome = begin(bundles, datasets, baselines, maps)
    done = outcome.computed + outcome.reused
    progress.say(
        f"{config.eval.out}: {done} cell{'' if done == 1 else 's'} finished ({outcome.reused} of them before), "
        f"{len(outcome.skipped)} skipped, {len(outcome.failed)} failed"
    )
    for model, dataset, reason in outcome.failed:
        click.echo(f"Error: {model} on {dataset}: {reason}", err=True)
    if done:
        merging = "merge, when all shards are finished" if options.shard else f"report {config.eval.out}"
        progress.say(f"next: xbench-fast {merging}")
    return outcome


def _check_engine(name: str, config: Config, decoder: str) -> None:
    """Refuses what the engine on the CPU cannot do; those on a GPU can."""
    if name != "onnxruntime-cpu":
        return
    if config.eval.tf32:
        raise ConfigError(f"--tf32 is for engines on a GPU, and this one is {name}; leave it out, or name the engine.")
    if decoder == "dali" and config.cache is None:
        raise ConfigError(
            "--decoder dali without a cache is for engines on a GPU; leave --no-cache out, or use --decoder cpu."
        )


def _protocol(name: str) -> str:
    """A protocol's name, checked."""
    from ...metrics_gpu.grounding.protocols import protocol

    try:
        return protocol(name).name
    except ValueError as error:
        raise ConfigError(f"--protocol {name}: {error}.") from error


def _provenance(config: Config, options: Options, bundles: list[str], decoder: str, scale: Scale) -> dict[str, Any]:
    return {
        "file": str(config.path) if config.path else None,
        "bundles": bundles,
        "datasets": {
            name: {
                "root": str(item.root.absolute()),  # a report may be made from another folder
                "reader": item.reader,
                "prompts": item.prompts,
                "options": dict(item.options),
            }
            for name, item in config.datasets.items()
        },
        "cache": str(config.cache.absolute()) if config.cache else None,
        "decoder": decoder,
        "engine": options.engine,
        "protocol": options.protocol,
        "tf32": config.eval.tf32,
        "batch": options.batch,
        "threads": options.threads,
        "limit": options.limit,
        "chunk": options.chunk,
        **scale.to_json(),
    }
