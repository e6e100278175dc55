"""The workers as actors of Ray Data: each holds an engine, and turns chunks of cases into part files.

Ray Data restarts an actor when its process or node is lost, and computes its chunks again, without a limit; earlier
results are on the driver's disk. Attempts at a chunk are counted; a chunk whose worker is lost each time fails.
(Ray documentation: "Actor fault tolerance"; `ActorPoolMapOperator` sets `max_restarts` and `max_task_retries` to -1.)
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from ....engines.errors import ConfigError, EngineError, MissingExtraError, XBenchError
from ....engines.extras import missing_package
from .jobs import ChunkJob, Described, Part, WorkPlan
from .placement import Node, placement_for
from .worker import ChunkWorker, describe

_ATTEMPTS = 3  # per chunk: one that kills its worker each time must not be repeated for ever
_IN_FLIGHT = 2  # the next chunk waits at the worker, not at the driver
_OBJECT_STORE = 512 << 20  # bytes, for a cluster that is started here: parts are small
_TIMEOUT = 10.0  # seconds to reach a cluster
_PATIENCE = 600.0  # seconds for the cluster to find room for a worker; an autoscaling cluster needs minutes


class RayWorkers:
    """Workers in the Ray cluster at `address`, or for "local" in a cluster started on entering and stopped on leaving.

    workers: their number, default one for each share of a GPU, or for each node of a cluster without GPUs.
    gpus_per_worker: default 1, or 0 in a cluster without GPUs. threads: of each worker, counted as CPUs by Ray;
    default the largest number with which all workers fit, each on one node (`placement_for`). A context manager;
    entering raises MissingExtraError or ConfigError. An existing Ray connection of this process is used and left open.
    """

    def __init__(
        self,
        address: str,
        *,
        workers: int | None = None,
        gpus_per_worker: float | None = None,
        threads: int | None = None,
    ) -> None:
        self._address = address
        self._owns = False
        self._ray: Any = None
        self._given = (workers, gpus_per_worker, threads)
        self.workers, self.gpus, self.threads = 1, 0.0, 1

    def __enter__(self) -> Self:
        self._ray = _import_ray()
        if not self._ray.is_initialized():
            _connect(self._ray, self._address)
            self._owns = True
        try:
            self._size()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPU each" if self.gpus else ""
        many = "s" if self.workers != 1 else ""
        return f"{self.workers} worker{many}, {self.threads} thread{'s' if self.threads != 1 else ''} each{gpus}"

    def describe(self, plan: WorkPlan) -> Described:
        """The setup of a worker, found by a task with a worker's resources. Raises EngineError."""
        description: Described = _result_of(lambda: self._described(plan))
        if description.error:
            raise EngineError(description.error)
        return description

    def compute(self, plan: WorkPlan, jobs: Sequence[ChunkJob]) -> Iterator[Part]:
        """As `Backend.compute`. Raises EngineError when Ray fails."""
        # A separate actor, because workers are independent; Ray deletes it when it is no longer referenced.
        tally = self._ray.remote(_Tally).options(num_cpus=0, max_restarts=-1, max_task_retries=-1).remote()
        stream = self._stream(plan, jobs, tally)
        while (batch := _result_of(lambda: next(stream, None))) is not None:
            yield from (Part(**row) for row in batch.to_pylist())

    def _described(self, plan: WorkPlan) -> Described:
        task = self._ray.remote(_begin_and_describe).options(
            num_cpus=self.threads, num_gpus=self.gpus, max_retries=1, num_returns="streaming"
        )
        answers = task.remote(plan)
        begun, _ = self._ray.wait([answers], timeout=_PATIENCE, fetch_local=False)
        if not begun:
            self._ray.cancel(answers)
            gpus = f" and {self.gpus:g} GPU" if self.gpus else ""
            cpus = f"{self.threads} CPU{'s' if self.threads != 1 else ''}"
            raise EngineError(
                f"The Ray cluster had no room for a worker of {cpus}{gpus} for {_PATIENCE / 60:g} minutes; see with "
                "ray status what holds it, and run the same command again."
            )
        next(answers)
        description: Described = self._ray.get(next(answers))
        return description

    def _stream(self, plan: WorkPlan, jobs: Sequence[ChunkJob], tally: Any) -> Iterator[Any]:
        import ray.data

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        rows = [{"number": number, "job": msgspec.json.encode(job)} for number, job in enumerate(jobs)]
        done = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Actor,
            fn_constructor_args=(plan, tally),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(
                size=min(self.workers, len(jobs)), max_tasks_in_flight_per_actor=_IN_FLIGHT
            ),
            num_cpus=self.threads,
            num_gpus=self.gpus,
        )
        return iter(done.iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=0))

    def _size(self) -> None:
        """Computes number and resources of the workers. Raises ConfigError when the cluster is too small for them."""
        living = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        nodes = [Node(int(have.get("CPU", 0)), int(have.get("GPU", 0))) for have in living]
        placement = placement_for(nodes, *self._given)
        self.workers, self.threads, self.gpus = placement.workers, placement.threads, placement.gpus

    def _leave(self) -> None:
        if self._owns:
            self._ray.shutdown()
            self._owns = False


