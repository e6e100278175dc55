"""The parts of the GPU check that run models or decode: PyTorch, the export, each engine, DALI. Rows one by one."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_parts import Row, row

if TYPE_CHECKING:
    from xbench_fast.engines.base import Engine
    from xbench_fast.engines.bundle import Bundle
    from xbench_fast.runtime.benching.measurement import Measurement

MODEL, BATCHES = "kad", (8, 256)
IMAGES, SIDE = 2048, 256  # of the end-to-end scenario: small, because they are drawn and prepared on lent time


def torch_models(seconds: float) -> Iterator[Row]:
    """Measures the model in PyTorch, the baseline of the engines."""
    import numpy as np
    from xbench_fast.export.torch_runner import compiled_runner, eager_runner
    from xbench_fast.runtime.benching.timing import RepeatSpread, timed

    rng = np.random.default_rng(3)
    text = rng.standard_normal((10, 768)).astype(np.float32)
    for kind, make in (("eager", eager_runner), ("compile", compiled_runner)):
        for batch in BATCHES:
            runner = make(MODEL, "224", "fp16", "cuda:0")
            runner.prepare(rng.integers(0, 256, (batch, 1, 224, 224)).astype(np.uint8), text)
            calls = max(1, 2048 // batch)
            taken = timed(_calling(runner, calls), 7, seconds / 8)
            rate = RepeatSpread.of([calls * batch / one for one in taken])
            yield row(f"torch {kind} fp16, {MODEL}-224, batch {batch}", "ok", runner.detail, value=rate.median,
                      least=rate.least, greatest=rate.greatest, unit="images/s")  # fmt: skip


def _calling(runner: Any, calls: int) -> Callable[[int], object]:
    return lambda repeat: runner.run(calls)


def export(bundles: Path | None) -> Iterator[Row]:
    """A bundle of stand-in weights in the folder `bundles`, if an engine runs here that would take it."""
    from xbench_fast.engines.backends.torch_reasons import torch_cuda_reason
    from xbench_fast.engines.select import backend_status
    from xbench_fast.export.cli import main

    usable = [s.name for s in backend_status() if s.usable and s.name != "onnxruntime-cpu"]
    if torch_cuda_reason() is not None and "torch" in usable:
        usable.remove("torch")  # it would run on the CPU
    if not usable or bundles is None:
        yield row("export", "not run", "no engine for a GPU runs here")
        return
    begun = time.monotonic()
    line = ["--model", MODEL, "--weights", "stand-in", "--precision", "fp16", "--out", str(bundles)]
    status, words = leaves(main, line)
    if status:
        yield row(f"export {MODEL}", "failed", f"it ended with status {status}: {words[-300:]}")
    else:
        yield row(f"export {MODEL}", "ok", f"for {', '.join(usable)}", value=time.monotonic() - begun, unit="s")


def engine(name: str, bundles: Path | None, seconds: float) -> Iterator[Row]:
    """`xbench-fast bench` of every bundle in a folder, a row as soon as it is measured."""
    from xbench_fast.engines.base import EngineOptions
    from xbench_fast.engines.bundle import Bundle
    from xbench_fast.engines.select import backend_status, open_engine
    from xbench_fast.runtime.benching.benchmark import Bench, measuring
    from xbench_fast.runtime.benching.plan import Plan
    from xbench_fast.runtime.host.machine_record import usable_cores

    status = next(status for status in backend_status() if status.name == name)
    if not status.usable:
        yield row(name, "not run", status.reason)
        return
    loaded = [Bundle.load(path.parent) for path in sorted(bundles.glob("*/bundle.json"))] if bundles else []
    if not loaded:
        yield row(name, "not run", "there is no bundle: give one with --bundles, or see the row of the export")
        return

    def opened(bundle: Bundle) -> Engine:
        options = EngineOptions(max_batch=max(BATCHES), say=lambda line: print(line, flush=True))
        return open_engine(bundle, name, threads=plan.threads, options=options)

    plan = Plan(
        ("offline", "single-stream", "prepared"),
        BATCHES,
        images=IMAGES,
        pairs=1,
        seconds=seconds / (12 * len(loaded)),
        threads=usable_cores(),
        side=SIDE,
    )
    measured = not_run = 0
    for report in measuring(plan, loaded, Bench(opened, lambda line: None, 0)):
        for one in report.measurements[measured:]:
            yield measured_row(one)
        for other in report.not_run[not_run:]:
            yield row(f"{other.subject} {other.scenario}", "not run", other.reason)
        measured, not_run = len(report.measurements), len(report.not_run)


def dali(seconds: float) -> Iterator[Row]:
    """Compares DALI's decoder on the GPU with the exact one."""
    from xbench_fast.runtime.data.images.decoders import dali_difference

    yield row("DALI decoder", "ok", str(dali_difference()))


def measured_row(one: Measurement) -> Row:
    """A measurement as a row of the check."""
    from xbench_fast.runtime.benching.timing import percentiles

    rate, reasons = one.rate(), one.reasons()
    latency = {name: 1e3 * value for name, value in percentiles(one.latencies).items()} if one.latencies else None
    name = f"{one.subject} {one.scenario}, {one.runner}, batch {one.batch}"
    return row(name, "failed" if reasons else "ok", "; ".join(reasons), value=rate.median, least=rate.least,
               greatest=rate.greatest, unit=f"{one.unit}/s", fraction=one.fraction, latency_ms=latency)  # fmt: skip


def leaves(command: Callable[[list[str]], object], arguments: list[str]) -> tuple[int, str]:
    """The status of a command line, returned or exited with, and what it said on standard error."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            status = command(arguments)
    except SystemExit as stop:
        status = stop.code
    return status if isinstance(status, int) else int(status is not None), " ".join(errors.getvalue().split())
