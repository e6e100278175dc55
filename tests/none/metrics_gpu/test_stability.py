"""Perturbations, their inverse on a map, flips, correlation of changes: against SciPy, loops and tests/golden/trust."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.intervals import Interval
from xbench_fast.metrics_gpu.statistics.measured_numbers import Parts
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.metrics_gpu.trust.perturbations import (
    DEFAULT,
    INNER,
    POOLED,
    Perturbation,
    gamma_table,
    jpeg_coder,
    window_table,
)
from xbench_fast.metrics_gpu.trust.similarity import spearman, ssim
from xbench_fast.metrics_gpu.trust.stability import (
    STILL,
    change_correlation,
    distances,
    rank_changes,
)
from xbench_fast.metrics_gpu.trust.verdicts import Criterion, Judged, verdicts


@pytest.fixture(scope="module")
def told(root: Path) -> dict[str, Any]:
    return dict(json.loads((root / "tests/golden/trust/stability.json").read_text()))


@pytest.fixture(scope="module")
def image() -> Any:
    smooth = np.add.outer(np.arange(224.0), np.arange(224.0) * 0.5) * 0.7
    return (smooth + np.random.default_rng(3).integers(0, 9, (224, 224))).astype(np.uint8)


def test_tables_are_the_stated_ones(told: dict[str, Any]) -> None:
    for gamma, table in told["gamma_tables"].items():
        assert gamma_table(float(gamma)).tolist() == table
        assert Perturbation("gamma", gamma).of(np.arange(256, dtype=np.uint8)[None], "")[0].tolist() == table
    for window, table in told["window_tables"].items():
        centre, width = map(float, window.split("/"))
        assert window_table(centre, width).tolist() == table
        assert Perturbation("window", window).of(np.arange(256, dtype=np.uint8)[None], "")[0].tolist() == table
    assert {f"{p.transform} {p.level}" for p in DEFAULT if p.transform == "window"} == {
        f"window {w}" for w in told["window_tables"]
    }


def test_what_is_run_and_what_is_judged() -> None:
    assert [str(change) for change in POOLED] == ["shift 2", "gamma 0.8", "gamma 1.25", "jpeg 90", "noise 2"]
    assert "flip" in map(str, DEFAULT) and len(DEFAULT) == 10
    with pytest.raises(ValueError, match="unknown perturbation 'turn'"):
        Perturbation("turn", "2")


@pytest.mark.parametrize("pixels", [2, 8, 16])
def test_shifts_of_another_resolution(image: Any, pixels: int) -> None:
    large = np.kron(image, np.ones((2, 2), np.uint8))
    moved = Perturbation("shift", str(pixels)).of(image, "")
    assert np.array_equal(moved[pixels:, pixels:], image[:-pixels, :-pixels])
    assert (moved[:pixels, pixels:] == image[0, :-pixels]).all() and (moved[:pixels, :pixels] == image[0, 0]).all()
    assert np.array_equal(Perturbation("shift", str(pixels)).of(large, ""), np.kron(moved, np.ones((2, 2), np.uint8)))


def test_shifted_maps_are_compared_where_both_have_them(root: Path, told: dict[str, Any]) -> None:
    """The file's images move to the right alone; ours also down, so the inverse is tried along each axis."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(root / "tests/golden/trust/tiny.onnx"), providers=["CPUExecutionProvider"])
    held = np.load(root / "tests/golden/trust/randomisation.npz")
    first, before = held["films"][0], scaled_map(held["saliency"][0, 0])
    for entry in told["shift"]:
        pixels = entry["pixels_right"]
        moved = first[:, np.maximum(np.arange(224) - pixels, 0)]
        assert np.array_equal(Perturbation("shift", str(pixels)).of(first, "")[pixels:], moved[:-pixels])
        (maps,) = session.run(["saliency"], {"pixels": moved[None, None], "text": held["text"]})
        after = scaled_map(maps[0, 0])
        assert (before.argmax(), after.argmax()) == (entry["argmax_before"], entry["argmax_after"])
        change = Perturbation("shift", str(pixels))
        down = np.roll(after, pixels, axis=0)  # nothing of INNER leaves or enters
        one, two = change.compared(before[None]), change.undone(down[None])
        assert one.shape == two.shape == (1, 192, 192)
        assert spearman(one, two) == pytest.approx([entry["spearman_valid"]], abs=1e-6)
        assert ssim(one, two) == pytest.approx([entry["ssim_valid"]], abs=1e-5)


