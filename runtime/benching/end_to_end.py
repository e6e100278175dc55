"""End-to-end benchmark, the same work as `eval`: images to rows on disk, from image files or prepared images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...engines.errors import EngineError
from ...metrics_gpu.grounding.protocols import protocol
from ...metrics_gpu.sweep.masks import unpack_masks
from ...metrics_gpu.sweep.sweep import sweep
from ..data.cache.preparing import PreparedSet, prepare
from ..data.datasets.dataset import Case
from ..data.datasets.pixels import PixelSource, direct_source
from ..data.images.contents import Contents
from ..evaluation.cell import CellWork
from ..evaluation.computing import compute_anywhere
from ..evaluation.measure import Measure
from ..evaluation.queries import Queries
from ..results.schema import GRID
from ..results.storage import CellFiles
from .engine_alone import Subject
from .inputs import films_as_cases, prompts_of
from .measurement import Limit, Measurement
from .oracle import TOLERANCES, naive_counts, oracle_scores
from .plan import Plan
from .timing import timed

_CHUNK = 4096
_CHECKED = 3


def end_to_end(
    scenario: str, subject: Subject, plan: Plan, paths: list[Path], folder: Path, alone: Measurement
) -> Measurement:
    """Scenario "files" or "prepared". alone: the engine's offline measurement, whose rate is the limit.

    Raises EngineError for a bundle without prompts, which would give no rows.
    """
    engine = subject.engine
    prompts = prompts_of(engine.bundle)
    if prompts is None:
        raise EngineError(f"{engine.bundle.name} has no prompt set; add one with xbench-fast prompts encode.")
    cases = films_as_cases(paths, prompts.findings, plan.seed)
    measure = Measure(protocol("default"), sweep)
    batch = alone.batch or plan.batches[0]
    made: list[CellWork] = []
    contents = Contents()

    def run(source: PixelSource) -> Callable[[int], None]:
        def work(repeat: int) -> None:
            files = CellFiles(folder, scenario, f"{repeat + 1:06d}{scenario}".ljust(64, "0"))
            made.append(
                CellWork(
                    model=engine.bundle.name,
                    dataset="bench",
                    prompts=prompts,
                    findings={name: name for name in prompts.findings},
                    cases=cases,
                    files=files,
                    source=source,
                    batch=batch,
                    chunk=_CHUNK,
                    workers=plan.threads,
                    contents=contents,
                )
            )
            compute_anywhere(made[-1:], engine, measure, lambda count: None)

        return work

    with _source(scenario, subject, plan, cases, folder, contents) as source:
        seconds = timed(run(source), plan.repeats, plan.seconds)
        problems = _problems(made[-1], subject, source)
    return Measurement(
        scenario,
        subject.name,
        subject.runner,
        batch,
        {"images": len(cases), "pairs": len(cases)},
        seconds,
        Limit("the engine alone", alone.rate().median),
        problems=(*subject.problems, *problems),
        notes=subject.notes,
        facts={"threads": plan.threads},
    )


@contextmanager
def _source(
    scenario: str, subject: Subject, plan: Plan, cases: list[Case], folder: Path, contents: Contents
) -> Iterator[PixelSource]:
    geometry = subject.engine.bundle.manifest.geometry
    if scenario == "files":
        yield direct_source(geometry, contents)
        return
    with PreparedSet.open(folder / "prepared", "bench", cases, [geometry]) as images:
        images.use(contents)
        prepare(images, range(len(cases)), plan.threads, lambda count: None)
        yield images.source(geometry)


def _problems(cell: CellWork, subject: Subject, source: PixelSource) -> list[str]:
    """Stored logits against onnxruntime-cpu, stored counts against a loop over the pixels of the stored map."""
    import pyarrow.parquet as pq

    bundle, text = subject.engine.bundle, cell.prompts.features
    queries = Queries.of(cell.prompts, cell.findings)
    rows = pq.read_table(cell.files.final).to_pylist()
    stored = {(row["case_id"], row["finding"]): row for row in rows}
    if len(stored) != len(cell.cases) * len(cell.findings):
        return [f"{len(stored)} rows were stored instead of {len(cell.cases) * len(cell.findings)}"]
    unread = sum(row["status"] != "ok" for row in rows)
    if unread:
        return [f"{unread // len(cell.findings)} of the images could not be read"]
    drawn = np.random.default_rng().choice(len(cell.cases), min(_CHECKED, len(cell.cases)), replace=False)
    cases = [cell.cases[int(index)] for index in drawn]
    wanted = oracle_scores(bundle, np.stack([source(case)[0] for case in cases])[:, None], text).logits
    stored_logits, expected, reasons = [], [], []
    for number, case in enumerate(cases):
        for finding, positive in zip(queries.findings, queries.positive, strict=True):
            row = stored[case.case_id, finding]
            stored_logits.append(row["logit"])
            expected.append(wanted[number, list(positive)].mean())
            if finding in case.regions:
                reasons += _wrong_counts(row, bundle.manifest.grid)
    error = float(np.linalg.norm(np.subtract(stored_logits, expected))) / max(float(np.linalg.norm(expected)), 1e-30)
    limit = TOLERANCES.get(subject.engine.info.precision, TOLERANCES["fp32"])
    if not error <= limit:
        reasons.append(f"stored logits differ from onnxruntime-cpu by {error:.2g} of their norm (at most {limit:g})")
    return reasons


def _wrong_counts(row: dict[str, Any], grid: tuple[int, int]) -> list[str]:
    packed = np.frombuffer(row["region"], np.uint8).reshape(1, GRID, -1)
    mask = unpack_masks(packed, GRID)[0]
    if list(row["frame"]) != [0.0, 0.0, 1.0, 1.0]:
        return []  # the loop handles whole frames only; generated images are square
    counts = naive_counts(np.array(row["saliency"], np.float32).reshape(grid), mask)
    same = all(np.array_equal(row[name], counts[name]) for name in ("area", "overlap", "argmax", "hit", "degenerate"))
    return [] if same else ["stored counts differ from a loop over the pixels of the stored map"]
