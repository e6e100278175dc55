"""The row of a result: one (case, finding) pair and the counts every table is computed from.

`area[k]` and `overlap[k]` are pixels of the 224 x 224 evaluation grid where the normalised map is at least threshold k,
and those of them inside the region (docs/metrics.md §3, §4). They are null when the pair has no region or the
image could not be read; so are `argmax`, `hit` and `degenerate`. `logit` is the mean over the positive prompts of the
finding, `logit_negative` that over its negative prompts (docs/metrics.md §14, row 21).
`evaluation/scoring.py` fills the columns, `results/load.py` reads them.

Three columns allow a new sweep without the model; they are null for a pair without a region:

    saliency  the low-resolution map that was swept, row-major [h * w]; the cell's entry in run.json has `grid` [h, w].
              Mean over the positive prompts before normalisation. Null for baselines with one map for all pairs.
    region    the region on the evaluation grid, bits packed as `metrics_gpu.pack_masks` does: 224 rows of 28 bytes
    frame     (y0, x0, y1, x1), the part of the image the map covers, as `sweep(frames=)` takes it

One column says which image the row was made from:

    image_hash  of a model, the first 16 bytes of the SHA-256 of the image file; of a baseline or a folder of maps, a
              hash of its height and width, null if the file was not read. Zeros if the file could not be accessed.

One more column is set only by a protocol that evaluates at the image's native size (docs/metrics.md §11):

    native    height and width of that size, `region` and `area` and `overlap` at the 101 thresholds in its pixels,
              whether the map's first maximum is a `hit`, and `otsu_area` and `otsu_overlap` of the map thresholded by
              Otsu's method

The rows of predicted boxes have one more column, null where a pair has no region and was not asked as a negative:

    answer    `state` of the answer (`answers.answered.State`), `height` and `width` of the image, the kept `boxes` (x1,
              y1, x2, y2, ... in its pixels), their `scores` or null, the `truth` boxes alike (null where the region is
              no union of boxes), which of them are marked as a `crowd` (null where none is), `area`, `overlap` and
              `region` of the unions in the image's pixels (null for a negative), and the counters of its boxes and of
              the answer. Of answers in words also `words`: `state` (`words.class_answers.WordState`), `remarks` (bits
              of its `Remark`), `size` word, `skipped` statements, `places`, and null for a negative the sets of
              `stated` and `true` zones (bits as `zones.thorax_places.CELLS`), `stated_sides` and `true_sides` (1 right,
              2 left), and the `bounds`, `zones.bounds.NUMBERS` of each of its `BOUNDS`

File size with zstd: the 784 bytes of a 14 x 14 map shrink by a sixth, the 6,272 of a region to about 80, and the 808
of the counts to about 300. A pair takes 1.1 kB in the file; 12,601 cases with 6,000 pairs take 7 MB per model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...engines.errors import RunError
from ...metrics_gpu.sweep.masks import GRID as _SIZE
from ...metrics_gpu.sweep.sweep_options import LEVELS as THRESHOLD_COUNT
from ..data.datasets.region_boxes import FAULTS

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "AGAIN",
    "GRID",
    "RESULT_VERSION",
    "STATUSES",
    "THRESHOLD_COUNT",
    "WITHOUT_MODEL",
    "count_faults",
    "read_parts",
    "reading",
    "result_schema",
    "under_new_names",
]

RESULT_VERSION = 4
GRID = _SIZE[0]
STATUSES = ("ok", "missing", "unreadable")
WITHOUT_MODEL: Final = ("baseline", "maps", "boxes")
"""The `weights` of cells for which no model read an image."""

# An evaluation reads only the footer of a finished file without a checksum, so it would reuse a damaged one.
AGAIN: Final = "delete that file and run the same eval command again"

_PART_ROWS: Final = 1 << 14

_FORMER: Final = {"sub_pixel": "rescued"}
"""Column -> its name in version 2. Rows of version 2 are otherwise those of version 3 and can be read."""

_ADDED: Final = {"region_fault": "sub_pixel", "image_hash": "native"}
"""Column that versions 2 and 3 lack -> the column before it. It is read as null from them."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises RunError for the errors of reading a result file."""
    import pyarrow as pa

    try:
        yield
    # Arrow and NumPy raise one of these for any other content of a file.
    except (OSError, pa.ArrowException, ValueError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); {AGAIN}.") from error


