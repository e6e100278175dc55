"""Models without a bundle: baselines and folders of maps. They need no engine, and only the size of an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ....engines.errors import ImageError
from ..decoding import DecodedCase
from ..measure import Measure
from ..scoring import Pair, ResultRow
from .baselines import baseline_grid, baseline_rows, describe_baseline, draw_case, drawn_rows
from .map_files import KEPT_CELLS, MapFolder

if TYPE_CHECKING:
    from ...datasets.base import Case
    from ...results.loaded_dataset import LoadedDataset

__all__ = ["Reference", "baseline_reference", "maps_reference"]


@dataclass(frozen=True)
class Reference:
    """How the rows of such a model are computed on one dataset.

    prepare: a case -> one input of `rows`, in threads, several cases in advance. rows: `batch` such inputs -> the rows
    of their cases. description: what the maps depend on, for the cell's key. facts: for its entry in run.json.
    """

    name: str
    findings: Sequence[str]
    prepare: Callable[[Case], Any]
    rows: Callable[[Sequence[Any]], list[ResultRow]]
    batch: int
    description: str
    facts: Mapping[str, Any]


def baseline_reference(name: str, loaded: LoadedDataset, measure: Measure) -> Reference | str:
    """A baseline on a dataset, or the reason why it has no rows under the protocol."""
    if measure.protocol.normalise == "none" and not name.endswith(":ones"):
        return f"the protocol {measure.protocol.name} cuts maps as they are, and this one has no scale of its own"
    findings, grid = list(loaded.dataset.classes), baseline_grid(name)

    def rows(batch: Sequence[DecodedCase]) -> list[ResultRow]:
        for drawn in batch:
            _note_size(drawn, loaded)
        return baseline_rows(name, batch, findings, measure)

    return Reference(
        name=name,
        findings=findings,
        prepare=partial(draw_case, findings=findings, contents=loaded.contents),
        rows=rows,
        batch=32,  # bounds the memory of the maps; the rows do not depend on it
        description=describe_baseline(name),
        # `ones` has no single maximum: its pointing is the expected hit, see baselines.
        facts={
            "weights": "baseline",
            "ties": "expected" if name.endswith(":ones") else "first",
            "grid": None if grid is None else list(grid),
        },
    )


def maps_reference(folder: MapFolder, loaded: LoadedDataset, measure: Measure) -> Reference | str:
    """A folder of maps on a dataset, or the reason why it has no rows.

    A case counts as missing or unreadable if the map of one of its regions is missing or damaged. Raises DataError.
    """
    findings = folder.findings(loaded.all_cases, loaded.dataset.classes)
    if not findings:
        case, name = loaded.all_cases[0].case_id, loaded.dataset.classes[0]
        return f"{folder.folder} has no map of its cases and classes; one would be called {case}/{name}.npy"
    size = folder.size(loaded.all_cases, findings)
    grid = size if size is not None and size[0] * size[1] <= KEPT_CELLS else None
    return Reference(
        name=folder.name,
        findings=findings,
        prepare=partial(
            _map_rows, loaded=loaded, folder=folder, findings=findings, keep=grid is not None, measure=measure
        ),
        rows=lambda batch: [row for rows in batch for row in rows],
        batch=1,
        description=folder.digest,
        # `grid` is the size stored in the rows; larger maps still have their size as resolution.
        facts={
            "weights": "maps",
            "grid": None if grid is None else list(grid),
            "map_size": None if size is None else list(size),
        },
    )


def _map_rows(
    case: Case, *, loaded: LoadedDataset, folder: MapFolder, findings: Sequence[str], keep: bool, measure: Measure
) -> list[ResultRow]:
    drawn, pairs = draw_case(case, findings, loaded.contents), list[Pair]()
    _note_size(drawn, loaded)
    rows = drawn_rows(drawn, findings)
    for row in rows:
        if row.region is None:
            continue
        item = folder.find(case.case_id, row.finding)
        if item is None:
            why = f"there is no map of '{row.finding}'"
            return drawn_rows(DecodedCase(case, "missing", why, image=drawn.image), findings)
        try:
            saliency = item.read()
        except ImageError as error:
            return drawn_rows(DecodedCase(case, "unreadable", str(error), image=drawn.image), findings)
        if keep:
            row.saliency = saliency.reshape(-1)
        pairs.append(Pair(row, drawn, saliency))
    measure.fill(pairs)
    return rows


def _note_size(drawn: DecodedCase, loaded: LoadedDataset) -> None:
    """Keeps a size that was read from the image file, because the annotation states none."""
    if drawn.size is not None and drawn.case.size is None:
        loaded.file_sizes[drawn.case.case_id] = drawn.size
