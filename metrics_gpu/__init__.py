"""Saliency and regions to counts, counts to metrics. Imports neither numba nor scikit-learn until they are needed."""

from __future__ import annotations

from .grounding.curves import dice_curves, iou_curves, pointing_hits
from .grounding.options import GroundingOptions
from .grounding.pairs import Pairs, Search
from .grounding.protocols import PROTOCOLS, Protocol, protocol
from .grounding.scores import Grounding, GroundingScores, grounding, groundings
from .grounding.search import model_levels, patient_halves
from .grounding.strata import Stratum, size_strata, strata_of
from .grounding.tolerance import region_distance, tolerant_hits, tolerant_share
from .recognition.delong import AucDifference, AucEstimate, auc_difference, auc_differences, auc_estimate
from .recognition.scores import ClassRecognition, Recognition, probability, recognition
from .statistics.aggregate import macro_mean, micro_mean, percent
from .statistics.bootstrap import (
    Draws,
    Interval,
    Replicates,
    draw_patients,
    patient_index,
    percentile_interval,
    percentile_intervals,
)
from .statistics.correlation import Correlation, correlation
from .statistics.paired import PairedDifference, holm, paired_difference
from .statistics.proportions import wilson_interval
from .sweep.counts import Counts
from .sweep.masks import GRID, pack_masks, unpack_masks
from .sweep.sampling import MODES, Axis, Mode, axis
from .sweep.sweep import sweep
from .sweep.thresholds import LEVELS, THRESHOLDS, level, threshold_table

__all__ = [
    "GRID",
    "LEVELS",
    "MODES",
    "PROTOCOLS",
    "THRESHOLDS",
    "AucDifference",
    "AucEstimate",
    "Axis",
    "ClassRecognition",
    "Correlation",
    "Counts",
    "Draws",
    "Grounding",
    "GroundingOptions",
    "GroundingScores",
    "Interval",
    "Mode",
    "PairedDifference",
    "Pairs",
    "Protocol",
    "Recognition",
    "Replicates",
    "Search",
    "Stratum",
    "auc_difference",
    "auc_differences",
    "auc_estimate",
    "axis",
    "correlation",
    "dice_curves",
    "draw_patients",
    "grounding",
    "groundings",
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
    "percentile_intervals",
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
