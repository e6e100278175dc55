"""The one rule by which stored masks become regions, and what a file does not say (docs/formats.md §9.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import DataError, ImageError
from ..file_rows import Note
from .mask_channels import class_colours, class_values, colour_count, mask_values
from .mask_files import StoredMask, read_png

_SHARE = 0.01  # of a region's pixels: a larger part that depends on the threshold is no rounding of an edge
_MOST = 0.7  # of an image: more than the region of any finding covers
_FEW = 6  # values that are listed in a message
_LABELS = 16  # whole numbers below it look like labels, of which three quarters of the maximum is no meaningful value


class MaskReader:
    """Makes regions of stored masks for one dataset, and collects notes about masks that can mean something else.

    ask: what a user of the reader can do about a mask of several values, as the end of a sentence.
    """

    def __init__(self, ask: str = "") -> None:
        self._ask = ask
        self._masks: Counter[str] = Counter()
        self._remarks: list[tuple[str, str, Path, int | None, str]] = []

    def read(self, path: Path, finding: str) -> NDArray[np.bool_]:
        """bool [H, W]: the region of a PNG file. Raises DataError naming the file and the cause."""
        try:
            return self.region(read_png(path), finding, (path, None))
        except ImageError as error:
            raise DataError(f"The mask {path} cannot be read: {error}.") from error

    def region(
        self,
        stored: StoredMask,
        finding: str,
        where: tuple[Path, int | None],
        *,
        threshold: float | None = None,
        is_part: bool = False,
    ) -> NDArray[np.bool_]:
        """bool [H, W]: the pixels above 0, or from `threshold` on.

        finding: the class, for the notes. is_part: the mask is a part of its image, which it may fill. Raises
        ImageError where nothing says which pixels are outside.
        """
        values, remark = mask_values(stored)
        if remark:
            self._note("mask_in_alpha", finding, where, remark)
        mask = np.asarray(values > 0 if threshold is None else values >= threshold)
        if threshold is None:
            self._note_values(stored, values, finding, where)
        self._masks[finding] += 1
        if not is_part and _looks_inverted(mask):
            area, edge = mask.mean(), _edge_share(mask)
            extent = (
                "is the whole image" if mask.all() else f"covers {area:.0%} of the image and {edge:.0%} of its edge"
            )
            self._note("inverted", finding, where, f"the region {extent}: the mask may be inverted or of another kind")
        return mask

    def classes(
        self, stored: StoredMask, finding: str, where: tuple[Path, int | None], *, colours: bool
    ) -> NDArray[Any]:
        """The values [H, W] of classes, or with `colours` 256 * (256 * red + green) + blue; 0 is no class.

        Raises ImageError.
        """
        if colours:
            return class_colours(stored)
        values, remark = class_values(stored)
        if remark:
            self._note("mask_in_alpha", finding, where, remark)
        return values

    def notes(self) -> Sequence[Note]:
        """The notes about all masks so far; one about a likely inversion says how many masks of its class share it."""
        counts = Counter(finding for code, finding, *_ in self._remarks if code == "inverted")
        notes = []
        for code, finding, file, row, remark in self._remarks:
            shared = (
                f" ({counts[finding]} of {self._masks[finding]} masks of '{finding}')" if code == "inverted" else ""
            )
            notes.append(Note(code, finding, file, row, remark + shared))
        return notes

    def _note(self, code: str, finding: str, where: tuple[Path, int | None], remark: str) -> None:
        self._remarks.append((code, finding, *where, remark))

    def _note_values(
        self, stored: StoredMask, values: NDArray[Any], finding: str, where: tuple[Path, int | None]
    ) -> None:
        """Notes a mask of more than two values. Raises ImageError for one of several values without 0."""
        levels, counts = _levels(values)
        if levels.size > 1 and levels[0] > 0:
            raise ImageError(f"none of its {levels.size} values is 0, so nothing says what lies outside{self._ask}")
        colours, others = colour_count(stored)
        if levels.size < 3 and colours < 2:
            return
        top = float(levels[-1])
        region, half, firm = (int(counts[levels >= least].sum()) for least in (levels[1], top / 2, _firm(top)))
        unsure = max(region - min(half, firm), others)
        listed = ", ".join(f"{level:g}" for level in levels) if levels.size <= _FEW else f"up to {top:g}"
        kinds = f"{colours} colours other than black" if colours > 1 else f"{levels.size} values ({listed})"
        counted = f"{half} are at least half of the maximum, {firm} at least {_firm(top):g}"
        self._note(
            "not_binary" if unsure > _SHARE * region else "nearly_binary",
            finding,
            where,
            f"the mask has {kinds}: its {region} pixels above 0 are the region, of which {counted}{self._ask}",
        )


def _levels(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct values in order, and how many pixels have each."""
    if values.dtype in (np.bool_, np.uint8, np.uint16):  # several times as fast as to sort them
        counts = np.bincount(values.ravel())
        levels = np.flatnonzero(counts)
        return levels, counts[levels]
    return np.unique(values, return_counts=True)


def _firm(top: float) -> float:
    """The value from which a pixel is inside at any threshold: three quarters of the maximum; a label only it."""
    return top if top < _LABELS and top == int(top) else 0.75 * top


def _looks_inverted(mask: NDArray[np.bool_]) -> bool:
    """Whether a region covers most of its image, or more than half of both the image and its edge.

    No finding does: both lungs are 30 to 40 % of a radiograph, and a chest reaches its edge at the sides. The finding
    of an inverted mask may itself lie in a corner or along an edge.
    """
    area = mask.mean()
    return bool(area > _MOST or (area > 0.5 and _edge_share(mask) > 0.5))


def _edge_share(mask: NDArray[np.bool_]) -> float:
    """Which part of the pixels at the edge of an image are inside."""
    edge = np.concatenate([mask[0], mask[-1], mask[1:-1, 0], mask[1:-1, -1]])
    return float(edge.mean())
