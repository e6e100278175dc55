"""Flags of `xbench-fast eval` for more than one process or machine, and what they set going."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...engines.errors import ConfigError

if TYPE_CHECKING:
    from ..evaluation.progress import Progress
    from ..evaluation.reference.box_models import BoxModel
    from ..evaluation.reference.map_files import MapFolder
    from ..evaluation.run_evaluation import Evaluation
    from ..evaluation.scaling.jobs import Backend, Described, WorkPlan
    from ..evaluation.scaling.ray_pool import RayWorkers
    from ..host.config import DatasetConfig
    from ..results.run_directory import RunDirectory
    from ..results.run_outcome import RunOutcome
    from ..results.runs.shards import Shard

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Scale:
    """What was said about other processes and machines; nothing by default."""

    shard: Shard | None = None
    cluster: str | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None

    def check(self, *, decoder: str, cache: Path | None) -> None:
        """Raises ConfigError for flags that contradict each other; `cache`: what --cache said."""
        if self.shard is not None and self.cluster is not None:
            raise ConfigError("--shard and --cluster are two ways to share the work; give one of them.")
        if self.cluster is None and (self.workers is not None or self.gpus_per_worker is not None):
            raise ConfigError("--workers and --gpus-per-worker are about --cluster; give that too, or leave them out.")
        if self.cluster is not None and decoder == "dali" and cache is not None:
            raise ConfigError("On a cluster, --decoder dali keeps no prepared images; leave --cache out.")

    def check_gpu(self, number: int | None) -> None:
        """Raises ConfigError for a GPU that is named although Ray gives each worker its own."""
        if self.cluster is not None and number is not None:
            raise ConfigError("On a cluster, Ray gives each worker its GPU; leave --gpu out, or use --gpus-per-worker.")

    def directories(self, out: Path, configured: Path | None) -> tuple[Path, Path | None]:
        """The run directory, and where prepared images are kept unless --cache says it; `configured`: as xbench.toml
        says. Memory-mapped files on a file system that several machines write to are no cache, so that one is not used.
        """
        from ..results.runs.shards import shard_folder

        if self.cluster is not None:
            return out, None
        if self.shard is not None:
            out = shard_folder(out, self.shard)
            return out, out / "prepared"
        return out, configured or out / "prepared"

    def open(self, address: str, threads: int | None) -> RayWorkers:
        """The workers of the cluster, to be used in a with statement."""
        from ..evaluation.scaling.ray_pool import RayWorkers

        return RayWorkers(address, workers=self.workers, gpus_per_worker=self.gpus_per_worker, threads=threads)

    def check_reachable(self, address: str) -> None:
        """Raises ConfigError where no cluster is at the address, for an evaluation that needs no worker."""
        from ..evaluation.scaling.ray_pool import check_reachable

        check_reachable(address)

    def to_json(self) -> dict[str, Any]:
        """For run.json; no address, which would name a machine."""
        return {"shard": None if self.shard is None else str(self.shard), "cluster": self.cluster is not None}


def scaling_options(function: F) -> F:
    """--shard, --cluster, --workers and --gpus-per-worker, handed over together as `scale`."""

    @click.option(
        "--shard",
        metavar="I/N",
        help="Part I of N of every dataset to evaluate, into OUT/shard-I-of-N. xbench-fast merge joins the parts.",
    )
    @click.option(
        "--cluster", metavar="ADDRESS", help="Ray cluster to run on: HOST:PORT, auto, or local for one on this machine."
    )
    @click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Number of workers of the cluster.  [default: one for each share of a GPU, or for each node without]",
    )
    @click.option(
        "--gpus-per-worker",
        type=click.FloatRange(min=0),
        help="GPUs per worker, e.g. 0.5 for two workers on one GPU.  [default: 1, or 0 where there is none]",
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        shard: str | None,
        cluster: str | None,
        workers: int | None,
        gpus_per_worker: float | None,
        **others: Any,
    ) -> Any:
        from ..results.runs.shards import Shard

        scale = Scale(Shard.parse(shard) if shard is not None else None, cluster, workers, gpus_per_worker)
        return function(*args, scale=scale, **others)

    return wrapped  # type: ignore[return-value]


def work_plan(evaluation: Evaluation) -> WorkPlan:
    """The plan for the workers."""
    from ..evaluation.scaling.jobs import WorkPlan, everywhere
    from ..host.machine_record import code_version

    config = evaluation.config
    return WorkPlan(
        bundles={path.name: path.absolute() for path in evaluation.bundles},
        datasets={item.name: everywhere(item) for item in evaluation.datasets},
        options=evaluation.options,
        batch=config.eval.batch,
        auto=evaluation.options.engine == "auto",
        build=config.eval.build,
        tf32=config.eval.tf32,
        decoder=evaluation.decoder,
        cache=config.cache.absolute() if config.cache else None,
        cache_limit=config.cache_limit,
        code=code_version(),
    )


@dataclass(frozen=True)
class OnCluster:
    """An evaluation on the workers of a cluster, as they will run it."""

    backend: Backend
    plan: WorkPlan
    described: Described

    @property
    def engine(self) -> str:
        return self.described.engine

    @property
    def line(self) -> str:
        return f"{self.backend}: {self.described.line}"

    def evaluate(
        self,
        run: RunDirectory,
        progress: Progress,
        bundles: Sequence[Path],
        datasets: Sequence[DatasetConfig],
        baselines: Sequence[str],
        files: Sequence[MapFolder | BoxModel],
    ) -> RunOutcome:
        """As `Runner.evaluate`. Raises RunError."""
        from ..evaluation.scaling.driver import ClusterRunner

        runner = ClusterRunner(run, self.plan, progress, self.backend, self.described)
        return runner.evaluate(bundles, datasets, baselines, files)


def on_cluster(backend: Backend, plan: WorkPlan) -> OnCluster:
    """Asks a worker what it runs, and keeps to that. Raises EngineError."""
    described = backend.describe(plan)
    plan = replace(plan, options=plan.options.for_engine(described.engine, plan.batch))
    return OnCluster(backend, plan, described)
