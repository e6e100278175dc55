"""AFLoc's evaluation of boxes: IoU of masks on a padded square of 224, pairs without an answer left out."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...statistics.bootstrap import macro_mean
from ...statistics.exact_sums import exact_mean, ratio
from ..boxes import Answers, BoxLists, Int, Rectangles
from ..overlaps import BoxOverlaps
from ..unions import union_counts
from .scorer import Scorer, Values

_SIDE: Final = 224


def _compute(answers: Answers, _table: BoxOverlaps) -> Values:
    counts = union_counts(_drawn(answers.given, answers.sizes), _drawn(answers.truth, answers.sizes))
    iou = ratio(counts.overlap, counts.union)
    only = np.where((counts.area > 0) & (counts.region > 0), iou, np.nan)
    classes = [exact_mean(only[answers.class_of == c]) for c in range(len(answers.names))]
    return {
        "iou_classes": macro_mean(classes),
        "iou_pairs": exact_mean(only),
        "iou_pairs_only_pos_false": exact_mean(iou),
        "pairs_left_out": float(np.isnan(only).sum()),
    }


def _drawn(lists: BoxLists, sizes: Int) -> Rectangles:
    """(x, y, w, h) scaled by 224 / longest side, the shorter side padded, each number floored."""
    owner, boxes = lists.owner, lists.boxes
    width, height = sizes.T.astype(np.float64)
    scale = _SIDE / np.maximum(width, height)
    tall = height >= width
    short = np.trunc(np.where(tall, width, height) * scale)
    pad = np.floor((_SIDE - short) / 2)
    scaled = np.hstack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]]) * scale[owner, None]
    scaled[:, 0] += np.where(tall, pad, 0.0)[owner]
    scaled[:, 1] += np.where(tall, 0.0, pad)[owner]
    corners = np.floor(scaled).astype(np.int64)
    corners[:, 2:] += corners[:, :2]
    return Rectangles(np.clip(corners, 0, _SIDE), lists.offsets)


AFLOC: Final = Scorer(
    name="afloc",
    source="YH0517/AFLoc@940e3d74 eval/metric.py, box_transfer.py",
    main="iou_classes",
    note="A silent pair is left out instead of scored 0: a model that answers only where it is sure gains.",
    compute=_compute,
)
