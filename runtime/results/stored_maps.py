"""Reads the maps, regions and image hashes of a finished cell, for studies and galleries; numbers do not need them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ...engines.file_names import unique_stem
from .integrity import checksum_fault
from .load_rows import StoredRun
from .schema import GRID, reading
from .storage import read_columns

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = (
    "case_id",
    "patient_id",
    "finding",
    "argmax",
    "hit",
    "degenerate",
    "saliency",
    "region",
    "frame",
)


@dataclass(frozen=True)
class MapRows:
    """The P pairs of a cell, in the order of `CellRows.counts`; `entry` is the cell's entry in run.json.

    case_id, patient_id: P texts, None where a patient is not known. class_of: intp [P], index into `findings`.
    saliency: float32 [P, h, w] as swept, before normalisation; None for a baseline whose map is the same for all pairs.
    masks: uint8 [P, 224, 28], bits as `metrics_gpu.pack_masks` packs them. frames: float64 [P, 4], (y0, x0, y1, x1) as
    `metrics_gpu.sweep` takes them. argmax int32 [P], hit bool [P] and degenerate bool [P] are those of the rows.
    """

    model: str
    dataset: str
    entry: Mapping[str, Any]
    findings: tuple[str, ...]
    case_id: tuple[str, ...]
    patient_id: tuple[str | None, ...]
    class_of: NDArray[np.intp]
    saliency: NDArray[np.float32] | None
    masks: NDArray[np.uint8]
    frames: NDArray[np.float64]
    argmax: NDArray[np.int32]
    hit: NDArray[np.bool_]
    degenerate: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.case_id)

    @property
    def finding(self) -> tuple[str, ...]:
        """The class of each pair."""
        return tuple(self.findings[index] for index in self.class_of)


def load_maps(run: StoredRun, model: str, dataset: str, cases: Collection[str] | None = None) -> MapRows:
    """Reads the pairs with a region of one finished cell: about 7 kB each in memory for a 14 x 14 map.

    cases: ids of the cases that are needed, if not all are.
    Raises RunError when the cell is not finished, its file cannot be read, or it was made before maps were stored.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    entry = run.entry(model, dataset)
    path = run.path / entry["file"]
    with reading(path):
        missing = set(_COLUMNS) - set(pq.read_schema(path).names)
        if missing or "grid" not in entry:
            raise RunError(f"{path} was made by a version that kept no maps; run the same eval command again.")
        wanted = pc.field("region").is_valid()
        if cases is not None:
            wanted &= pc.field("case_id").isin(list(cases))
        table = read_columns(path, list(_COLUMNS), filters=wanted)
    findings = tuple(entry["findings"])
    pairs = table.num_rows
    return MapRows(
        model=model,
        dataset=dataset,
        entry=entry,
        findings=findings,
        case_id=tuple(table["case_id"].to_pylist()),
        patient_id=tuple(table["patient_id"].to_pylist()),
        class_of=np.array([findings.index(name) for name in table["finding"].to_pylist()], np.intp),
        saliency=_flat(table["saliency"], np.float32).reshape(pairs, *grid) if (grid := entry["grid"]) else None,
        masks=np.frombuffer(b"".join(table["region"].to_pylist()), np.uint8).reshape(pairs, GRID, -(-GRID // 8)),
        frames=_flat(table["frame"], np.float64).reshape(pairs, 4),
        argmax=table["argmax"].to_numpy().astype(np.int32, copy=False),
        hit=table["hit"].to_numpy().astype(np.bool_, copy=False),
        degenerate=table["degenerate"].to_numpy().astype(np.bool_, copy=False),
    )


def _flat(column: Any, kind: Any) -> NDArray[Any]:
    if not len(column):
        return np.zeros(0, kind)
    flat: NDArray[Any] = column.combine_chunks().flatten().to_numpy()
    return flat


def image_hashes(file: Path) -> dict[str, bytes | None]:
    """Case id -> hash of its image in a result file; empty if the file is damaged or of an earlier version."""
    table = whole_table(file, ("case_id", "image_hash"))
    if table is None:
        return {}
    return dict(zip(table["case_id"].to_pylist(), table["image_hash"].to_pylist(), strict=True))


def whole_table(file: Path, columns: Sequence[str], *, needed: bool = False) -> pa.Table | None:
    """Columns of a file with a checksum; None if it is missing, damaged, or lacks one of them. `needed`: as of
    `checksum_fault`."""
    import pyarrow as pa

    try:
        table = None if checksum_fault(file, needed=needed) else read_columns(file, list(columns))
    except (OSError, pa.ArrowException):
        return None
    return table if table is not None and table.column_names == list(columns) else None


def index_file(run: Path, dataset: str) -> Path:
    """The index of the images of a dataset in a run directory."""
    return run / "images" / f"{unique_stem(dataset)}.parquet"


def indexed_images(run: Path, dataset: str) -> dict[bytes, str]:
    """Hash -> file below the folder of the dataset with that content when it was read, by the index; empty if that is
    missing or damaged."""
    table = whole_table(index_file(run, dataset), ("content", "path"), needed=True)
    if table is None:
        return {}
    table = table.drop_null()
    return dict(zip(table["content"].to_pylist(), table["path"].to_pylist(), strict=True))
