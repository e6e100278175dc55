"""Through a real archive: what the viewer stored, and our own objects, are fetched and scored by `eval`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pydicom
import pytest
from orthanc_process import Orthanc
from viewer_archive import fetch, orthanc, upload
from viewer_objects import DRAWN, drawn_mask
from viewer_scored import assert_equal, on_grid, scored


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orthanc]:
    with orthanc(tmp_path_factory.mktemp("archive")) as process:
        yield process


def test_what_the_viewer_stored_comes_back_and_is_scored(archive: Orthanc, root: Path, tmp_path: Path) -> None:
    formats = root / "tests/formats"
    film, *objects = (
        (formats / path).read_bytes() for path in ("dicom/film.dcm", "ohif/sr_regions.dcm", "ohif/seg_brush.dcm")
    )
    upload(archive, film, *objects)
    study = str(pydicom.dcmread(formats / "dicom/film.dcm").StudyInstanceUID)
    assert [content for modality in ("DX", "SR", "SEG") for _, content in fetch(archive, modality, study)] == [
        film,
        *objects,
    ]
    maps = {finding: on_grid(drawn_mask(finding)) for finding in DRAWN}
    rows = scored(tmp_path / "drawn", film, objects[:1], maps)
    for finding, mask in maps.items():
        assert_equal(rows[finding], mask)
    labels = np.load(formats / "ohif/label_map.npz")["labels"]
    painted = {"Effusion": on_grid(labels == 1), "Nodule": on_grid(labels == 2)}
    rows = scored(tmp_path / "painted", film, objects[1:], painted)
    for finding, mask in painted.items():
        assert_equal(rows[finding], mask)


def test_our_own_objects_are_scored_as_what_was_counted(archive: Orthanc, tmp_path: Path) -> None:
    pytest.importorskip("highdicom")
    from viewer_shown import BOX, MASK, STUDY, film_and_objects

    film, *objects = film_and_objects()
    upload(archive, film, *objects)
    fetched = [content for modality in ("OT", "SEG", "SR") for _, content in fetch(archive, modality, STUDY)]
    assert fetched == objects
    rows = scored(tmp_path / "mask", film, fetched[1:2], {"Effusion": MASK})
    assert_equal(rows["Effusion"], MASK)
    x0, y0, x1, y1 = BOX
    box = np.zeros((224, 224), bool)
    box[y0:y1, x0:x1] = True
    rows = scored(tmp_path / "report", film, fetched[2:], {"Pleural effusion": box})
    assert_equal(rows["Pleural effusion"], box)
