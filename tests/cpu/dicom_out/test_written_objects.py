"""Objects of films as other programs read them: validators, dcmqi, highdicom, and the project's own reader."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dicom_films
import numpy as np
import pytest
from dicom_answers import ANSWERS, CLOCK, MODEL, TAU, answer, objects, read, tool
from numpy.typing import NDArray
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_objects import DicomObjects
from xbench_fast.runtime.data.datasets.region_grid import region_grid
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.reporting.dicom.dicom_object import KINDS, DicomObject
from xbench_fast.runtime.reporting.dicom.film_answer import film_corners, on_film
from xbench_fast.runtime.reporting.dicom.film_header import FilmHeader
from xbench_fast.runtime.reporting.dicom.film_objects import ObjectOptions, film_objects

pydicom = pytest.importorskip("pydicom")
highdicom = pytest.importorskip("highdicom")
Made = Mapping[str, list[DicomObject]]


def looped(grid: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """The rule of docs/dicom.md §3, pixel by pixel: the last grid pixel that is read at a film pixel or before it."""
    reads = [[i * n // 224 for i in range(224)] for n in (height, width)]
    rows = [max(i for i in range(224) if reads[0][i] <= y) for y in range(height)]
    columns = [max(i for i in range(224) if reads[1][i] <= x) for x in range(width)]
    return np.array([[grid[i, j] for j in columns] for i in rows])


@pytest.mark.parametrize("name", dicom_films.NAMES)
def test_validators_find_no_error(made: Made, name: str, tmp_path: Path) -> None:
    film = tmp_path / "film.dcm"
    film.write_bytes(dicom_films.film(name))
    files = []
    for number, item in enumerate(made[name]):
        files.append(tmp_path / f"{number}.dcm")
        files[-1].write_bytes(item.content)
        done = subprocess.run([tool("dciodvfy"), "-new", files[-1]], capture_output=True, text=True, check=False)
        said = (done.stdout + done.stderr).splitlines()
        assert not [line for line in said if line.startswith("Error")], (item.kind, said)
        # What stays: a film without a date or study ID, and private codes of findings.
        known = ("would be needed to build DICOMDIR", "<99XBENCH>")
        assert all(line.endswith(known) for line in said if line.startswith("Warning")), (item.kind, said)
    done = subprocess.run([tool("dcentvfy"), film, *files], capture_output=True, text=True, check=False)
    differing = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("Error")]
    # An absent attribute that must be there is empty in the objects; dcentvfy takes the two for different.
    assert not [line for line in differing if "but not present" not in line], differing


@pytest.mark.parametrize(
    "name",
    [
        "rsna/stage_2_train_images/01cad8d0-45cd-4603-b099-94055d322310.dcm",
        "dicom_variety/RG1_UNCR.dcm",
        "dicom_variety/nih_1.3.6.1.4.1.11129.5.5.110503645592756492463169821050252582267888.dcm",
    ],
)
def test_objects_of_real_films_have_no_error(shared: Path, name: str, tmp_path: Path) -> None:
    """A secondary capture of RSNA, MONOCHROME1 of another maker, and a film of NIH without a study date."""
    film = FilmHeader.read((shared / "data" / "images" / name).read_bytes(), "the film")
    items = film_objects(film, ANSWERS[:1], MODEL, ObjectOptions(KINDS, TAU, CLOCK))
    for item, again in zip(
        items, film_objects(film, ANSWERS[:1], MODEL, ObjectOptions(KINDS, TAU, CLOCK)), strict=True
    ):
        assert item == again
        (tmp_path / "object.dcm").write_bytes(item.content)
        done = subprocess.run([tool("dciodvfy"), "-new", tmp_path / "object.dcm"], capture_output=True, text=True)
        assert not [line for line in done.stderr.splitlines() if line.startswith("Error")], (item.kind, done.stderr)
    (mask,) = [read(item) for item in items if item.kind == "mask"]
    height, width = film.grey.shape
    index = np.arange(224)
    pixels = mask.pixel_array.reshape(height, width)
    np.testing.assert_array_equal(pixels[np.ix_(index * height // 224, index * width // 224)], ANSWERS[0].mask)


@pytest.mark.parametrize("name", dicom_films.NAMES)
def test_the_report_can_be_read(made: Made, name: str, tmp_path: Path) -> None:
    (report,) = [item for item in made[name] if item.kind == "report"]
    (tmp_path / "report.dcm").write_bytes(report.content)
    command = [tool("dsrdump"), "+Pc", tmp_path / "report.dcm"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Enhanced X-Ray" not in text and "Imaging Measurement Report" in text
    assert "Größe des Herzens" in text and "Pleural effusion" in text


@pytest.mark.parametrize("name", dicom_films.NAMES)
def test_masks_are_what_is_counted(made: Made, name: str, tmp_path: Path) -> None:
    """highdicom and dcmqi read the pixels that a loop marks; the evaluation's rule gives back every counted pixel."""
    height, width = 300, 260
    index = np.arange(224)
    for asked in ANSWERS:
        (item,) = [one for one in made[name] if (one.kind, one.finding) == ("mask", asked.finding)]
        expected = looped(asked.mask, height, width)
        file = tmp_path / "mask.dcm"
        file.write_bytes(item.content)
        segmentation = highdicom.seg.segread(file)
        np.testing.assert_array_equal(segmentation.pixel_array.reshape(height, width), expected)
        np.testing.assert_array_equal(expected[np.ix_(index * height // 224, index * width // 224)], asked.mask)
        assert segmentation.SegmentSequence[0].SegmentLabel == asked.finding
        out = tmp_path / asked.finding[:3]
        out.mkdir()
        command = [tool("segimage2itkimage"), "--inputDICOM", file, "--outputDirectory", out, "-t", "nifti"]
        done = subprocess.run(command, capture_output=True, check=False)
        if asked.mask.any():
            nibabel = pytest.importorskip("nibabel")
            assert done.returncode == 0
            (volume,) = out.glob("*.nii.gz")
            pixels = np.asarray(nibabel.load(volume).dataobj).reshape(width, height).T
            np.testing.assert_array_equal(pixels > 0, expected > 0)


@pytest.mark.parametrize("name", dicom_films.NAMES)
def test_maps_hold_the_values_of_the_grid(made: Made, name: str) -> None:
    for asked in ANSWERS:
        expected = looped(asked.normalised, 300, 260)
        found = {one.kind: read(one) for one in made[name] if one.finding == asked.finding}
        np.testing.assert_array_equal(found["map"].pixel_array, expected)
        fractions = found["fractions"].pixel_array / found["fractions"].MaximumFractionalValue
        np.testing.assert_allclose(fractions.reshape(expected.shape), expected, atol=1 / 510 + 1e-7)


def test_the_own_reader_gives_back_masks_and_boxes(made: Made, tmp_path: Path) -> None:
    """Masks equal those that were counted, and regions of reports the boxes of the answers, on the evaluation grid."""
    boxes = np.zeros((224, 224), bool)
    for x0, y0, x1, y1, _ in ANSWERS[0].boxes:
        boxes[round(y0 * 224) : round(y1 * 224), round(x0 * 224) : round(x1 * 224)] = True
    for kind, expected in (("mask", ANSWERS[0].mask > 0), ("report", boxes)):
        root = tmp_path / kind
        for folder in ("images", "annotations"):
            (root / folder).mkdir(parents=True)
        for name, items in made.items():
            (root / "images" / f"{name}.dcm").write_bytes(dicom_films.film(name))
            for number, item in enumerate(one for one in items if one.kind == kind):
                (root / "annotations" / f"{name}{number}.dcm").write_bytes(item.content)
        dataset = DicomObjects(root, rename={"Pleural effusion": "Effusion"})
        assert len(dataset.cases()) == len(made) and "Effusion" in dataset.classes
        for case in dataset.cases():
            found, sub_pixel = region_grid(case.regions["Effusion"], 300, 260)
            assert not sub_pixel and case.regions.keys() == {"Effusion"}
            np.testing.assert_array_equal(found, expected, err_msg=kind)
            assert case.labels.get("Effusion") in (1, True)


@pytest.mark.parametrize(("height", "width"), [(224, 224), (225, 1000), (1955, 1841), (449, 671)])
def test_the_rule_is_the_inverse_of_the_evaluations(height: int, width: int) -> None:
    grid = np.arange(224 * 224).reshape(224, 224)
    spread, index = on_film(grid, (height, width)), np.arange(224)
    assert spread.shape == (height, width)
    np.testing.assert_array_equal(spread[np.ix_(index * height // 224, index * width // 224)], grid)
    mask = np.zeros((224, 224), np.uint8)
    mask[31:77, 5:224] = 1
    inside = on_film(mask, (height, width))
    (x0, y0), _, (x1, y1), _, last = film_corners((5 / 224, 31 / 224, 1.0, 77 / 224, 0.9), (height, width))
    rows, columns = np.nonzero(inside)
    assert (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1) == (y0, x0, y1, x1) and last == [x0, y0]


def test_a_film_smaller_than_the_grid_has_objects() -> None:
    items = objects("sc", Rows=43, Columns=61, PixelData=bytes(43 * 61 + 1))
    assert [item.kind for item in items] == ["overlay"] * 2 + ["mask"] * 2 + ["report"] + ["fractions"] * 2 + [
        "map"
    ] * 2


def test_the_overlay_shows_the_film_the_map_and_the_outline(made: Made) -> None:
    for name in dicom_films.NAMES:
        grey = decode_grey(dicom_films.film(name), "the film")
        shown = {item.finding: read(item).pixel_array for item in made[name] if item.kind == "overlay"}
        plain = shown[ANSWERS[1].finding][60:]  # below the words: nothing is drawn where the map is 0
        np.testing.assert_array_equal(plain, np.repeat(grey[60:, :, None], 3, axis=2))
        words = shown[ANSWERS[1].finding][:40, :120]
        assert ((words == 0).all(2) | (words == 255).all(2)).mean() > 0.5
        lines = (shown["Effusion"][60:] == (64, 224, 255)).all(2)
        assert lines.any() and (looped(ANSWERS[0].mask, 300, 260)[60:][lines] == 1).all()
        coloured = shown["Effusion"][60:].astype(int)
        low = looped(ANSWERS[0].normalised, 300, 260)[60:] < 0.05
        assert np.ptp(coloured[~low], axis=1).mean() > 4 * np.ptp(coloured[low], axis=1).mean()


def test_two_builds_are_equal_and_another_time_is_no_difference(made: Made) -> None:
    from datetime import timedelta

    from xbench_fast.runtime.reporting.dicom.film_objects import differs

    film = FilmHeader.read(dicom_films.film("sc"), "the film")
    later = film_objects(film, ANSWERS, MODEL, ObjectOptions(KINDS, TAU, CLOCK + timedelta(days=400, seconds=7)))
    for first, second, third in zip(made["sc"], objects("sc"), later, strict=True):
        assert first == second
        assert third.uid == first.uid and third.content != first.content
        assert not differs(first.content, third.content) and not differs(third.content, first.content)
        changed = read(third)
        changed.SeriesDescription = "another"
        stream = io.BytesIO()
        changed.save_as(stream, enforce_file_format=True)
        assert differs(first.content, stream.getvalue())
        assert differs(first.content[: len(first.content) // 2], first.content) and differs(b"", first.content)


def test_a_changed_pixel_and_a_changed_number_are_differences() -> None:
    from xbench_fast.runtime.reporting.dicom.film_objects import differs

    film = FilmHeader.read(dicom_films.film("sc"), "the film")
    for kind in KINDS:
        (one,), (two,) = (
            film_objects(film, [changed], MODEL, ObjectOptions((kind,), TAU, CLOCK))
            for changed in (answer(seed=1, logit=0.1), answer(seed=2, logit=0.2))
        )
        assert one.uid == two.uid and differs(one.content, two.content), kind


def test_the_score_is_a_probability_or_a_cosine_by_its_name() -> None:
    from dataclasses import replace

    film = FilmHeader.read(dicom_films.film("sc"), "the film")
    for model, name, value in (
        (MODEL, "Probability", 1 / (1 + np.exp(-0.75))),
        (replace(MODEL, logit_scale=100.0), "Cosine similarity of the image and the text", 0.0075),
    ):
        (item,) = film_objects(film, ANSWERS[:1], model, ObjectOptions(("report",), TAU, CLOCK))
        content = highdicom.sr.srread(io.BytesIO(item.content)).content
        groups = content.get_planar_roi_measurement_groups()
        assert len(groups) == len(ANSWERS[0].boxes) > 1
        for group, box in zip(groups, ANSWERS[0].boxes, strict=True):
            (measured,) = group.get_measurements()
            assert measured.name.meaning == name and measured.value == pytest.approx(value, abs=1e-6)
            corners = [list(map(float, pair)) for pair in group.roi.value]
            assert corners == film_corners(box, (300, 260))
        assert len({group.tracking_uid for group in groups}) == len(groups)


def test_tracking_joins_a_mask_and_its_report(made: Made) -> None:
    mask = read(next(item for item in made["sc"] if item.kind == "mask"))
    report = highdicom.sr.srread(io.BytesIO(next(item for item in made["sc"] if item.kind == "report").content))
    assert mask.SegmentSequence[0].TrackingUID == report.content.get_planar_roi_measurement_groups()[0].tracking_uid
