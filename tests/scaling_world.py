"""An evaluation by workers, in a folder of its own: a driver with the backend of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation_world import World
from xbench_fast.runtime.evaluation.cell_options import Options
from xbench_fast.runtime.evaluation.progress import PlainProgress
from xbench_fast.runtime.evaluation.scaling.driver import ClusterRunner
from xbench_fast.runtime.evaluation.scaling.jobs import Backend, ChunkJob, Described, Part, WorkPlan, everywhere
from xbench_fast.runtime.evaluation.scaling.worker import ChunkWorker, describe
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.host.machine_record import code_version
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_outcome import RunOutcome


def plan_for(bundles: list[Path], datasets: list[DatasetConfig], *, auto: bool = False, **options: Any) -> WorkPlan:
    return WorkPlan(
        bundles={path.name: path for path in bundles},
        datasets={item.name: everywhere(item) for item in datasets},
        options=Options(**{"batch": 3, "chunk": 8, "threads": 1, **options}),
        batch=options.get("batch", 3),
        auto=auto,
        build=False,
        tf32=False,
        decoder="cpu",
        cache=None,
        cache_limit=None,
        code=code_version(),
    )


class InProcess:
    """Workers that are objects of this process: job k goes to worker k modulo their number."""

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.jobs: list[ChunkJob] = []

    def describe(self, plan: WorkPlan) -> Described:
        return describe(plan)

    def compute(self, plan: WorkPlan, jobs: Sequence[ChunkJob]) -> Iterator[Part]:
        self.jobs = list(jobs)
        workers = [ChunkWorker(plan) for _ in range(self.count)]
        try:
            # Backwards: a driver must not rely on the order.
            for number in reversed(range(len(jobs))):
                yield from workers[number % self.count](number, jobs[number])
        finally:
            for worker in workers:
                worker.close()


class Watched:
    """A backend whose parts are shown to `look` before the driver gets them."""

    def __init__(self, inner: Backend, look: Callable[[int, Part], None]) -> None:
        self.inner, self.look = inner, look

    def describe(self, plan: WorkPlan) -> Described:
        return self.inner.describe(plan)

    def compute(self, plan: WorkPlan, jobs: Sequence[ChunkJob]) -> Iterator[Part]:
        for number, part in enumerate(self.inner.compute(plan, jobs)):
            self.look(number, part)
            yield part


class ClusterWorld(World):
    """As `World`, with workers. `elsewhere` changes what the workers are told, as if their machine were another."""

    def on_workers(
        self,
        backend: Backend,
        bundles: list[Path],
        datasets: list[DatasetConfig],
        elsewhere: Callable[[WorkPlan], WorkPlan] = lambda plan: plan,
        baselines: Sequence[str] = ("baseline:center",),
        **options: Any,
    ) -> RunOutcome:
        self.lines.clear()
        plan = plan_for(bundles, datasets, **options)
        described = backend.describe(plan)
        assert not described.error, described.error
        plan = elsewhere(replace(plan, options=replace(plan.options, engine=described.engine)))
        with RunDirectory(self.out) as run:
            run.begin({})
            runner = ClusterRunner(run, plan, PlainProgress(self.lines.append), backend, described)
            return runner.evaluate(bundles, datasets, baselines)
