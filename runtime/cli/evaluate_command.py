"""`xbench-fast eval`: bundles x datasets -> a run directory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...engines.commands import WRONG_USAGE, echo
from ...engines.errors import ConfigError
from ..evaluation.cell_options import Options
from ..host.config import EvalConfig
from .completing import DATASETS, ENGINES, MODELS
from .examples import examples
from .scaling import scaling_options
from .shared_options import (
    THREADS,
    Output,
    build_options,
    bundle_options,
    cache_limit_option,
    cache_option,
    config_option,
    data_options,
    datasets_option,
    decoder_option,
    json_option,
    missing_option,
    models_option,
    protocol_option,
    reading_options,
    resolve_config,
    setting,
)

if TYPE_CHECKING:
    from ..data.answers.box_file import ReadOptions
    from ..evaluation.reference.box_models import Missing
    from ..evaluation.run_evaluation import Evaluation
    from ..results.run_outcome import RunOutcome
    from .scaling import Scale


@click.command("eval", epilog=examples("eval"))
@click.option("--all", "everything", is_flag=True, help="Every bundle found x every dataset configured.")
@models_option(
    "Model to evaluate: the name or path of a bundle, a model's name, baseline:ones, :center, :chance or :prior, "
    "maps:FOLDER, boxes:FILE (boxes:NAME=FILE names it), moved:FILE (its answers on the images of other patients), "
    "reader:second or reader:radiologist (another reader of the same images).",
    MODELS,
)
@datasets_option("Dataset to evaluate on.", DATASETS)
@setting(
    "--engine",
    metavar="NAME",
    shell_complete=ENGINES,
    help="tensorrt, tensorrt-rtx, onnxruntime-cuda, onnxruntime-cpu, or auto: the first of these that runs here. auto "
    "takes tensorrt-rtx only on the GPUs that its documentation names.",
    default=EvalConfig.engine,
)
@build_options
@setting(
    "--out",
    type=click.Path(path_type=Path),
    help="Run directory. An existing one is resumed.",
    default=EvalConfig.out,
)
@protocol_option
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N cases of each dataset.")
@setting("--batch", type=click.IntRange(min=1), help="Images per batch.", default=EvalConfig.batch)
@setting(
    "--threads",
    type=THREADS,
    help="Threads of the engine and of image decoding; with --cluster, of each worker.",
    default=EvalConfig.threads or "all cores",
)
@cache_option
@cache_limit_option
@click.option("--no-cache", is_flag=True, help="Decode every image for every model; nothing is kept.")
@decoder_option
@click.option(
    "--chunk",
    type=click.IntRange(min=1),
    default=Options.chunk,
    show_default=True,
    help="Cases per part file, which is the most that a killed run repeats.",
)
@missing_option
@reading_options
@click.option(
    "--verify",
    is_flag=True,
    help="Read every image again before a result or a prepared image of it is reused; otherwise only those whose file "
    "has another size, time or number.",
)
@scaling_options
@bundle_options
@data_options
@config_option
@json_option
def evaluate(
    everything: bool,
    models: tuple[str, ...],
    datasets: tuple[str, ...],
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
    verify: bool,
    missing: Missing,
    read: ReadOptions,
    scale: Scale,
    bundle_folders: tuple[Path, ...],
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
    output: Output,
) -> int:
    """Evaluate models on datasets.

    Results go to a run directory that can be interrupted and resumed: finished work is kept and never computed again
    unless its inputs changed. --model alone means all datasets, --dataset alone all models. Baselines are reference
    maps that need neither a bundle nor images; their rows stand beside those of the models. maps:FOLDER evaluates
    saliency maps of your own, one file for each case and finding: FOLDER/CASE/FINDING.npy, .npz or grey .png, or
    FOLDER/CASE_FINDING_map.npy, or FOLDER/CASE.npz with one array for each finding. boxes:FILE scores predicted boxes,
    one JSON line for each case and finding; moved:FILE scores each answer of it on the image of another patient, which
    shows what the boxes get without looking at the image.

    Images and maps that are missing or unreadable are counted and do not stop the run; where half are missing, most
    are unreadable, or most maps of your own are constant or not finite, the command ends with an error. The option part
    of a dataset (--data-option NAME.part=true) says that a part of its images is meant.

    A protocol says how maps are normalised, cut and counted. It belongs to the result: another protocol is another
    computation, in the same run directory if you like, and the report follows the last one.
    """
    if everything == bool(models or datasets):
        raise ConfigError("Say what to evaluate: --all, or --model and --dataset (not both ways at once).")
    if cache is not None and no_cache:
        raise ConfigError("--cache and --no-cache contradict each other; give one of them.")
    scale.check(decoder=decoder, cache=cache)
    config = resolve_config(config_file, bundle_folders, data, data_options, cache_limit)
    place, kept = scale.place(out or config.eval.out, config.cache)
    config = replace(config, cache=None if no_cache else cache or kept).with_settings(
        engine=engine, batch=batch, threads=threads, out=place, protocol=protocol, build=build, tf32=tf32
    )
    from ..evaluation.reference.box_models import BoxOptions
    from ..evaluation.run_evaluation import Asked, Evaluation

    boxes = BoxOptions(missing, read)
    asked = Asked(
        models, datasets, limit=limit, chunk=chunk, shard=scale.shard, decoder=decoder, verify=verify, boxes=boxes
    )
    evaluation = replace(Evaluation.of(config, asked), shared=scale.to_json())
    try:
        with ExitStack() as stack:
            outcome = _run(evaluation, scale, stack, output)
    except KeyboardInterrupt:
        echo(
            f"Interrupted; what is finished is kept in {config.eval.out}, the same command goes on from there.",
            err=True,
        )
        return 130
    if not outcome.failed and not outcome.finished:
        echo("Error: nothing was evaluated, because every pair was skipped; the lines above say why.", err=True)
        return 1
    return WRONG_USAGE if outcome.only_misused else int(bool(outcome.problems))


def _run(evaluation: Evaluation, scale: Scale, stack: ExitStack, output: Output) -> RunOutcome:
    from ...engines.select import ENGINES
    from ..evaluation.progress import progress_for
    from ..results.run_json import read_run
    from .scaling import on_cluster, work_plan

    workers = None
    if scale.cluster is not None and not evaluation.bundles:
        scale.check_reachable(scale.cluster)
    if evaluation.bundles and scale.cluster is not None:
        options = evaluation.options
        if options.engine != "auto":
            ENGINES.load(options.engine)
        pool = stack.enter_context(scale.open(scale.cluster, evaluation.config.eval.threads))
        evaluation = replace(evaluation, options=replace(options, threads=pool.threads))
        workers = on_cluster(pool, work_plan(evaluation))
    progress = progress_for(output.console())
    outcome = evaluation.run(progress, workers)
    for model, dataset, reason in outcome.problems:
        echo(f"Error: {model} on {dataset}: {reason}", err=True)
    if outcome.finished:
        merging = "merge, when all shards are finished" if scale.shard else f"report {evaluation.config.eval.out}"
        progress.say(f"next: xbench-fast {merging}")
    place = evaluation.config.eval.out
    output.write({"run": str(place), "cells": outcome.to_json(read_run(place)["cells"])})
    return outcome
