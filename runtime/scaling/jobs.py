"""What a worker is told, and what it gives back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ...engines.base import EngineInfo
from ..evaluation.cell_options import Options
from ..host.config import DatasetConfig

__all__ = ["Backend", "ChunkJob", "Described", "Part", "WorkPlan", "everywhere"]


@dataclass(frozen=True)
class WorkPlan:
    """What all chunks of an evaluation have in common; every path is absolute and means the same on every node.

    `bundles`: name -> folder. `build`, `tf32`: as `EngineOptions`. `cache`: where a node keeps prepared images, on a
    disk of its own; None: nowhere. `code`: version of this project.
    """

    bundles: Mapping[str, Path]
    datasets: Mapping[str, DatasetConfig]
    options: Options
    build: bool
    tf32: bool
    decoder: str
    cache: Path | None
    cache_limit: int | None
    code: str


@dataclass(frozen=True)
class ChunkJob:
    """One chunk of one cell: the cases at the positions `start` .. `stop` - 1 of the dataset.

    `bundle`, `annotations` and `cases` are digests of what the driver saw, `engine` ("backend precision") and `decoder`
    what the cell's key names: a worker that sees or runs anything else must refuse.
    """

    model: str
    dataset: str
    chunk: int
    start: int
    stop: int
    key: str
    prompts: str
    findings: Mapping[str, str]
    bundle: str
    annotations: str
    cases: str
    engine: str
    decoder: str


@dataclass(frozen=True)
class Part:
    """What became of job number `job`: the bytes of a part file, or why there are none (`error`, and for a fault of the
    program a traceback). `worker` is the process that answered."""

    job: int
    content: bytes
    error: str
    trace: str
    worker: int


@dataclass(frozen=True)
class Described:
    """What the workers run with: the engine chosen and the line about it; the engine's info for each bundle, or why it
    does not open; the decoder's description for each geometry (by its key), or `error`."""

    engine: str = ""
    line: str = ""
    infos: Mapping[str, EngineInfo | str] | None = None
    decoders: Mapping[str, str] | None = None
    error: str = ""


class Backend(Protocol):
    """Workers somewhere. Both methods raise EngineError when there are no workers left that could answer."""

    def describe(self, plan: WorkPlan) -> Described:
        """What a worker would run with."""
        ...

    def compute(self, plan: WorkPlan, jobs: Sequence[ChunkJob]) -> Iterator[Part]:
        """One part for each job, in the order in which they become done."""
        ...


def everywhere(config: DatasetConfig) -> DatasetConfig:
    """A dataset with absolute paths, as a process in another folder needs it."""
    file, colon, name = config.reader.rpartition(":")
    reader = f"{Path(file).absolute()}:{name}" if colon and file.endswith(".py") else config.reader
    return replace(config, root=config.root.absolute(), reader=reader)
