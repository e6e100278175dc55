"""A whole benchmark: scenarios in order, what could not be measured, and a verdict."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ...engines.backends.gpu import gpu_reason
from ...engines.base import Engine
from ...engines.bundle import Bundle
from ...engines.errors import XBenchError
from .against import compare
from .ceilings import CPU_SIZES, GPU_SIZES, Ceilings, CeilingSizes, cpu_ceilings, gpu_ceilings
from .end_to_end import end_to_end
from .engine_alone import Subject, offline, single_stream
from .gpu_state import gpu_state, throttling
from .inputs import film_files, found_files
from .measurement import Measurement, NotRun
from .parts import decode, gpu_sweep, host_sweep
from .plan import Plan

OpenEngine = Callable[[Bundle], Engine]
Say = Callable[[str], None]

_OF_MODELS = ("offline", "single-stream", "prepared", "files")
_COMPARED_BATCH = 8


@dataclass
class BenchReport:
    """What was measured, what was not, the ceilings by device, and the GPU before and after each measurement.

    finished: whether every scenario of the plan has had its turn."""

    plan: Plan
    measurements: list[Measurement] = field(default_factory=list)
    not_run: list[NotRun] = field(default_factory=list)
    ceilings: dict[str, Ceilings] = field(default_factory=dict)
    states: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = True

    def reasons(self) -> list[str]:
        """Why the run as a whole is not valid; empty when it is."""
        reasons = [reason for measurement in self.measurements for reason in measurement.reasons()]
        held = throttling(self.states)
        if held:
            reasons.append(held)
        if not self.measurements:
            reasons.append("nothing was measured")
        if not self.finished:
            reasons.append("it was not finished")
        return reasons

    def verdict(self) -> str:
        return "INVALID" if self.reasons() else "VALID"

    def best(self, model: str) -> Measurement | None:
        """The fastest offline measurement of a model by its engine."""
        offline_runs = [
            measurement
            for measurement in self.measurements
            if measurement.scenario == "offline" and measurement.subject == model
        ]
        return max(offline_runs, key=lambda measurement: measurement.rate().median, default=None)


@dataclass(frozen=True)
class Bench:
    """What a run needs besides its plan: a function that opens engines, one that reports progress, the number of the
    GPU or None for a run on the CPU alone, and the sizes of the ceilings."""

    open_engine: OpenEngine
    say: Say
    device: int | None
    cpu_sizes: CeilingSizes = CPU_SIZES
    gpu_sizes: CeilingSizes = GPU_SIZES


def run_bench(plan: Plan, bundles: Sequence[Bundle], bench: Bench) -> BenchReport:
    """Runs every scenario of the plan; one that fails becomes a row with its reason. Raises XBenchError only for a
    folder without images."""
    report = BenchReport(plan)
    for latest in measuring(plan, bundles, bench):
        report = latest
    return report


def measuring(plan: Plan, bundles: Sequence[Bundle], bench: Bench) -> Iterator[BenchReport]:
    """As `run_bench`, step by step: the one report, which grows, after each row; a run that is ended keeps them."""
    report = BenchReport(plan, finished=False)
    with tempfile.TemporaryDirectory(prefix="xbench-bench-") as scratch:
        images = _Images(plan, Path(scratch), bench.say)
        bench.say("measuring what this machine can do at most")
        report.ceilings["cpu"] = cpu_ceilings(bench.cpu_sizes)
        if bench.device is not None:
            try:
                report.ceilings["gpu"] = gpu_ceilings(bench.device, bench.gpu_sizes)
            except XBenchError as error:
                report.not_run.append(NotRun("limits", "GPU", str(error)))
        yield report
        run = _Run(plan, bench, report, images, Path(scratch))
        for bundle in bundles:
            for _ in run.model(bundle):
                yield report
        if not bundles:
            for scenario in [name for name in _OF_MODELS if name in plan.scenarios]:
                report.not_run.append(NotRun(scenario, "-", "no bundle was given"))
        for _ in run.parts():
            yield report
        report.finished = True
        yield report


class _Images:
    """The image files of the scenarios: from a folder, or drawn when the first scenario needs them, as 2,048 take a
    minute of CPU time."""

    def __init__(self, plan: Plan, scratch: Path, say: Say) -> None:
        self._plan, self._scratch, self._say = plan, scratch, say
        given = plan.folder is not None and {"files", "prepared", "decode"} & set(plan.scenarios)
        self._paths = found_files(plan.folder, plan.images) if given and plan.folder is not None else []

    def paths(self) -> list[Path]:
        if not self._paths:
            plan, folder = self._plan, self._scratch / "images"
            folder.mkdir()
            self._say(f"drawing {plan.images} images")
            self._paths = film_files(folder, plan.images, plan.side, plan.seed)
        return self._paths


@dataclass
class _Run:
    plan: Plan
    bench: Bench
    report: BenchReport
    images: _Images
    scratch: Path

    def model(self, bundle: Bundle) -> Iterator[None]:
        wanted = [name for name in _OF_MODELS if name in self.plan.scenarios]
        if not wanted and not self.plan.against:
            return
        try:
            with self.bench.open_engine(bundle) as engine:
                yield from self._scenarios(engine, wanted)
        except XBenchError as error:
            for scenario in wanted:
                self.report.not_run.append(NotRun(scenario, bundle.name, str(error)))
            yield

    def parts(self) -> Iterator[None]:
        report = self.report
        if "sweep" in self.plan.scenarios:
            yield from self._measure("sweep", "CPU", lambda: host_sweep(self.plan, report.ceilings["cpu"]))
            device = self.bench.device
            if device is None:
                report.not_run.append(NotRun("sweep", "GPU", gpu_reason() or "the run is on the CPU, as asked"))
            else:
                yield from self._measure(
                    "sweep", "GPU", lambda: gpu_sweep(self.plan, report.ceilings.get("gpu"), device)
                )
        if "decode" in self.plan.scenarios:
            yield from self._measure("decode", "files", lambda: decode(self.plan, self.images.paths()))

    def _scenarios(self, engine: Engine, wanted: Sequence[str]) -> Iterator[None]:
        plan, name = self.plan, engine.bundle.name
        subject = Subject.of(engine, plan)
        ceilings = self.report.ceilings.get("gpu" if engine.info.device != "cpu" else "cpu")
        # The end-to-end scenarios and the comparisons need the rate of the engine alone.
        if {"offline", "prepared", "files"} & set(wanted) or plan.against:
            for batch in dict.fromkeys(map(engine.bundle.manifest.batch_within, plan.batches)):
                yield from self._measure("offline", name, partial(offline, subject, plan, ceilings, batch))
        if "single-stream" in wanted:
            yield from self._measure("single-stream", name, partial(single_stream, subject, plan, ceilings))
        alone = self.report.best(name)
        for scenario in ("prepared", "files"):
            if scenario not in wanted:
                continue
            if alone is None:
                self.report.not_run.append(NotRun(scenario, name, "the engine alone could not be measured"))
                continue
            folder = self.scratch / "runs" / name
            folder.mkdir(parents=True, exist_ok=True)
            paths = self.images.paths()
            yield from self._measure(scenario, name, partial(end_to_end, scenario, subject, plan, paths, folder, alone))
        sizes = sorted({_COMPARED_BATCH, alone.batch if alone and alone.batch else _COMPARED_BATCH})
        for other in plan.against:
            for batch in sizes:
                yield from self._measure("offline", name, partial(compare, other, subject, plan, ceilings, batch))

    def _measure(self, scenario: str, subject: str, work: Callable[[], Measurement]) -> Iterator[None]:
        self.bench.say(f"{scenario}: {subject}")
        self._look()
        try:
            self.report.measurements.append(work())
        except XBenchError as error:
            self.report.not_run.append(NotRun(scenario, subject, str(error)))
        self._look()
        yield

    def _look(self) -> None:
        state = gpu_state(self.bench.device) if self.bench.device is not None else None
        if state is not None:
            self.report.states.append(state)