@pytest.mark.parametrize("change", [*DEFAULT, Perturbation("shift", "16")], ids=str)
def test_a_map_that_follows_the_image_is_unchanged_when_undone(change: Perturbation) -> None:
    """The image as its own map: geometry is undone exactly, and a pixel's place is that in the unchanged image."""
    rng = np.random.default_rng(5)
    plain = rng.permutation(224 * 224).reshape(224, 224).astype(np.float32)
    if change.transform == "shift":
        moved = np.maximum(np.arange(224) - change.shift, 0)
        followed = plain[np.ix_(moved, moved)]
    else:
        followed = plain[:, ::-1] if change.transform == "flip" else plain
    assert np.array_equal(change.undone(followed[None]), change.compared(plain[None]))
    for y, x in ((100, 50), (0, 0), (207, 207)):
        peak = (followed == plain[y, x]).astype(np.float32)
        peak[: change.shift, :] = peak[:, : change.shift] = 0  # copies of the edge
        assert change.maxima(peak[None]).tolist() == [[y, x]]
    if change.shift:
        assert change.maxima(np.zeros((1, 224, 224), np.float32)).tolist() == [[-change.shift, -change.shift]]
        assert change.compared(plain[None]).shape == (1, 192, 192) == plain[None][:, INNER[0], INNER[1]].shape


def test_noise_is_that_of_its_name(image: Any) -> None:
    change = Perturbation("noise", "2")
    found = change.of(image, "0 a")
    assert found.dtype == np.uint8 and np.array_equal(found, change.of(image, "0 a"))
    assert not np.array_equal(found, change.of(image, "0 b"))
    grey = np.full((224, 224), 128, np.uint8)
    for deviation in (2, 5):
        noise = Perturbation("noise", str(deviation)).of(grey, "0 a").astype(int) - 128
        assert abs(noise.mean()) < 0.05 and noise.std() == pytest.approx(deviation, rel=0.03)
        assert stats.kurtosis(noise.ravel()) == pytest.approx(0, abs=0.1)
    assert Perturbation("noise", "5").of(np.zeros_like(grey), "0 a").max() < 40, "no grey level goes round the end"


def test_jpeg_is_pillows(image: Any) -> None:
    for quality in (90, 20):
        file = BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        found = Perturbation("jpeg", str(quality)).of(image, "")
        assert np.array_equal(found, np.asarray(Image.open(BytesIO(file.getvalue())))) and found.dtype == np.uint8
    assert not np.array_equal(found, image)
    assert jpeg_coder().startswith("Pillow ") and "libjpeg" in jpeg_coder()


def test_distances_and_ranks() -> None:
    before = np.array([[0, 0], [10, 10]], np.intp)
    assert distances(before, np.array([[3, 4], [10, 10]], np.intp)).tolist() == [5.0, 0.0]
    classes = np.array([0, 0, 0, 1, 1, 2])
    found = rank_changes(np.array([0.1, 0.2, 0.3, 0.5, 0.6, 0.9]), np.array([0.4, 0.2, 0.3, 0.5, 0.5, 0.1]), classes)
    assert found[:5].tolist() == [1.0, 0.5, 0.5, 0.5, 0.5] and np.isnan(found[5])


