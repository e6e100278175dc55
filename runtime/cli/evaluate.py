"""`xbench-fast eval`: bundles x datasets -> a run directory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...engines.errors import ConfigError
from ..config import EvalConfig
from .options import (
    bundle_options,
    cache_limit_option,
    cache_option,
    config_option,
    data_options,
    decoder_option,
    resolve_config,
)

if TYPE_CHECKING:
    from ..config import Config
    from ..evaluation.runner import Outcome

__all__ = ["evaluate"]


@click.command("eval")
@click.option("--all", "everything", is_flag=True, help="Every bundle found x every dataset configured.")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="Bundle name, path to a bundle, model name, or baseline:ones, :center, :chance; can be repeated.",
)
@click.option("--dataset", "names", multiple=True, help="Dataset name; can be repeated.")
@click.option("--engine", help="Engine, or auto for the best that runs here.  [default: auto]")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Run directory; an existing one is resumed.  [default: run]"
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N cases of each dataset.")
@click.option("--batch", type=click.IntRange(min=1), help="Images per batch.  [default: 16]")
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of the engine and of decoding.  [default: all cores]"
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
@bundle_options
@data_options
@config_option
def evaluate(
    everything: bool,
    models: tuple[str, ...],
    names: tuple[str, ...],
    engine: str | None,
    out: Path | None,
    limit: int | None,
    batch: int | None,
    threads: int | None,
    cache: Path | None,
    cache_limit: str | None,
    no_cache: bool,
    decoder: str,
    chunk: int,
    bundle_folders: tuple[Path, ...],
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
) -> int:
    """Evaluate models on datasets.

    Results go to a run directory that can be interrupted and resumed: finished work is kept and never computed again
    unless its inputs changed. --model alone means all datasets, --dataset alone all models. Baselines are reference
    maps that need neither a bundle nor images; their rows stand beside those of the models.
    """
    if everything == bool(models or names):
        raise ConfigError("Say what to evaluate: --all, or --model and --dataset (not both ways at once).")
    if cache is not None and no_cache:
        raise ConfigError("--cache and --no-cache contradict each other; give one of them.")
    if decoder == "dali" and no_cache:
        raise ConfigError("--decoder dali works through the cache; leave --no-cache out, or use --decoder cpu.")
    config = resolve_config(config_file, bundle_folders, data, data_options, cache_limit)
    settings = EvalConfig(
        engine=engine or config.eval.engine,
        batch=batch or config.eval.batch,
        threads=threads or config.eval.threads,
        out=out or config.eval.out,
    )
    config = replace(
        config, eval=settings, cache=None if no_cache else cache or config.cache or settings.out / "prepared"
    )
    from ..evaluation.runner import Options
    from ..machine import usable_cores

    options = Options(
        engine=config.eval.engine,
        batch=config.eval.batch,
        threads=config.eval.threads or usable_cores(),
        limit=limit,
        chunk=chunk,
        skip_absent=not names,
    )
    try:
        outcome = _evaluate(config, options, models, names, "cpu" if no_cache else decoder)
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
    config: Config, options: Any, models: tuple[str, ...], names: tuple[str, ...], decoder_name: str
) -> Outcome:
    from ...engines.select import ENGINES, choose, open_engine
    from ...metrics_gpu.sweep import sweep
    from ..evaluation.baselines import split_baselines
    from ..evaluation.pairing import needed_geometries, select_bundles, select_datasets
    from ..evaluation.progress import progress_for
    from ..evaluation.rundir import RunDirectory
    from ..evaluation.runner import Runner
    from ..evaluation.sources import source_opener
    from ..images.decoders import CPU, choose_decoder
    from .terminal import make_console

    datasets = select_datasets(config, names)
    if not datasets:
        raise ConfigError("No dataset is configured; give one with --data NAME=PATH or in xbench.toml.")
    baselines, others = split_baselines(models)
    bundles = select_bundles(config, others) if others or not baselines else []
    progress = progress_for(make_console())
    chosen = options.engine
    if bundles:
        chosen, line = choose(options.engine)
        ENGINES.load(chosen)
        progress.say(line)
    decoder, told = choose_decoder(decoder_name) if bundles else (CPU, None)
    if told:
        progress.say(told)
    with RunDirectory(config.eval.out) as run:
        run.begin(_provenance(config, options, [*(path.name for path in bundles), *baselines], decoder.name))
        runner = Runner(
            run,
            replace(options, engine=chosen),
            progress,
            open_engine=open_engine,
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
        outcome = runner.evaluate(bundles, datasets, baselines)
    done = outcome.computed + outcome.reused
    progress.say(
        f"{config.eval.out}: {done} cell{'' if done == 1 else 's'} finished ({outcome.reused} of them before), "
        f"{len(outcome.skipped)} skipped, {len(outcome.failed)} failed"
    )
    for model, dataset, reason in outcome.failed:
        click.echo(f"Error: {model} on {dataset}: {reason}", err=True)
    if done:
        progress.say(f"next: xbench-fast report {config.eval.out}")
    return outcome


def _provenance(config: Config, options: Any, bundles: list[str], decoder: str) -> dict[str, Any]:
    return {
        "file": str(config.path) if config.path else None,
        "bundles": bundles,
        "datasets": {
            name: {
                "root": str(item.root),
                "reader": item.reader,
                "prompts": item.prompts,
                "options": dict(item.options),
            }
            for name, item in config.datasets.items()
        },
        "cache": str(config.cache) if config.cache else None,
        "decoder": decoder,
        "engine": options.engine,
        "batch": options.batch,
        "threads": options.threads,
        "limit": options.limit,
        "chunk": options.chunk,
    }
