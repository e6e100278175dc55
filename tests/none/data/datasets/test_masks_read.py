"""Masks of several values, or inverted: every reader of masks says so (docs/formats.md §9.8)."""

from __future__ import annotations

import ast
import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import encode
from numpy.typing import NDArray
from xbench_fast.engines.errors import ConfigError, DataError, ImageError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.masks.mask_files import StoredMask
from xbench_fast.runtime.data.datasets.masks.mask_reader import MaskReader

WHERE = (Path("a.png"), None)
SIZE = (1024, 1024)  # the one size that SIIM has
BLURRED = np.zeros(SIZE, np.uint8)
BLURRED[200:400, 300:600], BLURRED[190:200, 300:600] = 255, 40


def masks(root: Path, values: NDArray[Any], /, **options: Any) -> Dataset:
    (root / "images").mkdir(exist_ok=True)
    (root / "masks/Mass").mkdir(parents=True, exist_ok=True)
    (root / "images/a.png").write_bytes(encode(np.eye(*values.shape[:2], dtype=np.uint8), "PNG"))
    (root / "masks/Mass/a.png").write_bytes(encode(values, "PNG"))
    return DATASETS.load("masks")(root, **options)


def nifti(root: Path, values: NDArray[Any]) -> Dataset:
    nibabel = pytest.importorskip("nibabel")
    masks(root, values)
    nibabel.save(nibabel.Nifti1Image(values.T[..., None], np.diag([-1.0, -1, 1, 1])), root / "masks/Mass/a.nii.gz")
    return DATASETS.load("nifti")(root)


def covid_rural(root: Path, values: NDArray[Any]) -> Dataset:
    for folder in ("jpgs", "pngs_masks"):
        (root / folder).mkdir()
    (root / "jpgs/a_b.png").write_bytes(encode(np.eye(*values.shape, dtype=np.uint8), "PNG"))
    (root / "pngs_masks/a_b.png").write_bytes(encode(values, "PNG"))
    return DATASETS.load("covid_rural")(root)


def siim(root: Path, values: NDArray[Any]) -> Dataset:
    for folder in ("processed_images", "processed_masks"):
        (root / folder).mkdir()
        (root / folder / "a.png").write_bytes(encode(values, "PNG"))
    (root / "train-rle.csv").write_text("ImageId,EncodedPixels\na,1 1\n")
    return DATASETS.load("siim")(root, masks="processed_masks")


def labelme(root: Path, values: NDArray[Any]) -> Dataset:
    (root / "images").mkdir()
    (root / "images/a.png").write_bytes(encode(np.eye(*values.shape, dtype=np.uint8), "PNG"))
    text = base64.b64encode(encode(values, "PNG")).decode()
    height, width = values.shape
    shape = {"label": "Mass", "shape_type": "mask", "points": [[0, 0], [width - 1, height - 1]], "mask": text}
    (root / "images/a.json").write_text(json.dumps({"shapes": [shape], "imageHeight": height, "imageWidth": width}))
    return DATASETS.load("labelme")(root)


def dicom(root: Path, values: NDArray[Any]) -> Dataset:
    """A binary Segmentation with values beside 0 and 1, which some programs write with 8 bits."""
    pydicom = pytest.importorskip("pydicom")
    formats = Path(__file__).parents[3] / "formats/dicom"
    for folder in ("images", "annotations"):
        (root / folder).mkdir()
    film = pydicom.dcmread(formats / "film.dcm")
    height, width = values.shape
    film.Rows, film.Columns, film.PixelData = height, width, bytes(2 * values.size)
    film.save_as(root / "images/a.dcm")
    data = pydicom.dcmread(formats / "seg_binary.dcm")
    data.Rows, data.Columns, data.NumberOfFrames, data.PixelData = height, width, 1, values.tobytes()
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit = 7
    data.SegmentSequence[0].SegmentLabel = "Mass"
    data.save_as(root / "annotations/seg.dcm")
    return DATASETS.load("dicom")(root)


