"""Turns saliency and regions into counts, and counts into metrics. Imports numba and scikit-learn only when needed."""

from __future__ import annotations

from .grounding.curves import dice_curves, iou_curves, pointing_hits
from .grounding.grounding_options import GroundingOptions
from .grounding.pairs import Pairs
from .grounding.protocols import PROTOCOLS, protocol
from .grounding.scores import grounding
from .grounding.search import model_levels, patient_halves
from .grounding.strata import size_strata, strata_of
from .grounding.tolerance import region_distance, tolerant_hits, tolerant_share
from .recognition.delong import auc_differences, auc_estimate
from .recognition.scores import probability, recognition
from .statistics.aggregate import macro_mean, micro_mean, percent
from .statistics.bootstrap import (
    Draws,
    draw_patients,
    patient_index,
    percentile_interval,
)
from .statistics.correlation import correlation
from .statistics.paired import holm, paired_difference
from .statistics.proportions import wilson_interval
from .sweep.counts import Counts
from .sweep.masks import pack_masks, unpack_masks
from .sweep.sampling import MODES, axis
from .sweep.sweep import sweep
from .sweep.sweep_options import Sweeping
from .sweep.thresholds import THRESHOLDS, level, threshold_table

__all__ = [
    "MODES",
    "PROTOCOLS",
    "THRESHOLDS",
    "Counts",
    "Draws",
    "GroundingOptions",
    "Pairs",
    "Sweeping",
    "auc_differences",
    "auc_estimate",
    "axis",
    "correlation",
    "dice_curves",
    "draw_patients",
    "grounding",
    "holm",
    "iou_curves",
    "level",
    "macro_mean",
    "micro_mean",
    "model_levels",
    "pack_masks",
    "paired_difference",
    "patient_halves",
    "patient_index",
    "percent",
    "percentile_interval",
    "pointing_hits",
    "probability",
    "protocol",
    "recognition",
    "region_distance",
    "size_strata",
    "strata_of",
    "sweep",
    "threshold_table",
    "tolerant_hits",
    "tolerant_share",
    "unpack_masks",
    "wilson_interval",
]
