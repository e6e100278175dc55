"""The interval of each number of a cell, by the rules of metrics_gpu/statistics/intervals.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.scores import Grounding
from ....metrics_gpu.recognition.scores import Recognition
from ....metrics_gpu.statistics.bootstrap import Interval, percentile_interval
from ....metrics_gpu.statistics.intervals import MANY_PATIENTS, mean_interval, pointing_interval
from .sample import Sample

__all__ = ["find_interval", "grounding_interval"]

Float = NDArray[np.float64]


def find_interval(
    scores: Grounding | Recognition, key: str, name: str, drawn: Float | None, sample: Sample, level: float = 0.95
) -> Interval | None:
    """The interval of a field for a class, or (no name) for the dataset; None where it would mean nothing.

    scores: with the field. drawn: its replicates, float64 [B].
    """
    if drawn is None:
        return None
    if isinstance(scores, Grounding):
        return _of_pairs(scores, key, name, drawn, sample, level)
    return _of_images(scores, key, name, drawn, sample, level)


def grounding_interval(scores: Grounding, key: str, name: str, sample: Sample, level: float = 0.95) -> Interval | None:
    """`find_interval` of a field of `scores`, with its own replicates; no name: the unweighted mean over classes."""
    drawn = None if scores.drawn is None else scores.drawn.of(key, name or "macro")
    return find_interval(scores, key, name, drawn, sample, level)


def _of_pairs(scores: Grounding, key: str, name: str, drawn: Float, sample: Sample, level: float) -> Interval | None:
    used = [item.name for item in scores.classes if item.n]
    if key == "pointing" and (name or len(used) == 1):
        own = sample.pairs_of(name or used[0])
        return pointing_interval(scores.each[key][own], sample.pair_patient[own], drawn, level)
    parts = sample.shares(scores.each[key], name)
    return mean_interval(drawn, parts, level, None if key == "delta_dice" else (0.0, 1.0))


def _of_images(scores: Recognition, key: str, name: str, drawn: Float, sample: Sample, level: float) -> Interval | None:
    names = [item.name for item in scores.classes if name in ("", item.name) and getattr(item, key) is not None]
    # F1 and accuracy are defined without a positive, and so are their means over classes.
    ranked = key.startswith("au") or (name and key != "accuracy")
    if sample.read < MANY_PATIENTS or (ranked and not sample.ranked(names)):
        return None
    return percentile_interval(drawn, level)
