"""Computes the rows of one probe in chunks that are on disk one by one; a finished chunk is never computed again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ....engines.prompts.prompt_set import PromptSet
from ....engines.select import backend_status
from ...evaluation.decoded_blocks import CaseReader
from ...results.read_images import other_image
from ...results.storage import CellFiles, read_columns
from .asking import AskedModel
from .directory import rows_as_table
from .probe import ImageProbe, StepProbe, StepWork, SurveyProbe
from .probe_images import ImageChunk, Row, pairs_of, read_chunks

if TYPE_CHECKING:
    from ....engines.base import Engine
    from ....engines.bundle import Bundle
    from ...data.datasets.dataset import Case

AnyProbe = ImageProbe | StepProbe

_FOR_A_THREAD: Final = 4
"""Images of a batch for each thread, from which on each thread computes images of its own."""


@dataclass(frozen=True, eq=False)
class ProbeCell:
    """The inputs of one probe on one dataset.

    findings: class of the dataset -> finding of the prompt set. open_engine: an open engine of a bundle, in a with
    statement. batch, chunk: images in a batch and in a part file. workers: threads that decode.
    """

    probe: AnyProbe
    bundle: Bundle
    prompts: PromptSet
    findings: dict[str, str]
    cases: Sequence[Case]
    reader: CaseReader
    open_engine: Callable[[Bundle], AbstractContextManager[Engine]]
    batch: int
    chunk: int
    workers: int

    @property
    def chunks(self) -> list[Sequence[Case]]:
        """The cases of each part file of an `ImageProbe`."""
        return [self.cases[start : start + self.chunk] for start in range(0, len(self.cases), self.chunk)]

    @property
    def parts(self) -> int:
        """The number of part files."""
        if isinstance(self.probe, StepProbe):
            return self.probe.steps(self.bundle)
        return self.surveys + len(self.chunks)

    @property
    def surveys(self) -> int:
        """The number of part files that hold what a probe must know of all images."""
        return int(isinstance(self.probe, SurveyProbe))

    @contextmanager
    def asked(self, bundle: Bundle, prompts: PromptSet, advance: Callable[[int], None]) -> Iterator[AskedModel]:
        """An open model that counts its passes."""
        with self.open_engine(bundle) as engine:
            yield AskedModel(engine, prompts, self.findings, self.batch, advance)


def engine_for(
    probe: AnyProbe, engine: str, grid: tuple[int, int], pairs: int, batch: int, threads: int
) -> tuple[str, bool]:
    """The name of the engine for a probe, and whether its threads compute images of their own (`EngineOptions`).

    Changed weights run on ONNX Runtime: a TensorRT plan for each of them would take minutes. grid: of the model's maps.
    pairs: that are asked about. batch: images that the engine gets at once, at most.
    """
    if isinstance(probe, StepProbe):
        together = pairs
        if engine.startswith("tensorrt"):
            usable = {status.name for status in backend_status() if status.usable}
            engine = "onnxruntime-cuda" if "onnxruntime-cuda" in usable else "onnxruntime-cpu"
    else:
        together = probe.passes(1, grid, 1)
    return engine, engine == "onnxruntime-cpu" and min(together, batch) >= _FOR_A_THREAD * threads


def passes_of(cell: ProbeCell) -> list[int]:
    """The forward passes of each part, at most, where every region in the annotation is one on the grid."""
    if isinstance(cell.probe, StepProbe):
        return [len(cell.cases)] * cell.parts
    probe, grid, findings = cell.probe, cell.bundle.manifest.grid, len(cell.prompts.findings)
    survey = [len(cell.cases)] * cell.surveys
    return survey + [
        sum(probe.passes(pairs_of(case, cell.findings), grid, findings) for case in chunk) for chunk in cell.chunks
    ]


def drop_other_images(cell: ProbeCell, files: CellFiles) -> str | None:
    """Deletes what was made from other images than those there now; returns the first such case of a finished cell."""

    def other(file: Path) -> str | None:
        return other_image(file, cell.cases, cell.reader.contents) if file.is_file() else None

    parts = [files.part(index) for index in range(cell.parts)]
    if cell.surveys and other(parts[0]) is not None:
        shutil.rmtree(files.parts, ignore_errors=True)  # all of them rest on the survey
    for part in parts:
        if other(part) is not None:
            part.unlink(missing_ok=True)
    changed = other(files.final)
    if changed is not None:
        files.final.unlink(missing_ok=True)
    return changed


def compute_probe(cell: ProbeCell, files: CellFiles, advance: Callable[[int], None]) -> int:
    """Computes the parts that are not on disk, and joins all of them.

    `advance` is called with the number of finished forward passes, also of those that an earlier process finished.
    Returns how many were made now. Raises XBenchError; finished parts stay on disk in every case.
    """
    remaining = [index for index in range(cell.parts) if not files.has_part(index)]
    planned = passes_of(cell)
    again = {0} if isinstance(cell.probe, StepProbe) and remaining else set()  # what other steps are compared with
    advance(sum(planned) - sum(planned[index] for index in again.union(remaining)))
    made = 0

    def count(passes: int) -> None:
        nonlocal made
        made += passes
        advance(passes)

    with ThreadPoolExecutor(1, thread_name_prefix="rows") as writer:  # what is computed is not lost
        write = partial(_write, cell, files)
        if remaining:
            compute = _steps if isinstance(cell.probe, StepProbe) else _images
            written = [writer.submit(write, index, rows) for index, rows in compute(cell, files, remaining, count)]
            for part in written:
                part.result()
    files.merge(cell.parts, rows_as_table(cell.probe.columns, [], files.key).schema)
    return made


def _images(
    cell: ProbeCell, files: CellFiles, remaining: Sequence[int], count: Callable[[int], None]
) -> Iterator[tuple[int, list[Row]]]:
    probe, chunks = cell.probe, cell.chunks
    assert isinstance(probe, ImageProbe)
    surveyed_rows: list[Row] = []
    with cell.asked(cell.bundle, cell.prompts, count) as model:
        if isinstance(probe, SurveyProbe):
            if 0 in remaining:
                surveyed_rows = list(_survey(cell, probe, model))
                yield 0, surveyed_rows
            else:
                surveyed_rows = read_columns(files.part(0)).to_pylist()
            probe, remaining = probe.surveyed(surveyed_rows, model.grid), [index for index in remaining if index]
        counted = {row["case_id"] for row in surveyed_rows if row["status"] != "ok"}
        wanted = [chunks[index - cell.surveys] for index in remaining]
        for index, read in zip(remaining, _read(cell, wanted), strict=True):
            rows = [row for row in read.others if row["case_id"] not in counted]
            for image in read.images:
                rows += probe.rows(image, model)
            yield index, rows


def _survey(cell: ProbeCell, probe: SurveyProbe, model: AskedModel) -> Iterator[Row]:
    for read in _read(cell, cell.chunks):
        yield from read.others
        yield from probe.survey(read.images, model)


def _steps(
    cell: ProbeCell, files: CellFiles, remaining: Sequence[int], count: Callable[[int], None]
) -> Iterator[tuple[int, list[Row]]]:
    probe = cell.probe
    assert isinstance(probe, StepProbe)
    (read,) = _read(cell, [cell.cases])
    work = StepWork(cell.bundle, cell.prompts, read.images, partial(cell.asked, advance=count), cell.batch)
    step = probe.begin(work)
    for index in remaining:
        yield index, [*(read.others if index == 0 else ()), *step(index)]


def _read(cell: ProbeCell, chunks: Sequence[Sequence[Case]]) -> Iterator[ImageChunk]:
    return read_chunks(cell.reader, chunks, cell.batch, cell.workers)


def _write(cell: ProbeCell, files: CellFiles, index: int, rows: Sequence[Row]) -> None:
    files.write_part(index, rows_as_table(cell.probe.columns, rows, files.key))
