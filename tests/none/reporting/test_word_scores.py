"""The correlation of size words and areas, against SciPy (docs/words.md §6)."""

from __future__ import annotations

import numpy as np
import pytest
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.runtime.reporting.word_scores import _share, _sizes


def test_sizes_are_compared_by_spearmans_correlation() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    ranks = rng.integers(0, 5, 60)
    areas = (100 * ranks + rng.integers(0, 300, 60)).astype(np.float64)
    patients = rng.integers(0, 30, 60).astype(np.intp)
    draws = draw_patients(30, 50, 1)
    sized = ranks > 0
    found = _sizes(ranks, areas, patients, draws)
    assert found.n == sized.sum() >= 20
    assert found.value == pytest.approx(stats.spearmanr(ranks[sized], areas[sized]).statistic)
    drawn = [np.repeat(np.flatnonzero(sized), weights[patients[sized]]) for weights in draws.counts]
    values = [stats.spearmanr(ranks[rows], areas[rows]).statistic for rows in drawn]
    low, high = np.percentile(values, [2.5, 97.5])
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02))
    few = np.where(np.cumsum(sized) <= 19, ranks, 0)
    assert _sizes(few, areas, patients, draws).value is None and _sizes(few, areas, patients, draws).n == 19


def test_presence_is_a_share_of_pairs_with_an_interval_over_patients() -> None:
    rng = np.random.default_rng(5)
    said, patients = rng.random(90) < 0.4, rng.integers(0, 30, 90).astype(np.intp)
    draws = draw_patients(30, 200, 1)
    found = _share(said, patients, draws)
    drawn = [np.average(said, weights=weights[patients]) for weights in draws.counts]
    assert found.value == pytest.approx(said.mean()) and found.interval is not None
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert (found.interval.low, found.interval.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02))
    assert _share(said[:0], patients[:0], draws).value is None and _share(said, patients, None).interval is None
