"""The parity report: what fails, what it says it would need, and what the trial batches cover."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.engines.errors import ParityError
from xbench_fast.export.parity.checks import TOLERANCE, ParityReport, Place, TensorCheck, compare
from xbench_fast.export.parity.probes import BATCHES, PROBE_TEXTS, arrangements, probe_images


def check(got: object, reference: object, **options: float) -> TensorCheck:
    arrays = (np.asarray(got, np.float32), np.asarray(reference, np.float32))
    return compare("logits", Place("model", 3, 1, 2), *arrays, **options)


def test_error_scale_and_needed_tolerance_are_those_of_the_arrays() -> None:
    result = check([1.0, -3.75], [1.5, -4.0])
    assert (result.error, result.scale, result.needed, result.allowed) == (0.5, 4.0, 0.125, TOLERANCE)
    assert not result
    assert check([1.0, -3.75], [1.5, -4.0], tolerance=0.125)


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20), st.floats(0, 1e-2), st.floats(1e-6, 1e-2))
def test_a_check_passes_exactly_from_the_tolerance_it_needs(values: list[float], shift: float, allowed: float) -> None:
    reference = np.asarray(values, np.float32)
    result = check(reference + np.float32(shift), reference, tolerance=allowed)
    assert bool(result) == (result.error <= allowed * result.scale or result.error == 0)
    if np.isfinite(result.needed):
        assert check(reference + np.float32(shift), reference, tolerance=result.needed)


@pytest.mark.parametrize(
    ("got", "reference"),
    [
        ([np.nan, 0.0], [0.0, 1.0]),
        ([np.nan], [np.nan]),
        ([np.inf], [np.inf]),
        ([0.0], [0.0, 0.0]),
        ([[0.0]], [0.0]),
        ([], []),
        ([1e-9], [0.0]),
    ],
)
def test_what_cannot_be_compared_fails(got: list[float], reference: list[float]) -> None:
    result = check(got, reference)
    assert not result and result.needed == float("inf")


def test_another_dtype_fails() -> None:
    place = Place("model", 1, None, 1)
    assert not compare("logits", place, np.zeros(2), np.zeros(2, np.float32))  # type: ignore[arg-type]
    assert compare("logits", place, np.zeros(2, np.float32), np.zeros(2, np.float32))


def test_a_score_near_zero_is_measured_against_the_full_scale() -> None:
    assert not check([2e-6], [1e-6])
    assert check([2e-6], [1e-6], full_scale=3.0)


def test_a_report_is_false_when_empty_or_when_one_check_fails() -> None:
    report = ParityReport({"engine": "none"})
    assert not report
    with pytest.raises(ParityError, match="not compared"):
        report.require()
    report.checks.extend([check([1.0], [1.0])] * 3)
    assert report
    report.require()
    report.checks.extend([check([1.0, 2.1], [1.0, 2.0])])
    assert not report and report.needed == pytest.approx(0.05)
    with pytest.raises(ParityError, match=r"1 of 4 checks failed.*logits.*slot 1.*needs a tolerance of 0\.05"):
        report.require()


def test_the_worst_check_needs_the_largest_tolerance() -> None:
    assert ParityReport({}).worst() is None
    good, bad = check([1.0, 2.0], [1.0, 2.0]), check([1.0, 2.1], [1.0, 2.0])
    assert ParityReport({}, [good, bad, good]).worst() is bad


def test_json_keeps_the_worst_slot_of_each_kind_and_no_infinity() -> None:
    report = ParityReport({"engine": "e"})
    report.checks.extend([check([1.0], [1.0]), check([2.0], [1.0]), check([np.nan], [1.0])])
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["passed"] is False and data["compared"] == 3 and data["engine"] == "e" and data["needed"] == "inf"
    (only,) = data["worst_per_kind"]
    assert only["needed"] == "inf" and only["passed"] is False and only["slot"] == 1 and only["batch"] == 3


@pytest.mark.parametrize("batch", [*BATCHES, 5, 32])
def test_the_probe_stands_in_every_slot_between_other_pictures(batch: int) -> None:
    pictures = 10
    orders = list(arrangements(batch, pictures))
    assert all(len(order) == batch and all(0 <= number < pictures for number in order) for order in orders)
    assert {slot for order in orders for slot, number in enumerate(order) if number == 0} == set(range(batch))
    for order in orders:
        for left, right in itertools.pairwise(order):
            assert left != right, "a slot that copies its neighbour must be seen"
    if batch > 2:
        neighbours = [[order[slot + 1] for slot in range(batch - 1) if order[slot] == 0] for order in orders]
        assert len({number for row in neighbours for number in row}) > 1
        assert neighbours[0] != neighbours[1]


def test_batches_include_one_and_an_odd_large_one() -> None:
    assert {1, 2, 3, 8}.issubset(BATCHES) and max(BATCHES) > 8 and max(BATCHES) % 2 == 1


def test_probe_pictures_differ_and_use_the_grey_range() -> None:
    images = probe_images(64)
    assert images.dtype == np.uint8 and images.shape == (10, 1, 64, 64)
    assert len({image.tobytes() for image in images}) == 10
    assert all(image.std() > 15 for image in images)
    steps = np.abs(np.diff(images[:, 0].astype(int), axis=2)).mean(axis=(1, 2))
    assert steps.min() < 10 < 60 < steps.max(), "smooth pictures as well as noise"
    assert np.array_equal(images, probe_images(64))


def test_probe_texts_are_many_and_of_different_length() -> None:
    assert len(PROBE_TEXTS) == len(set(PROBE_TEXTS)) == 22
    assert len({len(text.split()) for text in PROBE_TEXTS}) > 3
