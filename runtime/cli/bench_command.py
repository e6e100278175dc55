"""`xbench-fast bench`: how fast models, sweep and decoding are here, and whether the figures count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...engines.commands import Choice, echo
from ...engines.errors import ConfigError
from ...engines.registry import did_you_mean
from ..benching.plan import ON_CPU, ON_GPU, SCENARIOS, Plan
from ..host.options import EvalConfig, EvaluationOptions
from .options.completing import BUNDLES
from .options.declared_options import options_of, repeated
from .options.shared_options import (
    Output,
    config_option,
    json_option,
    models_option,
    resolve_config,
    setting,
)

if TYPE_CHECKING:
    from ...engines.bundle import Bundle
    from ..benching.benchmark import BenchReport

_SCENARIOS = Choice(SCENARIOS)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


_EPILOG = """\b
offline        as many images per second as the engine gives, pixels in its memory
single-stream  latency of one image at a time
prepared       end to end from prepared images: rows on the disk
files          end to end from image files
sweep          thresholds only, on the CPU and on a GPU
decode         image files to pixels only
"""


@click.command(epilog=_EPILOG)
@click.argument("scenarios", metavar="[SCENARIO]...", nargs=-1, type=_SCENARIOS)
@models_option("Bundle to measure: its name or path, or a model's name.", BUNDLES, "every bundle found")
@options_of(EvalConfig, "engine", "gpu", "threads", "tf32")
@repeated(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    help="Images per batch.",
    default=f"{_listed(ON_CPU.batches)}; on a GPU {_listed(ON_GPU.batches)}",
)
@setting(
    "--images",
    type=click.IntRange(min=1),
    help="Images per repeat.",
    default=f"{ON_CPU.images}; on a GPU {ON_GPU.images}",
)
@setting(
    "--pairs",
    type=click.IntRange(min=1),
    help="Pairs per repeat of the sweep.",
    default=f"{ON_CPU.pairs}; on a GPU {ON_GPU.pairs}",
)
@options_of(Plan)
@repeated("--against", metavar="RUNNER", help="Way to run the models in PyTorch too: eager or compile.", default="none")
@json_option
@options_of(EvaluationOptions, "bundles")
@config_option
def bench(
    scenarios: tuple[str, ...],
    models: tuple[str, ...],
    engine: str,
    gpu: int | None,
    batches: tuple[int, ...],
    images: int | None,
    pairs: int | None,
    repeats: int,
    seconds: float,
    seed: int,
    threads: int | None,
    folder: Path | None,
    side: int,
    against: tuple[str, ...],
    tf32: bool,
    output: Output,
    bundles: tuple[Path, ...],
    config_file: Path | None,
) -> int:
    """Measure SCENARIOs (default: all), each against a limit measured in the same run.

    Inputs are drawn from the seed, results are compared with slower, independent code on fresh inputs, and the last
    line says VALID, or INVALID after the reasons: a result that differs, fewer than 5 repeats, repeats that spread by
    more than a quarter, a GPU whose clocks were held down, a GPU engine that runs on the CPU.

    Exit status: 0 for VALID, 1 for INVALID or an error, 2 for wrong usage.
    """
    from ..host.machine_record import usable_cores

    chosen, device = _engine(engine, gpu)
    sizes = ON_CPU if device is None else ON_GPU
    plan = Plan(
        scenarios=scenarios or SCENARIOS,
        batches=batches or sizes.batches,
        images=images or sizes.images,
        pairs=pairs or sizes.pairs,
        repeats=repeats,
        seconds=seconds,
        seed=seed,
        threads=threads or usable_cores(),
        folder=folder,
        side=side,
        against=_against(against),
    )
    report = _run(plan, _bundles(models, bundles, config_file), chosen, device, tf32, output, auto=engine == "auto")
    _show(report, output)
    return int(report.verdict() != "VALID")


def _engine(name: str, gpu: int | None) -> tuple[str, int | None]:
    """The engine's name, and the number of the GPU that the run is about, if any."""
    from ...engines.backends.gpu import gpu_reason
    from ...engines.select import ENGINES, choose

    chosen, line = choose(name, gpu)
    ENGINES.load(chosen)
    echo(line, err=True)
    device = gpu or 0
    return chosen, device if chosen != "onnxruntime-cpu" and gpu_reason(device) is None else None


def _against(names: tuple[str, ...]) -> tuple[str, ...]:
    from ..benching.against import RUNNERS

    for name in names:
        if name not in RUNNERS.names():
            raise ConfigError(f"Unknown runner '{name}': {did_you_mean(name, RUNNERS.names())}.")
    return tuple(dict.fromkeys(names))


def _bundles(models: tuple[str, ...], folders: tuple[Path, ...], config_file: Path | None) -> list[Bundle]:
    """The bundles asked for; none where no folder is known, for scenarios that need no model."""
    from ...engines.bundle import Bundle
    from ..evaluation.pairing import select_bundles

    config = resolve_config(config_file, folders)
    if not models and not folders and not config.bundles:
        return []
    return [Bundle.load(path) for path in select_bundles(config, models)]


def _run(
    plan: Plan, bundles: list[Bundle], engine: str, device: int | None, tf32: bool, output: Output, *, auto: bool
) -> BenchReport:
    """The report; its JSON is written after each row, so that a run that is ended keeps what it has measured."""
    from ...engines.base import Engine, EngineOptions
    from ...engines.select import open_engine
    from ..benching.benchmark import Bench, BenchReport, measuring
    from ..benching.benchmark_table import to_record

    def say(line: str) -> None:
        echo(line, err=True)

    options = EngineOptions(max_batch=max(plan.batches), tf32=tf32, device=device or 0, say=say)

    def opened(bundle: Bundle) -> Engine:
        return open_engine(bundle, engine, threads=plan.threads, options=options, auto=auto)

    report = BenchReport(plan)
    for latest in measuring(plan, bundles, Bench(opened, say, device)):
        report = latest
        if not report.finished:
            output.keep(to_record(report))
    return report


def _show(report: BenchReport, output: Output) -> None:
    from ..benching.benchmark_table import report_facts, report_table, to_record
    from ..reporting.tables.console import print_table

    if not output.piped:
        print_table(output.console(), report_table(report))
    output.write(to_record(report))
    for line in report_facts(report):
        output.say(line)
