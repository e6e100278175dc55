"""Counts: the integers from which every grounding number is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .thresholds import LEVELS

__all__ = ["Counts"]


@dataclass(frozen=True, eq=False)
class Counts:
    """Result of the sweep for P (image, class) pairs; all arrays share the first axis (docs/metrics.md §2 to §5).

    area: int32 [P, 101], pixels u of the evaluation grid with Mn(u) >= tau_k; area[:, 0] is the number of pixels.
    overlap: int32 [P, 101], those of them inside the region.
    region: int32 [P], pixels of the region.
    argmax: int32 [P], row * width + column of the upsampled map's first maximum in row-major order; 0 if degenerate.
    hit: bool [P], that pixel lies in the region; False if degenerate.
    degenerate: bool [P], the map is constant or not finite over the pixels the model sees (Mn is 0 everywhere).

    Raises ValueError if the shapes do not fit together, TypeError if a dtype is not the stated one.
    """

    area: NDArray[np.int32]
    overlap: NDArray[np.int32]
    region: NDArray[np.int32]
    argmax: NDArray[np.int32]
    hit: NDArray[np.bool_]
    degenerate: NDArray[np.bool_]

    def __post_init__(self) -> None:
        pairs = len(self.region)
        for field in fields(self):
            array = getattr(self, field.name)
            dtype = np.dtype(np.bool_ if field.name in ("hit", "degenerate") else np.int32)
            shape = (pairs, LEVELS) if field.name in ("area", "overlap") else (pairs,)
            if array.dtype != dtype:
                raise TypeError(f"counts: {field.name} must be {dtype}, got {array.dtype}")
            if array.shape != shape:
                raise ValueError(f"counts: {field.name} must have shape {shape}, got {array.shape}")

    def __len__(self) -> int:
        return len(self.region)

    def on_host(self) -> Counts:
        """These counts as NumPy arrays, copied from the GPU if a sweep left them there."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return Counts(**{name: array.get() if hasattr(array, "get") else array for name, array in arrays.items()})

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Counts:
        """The pairs that a NumPy index (integers, a boolean mask or a slice) selects."""
        return Counts(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    @staticmethod
    def empty() -> Counts:
        """Counts of no pair."""
        table, column = np.zeros((0, LEVELS), np.int32), np.zeros(0, np.int32)
        flags = np.zeros(0, np.bool_)
        return Counts(table, table.copy(), column, column.copy(), flags, flags.copy())

    @staticmethod
    def concatenate(parts: Sequence[Counts]) -> Counts:
        """Counts of all parts, in order; of no pair if there is no part."""
        if not parts:
            return Counts.empty()
        return Counts(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Counts)})
