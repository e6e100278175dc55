"""The acceptance tests of docs/metrics.md §13, on the real annotation lists where it names one."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.recognition.scores import recognition
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import THRESHOLDS, Sweeping
from xbench_fast.runtime.reporting.tables.metric_names import percent

NATIVE, GRID = 1024, 224
FLOOR = np.array([i * NATIVE // GRID for i in range(GRID)])  # floor-nearest, docs/datasets.md §0.3


def one_class(counts: Counts, **options):
    scores = grounding(Pairs(counts, np.zeros(len(counts), int), ["only"]), GroundingOptions(**options))
    return SimpleNamespace(**scores.record("only"))


def all_ones(masks):
    """Counts of maps that are constant: the full mask at tau = 0."""
    return sweep(np.ones((len(masks), 1, 1), np.float32), masks)


def to_grid(native):
    return native[np.ix_(FLOOR, FLOOR)]


def rsna_masks(shared: Path):
    masks = []
    with (shared / "data/annotations/rsna/full/medklip_test.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["classes"] != "1":
            continue
        mask = np.zeros((GRID, GRID), bool)
        for box in row["boxes"].split("|"):
            x, y, w, h = (int(float(value)) for value in box.split(";"))
            mask |= np.outer((y <= FLOOR) & (y + h > FLOOR), (x <= FLOOR) & (x + w > FLOOR))
        masks.append(mask)
    assert len(rows) == 5337
    return np.stack(masks)


def siim_rows(path: Path):
    with path.open(newline="") as file:
        reader = csv.reader(file)
        next(reader)
        return [(name, cells.strip()) for name, cells in reader]


def siim_union(encodings):
    """Union of relative run lengths (gap, length), column-major."""
    flat = np.zeros(NATIVE * NATIVE, bool)
    for encoding in encodings:
        numbers = [int(value) for value in encoding.split()]
        position = 0
        for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
            flat[position + gap : position + gap + length] = True
            position += gap + length
    return flat.reshape(NATIVE, NATIVE).T


def test_all_ones_on_the_rsna_test_list(shared):
    counts = all_ones(rsna_masks(shared))
    assert len(counts) == 1218 and counts.degenerate.all()
    scores = one_class(counts)
    assert percent(scores.floor_dice, 3) == "20.199" and percent(scores.floor_iou, 3) == "11.972"
    assert (scores.dice_best, scores.iou_best, scores.best_tau) == (scores.floor_dice, scores.floor_iou, 0.0)
    assert scores.chance == scores.floor_iou and scores.pointing == 0.0 and scores.dice_fixed == 0.0
    assert scores.degenerate == scores.n == 1218
    assert one_class(counts, tau_from=0.01).dice_best == 0.0


def test_all_ones_on_the_siim_test_list(shared):
    folder = shared / "data/annotations/siim/full"
    test = siim_rows(folder / "mavl_test.csv")
    encodings: dict[str, list[str]] = {}
    for part in ("mavl_train.csv", "mavl_val.csv", "mavl_test.csv"):
        for name, cells in siim_rows(folder / part):
            if cells != "-1":
                encodings.setdefault(name, []).append(cells)
    rows = [name for name, cells in test if cells != "-1"]
    native = {name: siim_union(encodings[name]) for name in dict.fromkeys(rows)}
    grid = {name: to_grid(mask) for name, mask in native.items()}
    assert (len(test), len(rows), len(native)) == (2317, 647, 594)

    scores = one_class(all_ones(np.stack([grid[name] for name in rows])))
    assert percent(scores.floor_dice, 3) == "3.163" and percent(scores.floor_iou, 3) == "1.638"
    parts = [all_ones(mask[None]) for mask in native.values()]
    images = one_class(Counts.concatenate(parts))
    assert percent(images.floor_dice, 3) == "2.990" and percent(images.floor_iou, 3) == "1.547"


@pytest.fixture
def regions():
    rng = np.random.default_rng(0)
    masks = np.zeros((6, GRID, GRID), bool)
    for mask in masks:
        y, x, h, w = rng.integers(1, 100, 4)
        mask[y : y + h, x : x + w] = True
    return masks


def test_map_equal_to_the_region(regions):
    counts = sweep(regions.astype(np.float32), regions)
    dice = 2 * counts.overlap / (counts.area + counts.region[:, None])
    assert (dice[:, 1:] == 1).all() and (dice[:, 0] < 1).all()
    scores = one_class(counts)
    assert (scores.best_tau, scores.dice_best, scores.iou_best, scores.pointing) == (0.01, 1.0, 1.0, 1.0)
    assert scores.dice_fixed == 1.0 and scores.delta_dice == 0.0


def test_map_equal_to_the_complement(regions):
    counts = sweep((~regions).astype(np.float32), regions)
    assert (counts.overlap[:, 0] == counts.region).all() and (counts.overlap[:, 1:] == 0).all()
    scores = one_class(counts)
    assert scores.pointing == 0.0 and scores.best_tau == 0.0
    assert scores.dice_best == scores.floor_dice and scores.dice_fixed == 0.0
    assert one_class(counts, ties="any").pointing == 0.0


def test_two_levels_become_zero_and_one(regions):
    counts = sweep(np.where(regions, np.float32(1.0), np.float32(0.3)), regions)
    assert (counts.area[:, 1:] == counts.region[:, None]).all() and (counts.area[:, 0] == GRID * GRID).all()


def test_the_29th_threshold_passes():
    assert THRESHOLDS[29] == np.float32(0.29)
    # 0.29 * 100 = 28.999999999999996 in float64: a floor would put the pixel one level too low
    assert int(0.29 * 100) == 28
    values = np.array([[[0.0, 0.29, np.nextafter(np.float32(0.29), np.float32(0)), 1.0]]], np.float32)
    counts = sweep(values, np.ones((1, 1, 4), bool), sweeping=Sweeping(upsample="nearest"))
    assert counts.area[0].tolist() == [4] + [3] * 28 + [2] + [1] * 71


def test_every_threshold_passes_itself_and_nothing_below():
    values = np.concatenate([THRESHOLDS, np.nextafter(THRESHOLDS[1:], np.float32(0))])[None, None]
    counts = sweep(values, np.ones((1, 1, 201), bool), sweeping=Sweeping(upsample="nearest"))
    assert counts.area[0].tolist() == [201] + [(101 - k) + (100 - k) for k in range(1, 101)]


def test_constant_maps_count_as_misses(regions):
    scores = one_class(sweep(np.full((6, 14, 14), 0.7, np.float32), regions))
    assert scores.degenerate == scores.n == 6
    assert scores.pointing == 0.0 and scores.dice_fixed == 0.0 and scores.best_tau == 0.0


@given(st.lists(st.tuples(st.integers(-20, 20), st.booleans()), min_size=2, max_size=40))
@settings(max_examples=60)
def test_monotone_rescaling_leaves_the_ranking_metrics(cases):
    score = np.array([[s] for s, _ in cases], np.float64)
    label = np.array([[int(t)] for _, t in cases])
    before, after = recognition(score, label, ["x"]), recognition(np.exp(score / 5) - 3, label, ["x"])
    assert [before.value(key) for key in ("auc", "auprc")] == [after.value(key) for key in ("auc", "auprc")]


def test_undefined_auc_is_excluded_and_listed():
    label = np.array([[1, 1], [0, 1], [1, 1]])
    result = recognition(np.array([[2.0, 1.0], [1.0, 2.0], [3.0, 3.0]]), label, ["two values", "one value"])
    assert result.value("auc") == result.value("auc", "two values") == 1.0 and result.excluded["auc"] == ("one value",)


def test_the_histogram_equals_brute_force(regions):
    """Bilinear 14 x 14 -> 224, where weights are multiples of 1/32: against the comparison `Mn >= tau_k` itself."""
    one = np.float32(1)
    source = np.clip((np.arange(GRID) + 0.5) / 16 - 0.5, 0, 13)
    lo = np.floor(source).astype(int)
    hi, w = np.minimum(lo + 1, 13), (source - lo).astype(np.float32)
    grids = np.random.default_rng(1).random((6, 14, 14), dtype=np.float32)
    counts = sweep(grids, regions)
    for p, (grid, region) in enumerate(zip(grids, regions, strict=True)):
        rows = grid[:, lo] * (one - w) + grid[:, hi] * w
        full = rows[lo] * (one - w)[:, None] + rows[hi] * w[:, None]
        normal = (full - full.min()) / (full.max() - full.min())
        assert normal.dtype == np.float32
        masks = [normal >= np.float32(k / 100) for k in range(101)]
        assert counts.area[p].tolist() == [int(mask.sum()) for mask in masks]
        assert counts.overlap[p].tolist() == [int((mask & region).sum()) for mask in masks]
        assert counts.argmax[p] == full.argmax() and counts.hit[p] == region.flat[full.argmax()]
        with np.errstate(all="raise"):
            wide = (full.astype(np.float64) - full.min()) / (float(full.max()) - float(full.min()))
        dice64 = [
            2 * int(((wide >= k / 100) & region).sum()) / int((wide >= k / 100).sum() + region.sum())
            for k in range(101)
        ]
        dice32 = 2 * counts.overlap[p] / (counts.area[p] + counts.region[p])
        assert np.abs(dice32 - dice64).max() <= 1e-4, "docs/metrics.md §2 bounds the effect of float32"