class _Actor:
    """A `ChunkWorker` as Ray Data calls it: with a table of one job."""

    def __init__(self, plan: WorkPlan, tally: Any) -> None:
        self._worker = ChunkWorker(plan)
        self._tally = tally

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        jobs = [(row["number"], msgspec.json.decode(row["job"], type=ChunkJob)) for row in batch.to_pylist()]
        return pa.Table.from_pylist([vars(part) for number, job in jobs for part in self._parts(number, job)])

    def _parts(self, number: int, job: ChunkJob) -> list[Part]:
        import ray

        if ray.get(self._tally.begin.remote(number)) > _ATTEMPTS:
            error = (
                f"the cases {job.start + 1} to {job.stop} ended the process of their worker {_ATTEMPTS} times, perhaps "
                "because memory ran out; try a smaller --batch or fewer --workers"
            )
            return [Part(number, cell, b"", error, "", os.getpid(), "") for cell in range(len(job.cells))]
        return self._worker(number, job)


class _Tally:
    """Counts how often each job was started."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        self._begun[number] += 1
        return self._begun[number]


def _begin_and_describe(plan: WorkPlan) -> Iterator[Described | None]:
    """`describe` as a task that first reports its start: the wait for room has a time limit, building plans not."""
    yield None
    yield describe(plan)


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError(missing_package(error.name or "ray", "scale")) from error
    return ray


def _connect(ray: Any, address: str) -> None:
    """Starts or joins a cluster. Raises ConfigError."""
    # Ray sends usage statistics by default; a tool for patients' images should not.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        quiet |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    else:
        check_reachable(address)
    try:
        ray.init(address=address, **quiet)
    # Ray raises the exceptions of its parts: ConnectionError, RuntimeError for another version, ValueError, ...
    except Exception as error:
        raise ConfigError(f"No Ray cluster can be used at --cluster {address}: {_first_line(error)}.") from error


def check_reachable(address: str) -> None:
    """Raises ConfigError within seconds if HOST:PORT cannot be reached, for which Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if address in ("auto", "local"):
        return
    if not colon or not port.isdigit():
        raise ConfigError(f"--cluster {address} is not HOST:PORT, auto or local.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"No Ray cluster answers at --cluster {address} ({getattr(error, 'strerror', None) or error}); start one "
            "with ray start --head, or use --cluster local."
        ) from error


def _result_of(ask: Callable[[], Any]) -> Any:
    """The result of `ask`; exceptions of Ray become an EngineError."""
    try:
        return ask()
    except XBenchError:
        raise
    except Exception as error:
        raise EngineError(
            f"The Ray cluster gave up ({type(error).__name__}: {_first_line(error)}); returned results are kept, and "
            "the same command continues."
        ) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:300]
