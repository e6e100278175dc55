"""`xbench-fast eval`: bundles x datasets -> a run directory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...engines.commands import WRONG_USAGE, echo
from ...engines.errors import ConfigError
from ..host.options import (
    FURTHER_OPTIONS,
    BadLines,
    EvalConfig,
    EvaluationOptions,
    Missing,
    Thorax,
    TileScore,
    UncertainWords,
)
from .options.completing import DATASETS, MODELS
from .options.declared_options import options_of
from .options.examples import examples
from .options.shared_options import (
    Output,
    config_option,
    data_options,
    datasets_option,
    json_option,
    models_option,
    resolve_config,
)
from .scaling import scaling_options

if TYPE_CHECKING:
    from ..evaluation.run_evaluation import Evaluation
    from ..results.run_outcome import RunOutcome
    from .scaling import Scale


@click.command("eval", epilog=examples("eval"))
@click.option("--all", "everything", is_flag=True, help="Evaluate every bundle found on every dataset configured.")
@models_option(
    "Model to evaluate: the name or path of a bundle, a model's name, baseline:ones, :center, :chance or :prior, "
    "maps:FOLDER, boxes:FILE (boxes:NAME=FILE names it), moved:FILE (its answers on the images of other patients), "
    "mirrored:FILE (left and right of its words swapped), words:bilateral or words:prior (words without the image), "
    "reader:second or reader:radiologist (another reader of the same images).",
    MODELS,
)
@datasets_option("Dataset to evaluate on.", DATASETS)
@options_of(EvalConfig, configured=True)
@click.option("--no-cache", is_flag=True, help="Keep no prepared images: decode every image for every model.")
@options_of(EvaluationOptions, *FURTHER_OPTIONS)
@scaling_options
@data_options
@config_option
@json_option
def evaluate(
    everything: bool,
    models: tuple[str, ...],
    datasets: tuple[str, ...],
    engine: str | None,
    gpu: int | None,
    build: bool | None,
    tf32: bool | None,
    out: Path | None,
    protocol: str | None,
    prompts: tuple[str, ...],
    tiles: str | None,
    tile_score: TileScore | None,
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
    bad_lines: BadLines,
    coco: Path | None,
    mapping: Path | None,
    thorax: Thorax,
    lungs: Path | None,
    uncertain: UncertainWords,
    scale: Scale,
    bundles: tuple[Path, ...],
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
    output: Output,
) -> int:
    """Evaluate models on datasets.

    Results go to a run directory that can be interrupted and resumed. Finished work is kept, and computed again only if
    its inputs change. --model alone means all datasets, --dataset alone all models.

    Baselines are reference maps that need neither a bundle nor images. maps:FOLDER evaluates saliency maps of your own,
    one file per case and finding: FOLDER/CASE/FINDING.npy, .npz or grey .png, or FOLDER/CASE_FINDING_map.npy, or
    FOLDER/CASE.npz with one array per finding. boxes:FILE scores predicted boxes, one JSON line per case and finding.
    moved:FILE scores each of these answers on the image of another patient, which shows the score of boxes that ignore
    the image. Answers in words are read by a grammar; words:bilateral and words:prior are words that look at no image,
    and mirrored:FILE swaps the left and right of a file of words.

    Images and maps that are missing or unreadable are counted and do not stop the run. The command ends with an error
    if half are missing, if most are unreadable, or if most maps of your own are constant or not finite.
    --data-option NAME.part=true accepts a dataset of which only a part of the images is present.

    A protocol defines how maps are normalised, thresholded and scored. Another protocol is another result, which can be
    in the same run directory. The report follows the last one.
    """
    if everything == bool(models or datasets):
        raise ConfigError("Say what to evaluate: --all, or --model and --dataset (not both ways at once).")
    if cache is not None and no_cache:
        raise ConfigError("--cache and --no-cache contradict each other; give one of them.")
    scale.check(decoder=decoder, cache=cache)
    config = resolve_config(config_file, bundles, data, data_options, cache_limit).with_prompts(prompts)
    run, kept = scale.directories(out or config.eval.out, config.cache)
    config = replace(config, cache=None if no_cache else cache or kept).with_settings(
        engine=engine,
        gpu=gpu,
        batch=batch,
        threads=threads,
        out=run,
        protocol=protocol,
        build=build,
        tf32=tf32,
        tiles=tiles,
        tile_score=tile_score,
    )
    scale.check_gpu(config.eval.gpu)
    from ..data.answers.box_file import ReadOptions
    from ..data.answers.words.thorax_frames import WordOptions
    from ..evaluation.reference.box_models import BoxOptions
    from ..evaluation.run_evaluation import Asked, Evaluation

    words = WordOptions(thorax, lungs, uncertain)
    boxes = BoxOptions(missing, ReadOptions(bad_lines == "count", coco, mapping, words))
    asked = Asked(
        models, datasets, limit=limit, chunk=chunk, shard=scale.shard, decoder=decoder, verify=verify, boxes=boxes
    )
    evaluation = replace(Evaluation.of(config, asked), shared=scale.to_json())
    try:
        with ExitStack() as stack:
            outcome = _run(evaluation, scale, stack, output)
    except KeyboardInterrupt:
        echo(
            f"Interrupted; finished work is kept in {config.eval.out}, the same command continues.",
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
    run = evaluation.config.eval.out
    output.write({"run": str(run), "cells": outcome.to_json(read_run(run)["cells"])})
    return outcome
