"""Means at native size against the benchmark's rules, pair by pair."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from xbench_fast.metrics_gpu.grounding.native import SEARCHED, TUNED, iou, segment
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping
from xbench_fast.runtime.reporting.native_tables import NativeRows, native_scores

NAMES = ("Edema", "Fracture", "Atelectasis", "Lung Lesion")


def pairs() -> list[tuple[int, Any, Any]]:
    """(class, map, region) of 14 pairs of three classes, some maps constant; nothing of the last class."""
    rng, found = np.random.default_rng(8), []
    for index in range(14):
        values = rng.random((20, 30), np.float32) ** 2
        region = np.zeros((20, 30), bool)
        region[rng.integers(0, 10) :, rng.integers(0, 20) :] = True
        found.append((index % 3, np.zeros_like(values) if index in (4, 6) else values, region))
    return found


def rows() -> NativeRows:
    table, columns = Sweeping(comparison=">").thresholds, []
    for index, values, region in pairs():
        low, high = values.min(), values.max()
        scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
        marked = [scaled >= t for t in table]
        cut = segment(values)
        columns.append(
            (index, 600, region.sum(), bool(region.flat[values.argmax()]) and high > low, [m.sum() for m in marked],
             [(m & region).sum() for m in marked], cut.sum(), (cut & region).sum())
        )  # fmt: skip
    c, pixels, area, hit, *counts = (np.array(column) for column in zip(*columns, strict=True))
    return NativeRows(NAMES, c, pixels, area, hit, *counts)


def mean(values: list[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None


@pytest.mark.parametrize("only", [True, False])
def test_means_follow_the_rule_on_empty_maps(only: bool) -> None:
    *classes, whole = native_scores(rows(), true_positives_only=only)
    assert [item.name for item in classes] == list(NAMES[:3]) and whole.name == "Mean"
    for index, scores in enumerate(classes):
        mine = [(values, region) for c, values, region in pairs() if c == index]
        assert scores.n == len(mine)
        otsu = [iou(segment(values), region, true_positives_only=only) for values, region in mine]
        assert scores.otsu == pytest.approx(mean(otsu)) and scores.counted == sum(not math.isnan(v) for v in otsu)
        at = {
            tau: mean([iou(segment(values, tau), region, true_positives_only=only) for values, region in mine])
            for tau in SEARCHED
        }
        best = max(at, key=lambda tau: at[tau] or 0.0)
        assert (scores.best, scores.best_tau) == (pytest.approx(at[best]), best)
        tuned = TUNED.get(scores.name)
        assert scores.tuned_tau == tuned
        assert scores.tuned == (None if tuned is None else pytest.approx(at[tuned]))
        assert scores.floor == pytest.approx(np.mean([region.mean() for _, region in mine]))
    assert whole.otsu == pytest.approx(np.mean([item.otsu for item in classes]))
    assert whole.tuned == pytest.approx(np.mean([item.tuned for item in classes if item.tuned is not None]))
    assert whole.n == 14 and whole.counted == (12 if only else 14)


def test_without_a_pair_there_is_nothing() -> None:
    none = np.zeros(0, np.int64)
    table = np.zeros((0, 101), np.int64)
    empty = NativeRows(NAMES, none, none, none, none.astype(bool), table, table, none, none)
    assert native_scores(empty) == []
