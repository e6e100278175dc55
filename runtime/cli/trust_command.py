"""`xbench-fast trust`: a bundle on datasets with changed weights, images or prompts -> verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...engines.commands import WRONG_USAGE, Choice, echo
from ..host.config import EvalConfig
from .completing import BUNDLES, DATASETS, ENGINES, PROBES
from .shared_options import (
    THREADS,
    Output,
    build_options,
    bundle_options,
    cache_limit_option,
    config_option,
    data_options,
    datasets_option,
    decoder_option,
    json_option,
    models_option,
    repeated,
    resolve_config,
    setting,
)

if TYPE_CHECKING:
    from ..trust.probes.probe import Levels, Rule

_OUT = Path("trust")


@click.command()
@models_option("Bundle to test: its name or path, or a model's name.", BUNDLES, required=True)
@datasets_option("Dataset to draw images from.", DATASETS, "all configured")
@repeated(
    "--probe",
    "probe_names",
    metavar="NAME",
    shell_complete=PROBES,
    help="Restrict the tests to this probe.",
    default="all",
)
@repeated("--finding", "findings", metavar="NAME", help="Restrict the tests to this finding.", default="all")
@click.option(
    "--pairs",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Draw images at random until they have this many pairs of image and finding with a region.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of every random choice.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How many times weights are randomised, with --seed and the next ones.",
)
@click.option(
    "--blocks", type=click.IntRange(min=1), default=10, show_default=True, help="Steps in which weights are randomised."
)
@click.option(
    "--rule",
    type=Choice(["permute", "redraw"]),
    default="permute",
    show_default=True,
    help="Weights get another order, or are drawn from a normal distribution with their mean and deviation.",
)
@click.option(
    "--mode",
    "modes",
    type=Choice(["cascade", "independent", "text"]),
    multiple=True,
    default=["cascade"],
    show_default=True,
    help="What randomisation changes: weights from the output on, each block alone, or the prompts; can be repeated.",
)
@click.option(
    "--levels",
    type=Choice(["default", "all"]),
    default="default",
    show_default=True,
    help="Changes of the image in stability; all: also weaker and stronger ones, which are not judged.",
)
@setting(
    "--engine",
    metavar="NAME",
    shell_complete=ENGINES,
    help="As of eval. Changed weights run on ONNX Runtime where this is TensorRT.",
    default=EvalConfig.engine,
)
@build_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=_OUT,
    show_default=True,
    help="Trust directory. An existing one is resumed.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Draw from the first N cases of each dataset.")
@setting("--batch", type=click.IntRange(min=1), help="Images and variants per batch.", default=EvalConfig.batch)
@setting(
    "--threads",
    type=THREADS,
    help="Threads of the engine and of image decoding.",
    default=EvalConfig.threads or "all cores",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Folder of prepared images, as of eval.  [default: that of the configuration, or none]",
)
@cache_limit_option
@decoder_option
@click.option(
    "--chunk",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Images per part file, which is the most that a killed run repeats of a probe that changes images.",
)
@click.option("--verify", is_flag=True, help="Read every image again before a result of it is reused.")
@bundle_options
@data_options
@config_option
@json_option
def trust(
    models: tuple[str, ...],
    datasets: tuple[str, ...],
    probe_names: tuple[str, ...],
    findings: tuple[str, ...],
    pairs: int,
    seed: int,
    seeds: int,
    blocks: int,
    rule: Rule,
    modes: tuple[str, ...],
    levels: Levels,
    engine: str | None,
    build: bool | None,
    tf32: bool | None,
    out: Path,
    limit: int | None,
    batch: int | None,
    threads: int | None,
    cache: Path | None,
    cache_limit: str | None,
    decoder: str,
    chunk: int,
    verify: bool,
    bundle_folders: tuple[Path, ...],
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
    output: Output,
) -> int:
    """Test whether the maps of bundles can be believed, with forward passes.

    Weights, images and prompts are changed, and the maps compared with those of the model as it is (docs/trust.md).
    The cost in forward passes is printed before each probe begins. Results go to a trust directory that can be
    interrupted and resumed, never to a run directory; they are trust.json, trust.csv, trust.txt and the rows of each
    probe in cells/.
    """
    config = resolve_config(config_file, bundle_folders, data, data_options, cache_limit)
    config = replace(config, cache=cache or config.cache).with_settings(
        engine=engine, batch=batch, threads=threads, build=build, tf32=tf32
    )
    from ..evaluation.progress import progress_for
    from ..trust.probes.judging import print_verdicts
    from ..trust.probes.probe import ProbeOptions
    from ..trust.probes.running import TrustRequest
    from ..trust.probes.trust_run import Trust, tables_of

    options = ProbeOptions(seed, seeds, blocks, rule, tuple(dict.fromkeys(modes)), levels)
    request = TrustRequest(models, datasets, probe_names, findings, pairs, limit, chunk, verify, decoder, options)
    planned = Trust.of(config, request)
    console = output.console()
    try:
        outcome = planned.run(out, progress_for(console))
    except KeyboardInterrupt:
        echo(f"Interrupted; what is finished is kept in {out}, the same command goes on from there.", err=True)
        return 130
    for name, where, reason in outcome.failed:
        echo(f"Error: {name} on {where}: {reason}", err=True)
    if outcome.entries and not output.piped:
        print_verdicts(console, tables_of(outcome))
    output.write({"trust": str(out), "cells": list(outcome.entries)})
    if outcome.misused and outcome.misused == len(outcome.failed) and not outcome.entries:
        return WRONG_USAGE  # nothing was done
    return 1 if outcome.failed else 0
