"""Saliency and regions to counts, counts to metrics. Imports neither numba nor scikit-learn until they are needed."""

from __future__ import annotations

from .aggregate import macro_mean, micro_mean, percent
from .counts import Counts
from .grounding import Grounding, GroundingOptions, GroundingScores, dice_curves, grounding, iou_curves, pointing_hits
from .recognition import ClassRecognition, Recognition, probability, recognition
from .sampling import MODES, Axis, Mode, axis
from .sweep import GRID, pack_masks, sweep, unpack_masks
from .thresholds import LEVELS, THRESHOLDS, level

__all__ = [
    "GRID",
    "LEVELS",
    "MODES",
    "THRESHOLDS",
    "Axis",
    "ClassRecognition",
    "Counts",
    "Grounding",
    "GroundingOptions",
    "GroundingScores",
    "Mode",
    "Recognition",
    "axis",
    "dice_curves",
    "grounding",
    "iou_curves",
    "level",
    "macro_mean",
    "micro_mean",
    "pack_masks",
    "percent",
    "pointing_hits",
    "probability",
    "recognition",
    "sweep",
    "unpack_masks",
]
