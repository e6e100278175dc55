"""Bootstrap replicates equal the metrics of really resampled data, and their intervals cover."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from exact_units import in_units, units
from sklearn.metrics import auc, precision_recall_curve
from test_grounding import random_counts
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import FIELDS, grounding, groundings
from xbench_fast.metrics_gpu.recognition.scores import FIELDS as RECOGNITION_FIELDS
from xbench_fast.metrics_gpu.recognition.scores import recognition
from xbench_fast.metrics_gpu.statistics.bootstrap import Draws, draw_patients, patient_index
from xbench_fast.metrics_gpu.statistics.intervals import percentile_interval, percentile_intervals

NAMES = ["a", "b", "empty", "c"]


def drawn_items(draws, b, patient_of):
    """Index of each item as often as its patient was drawn in replicate b."""
    return np.concatenate([np.repeat(i, draws.counts[b, p]) for i, p in enumerate(patient_of)]).astype(int)


def same(value, expected):
    return np.isnan(value) if expected is None else value == pytest.approx(expected, abs=1e-12)


def world(seed=0, pairs=40, patients=15):
    rng = np.random.default_rng(seed)
    counts = random_counts(rng, pairs)
    class_of = rng.choice([0, 1, 3], pairs, p=[0.6, 0.35, 0.05])
    patient_of = rng.integers(0, patients, pairs)
    return counts, class_of, patient_of, draw_patients(patients, 12, seed=3)


def drawn(scores, field, name):
    """float64 [B]: the replicates of a number, also where its estimate is undefined."""
    return scores.rows[field][(*NAMES, "macro", "micro").index(name), 1:]


@pytest.mark.parametrize("iou_at", ["joint", "independent"])
@pytest.mark.parametrize("unit", ["per_class", "per_dataset", "per_image", "cross_fit", "per_model"])
def test_grounding_replicates_equal_resampled_pairs(unit, iou_at):
    counts, class_of, patient_of, draws = world()
    options = GroundingOptions(
        unit=unit, iou_at=iou_at, ties="expected", mean="micro" if iou_at == "joint" else "macro"
    )
    fold_of = patient_of[None] if unit == "cross_fit" else None
    levels = (20, 30) if unit == "per_model" else None
    asked = Pairs(counts, class_of, NAMES, fold_of=fold_of, draws=draws, patient_of=patient_of)
    result = grounding(asked, options, levels=levels)
    undefined = 0
    for b in range(draws.replicates):
        items = drawn_items(draws, b, patient_of)
        folds = None if fold_of is None else fold_of[:, items]
        expected = grounding(Pairs(counts.take(items), class_of[items], NAMES, fold_of=folds), options, levels=levels)
        for name in (*NAMES, "macro", "micro"):
            for field in FIELDS:
                assert same(drawn(result, field, name)[b], expected.value(field, name)), (b, name, field)
            undefined += name in NAMES and expected.count("n", name) == 0
    assert undefined > draws.replicates  # the empty class, and at times the rare one


@pytest.mark.parametrize("unit", ["per_class", "per_dataset", "cross_fit"])
def test_fixed_thresholds_are_those_of_the_estimate(unit):
    counts, class_of, patient_of, draws = world(1)
    options = GroundingOptions(unit=unit)
    fold_of = patient_of[None] if unit == "cross_fit" else None
    asked = Pairs(counts, class_of, NAMES, fold_of=fold_of, draws=draws, patient_of=patient_of)
    fixed, rechosen = (grounding(asked, options, tau=tau) for tau in ("fixed", "rechosen"))
    assert np.array_equal(drawn(fixed, "dice_fixed", "a"), drawn(rechosen, "dice_fixed", "a"))
    estimate = grounding(Pairs(counts, class_of, NAMES, fold_of=fold_of), options)
    if unit == "cross_fit":
        return
    assert (drawn(fixed, "dice_best", "a") <= drawn(rechosen, "dice_best", "a") + 1e-12).all() or unit == "per_dataset"
    dice = in_units(2 * counts.overlap / (counts.area + counts.region[:, None]))
    k = round(100 * estimate.value("best_tau", "a"))
    for b in range(draws.replicates):
        items = drawn_items(draws, b, patient_of)
        items = items[class_of[items] == 0]
        assert drawn(fixed, "dice_best", "a")[b] == pytest.approx(dice[items, k].mean(), abs=1e-12)


def test_recognition_replicates_equal_resampled_images():
    rng = np.random.default_rng(5)
    logits = rng.integers(-4, 5, (50, 4)).astype(np.float32)  # many ties
    labels = rng.choice([-1, 0, 1], (50, 4), p=[0.1, 0.6, 0.3])
    labels[:, 2] = -1
    labels[1:, 3] = 0
    labels[0, 3] = 1
    patient_of = rng.integers(0, 20, 50)
    draws = draw_patients(20, 15, seed=1)
    result = recognition(logits, labels, NAMES, draws, patient_of)
    for b in range(15):
        items = drawn_items(draws, b, patient_of)
        expected = recognition(logits[items], labels[items], NAMES)
        for field in RECOGNITION_FIELDS:
            for name in (*NAMES, "macro"):
                assert same(drawn(result, field, name)[b], expected.value(field, name)), (b, name, field)
        assert same(drawn(result, "accuracy", "micro")[b], expected.value("accuracy", "micro"))
    assert np.isnan(drawn(result, "auc", "c")).any() and not np.isnan(drawn(result, "auc", "c")).all()
    assert percentile_interval(drawn(result, "auc", "empty")) is None


def test_trapezoid_and_best_f1_by_brute_force():
    rng = np.random.default_rng(2)
    for _ in range(20):
        score = rng.integers(-3, 4, 30) / 2
        label = rng.integers(0, 2, 30)
        found = SimpleNamespace(**recognition(score[:, None], label[:, None], ["x"]).record("x"))
        f1 = {t: 2 * (label[score >= t]).sum() / ((score >= t).sum() + label.sum()) for t in sorted(set(score))}
        best = max(f1.values())
        assert found.f1_best == pytest.approx(best, abs=1e-12)
        assert found.f1_logit == max(t for t, value in f1.items() if value == best)
        precision, recall, _ = precision_recall_curve(label, score)
        assert found.auprc_trapezoid == pytest.approx(auc(recall, precision), abs=1e-12)


def test_the_highest_of_equally_good_thresholds_is_named():
    found = recognition(np.array([[3.0], [2], [1], [0]]), np.array([[1], [0], [0], [1]]), ["x"])
    assert found.value("f1_best", "x") == pytest.approx(2 / 3) and found.value("f1_logit", "x") == 3


def test_draws_are_repeatable_and_complete():
    draws = draw_patients(30, 200)
    assert draws.counts.shape == (200, 30) and (draws.counts.sum(axis=1) == 30).all()
    assert np.array_equal(draws.counts, draw_patients(30, 200).counts)
    assert not np.array_equal(draws.counts, draw_patients(30, 200, seed=1).counts)
    assert draws.counts.mean() == 1 and abs(draws.counts.astype(float).var() - 29 / 30) < 0.05


def test_sums_with_unsorted_and_missing_patients():
    draws = draw_patients(6, 257)  # two blocks of 128 and one row
    rng = np.random.default_rng(0)
    for patient_of in (np.array([4, 1, 4, 0]), np.array([5, 2, 0, 3])):
        values = rng.random((4, 3))
        told = [[units(v) for v in row] for row in values.tolist()]
        expected = [
            [sum(row[p] * v[k] for p, v in zip(patient_of.tolist(), told, strict=True)) / 2**32 for k in range(3)]
            for row in draws.counts.tolist()
        ]
        found = draws.sums(patient_of, values)
        assert found[1:].tolist() == expected, "exact, as sums of integers are"
        assert found[0].tolist() == [sum(column) / 2**32 for column in zip(*told, strict=True)]
    assert draws.sums(np.zeros(0, int), np.zeros((0, 2))).tolist() == [[0.0, 0.0]] * 258
    assert (draws.weights[0] == 1).all() and np.array_equal(draws.weights[1:], draws.counts)


def test_patient_numbers():
    index, count = patient_index(["p2", "p1", "p2", "p9"])
    assert index.tolist() == [0, 1, 0, 2] and count == 3


def test_intervals_cover_the_truth():
    """500 simulated data sets of 60 patients with 1 to 3 correlated pairs: the 95 % interval of a mean covers in 91 to
    98 % of them (three standard errors of the simulation are 2.9 points; few patients cost the bootstrap about one)."""
    rng = np.random.default_rng(7)
    draws, covered = draw_patients(60, 400), 0
    for _ in range(500):
        patient_of = np.repeat(np.arange(60), rng.integers(1, 4, 60))
        share = rng.beta(2, 2, 60)[patient_of]
        hits = (rng.random(len(share)) < share).astype(float)
        sums = draws.sums(patient_of, np.column_stack([np.ones(len(hits)), hits]))
        interval = percentile_interval(sums[1:, 1] / sums[1:, 0])
        covered += interval.low <= 0.5 <= interval.high
    assert 0.91 <= covered / 500 <= 0.98


def test_misuse():
    draws = draw_patients(3, 5)
    counts, class_of, patient_of, _ = world()
    with pytest.raises(ValueError, match=r"0\.\.2"):
        grounding(Pairs(counts, class_of, NAMES, draws=draws, patient_of=patient_of))
    with pytest.raises(ValueError, match="tau is one of"):
        grounding(Pairs(counts, class_of, NAMES, draws=draws, patient_of=patient_of % 3), tau="best")
    with pytest.raises(ValueError, match="hits must"):
        grounding(Pairs(counts, class_of, NAMES, hits=np.ones(2), draws=draws, patient_of=patient_of % 3))
    with pytest.raises(ValueError, match="need patient_of"):
        grounding(Pairs(counts, class_of, NAMES, draws=draws))
    with pytest.raises(ValueError, match="patient_of must have shape"):
        draws.sums(np.zeros(2, int), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="patients and replicates"):
        draw_patients(0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile_interval(np.zeros(3), 95)
    assert percentile_interval(np.full(4, np.nan)) is None
    assert percentile_interval(np.array([np.nan, *[1.0] * 40])).used == 40
    assert isinstance(draws, Draws)


@pytest.mark.parametrize("tau", ["rechosen", "fixed"])
def test_searches_that_share_their_sums_are_the_single_ones(tau):
    counts, class_of, patient_of, draws = world()
    fold_of = patient_of[None]
    options = GroundingOptions(iou_at="independent", tau_from=0.01)
    searches = [
        (replace(options, unit=unit), (20, 30) if unit == "per_model" else None)
        for unit in ("per_class", "cross_fit", "per_dataset", "per_model", "per_image")
    ]
    asked = Pairs(counts, class_of, NAMES, fold_of=fold_of, pixels=400, draws=draws, patient_of=patient_of)
    together = groundings(asked, searches, tau)
    for (how, levels), found in zip(searches, together, strict=True):
        alone = grounding(asked, how, tau=tau, levels=levels)
        undrawn = grounding(replace(asked, draws=None, patient_of=None), how, levels=levels)
        for name in (*NAMES, "macro", "micro"):
            assert found.record(name) == alone.record(name) == undrawn.record(name), "the estimates, to the last bit"
            assert undrawn.number("pointing", name).drawn is None
            for field in FIELDS:
                one, other = drawn(found, field, name), drawn(alone, field, name)
                assert len(one) == draws.replicates and one == pytest.approx(other, abs=1e-12, nan_ok=True)
    with pytest.raises(ValueError, match="unit only"):
        groundings(asked, [(options, None), (replace(options, tau_from=0.0), None)])


def test_intervals_of_columns_are_those_of_each():
    values = np.random.default_rng(2).random((50, 4))
    values[3, 1] = np.nan
    values[:, 2] = np.nan
    assert percentile_intervals(values, 0.9) == [percentile_interval(values[:, k], 0.9) for k in range(4)]
    assert percentile_intervals(np.zeros((5, 0))) == []


@pytest.mark.parametrize("unit", ["per_class", "cross_fit"])
def test_masks_have_the_numbers_of_their_counts_at_every_threshold(unit):
    """Nothing is searched for masks, whose counts are equal at all thresholds above 0."""
    counts, class_of, patient_of, draws = world()
    area, overlap = (np.repeat(values[:, 50:51], 101, axis=1) for values in (counts.area, counts.overlap))
    area[:, 0], overlap[:, 0] = 400, counts.region
    same = replace(counts, area=area, overlap=overlap)
    asked = Pairs(same, class_of, NAMES, fold_of=patient_of[None], draws=draws, patient_of=patient_of)
    options = GroundingOptions(unit=unit)
    searched, found = grounding(asked, options), grounding(replace(asked, masks=True), options)
    for field in ("pointing", "dice_fixed", "iou_fixed", "floor_dice", "floor_iou", "chance"):
        np.testing.assert_array_equal(found.each[field], searched.each[field])
        for name in (*NAMES, "macro", "micro"):
            np.testing.assert_array_equal(drawn(found, field, name), drawn(searched, field, name))
    assert found.value("dice_best") == found.value("dice_fixed") != 0, "there is no other threshold"
    np.testing.assert_array_equal(drawn(found, "iou_best", "macro"), drawn(found, "iou_fixed", "macro"))


def test_draws_are_counted_in_one_byte_or_two(monkeypatch):
    assert draw_patients(300, 3).counts.dtype == np.uint8

    class Unlikely:
        """Draws one patient each time in the second replicate."""

        def __init__(self, bits):
            self.rounds = 0

        def integers(self, low, high, size):
            self.rounds += 1
            return np.zeros(size, np.int64) if self.rounds == 2 else np.arange(size)

    monkeypatch.setattr(np.random, "Generator", Unlikely)
    drawn = draw_patients(300, 3)
    assert drawn.counts[:, 0].tolist() == [1, 300, 1] and drawn.counts[:, 1].tolist() == [1, 0, 1]
    assert drawn.weights.dtype == np.uint16 and drawn.weights[:, 0].tolist() == [1, 1, 300, 1]
    assert drawn.sums(np.array([0, 5]), np.array([[2.0], [3.0]]))[:, 0].tolist() == [5, 5, 600, 5]
