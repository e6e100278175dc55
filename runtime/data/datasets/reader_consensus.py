"""One region from the boxes that several readers drew for one class (docs/datasets.md §7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ....engines.errors import DataError
from .case import UNCERTAIN
from .dataset import Region
from .region_boxes import Boxes
from .region_shapes import AtLeast

RULES = ("majority", "any", "pixels", "fused")
Corners = tuple[float, float, float, float]

_OVERLAP = 0.5  # intersection over union above which two boxes are the same finding
_MAX_FUSED = 1_000


def needed(readers: int) -> int:
    """The smallest number that is more than half of `readers`: 2 of 3, 2 of 2, 1 of 1."""
    return readers // 2 + 1


def majority(votes: Collection[int]) -> int:
    """The label of one class in one image by the labels of its readers: 1 or 0 if more than half of them say so.

    Where the answer hangs on readers who were not sure (`UNCERTAIN`), it is `UNCERTAIN`. A tie of sure readers is 0.
    """
    positives, unsure, least = [*votes].count(1), [*votes].count(UNCERTAIN), needed(len(votes))
    return 1 if positives >= least else UNCERTAIN if positives + unsure >= least else 0


def merge(
    boxes: Mapping[str, Mapping[Corners, None]], rule: str, readers: int, *, exact: bool = False
) -> Region | None:
    """The region of one class in one image; None if the rule gives no region.

    boxes: reader -> boxes. readers: how many read the image. exact: as of `Boxes`. rule: `majority`, the union of
    all boxes if more than half of the readers name the class; `any`, the union in any case; `pixels`, the pixels that
    more than half of the readers cover; `fused`, the union of averaged boxes: each box joins the mean box it overlaps
    most, if their intersection over union is above 0.5, and mean boxes of more than half of the readers are kept.
    Raises DataError when there are too many boxes to fuse.
    """
    least = needed(readers)
    everything = Boxes(tuple(box for mine in boxes.values() for box in mine), exact)
    if rule == "any":
        return everything
    if len(boxes) < least:
        return None
    if rule == "majority" or least == 1:
        return everything
    if rule == "pixels":
        return AtLeast(tuple(Boxes(tuple(mine), exact) for mine in boxes.values()), least)
    return _fused(boxes, least, exact)


def _fused(boxes: Mapping[str, Mapping[Corners, None]], least: int, exact: bool) -> Boxes | None:
    flat = [(reader, np.array(box)) for reader, mine in boxes.items() for box in mine]
    if len(flat) > _MAX_FUSED:
        raise DataError(f"One image has {len(flat)} boxes of one class, too many to fuse; use another rule of readers.")
    groups: list[list[tuple[str, np.ndarray]]] = []
    means = np.zeros((len(flat), 4))
    for reader, box in flat:
        overlap = _overlap(means[: len(groups)], box)
        best = int(overlap.argmax()) if groups else 0
        if not groups or overlap[best] <= _OVERLAP:
            best = len(groups)
            groups.append([])
        groups[best].append((reader, box))
        means[best] = np.mean([member for _, member in groups[best]], axis=0)
    kept = [means[i] for i, group in enumerate(groups) if len({reader for reader, _ in group}) >= least]
    return Boxes(tuple((float(b[0]), float(b[1]), float(b[2]), float(b[3])) for b in kept), exact) if kept else None


def _overlap(many: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes [n, 4] with one box [4]; 0 where both have no area."""
    sides = np.clip(np.minimum(many[:, 2:], one[2:]) - np.maximum(many[:, :2], one[:2]), 0, None)
    common = sides.prod(axis=1)
    whole = (many[:, 2:] - many[:, :2]).prod(axis=1) + (one[2:] - one[:2]).prod() - common
    return np.asarray(np.divide(common, whole, out=np.zeros(len(many)), where=whole > 0))
