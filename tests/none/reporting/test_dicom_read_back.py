"""Our DICOM objects, read by the reader `dicom`: what was written is what an evaluation counts (docs/dicom.md §3)."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_objects import DicomObjects
from xbench_fast.runtime.data.datasets.region_grid import region_grid
from xbench_fast.runtime.reporting.dicom.film_answer import FindingAnswer
from xbench_fast.runtime.reporting.dicom.film_header import FilmHeader
from xbench_fast.runtime.reporting.dicom.film_objects import ObjectOptions, film_objects
from xbench_fast.runtime.reporting.dicom.identity import ModelIdentity

pytest.importorskip("highdicom")

MODEL = ModelIdentity("invented 1", "b" * 64, "p" * 64, "fp32", "onnxruntime-cpu")
CLOCK = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
ROWS, COLUMNS = slice(50, 130), slice(150, 217)  # of a hot rectangle on the grid of 224 x 224


def film(root: Path, height: int, width: int) -> bytes:
    """The invented film with other pixels."""
    data = pydicom.dcmread(root / "tests/formats/dicom/film.dcm")
    data.Rows, data.Columns = height, width
    data.PixelData = (np.arange(height * width) % 4096).astype("<u2").tobytes()
    stream = io.BytesIO()
    data.save_as(stream)
    return stream.getvalue()


def answers() -> list[FindingAnswer]:
    """A rectangle, a ragged region without a box, and nothing."""
    soft = np.random.default_rng(4).random((224, 224), np.float32) * 0.4
    hot = soft.copy()
    hot[ROWS, COLUMNS] += 0.6
    ragged = np.random.default_rng(5).random((224, 224), np.float32)
    box = (COLUMNS.start / 224, ROWS.start / 224, COLUMNS.stop / 224, ROWS.stop / 224, 1.0)
    return [
        FindingAnswer(finding, 0.3, normalised, (normalised >= 0.5).astype(np.uint8), boxes)
        for finding, normalised, boxes in (("Effusion", hot, [box]), ("Mass", ragged, []), ("Nodule", soft, []))
    ]


@pytest.fixture
def read(root: Path, tmp_path: Path) -> Callable[..., DicomObjects]:
    """The objects of a kind about a film of some size, written and read."""

    def reads(kind: str, size: tuple[int, int], **options: Any) -> DicomObjects:
        content = film(root, *size)
        for place in ("images", "annotations"):
            (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / "images/film.dcm").write_bytes(content)
        header = FilmHeader.read(content, "film.dcm")
        for number, made in enumerate(film_objects(header, answers(), MODEL, ObjectOptions((kind,), 0.5, CLOCK))):
            (tmp_path / f"annotations/{number}.dcm").write_bytes(made.content)
        return DicomObjects(tmp_path, **options)

    return reads


@pytest.mark.parametrize("size", [(224, 224), (300, 260), (511, 337)])
@pytest.mark.parametrize(("kind", "options"), [("mask", {}), ("fractions", {"threshold": 0.5})])
def test_a_segmentation_has_the_pixels_that_were_counted(
    kind: str, options: Any, size: tuple[int, int], read: Callable[..., DicomObjects]
) -> None:
    dataset = read(kind, size, **options)
    (case,) = dataset.cases()
    assert dict(case.labels) == {"Effusion": 1, "Mass": 1, "Nodule": 0}
    assert [(note.kind, note.subject) for note in dataset.notes] == [("empty_mask", "Nodule")]
    for answer in answers()[:2]:
        drawn, _ = region_grid(case.regions[answer.finding], *size)
        off = np.flatnonzero((drawn != (answer.mask > 0)).ravel())
        # In 255 steps, a value within half a step of the threshold can be on its other side.
        assert (np.abs(answer.normalised.ravel()[off] - 0.5) <= 0.5 / 255).all()
        assert kind == "fractions" or not off.size


def test_a_parametric_map_has_the_pixels_that_were_counted(read: Callable[..., DicomObjects], tmp_path: Path) -> None:
    for threshold in (0.25, 0.5):
        read("map", (300, 260), threshold=threshold, maps="any")
        for number, answer in enumerate(answers()[:2]):
            alone = tmp_path / f"alone{number}-{threshold}"
            alone.mkdir()
            (alone / "map.dcm").write_bytes((tmp_path / f"annotations/{number}.dcm").read_bytes())
            (case,) = DicomObjects(tmp_path, annotations=alone.name, threshold=threshold, maps="any").cases()
            drawn, _ = region_grid(case.regions["any"], 300, 260)
            np.testing.assert_array_equal(drawn, answer.normalised >= threshold)


@pytest.mark.parametrize("size", [(224, 224), (300, 260), (511, 337)])
def test_the_box_of_a_report_is_that_of_the_answer(size: tuple[int, int], read: Callable[..., DicomObjects]) -> None:
    dataset = read("report", size, rename={"Pleural effusion": "Effusion"}, classes=["Effusion", "Mass", "Nodule"])
    (case,) = dataset.cases()
    assert set(case.regions) == {"Effusion"}
    drawn, _ = region_grid(case.regions["Effusion"], *size)
    np.testing.assert_array_equal(np.flatnonzero(drawn.any(1)), np.arange(224)[ROWS])
    np.testing.assert_array_equal(np.flatnonzero(drawn.any(0)), np.arange(224)[COLUMNS])
    unplaced = [("unused_parts", "Mass"), ("unused_parts", "Nodule")]  # scores without a box say nothing of a place
    assert [(note.kind, note.subject) for note in dataset.notes] == unplaced
