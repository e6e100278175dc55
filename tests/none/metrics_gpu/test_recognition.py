"""Recognition metrics against the textbook definitions, pair by pair and threshold by threshold."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.metrics_gpu.recognition import scores, small_walk, walk
from xbench_fast.metrics_gpu.recognition.scores import probability, recognition


def naive_auc(score, truth):
    credit, pairs = 0.0, 0
    for s, t in zip(score, truth, strict=True):
        for s0, t0 in zip(score, truth, strict=True):
            if t == 1 and t0 == 0:
                credit += 1.0 if s > s0 else 0.5 if s == s0 else 0.0
                pairs += 1
    return credit / pairs if pairs else None


def naive_average_precision(score, truth):
    positives = sum(truth)
    if positives == 0:
        return None
    total, previous = 0.0, 0.0
    for threshold in sorted(set(score), reverse=True):
        chosen = [t for s, t in zip(score, truth, strict=True) if s >= threshold]
        recall, precision = sum(chosen) / positives, sum(chosen) / len(chosen)
        total += (recall - previous) * precision
        previous = recall
    return total


def naive_f1(score, truth):
    hits = sum(1 for s, t in zip(score, truth, strict=True) if s >= 0 and t == 1)
    wrong = sum(1 for s, t in zip(score, truth, strict=True) if (s >= 0) != (t == 1))
    return 2 * hits / (2 * hits + wrong) if hits or wrong else 0.0


@settings(max_examples=60)
@given(st.data())
def test_against_the_definitions(data):
    images, names = data.draw(st.integers(1, 25)), ["a", "b", "c"]
    cell = st.tuples(st.integers(-6, 6), st.sampled_from([-1, 0, 1]))  # few values: many ties
    cells = data.draw(st.lists(cell, min_size=images * 3, max_size=images * 3))
    logits = np.array([s for s, _ in cells], np.float32).reshape(images, 3) / 2
    labels = np.array([t for _, t in cells]).reshape(images, 3)
    result = recognition(logits, labels, names)
    right = known = 0
    for c in range(3):
        rows = [(float(logits[i, c]), int(labels[i, c])) for i in range(images) if labels[i, c] >= 0]
        score, truth = [s for s, _ in rows], [t for _, t in rows]
        got = SimpleNamespace(**result.record(names[c]))
        assert (got.name, got.n, got.positives) == (names[c], len(rows), sum(truth))
        correct = sum((s >= 0) == (t == 1) for s, t in rows)
        right, known = right + correct, known + len(rows)
        if not rows:
            assert got.auc is got.auprc is got.f1 is got.accuracy is got.prevalence is None
            continue
        assert got.auc == (None if naive_auc(score, truth) is None else pytest.approx(naive_auc(score, truth)))
        expected = naive_average_precision(score, truth)
        assert got.auprc == (None if expected is None else pytest.approx(expected))
        assert got.f1 == pytest.approx(naive_f1(score, truth))
        assert got.accuracy == pytest.approx(correct / len(rows))
        assert got.prevalence == pytest.approx(sum(truth) / len(rows))
    assert result.value("accuracy", "micro") == (pytest.approx(right / known) if known else None)
    for field in ("auc", "auprc", "f1", "accuracy"):
        values = [result.value(field, name) for name in names]
        defined = [v for v in values if v is not None]
        assert result.value(field) == (pytest.approx(sum(defined) / len(defined)) if defined else None)
        assert result.excluded[field] == tuple(n for n, v in zip(names, values, strict=True) if v is None)


def test_one_label_value_has_no_auc_and_is_listed():
    logits = np.array([[1, 1, -1], [2, -1, -2], [-1, 3, -3]], float)
    labels = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0]])
    result = recognition(logits, labels, ["both", "mixed", "never"])
    assert result.value("auc", "never") is result.value("auprc", "never") is None
    assert result.value("auc") == pytest.approx((result.value("auc", "both") + result.value("auc", "mixed")) / 2)
    assert result.excluded == {"auc": ("never",), "auprc": ("never",), "f1": (), "accuracy": ()}
    assert (result.value("f1", "never"), result.value("accuracy", "never")) == (0.0, 1.0), (
        "nothing to find, nothing found"
    )
    everywhere = recognition(logits[:, :1], np.ones((3, 1), int), ["always"])
    assert everywhere.value("auc") is None and everywhere.value("auprc", "always") == 1.0


def test_ties_get_half_credit():
    result = recognition(np.zeros((4, 1)), np.array([[1], [0], [0], [1]]), ["x"])
    assert result.value("auc") == result.value("auprc") == 0.5


def test_saturated_probabilities_still_rank():
    logits = np.array([[40.0], [50.0], [60.0], [70.0]])
    assert (probability(logits) == 1).all()
    assert recognition(logits, np.array([[0], [0], [1], [1]]), ["x"]).value("auc") == 1.0


def test_half_is_positive():
    result = recognition(np.array([[0.0], [-1e-20]]), np.array([[1], [0]]), ["x"])
    assert result.value("f1") == result.value("accuracy", "micro") == 1.0


def test_probability_is_the_sigmoid_without_overflow():
    values = np.array([-1000.0, -40.0, -1.0, 0.0, 1.0, 40.0, 1000.0])
    got = probability(values)
    for x, p in zip(values[1:-1], got[1:-1], strict=True):
        assert p == pytest.approx(1 / (1 + math.exp(-x)), rel=1e-12)
    assert got[0] == 0 and got[-1] == 1 and got[3] == 0.5


def test_misuse():
    good = np.zeros((2, 1)), np.zeros((2, 1), int)
    with pytest.raises(ValueError, match=r"\[N, 2\]"):
        recognition(*good, ["a", "b"])
    with pytest.raises(ValueError, match="1, 0 or -1"):
        recognition(good[0], good[1] + 2, ["a"])
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"image 1, class 'a' is {bad}"):
            recognition(np.array([[0.0], [bad]]), good[1], ["a"])


def test_equals_scikit_learn_to_the_twelfth_digit():
    """AUC, AUPRC, F1 and accuracy of scores with and without ties, rare and common classes."""
    from sklearn import metrics

    rng = np.random.default_rng(0)
    for prevalence, decimals in [(0.5, 9), (0.02, 9), (0.9, 1), (0.1, 1), (0.3, 0)]:
        label = (rng.random(2000) < prevalence).astype(int)
        logit = (rng.standard_normal(2000) + 0.7 * label).round(decimals)
        found = SimpleNamespace(**recognition(logit[:, None], label[:, None], ["x"]).record("x"))
        said = logit >= 0
        precision, recall, cuts = metrics.precision_recall_curve(label, logit)
        with np.errstate(invalid="ignore"):
            f1 = np.nan_to_num(2 * precision * recall / (precision + recall))[:-1]
        for value, oracle in [
            (found.auc, metrics.roc_auc_score(label, logit)),
            (found.auprc, metrics.average_precision_score(label, logit)),
            (found.auprc_trapezoid, metrics.auc(recall, precision)),
            (found.f1, metrics.f1_score(label, said)),
            (found.accuracy, metrics.accuracy_score(label, said)),
            (found.f1_best, f1.max()),
            (found.f1_logit, cuts[f1 >= f1.max() - 1e-12].max()),
        ]:
            assert value == pytest.approx(oracle, abs=1e-12), (prevalence, decimals)


def random_class(rng):
    """The arguments of a walk: ties, patients with several images, replicates that draw few of them or none."""
    images, patients = rng.integers(1, 30), rng.integers(1, 9)
    score = -np.sort(-rng.integers(0, rng.choice([1, 3, 1000]), images))
    truth, patient = rng.random(images) < rng.choice([0, 0.1, 0.5, 1]), rng.integers(0, patients, images)
    weights = rng.multinomial(patients, rng.dirichlet(np.full(patients, 0.3)), 30).astype(np.uint16)
    last = np.append(score[1:] != score[:-1], True)
    return weights, patient, truth, last, patient[truth], int(rng.integers(0, images + 1))


def test_the_walk_of_a_few_images_equals_the_compiled_one_to_the_bit():
    rng = np.random.default_rng(11)
    empty = defined = 0
    for _ in range(300):
        given_class = random_class(rng)
        wanted = walk.walk(*given_class)
        assert np.array_equal(small_walk.small_walk(*given_class), wanted, equal_nan=True)
        empty, defined = empty + (wanted[:, 7] == 0).sum(), defined + (wanted[:, 0] < 1).sum()
    assert empty > 100 and defined > 1000


@pytest.mark.parametrize(("few", "loaded", "small"), [(12, False, True), (11, False, False), (12, True, False)])
def test_few_images_load_no_compiled_code(monkeypatch, few, loaded, small):
    called = []
    for module, name in ((walk, "walk"), (small_walk, "small_walk")):
        own = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, own=own, name=name: called.append(name) or own(*given))
    monkeypatch.setattr(scores, "FEW_STEPS", few)
    if not loaded:
        monkeypatch.delitem(sys.modules, "numba")
    recognition(np.arange(12.0).reshape(6, 2), np.eye(6, 2, dtype=int), ["a", "b"])
    assert set(called) == {"small_walk" if small else "walk"}