READERS: dict[str, Callable[[Path, NDArray[Any]], Dataset]] = {
    "masks": masks, "nifti": nifti, "covid_rural": covid_rural, "siim": siim, "labelme": labelme, "dicom": dicom,
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_says_that_a_mask_is_not_binary(reader: str, tmp_path: Path) -> None:
    dataset = READERS[reader](tmp_path, BLURRED)
    (case,) = dataset.cases()
    (region,) = case.regions.values()
    assert region.mask(*SIZE).sum() == 63_000
    notes = [note for note in dataset.notes if note.kind == "not_binary"]
    assert len(notes) == 1 and notes[0].file.is_file() and notes[0].text.startswith(
        "the mask has 3 values (0, 40, 255): its 63000 pixels above 0 are the region, of which 60000 are at least half "
        "of the maximum, 60000 at least 191.25"
    )  # fmt: skip
    found = audit(dataset)
    assert not found.passed and str(notes[0]) in found.warnings[0]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_says_that_a_region_looks_inverted(reader: str, tmp_path: Path) -> None:
    dataset = READERS[reader](tmp_path, (BLURRED == 0).astype(np.uint8))
    (region,) = dataset.cases()[0].regions.values()
    assert region.mask(*SIZE).sum() == 1024 * 1024 - 63_000  # said, never switched
    notes = [note.text for note in dataset.notes if note.kind == "inverted"]
    # A mask of LabelMe is the part of the image that a shape covers, so it may be all inside.
    assert len(notes) == (reader != "labelme") and audit(dataset).passed == (reader == "labelme")
    assert all("the region covers 94% of the image and 100% of its edge" in text for text in notes)


def test_no_reader_makes_a_region_of_pixels_past_the_one_rule() -> None:
    """Modules that decode pixels, or compare values with a threshold, and those that give them to `MaskReader`."""
    folder = Path(str(__import__("xbench_fast.runtime.data.datasets", fromlist=["x"]).__file__)).parent
    runs, ruled = set(), set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "MaskRuns.of":
                runs.add(path.stem)
            if isinstance(node, ast.ImportFrom) and any(alias.name == "MaskReader" for alias in node.names):
                ruled.add(path.stem)
    # `placed` of file_format draws parts: of LabelMe's PNG files, and of CVAT's run lengths, which have no values.
    assert (
        runs - {"shapes"} | {"labelme"} == ruled == {"mask_folder", "covid_rural", "siim", "labelme", "dicom_objects"}
    )
    users = {
        path.stem
        for path in folder.rglob("*.py")
        if "import decode_png" in path.read_text() or "read_png" in path.read_text()
    }
    assert users == {"mask_files", "mask_reader", "mask_folder", "labelme"}


@pytest.mark.parametrize(
    ("levels", "kind", "part"),
    [
        ([255], "", ""),
        ([1], "", ""),
        ([254, 255], "nearly_binary", "3 values (0, 254, 255): its 200 pixels above 0 are the region, of which 200"),
        ([1, 255], "not_binary", "which 100 are at least half of the maximum, 100 at least 191.25"),
        ([128, 255], "not_binary", "which 200 are at least half of the maximum, 100 at least 191.25"),  # unsure edges
        ([1, 2], "not_binary", "which 200 are at least half of the maximum, 100 at least 2"),  # classes or instances
        ([4, 5], "not_binary", "which 200 are at least half of the maximum, 100 at least 5"),
        ([20, 21], "nearly_binary", "which 200 are at least half of the maximum, 200 at least 15.75"),
        (list(range(250, 256)), "nearly_binary", "7 values (up to 255)"),
    ],
)  # fmt: skip
def test_how_much_a_region_changes_with_the_threshold(levels: list[int], kind: str, part: str) -> None:
    values = np.zeros((30, 40), np.uint8)
    pixels = 200 // len(levels)
    for number, level in enumerate(levels):
        values.ravel()[(3 + number) * pixels :][:pixels] = level
    for dtype in (np.uint8, np.uint16, np.int64, np.float32):
        reader = MaskReader("; ASK")
        assert reader.region(StoredMask(values.astype(dtype)), "Mass", WHERE).sum() == pixels * len(levels)
        assert [note.kind for note in reader.notes()] == [kind] * bool(kind), reader.notes()
        assert all(part in note.text and note.text.endswith("; ASK") for note in reader.notes())


def test_one_hundredth_of_a_region_may_depend_on_the_threshold() -> None:
    values = np.zeros((60, 40), np.uint8)
    values.ravel()[:1000], values.ravel()[:10] = 255, 9
    for pixels, kind in ((10, "nearly_binary"), (11, "not_binary")):
        values.ravel()[:pixels] = 9
        reader = MaskReader()
        reader.region(StoredMask(values), "Mass", WHERE)
        assert [note.kind for note in reader.notes()] == [kind]


def test_several_colours_without_values() -> None:
    colours = np.zeros((30, 40, 3), np.uint8)
    colours[10:20, 5:15], colours[10:20, 20:25] = (255, 0, 0), (0, 255, 0)
    reader = MaskReader()
    assert reader.region(StoredMask(colours), "Mass", WHERE).sum() == 150
    assert [note.kind for note in reader.notes()] == ["not_binary"]
    assert "the mask has 2 colours other than black: its 150 pixels" in reader.notes()[0].text


def test_a_stated_threshold_says_what_is_inside(tmp_path: Path) -> None:
    values = BLURRED[::8, ::8]
    dataset = masks(tmp_path, values, threshold=128)
    np.testing.assert_array_equal(dataset.cases()[0].regions["Mass"].mask(128, 128), values >= 128)
    assert not dataset.notes and audit(dataset).passed
    assert masks(tmp_path, values, threshold=40).cases()[0].regions["Mass"].mask(128, 128).sum() == (values >= 40).sum()
    dataset = masks(tmp_path, values, threshold=256, classes=["Mass"])
    assert dataset.cases()[0].labels == {"Mass": 0}
    assert [(note.kind, note.text) for note in dataset.notes] == [
        ("empty_mask", "the mask has no pixel of 256 or more; taken as negative (its largest value is 255)")
    ]
    for wrong in (0, -1, "half", True, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="'threshold' of the dataset 'masks' must be a number above 0"):
            masks(tmp_path, values, threshold=wrong)
    with pytest.raises(ConfigError, match=r"'threshold' .* has no meaning with values; leave one of the two out"):
        masks(tmp_path, values, threshold=1, values={"Mass": 1}, files="{class}/{image}.png")


def test_values_between_those_of_classes_are_counted(tmp_path: Path) -> None:
    values = np.zeros((30, 40), np.uint8)
    values[5:20, 5:20] = 255
    values[5:20, 5] = range(1, 16)
    dataset = masks(tmp_path, values, values={"Mass": 255}, files="{class}/{image}.png")
    assert [(note.kind, note.text) for note in dataset.notes] == [(
        "unknown_class",
        "values without a class, which are not used: 1, 2, 3, 4, 5 ... (15 values of 15 pixels, as after an "
        "interpolation)",
    )]  # fmt: skip
    dataset = masks(
        tmp_path, np.where(values == 255, 0, 1).astype(np.uint8), values={"Mass": 1}, files="{class}/{image}.png"
    )
    assert [note.kind for note in dataset.notes] == ["inverted"] and not audit(dataset).passed


@pytest.fixture
def case(root: Path, tmp_path: Path) -> Callable[..., Dataset]:
    def opened(name: str, reader: str = "masks", **options: Any) -> Dataset:
        shutil.copytree(root / "tests/cases" / name, tmp_path / name)
        return DATASETS.load(reader)(tmp_path / name, **options)

    return opened


def test_the_case_of_a_mask_in_the_opacity(case: Callable[..., Dataset]) -> None:
    dataset = case("mask-in-alpha")
    mask = dataset.cases()[0].regions["Mass"].mask(60, 80)
    assert mask.sum() == 450 and mask[20:35, 10:40].all()
    assert [note.kind for note in dataset.notes] == ["mask_in_alpha"] and audit(dataset).passed


def test_the_case_of_a_mask_that_is_not_binary(case: Callable[..., Dataset]) -> None:
    dataset = case("mask-not-binary")
    found = audit(dataset)
    assert not found.passed and "575 pixels above 0 are the region, of which 450 are" in found.warnings[0]
    assert "; set the option threshold, or values where they are classes" in found.warnings[0]
    shutil.rmtree(dataset.root)
    mask = case("mask-not-binary", threshold=128).cases()[0].regions["Mass"].mask(60, 80)
    assert mask.sum() == 450 and mask[20:35, 10:40].all()


def test_a_mask_that_says_nothing_stops_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"The mask .*Mass/a\.png cannot be read: none of its 2 values is 0, so .*; set"
    ):
        masks(tmp_path, 1 + (BLURRED > 0).astype(np.uint8))
    with pytest.raises(ImageError, match="none of its 4 values is 0"):
        MaskReader().region(StoredMask(np.arange(1, 5).reshape(2, 2)), "Mass", WHERE)
