"""The data between driver and workers: work plan, jobs and part files, and the interface of a backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ....engines.base import EngineInfo
from ...host.config import DatasetConfig
from ..cell_options import Options


@dataclass(frozen=True)
class WorkPlan:
    """The settings that all chunks of an evaluation share; every path is absolute and valid on every node.

    `bundles`: name -> folder. `batch`: as the user stated it; None: the default of the engine. `auto`: the user
    named no engine, as for `open_engine`. `build`, `tf32`: as `EngineOptions`. `cache`: folder of
    prepared images on each node's local disk; None: no cache. `code`: version of this project.
    """

    bundles: Mapping[str, Path]
    datasets: Mapping[str, DatasetConfig]
    options: Options
    batch: int | None
    auto: bool
    build: bool
    tf32: bool
    decoder: str
    cache: Path | None
    cache_limit: int | None
    code: str


@dataclass(frozen=True)
class JobCell:
    """What a job computes for one cell. `model`: of its rows, the bundle or a variant of it; `prompts`: a set of it."""

    model: str
    key: str
    prompts: str
    findings: Mapping[str, str]


@dataclass(frozen=True)
class ChunkJob:
    """One chunk of a dataset, the cases at the positions `start` .. `stop` - 1, for the cells of one bundle.

    `bundle`, `annotations` and `cases` are digests of the driver's data; `engine` ("backend precision") and `decoder`
    are from the cell's key. A worker with other data, engine or decoder must reject the job. `view`: text of the view
    of the images, empty for plain ones.
    """

    cells: tuple[JobCell, ...]
    bundle_name: str
    dataset: str
    chunk: int
    start: int
    stop: int
    view: str
    bundle: str
    annotations: str
    cases: str
    engine: str
    decoder: str


@dataclass(frozen=True)
class Part:
    """The result of job number `job` for its cell number `cell`: the bytes of a part file, or the error (`error`, and
    for a program error a traceback). `worker` is the process that returned it. `said`: messages of its engine since the
    last job, one a line."""

    job: int
    cell: int
    content: bytes
    error: str
    trace: str
    worker: int
    said: str


@dataclass(frozen=True)
class Described:
    """The setup of the workers: the chosen engine and the message about it; the engine's info for each bundle, or why
    it cannot be opened; the decoder's description for each geometry of a model's input (by its key), or `error`.
    `said`: messages of the engines."""

    engine: str = ""
    line: str = ""
    infos: Mapping[str, EngineInfo | str] | None = None
    decoders: Mapping[str, str] | None = None
    error: str = ""
    said: tuple[str, ...] = ()


class Backend(Protocol):
    """A group of workers. Both methods raise EngineError when no worker is left."""

    def describe(self, plan: WorkPlan) -> Described:
        """The setup that a worker would use."""
        ...

    def compute(self, plan: WorkPlan, jobs: Sequence[ChunkJob]) -> Iterator[Part]:
        """The parts of each job together, one for each of its cells, in the order of completion."""
        ...


def everywhere(config: DatasetConfig) -> DatasetConfig:
    """A copy of a dataset's configuration with absolute paths, for a process in another folder."""
    file, colon, name = config.reader.rpartition(":")
    reader = f"{Path(file).absolute()}:{name}" if colon and file.endswith(".py") else config.reader
    return replace(config, root=config.root.absolute(), reader=reader)