def effect(value: float, patients: int, interval: tuple[float, float] | None, degenerate: int = 0) -> Judged:
    ends = None if interval is None else Interval(*interval, 0.95, "bootstrap", 1000)
    names = tuple(map(str, range(patients)))
    parts = Parts(names, np.full(patients, value / max(patients, 1)), 0)
    return Judged(value, ends, patients, patients, parts=parts, degenerate=degenerate)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (effect(0.02, 60, (0.005, 0.04)), "pass"),
        (effect(0.06, 60, (0.03, 0.1)), "cannot tell"),
        (effect(0.30, 60, (0.2, 0.4)), "fail"),
        (effect(0.14, 60, (0.1, 0.2)), "cannot tell"),
        (effect(0.02, 9, (0.005, 0.04)), "cannot tell"),
        (effect(0.02, 60, (0.005, 0.04), degenerate=4), "void"),
        (effect(0.02, 60, (0.005, 0.04), degenerate=3), "pass"),
        (effect(0.0, 60, (0.0, 0.0)), "pass"),
        (effect(0.0, 12, (0.0, 0.0)), "cannot tell"),  # Wilson: up to 0.24
        (effect(1.0, 12, (1.0, 1.0)), "fail"),
        (effect(0.0, 1, None), "cannot tell"),
    ],
)
def test_words_of_flips(found: Judged, word: str) -> None:
    (verdict,) = verdicts([found], [STILL])
    assert verdict.word == word and verdict.p is None and verdict.p_holm is None


def test_no_flip_of_few_patients_is_no_proof() -> None:
    still, none, other = effect(0.0, 12, (0.0, 0.0)), effect(0.0, 3, None), effect(0.3, 12, (0.2, 0.4))
    first, second, third = verdicts([still, none, other], [STILL, STILL, Criterion(0.01)])
    assert first.low == 0 and first.high == pytest.approx(0.2425, abs=1e-3) and first.criterion == "below 0.1"
    assert (second.low, second.high) == (None, None)
    assert (first.family, third.family, third.word) == (1, 1, "pass"), "a share is no test of the family"
    assert third.criterion == "above 0 by more than 0.01"


def test_correlation_of_changes(told: dict[str, Any]) -> None:
    x, y = (np.array(told["psc"][key]) for key in ("prediction_change", "saliency_change"))
    found = change_correlation(x, y, np.arange(40), draw_patients(40))
    assert found.n == 40 and found.reason is None and found.interval is not None
    assert found.pearson == pytest.approx(told["psc"]["pearson"], abs=1e-9)
    assert found.spearman == pytest.approx(told["psc"]["spearman"], abs=1e-9)
    low, high = told["psc"]["fisher_95"]
    assert found.interval.low == pytest.approx(low, abs=0.1) and found.interval.high == pytest.approx(high, abs=0.1)


def test_a_draw_is_the_correlation_of_the_drawn_points() -> None:
    """Each patient with several changes: the interval is that of a loop over draws."""
    rng = np.random.default_rng(1)
    patient_of = rng.integers(0, 12, 60).astype(np.intp)
    x = rng.random(60)
    y = x + rng.random(60)
    draws = draw_patients(12, 50)
    replicates = []
    for row in draws.counts:
        repeated = np.repeat(np.arange(60), row[patient_of])
        replicates.append(stats.pearsonr(x[repeated], y[repeated])[0])
    found = change_correlation(x, y, patient_of, draws)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(np.percentile(replicates, [2.5, 97.5])))


def test_correlations_that_cannot_be_told() -> None:
    rng = np.random.default_rng(2)
    x, y, patients = rng.random(40), rng.random(40), np.arange(40)
    draws = draw_patients(40)
    few = change_correlation(x[:29], y[:29], patients[:29], draws)
    assert few.pearson is None and few.reason == "29 changes, fewer than 30" and few.n == 29
    x[30:] = np.nan
    assert change_correlation(x, y, patients, draws).n == 30, "undefined similarities are left out"
    still = change_correlation(np.full(40, 0.0004), y, patients, draws)
    assert still.reason == "the scores change by the same 0.0004: stable, not informative"
    same = change_correlation(rng.random(40), np.zeros(40), patients, draws)
    assert same.pearson is None and "the maps all change by the same 0.0000" in str(same.reason)
    one = change_correlation(rng.random(40), y, np.zeros(40, np.intp), draw_patients(1))
    assert one.pearson is not None and one.interval is None, "one patient has no interval"
