"""A hash of the code that makes rows from maps, scores and regions: a part of a cell's key (docs/run-directory.md §3).

The modules are found from the first ones below by their imports, so a new one is covered without being named here.
"""

from __future__ import annotations

from typing import Final, Literal

from ..data.datasets.dataset import Dataset
from ..host.source_code import PROJECT, code_digest
from ..results.cell_key import reader_code
from .measure import Measure

RowsOf = Literal["cpu", "gpu", "live", "baseline", "maps", "boxes"]
"""Rows of an engine on the CPU, of one on a GPU, of a live model, of a baseline, of a folder of maps, and of boxes."""

_SWEEP = "metrics_gpu.sweep.sweep"
_GPU_SWEEP = "metrics_gpu.sweep.gpu"
_REFERENCE = ("runtime.evaluation.reference.reference_sources", "runtime.evaluation.reference.reference_cell", _SWEEP)
_FIRST: Final[dict[RowsOf, tuple[str, ...]]] = {
    "cpu": ("runtime.evaluation.cell", _SWEEP),
    "gpu": ("runtime.evaluation.cell", "runtime.evaluation.gpu.device_cell", _SWEEP),
    "live": ("runtime.evaluation.cell", "runtime.evaluation.live_model", _SWEEP),
    "baseline": _REFERENCE,
    "maps": _REFERENCE,
    "boxes": ("runtime.evaluation.reference.box_files", "runtime.evaluation.reference.reference_cell"),
}

# Bundle, engine and reader are named by other parts of the key; storing or judging a row does not change it.
NEVER: Final = (
    "engines.base",
    "engines.bundle",
    "engines.manifest",
    "engines.backends.device",
    "engines.backends.gpu",
    "runtime.data.datasets.dataset",
    "runtime.evaluation.reference.map_orientation",
    "runtime.results.storage",
)
"""Modules of the project whose code decides no row."""
_NO_IMAGES: Final = (_GPU_SWEEP, "runtime.evaluation.cell", "runtime.data.images.decode")
_OF_BOXES: Final = ("runtime.evaluation.reference.box_files", "runtime.evaluation.reference.box_models")
_NOT: Final[dict[RowsOf, tuple[str, ...]]] = {
    "cpu": (_GPU_SWEEP,),
    "gpu": (),
    "live": (_GPU_SWEEP,),
    "baseline": (*_NO_IMAGES, "runtime.evaluation.reference.map_files", *_OF_BOXES),
    "maps": (*_NO_IMAGES, *_OF_BOXES),
    "boxes": (*_NO_IMAGES, "runtime.evaluation.reference.map_files", _SWEEP),
}


def row_code(rows_of: RowsOf) -> str:
    """The hash. Raises DataError when a file of the code cannot be read."""
    aside = (*NEVER, *_NOT[rows_of])
    return code_digest([f"{PROJECT}.{name}" for name in _FIRST[rows_of]], [f"{PROJECT}.{name}" for name in aside])


def made_by(measure: Measure, dataset: Dataset, rows_of: RowsOf) -> dict[str, str]:
    """The sweep and the hashes of the code that make rows of a dataset, by ingredient. Raises DataError."""
    return {"sweep": measure.description, "code": row_code(rows_of), "reader": reader_code(dataset)}
