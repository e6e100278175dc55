"""Intervals of CNR and mIoU against a loop over replicates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from xbench_fast.metrics_gpu.grounding.phrases import PhraseScores
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.runtime.reporting.phrase_tables import _intervals
from xbench_fast.runtime.results.pairs import Patients


def test_intervals_are_those_of_a_loop_over_the_drawn_patients() -> None:
    rng = np.random.default_rng(6)
    number, groups = 90, 30
    class_of, of_pair = rng.integers(0, 2, number), rng.integers(0, groups, number)
    class_of[:2], of_pair[:2] = 2, (0, 1)  # a finding of two patients has no interval of its own
    scores = []
    for place in range(number):
        if place % 9 == 8:
            scores.append(PhraseScores(math.nan, (math.nan,) * 5, unseen=True))
        else:
            # A region that fills what the model saw has an IoU and no CNR.
            cnr = math.nan if place % 10 == 7 else float(rng.normal())
            scores.append(PhraseScores(cnr, tuple(rng.random(5).tolist())))
    draws = draw_patients(groups, 200, 3)
    patients = Patients("d", {str(place): place for place in range(groups)}, draws, np.zeros((1, groups), np.intp))
    found = _intervals(scores, class_of.astype(np.intp), of_pair.astype(np.intp), patients)
    values = {
        "cnr": [score.cnr for score in scores],
        "cnr_absolute": [abs(score.cnr) for score in scores],
        "iou@0.3": [score.iou[2] for score in scores],
        "miou": [score.miou for score in scores],
        "miou_with_unseen": [0.0 if score.unseen else score.miou for score in scores],
    }
    for name, each in values.items():
        drawn: list[list[float]] = [[], [], []]
        for counts in draws.counts.tolist():
            means = []
            for finding in range(3):
                own = [(counts[of_pair[p]], each[p]) for p in range(number) if class_of[p] == finding]
                own = [(count, value) for count, value in own if count and not math.isnan(value)]
                if own:
                    means.append(sum(count * value for count, value in own) / sum(count for count, _ in own))
                    if finding < 2:
                        drawn[finding].append(means[-1])
            drawn[2].append(sum(means) / len(means))
        for place, column in ((0, drawn[0]), (1, drawn[1]), (3, drawn[2])):
            at = found[place][name]
            assert at is not None
            assert (at.low, at.high) == pytest.approx(np.percentile(column, [2.5, 97.5]), abs=1e-9)
        assert found[2][name] is None
    none = _intervals(
        scores, class_of.astype(np.intp), of_pair.astype(np.intp), Patients("d", {}, None, np.zeros((1, 0), np.intp))
    )
    assert not any(none)
