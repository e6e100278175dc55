"""The CheXlocalize protocol against the benchmark's own sample, and against naive arithmetic (docs/metrics.md §11)."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.metrics_gpu.grounding.native import TUNED, iou, native_map, otsu_level, segment
from xbench_fast.runtime.data.datasets.region_shapes import RunText

FIRST, SECOND = "patient64541_study1_view1_frontal", "patient64542_study1_view1_frontal"
# What the benchmark's own programme gives on its sample, without a table of thresholds.
OFFICIAL = {
    (FIRST, "Enlarged Cardiomediastinum"): 0.4623,
    (FIRST, "Cardiomegaly"): 0.3662,
    (FIRST, "Airspace Opacity"): 0.0,
    (SECOND, "Support Devices"): 0.0333,
}


@pytest.fixture(scope="module")
def sample(shared: Path) -> Path:
    folder = shared / "data" / "annotations" / "chexlocalize"
    if not (folder / "gradcam_maps_val").is_dir():
        pytest.skip("the CheXlocalize sample is not among the shared data")
    return folder


def drawn(entry: dict[str, Any]) -> Any:
    return RunText(tuple(entry["size"]), entry["counts"], "coco").mask(*entry["size"])


def maps(sample: Path, image: str) -> Any:
    return np.load(sample / "gradcam_maps_val" / f"{image}.npz")


@pytest.mark.parametrize("image", [FIRST, SECOND])
def test_the_official_numbers_and_masks_of_the_sample(sample: Path, image: str) -> None:
    truth = json.loads((sample / "gt_segmentations_val.json").read_text())[image]
    theirs = json.loads((sample / "gradcam_segmentations_val_sample.json").read_text())[image]
    stored = maps(sample, image)
    differing = 0
    for name, entry in truth.items():
        region = drawn(entry)
        native = native_map(stored[name.replace(" ", "_")], *region.shape)
        found = segment(native)
        differing += int((found != drawn(theirs[name])).sum())
        value = iou(found, region)
        assert round(value, 4) == OFFICIAL[image, name] if (image, name) in OFFICIAL else math.isnan(value)
    assert differing <= 2  # of 10 masks of 4 to 6 million pixels; the last bit of torch's interpolation decides


def test_tuned_thresholds_are_those_of_the_benchmark(sample: Path) -> None:
    with (sample / "tuning_results.csv").open() as stream:
        rows = {row["task"]: float(row["threshold"]) for row in csv.DictReader(stream)}
    assert rows == dict(TUNED)


def test_a_map_is_resized_like_a_naive_bilinear_one() -> None:
    small = np.random.default_rng(0).random((5, 7), dtype=np.float32)
    native = native_map(small, 23, 31)
    for row in range(23):
        for column in range(31):
            y, x = ((row + 0.5) * 5 / 23 - 0.5, (column + 0.5) * 7 / 31 - 0.5)
            y, x = min(max(y, 0), 4), min(max(x, 0), 6)
            top, left = int(y), int(x)
            bottom, right = min(top + 1, 4), min(left + 1, 6)
            a = small[top, left] * (1 - (x - left)) + small[top, right] * (x - left)
            b = small[bottom, left] * (1 - (x - left)) + small[bottom, right] * (x - left)
            assert native[row, column] == pytest.approx(a * (1 - (y - top)) + b * (y - top), abs=1e-6)


def test_the_threshold_is_strict() -> None:
    native = np.array([[0.0, 1.0, 2.0, 4.0, 5.0]], np.float32)
    assert segment(native, 0.4).tolist() == [[False, False, False, True, True]]
    assert segment(native, 0.0).tolist() == [[False, True, True, True, True]]
    assert not segment(np.full((3, 3), 2.0, np.float32), 0.5).any() and not segment(np.zeros((2, 2), np.float32)).any()


def test_otsu_is_the_best_of_all_splits() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        levels = np.clip(np.concatenate([rng.normal(60, 20, 300), rng.normal(170, 30, 200)]), 0, 255).astype(np.uint8)

        def spread(level: int, levels: Any = levels) -> float:
            low, high = levels[levels <= level], levels[levels > level]
            if not len(low) or not len(high):
                return 0.0
            return len(low) * len(high) * float(low.mean() - high.mean()) ** 2

        values = [spread(level) for level in range(256)]
        assert values[otsu_level(levels)] == pytest.approx(max(values), rel=1e-12)


def test_which_pairs_count() -> None:
    empty, left = np.zeros((2, 4), bool), np.array([[1, 1, 0, 0]] * 2, bool)
    middle = np.array([[0, 1, 1, 0]] * 2, bool)
    assert iou(left, middle) == pytest.approx(1 / 3)
    assert math.isnan(iou(left, empty)) and math.isnan(iou(left, empty, true_positives_only=False))
    assert math.isnan(iou(empty, left)) and iou(empty, left, true_positives_only=False) == 0.0


def test_misuse_is_refused() -> None:
    mask = np.zeros((2, 2), bool)
    with pytest.raises(ValueError, match="cannot be compared"):
        iou(mask, np.zeros((2, 3), bool))
    with pytest.raises(TypeError, match="float32"):
        native_map(np.zeros((2, 2)), 4, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        native_map(np.zeros(4, np.float32), 4, 4)
    with pytest.raises(ValueError, match="not finite"):
        native_map(np.full((2, 2), np.nan, np.float32), 4, 4)
