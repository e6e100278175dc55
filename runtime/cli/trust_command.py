"""`xbench-fast trust`: a bundle on datasets with changed weights, images or prompts -> verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ...engines.base import CPU_BATCH
from ...engines.commands import WRONG_USAGE, Choice, echo
from ..host.options import EvalConfig, EvaluationOptions
from ..trust.probes.probe import MODES, ProbeOptions
from .options.completing import BUNDLES, DATASETS, PROBES
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
    help="Pairs of image and finding with a region to test. Images are drawn at random until they have that many.",
)
@options_of(ProbeOptions)
@click.option(
    "--mode",
    "modes",
    type=Choice(MODES),
    multiple=True,
    default=ProbeOptions.modes,
    help="Target of randomisation: weights from the output on (cascade), each block alone (independent), or the "
    "prompts (text). Can be repeated.  [default: cascade]",
)
@options_of(
    EvalConfig, "engine", "gpu", "batch", "threads", "build", "tf32", configured=True, shown={"batch": str(CPU_BATCH)}
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=_OUT,
    show_default=True,
    help="Trust directory. An existing one is resumed.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of prepared images.  [default: the configured folder, or none]",
)
@options_of(EvaluationOptions, "limit", "verify", "cache_limit", "decoder", "bundles")
@click.option(
    "--chunk",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Images per part file of a probe that changes images. An interrupted run repeats at most one part file.",
)
@data_options
@config_option
@json_option
def trust(
    models: tuple[str, ...],
    datasets: tuple[str, ...],
    probe_names: tuple[str, ...],
    findings: tuple[str, ...],
    pairs: int,
    modes: tuple[str, ...],
    engine: str | None,
    gpu: int | None,
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
    bundles: tuple[Path, ...],
    data: tuple[str, ...],
    data_options: tuple[str, ...],
    config_file: Path | None,
    output: Output,
    **probe_options: Any,
) -> int:
    """Test whether the maps of bundles can be believed, with forward passes.

    Each probe changes weights, images or prompts, and compares the maps with the maps of the unchanged model
    (docs/trust.md). Its cost in forward passes is printed before it begins. Changed weights run on ONNX Runtime even if
    the engine is TensorRT. Results go to a trust directory that can be interrupted and resumed, never to a run
    directory: trust.json, trust.csv, trust.txt and the rows of each probe in cells/.
    """
    config = resolve_config(config_file, bundles, data, data_options, cache_limit)
    config = replace(config, cache=cache or config.cache).with_settings(
        engine=engine, gpu=gpu, batch=batch, threads=threads, build=build, tf32=tf32
    )
    from ..evaluation.progress import progress_for
    from ..trust.probes.judging import print_verdicts
    from ..trust.probes.running import TrustRequest
    from ..trust.probes.trust_run import Trust, tables_of

    options = ProbeOptions(**probe_options, modes=tuple(dict.fromkeys(modes)))
    request = TrustRequest(models, datasets, probe_names, findings, pairs, limit, chunk, verify, decoder, options)
    planned = Trust.of(config, request)
    console = output.console()
    try:
        outcome = planned.run(out, progress_for(console))
    except KeyboardInterrupt:
        echo(f"Interrupted; finished work is kept in {out}, the same command continues.", err=True)
        return 130
    for name, where, reason in outcome.failed:
        echo(f"Error: {name} on {where}: {reason}", err=True)
    if outcome.entries and not output.piped:
        print_verdicts(console, tables_of(outcome))
    output.write({"trust": str(out), "cells": list(outcome.entries)})
    if outcome.misused and outcome.misused == len(outcome.failed) and not outcome.entries:
        return WRONG_USAGE  # nothing was done
    return 1 if outcome.failed else 0