def read_parts(file: pq.ParquetFile, columns: Sequence[str], each: int) -> Iterator[pa.Table]:
    """Columns of an open result file, some thousand rows at a time; `each`: rows of a case, which are not divided.

    Raises OSError, ValueError for a column that it lacks, and Arrow's errors.
    """
    import pyarrow as pa

    stored = file.schema_arrow.names
    known = [name for name in columns if name in stored or name not in _ADDED]
    names = [name if name in stored else _FORMER.get(name, name) for name in known]
    for name in names:
        if name not in stored:
            raise ValueError(f"it has no column '{name}'")
    groups, rows = list[int](), 0
    for group in range(file.num_row_groups):
        groups.append(group)
        rows += file.metadata.row_group(group).num_rows
        if rows >= _PART_ROWS and rows % each == 0:
            yield under_new_names(file.read_row_groups(groups, names).select(names))
            groups, rows = [], 0
    if groups or not file.num_row_groups:
        yield under_new_names(file.read_row_groups(groups, names).select(names))
    pa.default_memory_pool().release_unused()  # the parts that were read before


def under_new_names(table: pa.Table) -> pa.Table:
    """A table of a result file of any version, with the columns of the current version."""
    import pyarrow as pa

    new = {old: name for name, old in _FORMER.items()}
    table = table.rename_columns([new.get(name, name) for name in table.column_names])
    for name, before in _ADDED.items():
        if name not in table.column_names and before in table.column_names:
            kind = result_schema().field(name)
            place = table.column_names.index(before) + 1
            table = table.add_column(place, kind, pa.nulls(table.num_rows, kind.type))
    return table


def count_faults(column: pa.ChunkedArray) -> dict[str, int]:
    """The number of regions with each of `FAULTS`, in the column `region_fault`."""
    import pyarrow.compute as pc

    return {name: int(pc.sum(pc.equal(column, name)).as_py() or 0) for name in FAULTS}


def result_schema(metadata: dict[str, str] | None = None, *, answers: bool = False, words: bool = False) -> pa.Schema:
    """The Arrow schema of a result file, with `metadata` in its footer; `answers`: one of predicted boxes, also of
    `words`."""
    return _columns(answers, words).with_metadata({"xbench_result_version": str(RESULT_VERSION), **(metadata or {})})


@lru_cache(4)
def _columns(answers: bool, words: bool) -> pa.Schema:
    import pyarrow as pa

    counts = pa.list_(pa.int32(), THRESHOLD_COUNT)
    native = [pa.field(name, pa.int32()) for name in ("height", "width", "region", "otsu_area", "otsu_overlap")]
    native += [pa.field(name, pa.list_(pa.int32())) for name in ("area", "overlap")]
    native.append(pa.field("hit", pa.bool_()))
    return pa.schema(
        [
            pa.field("model", pa.string(), nullable=False),
            pa.field("dataset", pa.string(), nullable=False),
            pa.field("case_id", pa.string(), nullable=False),
            pa.field("patient_id", pa.string()),
            pa.field("finding", pa.string(), nullable=False),
            pa.field("status", pa.string(), nullable=False),
            pa.field("reason", pa.string()),
            pa.field("label", pa.int8()),
            pa.field("logit", pa.float32()),
            pa.field("logit_negative", pa.float32()),
            pa.field("region_area", pa.int32()),
            pa.field("argmax", pa.int32()),
            pa.field("hit", pa.bool_()),
            pa.field("degenerate", pa.bool_()),
            pa.field("sub_pixel", pa.bool_()),
            pa.field("region_fault", pa.string()),
            pa.field("area", counts),
            pa.field("overlap", counts),
            pa.field("saliency", pa.list_(pa.float32())),
            pa.field("region", pa.binary()),
            pa.field("frame", pa.list_(pa.float64(), 4)),
            pa.field("native", pa.struct(native)),
            pa.field("image_hash", pa.binary(16)),
            *([pa.field("answer", _answer(words))] if answers else ()),
        ]
    )


def _answer(words: bool) -> pa.DataType:
    import pyarrow as pa

    whole = ("height", "width", "area", "overlap", "region", "illegal", "outside", "clipped", "duplicates")
    return pa.struct(
        [
            pa.field("state", pa.int8()),
            *(pa.field(name, pa.list_(pa.float64())) for name in ("boxes", "scores", "truth")),
            pa.field("crowd", pa.list_(pa.bool_())),
            *(pa.field(name, pa.int32()) for name in whole),
            *(pa.field(name, pa.bool_()) for name in ("truncated", "over_limit", "out_of_view")),
            *([pa.field("words", _words())] if words else ()),
        ]
    )


def _words() -> pa.DataType:
    import pyarrow as pa

    bytes_ = ("state", "size", "stated", "stated_sides", "true", "true_sides")
    return pa.struct(
        [
            *(pa.field(name, pa.int8()) for name in bytes_),
            *(pa.field(name, pa.int32()) for name in ("remarks", "skipped")),
            pa.field("places", pa.list_(pa.string())),
            pa.field("bounds", pa.list_(pa.float64())),
        ]
    )
