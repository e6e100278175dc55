"""Saliency and regions to counts, counts to metrics. Imports neither numba nor scikit-learn until they are needed."""

from __future__ import annotations

from .aggregate import macro_mean, micro_mean, percent
from .bootstrap import Draws, Interval, draw_patients, patient_index, percentile_interval, percentile_intervals
from .correlation import Correlation, correlation
from .counts import Counts
from .curves import dice_curves, iou_curves, pointing_hits
from .delong import AucDifference, AucEstimate, auc_difference, auc_differences, auc_estimate, midranks
from .grounding import Grounding, GroundingScores, grounding
from .grounding_bootstrap import GroundingReplicates, grounding_replicates
from .options import GroundingOptions
from .paired import PairedDifference, holm, paired_difference
from .proportions import wilson_interval
from .protocols import PROTOCOLS, Protocol, protocol
from .recognition import ClassRecognition, Recognition, probability, recognition
from .recognition_bootstrap import RecognitionReplicates, recognition_replicates
from .sampling import MODES, Axis, Mode, axis
from .search import model_levels, patient_halves
from .strata import Stratum, size_strata, strata_of
from .sweep import GRID, pack_masks, sweep, unpack_masks
from .thresholds import LEVELS, THRESHOLDS, level, threshold_table
from .tolerance import region_distance, tolerant_hits, tolerant_share

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
    "GroundingReplicates",
    "GroundingScores",
    "Interval",
    "Mode",
    "PairedDifference",
    "Protocol",
    "Recognition",
    "RecognitionReplicates",
    "Stratum",
    "auc_difference",
    "auc_differences",
    "auc_estimate",
    "axis",
    "correlation",
    "dice_curves",
    "draw_patients",
    "grounding",
    "grounding_replicates",
    "holm",
    "iou_curves",
    "level",
    "macro_mean",
    "micro_mean",
    "midranks",
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
    "recognition_replicates",
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
