"""The words of a finished cell, as its rows hold them (docs/words.md §6, docs/run-directory.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.detection.boxes import Float, Int
from ....metrics_gpu.zones.bounds import BOUNDS, NUMBERS

_NUMBERS = ("state", "remarks", "size", "skipped", "stated", "stated_sides", "true", "true_sides")


@dataclass(frozen=True, eq=False)
class StoredWords:
    """Of the P pairs of the rows: state, remarks, size, skipped, stated and true zones and sides, int64 [P] each, as
    `schema` says; bounds: float64 [P, 5, 3]; places: the names of each. negative_state: int64 [N], of the negatives
    that were asked."""

    state: Int
    remarks: Int
    size: Int
    skipped: Int
    stated: Int
    stated_sides: Int
    true: Int
    true_sides: Int
    bounds: Float
    places: list[list[str]]
    negative_state: Int


def stored_words(column: Any, pairs: NDArray[np.intp], asked: NDArray[np.intp]) -> StoredWords:
    """From the field `words` of the answers; pairs, asked: positions of the pairs with a region and of negatives."""
    import pyarrow as pa

    def whole(name: str) -> Int:
        values = column.field(name).cast(pa.int64()).fill_null(0)
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)

    numbers = {name: whole(name) for name in _NUMBERS}
    kept = column.field("bounds").take(pa.array(pairs)).flatten().to_numpy(zero_copy_only=False)
    return StoredWords(
        **{name: values[pairs] for name, values in numbers.items()},
        bounds=np.asarray(kept, np.float64).reshape(len(pairs), len(BOUNDS), len(NUMBERS)),
        places=column.field("places").take(pa.array(pairs)).to_pylist(),
        negative_state=numbers["state"][asked],
    )
