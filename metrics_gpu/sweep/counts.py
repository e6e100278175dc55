"""Counts: the integers from which grounding numbers are computed, and each pair's scores (docs/metrics.md §2 to §5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..statistics.exact_sums import exact_values
from .sweep_options import LEVELS


@dataclass(frozen=True, eq=False)
class Counts:
    """Result of the sweep for P (image, class) pairs; all arrays share the first axis (docs/metrics.md §2 to §5).

    area: int32 [P, 101], pixels u of the evaluation grid with Mn(u) >= tau_k; area[:, 0] is the number of pixels.
    overlap: int32 [P, 101], how many of them lie inside the region.
    region: int32 [P], pixels of the region.
    argmax: int32 [P], row * width + column of the upsampled map's first maximum in row-major order; 0 if degenerate.
    hit: bool [P], that pixel lies in the region; False if degenerate.
    degenerate: bool [P], the map is constant or not finite over the pixels the model sees (Mn is 0 everywhere).

    Those of masks (`of_masks`) are equal at every threshold, the first one too, and take the memory of one.

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
            array, (dtype, shape) = getattr(self, field.name), _form(field.name, pairs)
            if array.dtype != dtype:
                raise TypeError(f"counts: {field.name} must be {dtype}, got {array.dtype}")
            if array.shape != shape:
                raise ValueError(f"counts: {field.name} must have shape {shape}, got {array.shape}")

    def __len__(self) -> int:
        return len(self.region)

    @property
    def marks_every_pixel(self) -> bool:
        """Whether the first threshold marks every pixel of every map, as with the default's normalisation."""
        return bool((self.overlap[:, 0] == self.region).all() and (self.area[:, 0] == self.area[:1, 0]).all())

    def on_host(self) -> Counts:
        """These counts as NumPy arrays, copied from the GPU if a sweep left them there."""
        return self.copied(lambda array: array.get() if hasattr(array, "get") else array)

    def copied(self, copy: Callable[[Any], Any]) -> Counts:
        """These counts in the arrays that `copy` returns for theirs."""
        return Counts(**{field.name: copy(getattr(self, field.name)) for field in fields(self)})

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Counts:
        """The pairs that a NumPy index (integers, a boolean mask or a slice) selects."""
        return Counts(**{field.name: _selected(getattr(self, field.name), index) for field in fields(self)})

    @staticmethod
    def of_masks(
        area: NDArray[np.int32],
        overlap: NDArray[np.int32],
        region: NDArray[np.int32],
        argmax: NDArray[np.int32],
        hit: NDArray[np.bool_],
    ) -> Counts:
        """Counts of P masks, which have no threshold; area, overlap: int32 [P], of the mask."""
        return Counts(_at_all(area), _at_all(overlap), region, argmax, hit, np.zeros(len(hit), np.bool_))

    @staticmethod
    def empty() -> Counts:
        """Counts of no pair."""
        table, column, flags = np.zeros((0, LEVELS), np.int32), np.zeros(0, np.int32), np.zeros(0, np.bool_)
        return Counts(table, table.copy(), column, column.copy(), flags, flags.copy())

    @staticmethod
    def concatenate(parts: Sequence[Counts]) -> Counts:
        """Counts of all parts, in order; of no pair if there is no part."""
        if not parts:
            return Counts.empty()
        return Counts(**{f.name: _joined([getattr(p, f.name) for p in parts]) for f in fields(Counts)})


class PackedCounts(Counts):
    """Counts of P pairs in one piece of memory, uint8 [`packed_size(P)`], which one copy brings from a GPU.

    The arrays lie in it one behind another. Those of four bytes an element come first, so all are aligned.
    """

    def __init__(self, memory: Any, pairs: int) -> None:
        super().__init__(**_unpacked(memory, pairs))
        self.memory = memory

    def copied(self, copy: Callable[[Any], Any]) -> Counts:
        return Counts(**_unpacked(copy(self.memory), len(self)))


def packed_size(pairs: int) -> int:
    """Bytes of the counts of `pairs` pairs."""
    forms = (_form(field.name, pairs) for field in fields(Counts))
    return sum(dtype.itemsize * math.prod(shape) for dtype, shape in forms)


def _unpacked(memory: Any, pairs: int) -> dict[str, Any]:
    """The arrays in a piece of memory; NumPy's or CuPy's, as it is."""
    arrays, start = {}, 0
    for field in fields(Counts):
        dtype, shape = _form(field.name, pairs)
        stop = start + dtype.itemsize * math.prod(shape)
        arrays[field.name] = memory[start:stop].view(dtype).reshape(shape)
        start = stop
    return arrays


def _form(name: str, pairs: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and shape of one of the arrays."""
    dtype = np.dtype(np.bool_ if name in ("hit", "degenerate") else np.int32)
    return dtype, (pairs, LEVELS) if name in ("area", "overlap") else (pairs,)


def _at_all(values: Any) -> Any:
    """[P, 101]: one value a pair at all thresholds, in the memory of one."""
    return np.broadcast_to(values[:, None], (len(values), LEVELS))


def _once(array: Any) -> bool:
    return array.ndim == 2 and (array.strides[1] == 0 or not len(array))


def _selected(array: Any, index: Any) -> Any:
    return _at_all(array[:, 0][index]) if _once(array) else array[index]


def _joined(arrays: Sequence[Any]) -> Any:
    return _at_all(np.concatenate([a[:, 0] for a in arrays])) if all(map(_once, arrays)) else np.concatenate(arrays)


def dice_curves(counts: Counts, levels: slice = slice(None)) -> NDArray[np.float64]:
    """Dice of each pair at each threshold, or at some, float64 [P, 101], rounded by `exact_values`.

    Raises ValueError if a pair has no region.
    """
    _need_regions(counts)
    sizes = counts.area[:, levels].astype(np.int64) + counts.region[:, None]
    return exact_values(2.0 * counts.overlap[:, levels] / sizes)


def dice_at(counts: Counts, level_of: NDArray[np.intp]) -> NDArray[np.float64]:
    """Dice of each pair at its own level, float64 [P], as `dice_curves` has it.

    level_of: intp [P]. At `LEVELS`, which no pixel reaches, Dice is 0; at a level below 0 it is not defined, NaN.
    """
    _need_regions(counts)
    chosen = np.arange(len(counts)), np.clip(level_of, 0, LEVELS - 1)
    dice = exact_values(2.0 * counts.overlap[chosen] / (counts.area[chosen].astype(np.int64) + counts.region))
    return np.where(level_of < 0, np.nan, np.where(level_of == LEVELS, 0.0, dice))


def iou_curves(counts: Counts, levels: slice = slice(None)) -> NDArray[np.float64]:
    """IoU of each pair at each threshold, or at some, float64 [P, 101], rounded by `exact_values`.

    Raises ValueError if a pair has no region.
    """
    _need_regions(counts)
    area, overlap = counts.area[:, levels].astype(np.int64), counts.overlap[:, levels]
    return exact_values(overlap / (area + counts.region[:, None] - overlap))


def _need_regions(counts: Counts) -> None:
    empty = np.flatnonzero(counts.region == 0)
    if len(empty):
        raise ValueError(
            f"{len(empty)} pairs have no region (first: pair {empty[0]}); pairs without a region are not counted"
        )
