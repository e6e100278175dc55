"""The row of a result: one (case, finding) pair and the counts every table is computed from.

`area[k]` and `overlap[k]` are pixels of the 224 x 224 evaluation grid where the normalised map is at least threshold k,
and those of them inside the region (metrics specification §3-4). They are null when the pair has no region or the
image could not be read; so are `argmax`, `hit` and `degenerate`. `logit` is the mean over the positive prompts of the
finding, `logit_negative` that over its negative prompts (metrics specification §14, point 21).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["GRID", "RESULT_VERSION", "STATUSES", "THRESHOLD_COUNT", "result_schema"]

RESULT_VERSION = 1
GRID = 224
THRESHOLD_COUNT = 101
STATUSES = ("ok", "missing", "unreadable")


def result_schema(metadata: dict[str, str] | None = None) -> pa.Schema:
    """The Arrow schema of a result file, `metadata` in its footer."""
    import pyarrow as pa

    counts = pa.list_(pa.int32(), THRESHOLD_COUNT)
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
            pa.field("rescued", pa.bool_()),
            pa.field("area", counts),
            pa.field("overlap", counts),
        ],
        metadata={"xbench_result_version": str(RESULT_VERSION), **(metadata or {})},
    )
