"""Every annotation format holds the same shapes (tests/formats), and its reader draws the same masks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.formats.empty_class_names import NOTHING, says_nothing
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.host.source_code import closure
from xbench_fast.runtime.results.cell_key import dataset_digest

BOTH = {"Effusion": "Effusion", "Nodule": "Nodule"}
ALL = {"Effusion": "Effusion", "Mass": "Mass", "Nodule": "Nodule"}
# folder -> (reader, options, class -> the mask of image a, whether b is there as a negative)
FORMATS: dict[str, tuple[str, dict[str, Any], dict[str, str], bool]] = {
    "yolo": ("yolo", {}, {"Effusion": "Effusion"}, True),
    "yolo_segment": ("yolo", {}, {"Nodule": "Nodule"}, False),
    "yolo_segment outline": ("yolo", {"polygons": "outline"}, {"Nodule": "Nodule_outline"}, False),
    "yolo_results": (
        "yolo", {"annotations": ".", "classes": ["Effusion"]}, {"Effusion": "Effusion_first"}, False,
    ),
    "voc": ("voc", {}, {"Effusion": "Effusion"}, True),
    "voc_zero_based": ("voc", {"origin": 0}, {"Effusion": "Effusion"}, False),
    "labelme": (
        "labelme", {"annotations": "."}, {"Effusion": "Effusion", "Mass": "Mass", "Nodule": "Nodule_outline"}, True,
    ),
    "labelme centres": ("labelme", {"annotations": ".", "polygons": "centres"}, ALL, True),
    "labelme_mask": ("labelme", {"annotations": "."}, {"Nodule": "Nodule"}, False),
    "cvat": ("cvat", {}, ALL, True),
    "cvat outline": ("cvat", {"polygons": "outline"}, ALL | {"Nodule": "Nodule_outline"}, True),
    "cvat_mask": ("cvat", {}, {"Nodule": "Nodule"}, False),
    "masks": ("masks", {"annotations": "."}, BOTH, False),
    "masks_zero_one": ("masks", {"annotations": "."}, {"Nodule": "Nodule"}, False),
    "masks_indexed": ("masks", {"annotations": ".", "values": "classes.txt"}, BOTH, False),
    "masks_indexed table": ("masks", {"annotations": ".", "values": {"Effusion": 1, "Nodule": 2}}, BOTH, False),
    "masks_colour": ("masks", {"annotations": ".", "values": "labels.csv"}, BOTH, False),
    "masks_colour table": (
        "masks", {"annotations": ".", "values": {"Effusion": "#ff0000", "Nodule": [0, 255, 0]}}, BOTH, False,
    ),
    "masks_indexed colours": (
        "masks", {"annotations": ".", "values": {"Effusion": "#ff0000", "Nodule": "#00ff00"}}, BOTH, False,
    ),
    "nifti lps": ("nifti", {"annotations": ".", "files": "{image}_{class}_lps.nii.gz"}, {"Nodule": "Nodule"}, False),
    "nifti ras": (
        "nifti", {"annotations": ".", "files": "{image}_{class}_ras_flipped_rows.nii.gz"}, {"Nodule": "Nodule"}, False,
    ),
    "nifti rows": (
        "nifti", {"annotations": ".", "files": "{image}_{class}_rows_first.nii.gz", "axes": "rows"},
        {"Nodule": "Nodule"}, False,
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def formats(root: Path) -> Path:
    return root / "tests/formats"


@pytest.fixture(scope="session")
def expected(formats: Path) -> Mapping[str, NDArray[np.bool_]]:
    return dict(np.load(formats / "expected.npz"))


def opened(formats: Path, name: str, **options: Any) -> Dataset:
    reader, given, _, _ = FORMATS[name]
    if reader == "nifti":
        pytest.importorskip("nibabel")
    found = DATASETS.load(reader)(formats / name.split()[0], **({"images": formats / "images"} | given | options))
    assert isinstance(found, Dataset)
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_the_masks_are_those_of_a_loop_over_pixels(
    formats: Path, expected: Mapping[str, NDArray[np.bool_]], name: str
) -> None:
    dataset, (_, _, masks, negative) = opened(formats, name), FORMATS[name]
    first, *others = dataset.cases()
    assert first.case_id == "a" and first.image == formats / "images/a.png"
    assert set(first.regions) == set(masks) and [name for name, label in first.labels.items() if label] == list(masks)
    for finding, key in masks.items():
        np.testing.assert_array_equal(first.regions[finding].mask(43, 61), expected[key], err_msg=finding)
    assert [(case.case_id, set(case.labels.values()), case.regions) for case in others] == [("b", {0}, {})] * negative
    assert [note.kind for note in dataset.notes if note.kind != "other_file"] == ["not_annotated"]
    assert f": {2 - negative}, the first is" in dataset.notes[-1].text


@pytest.mark.parametrize("name", FORMATS)
def test_the_audit_passes_and_names_what_is_not_annotated(formats: Path, name: str) -> None:
    found = audit(opened(formats, name), decode=True, threads=1)
    assert found.passed and (found.unreadable, found.images_missing, found.clipped) == (0, 0, 0)
    assert found.unannotated_files == 3 - found.images_present
    assert found.unannotated[-1].endswith("c.png")


@pytest.mark.parametrize("name", FORMATS)
def test_an_image_without_annotation_is_negative_where_one_says_so(formats: Path, name: str) -> None:
    dataset = opened(formats, name, unlabelled="negative")
    assert [(case.case_id, any(case.labels.values())) for case in dataset.cases()] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]
    assert not [note for note in dataset.notes if note.kind != "other_file"]
    with pytest.raises(ConfigError, match=r"'unlabelled' .* cannot be 'nothing'"):
        opened(formats, name, unlabelled="nothing")


@pytest.mark.parametrize("suffix", ["_frontal", "_frontal.png"])
def test_a_suffix_of_the_images_names(formats: Path, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "p1/s1").mkdir(parents=True)
    for name in "abc":
        shutil.copy(formats / f"images/{name}.png", tmp_path / f"p1/s1/{name}_frontal.png")
    first, second = opened(formats, "yolo", images=tmp_path, suffix=suffix).cases()
    assert first.image == tmp_path / "p1/s1/a_frontal.png" and second.image.name == "b_frontal.png"
    missing = opened(formats, "yolo", images=tmp_path, suffix="_lateral").cases()[0].image
    assert missing == tmp_path / "a_lateral.png" and not missing.exists()


def test_images_of_one_name(formats: Path, tmp_path: Path) -> None:
    for place in ("x/a.png", "y/a.png", "x/b.png", "x/b.JPG"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        shutil.copy(formats / "images/a.png", tmp_path / place)
    with pytest.raises(DataError, match=r"a\.txt: 'a' can be x/a or y/a in .*; name the folder too"):
        opened(formats, "yolo", images=tmp_path).cases()
    (tmp_path / "y/a.png").unlink()
    dataset = opened(formats, "yolo", images=tmp_path)
    assert [case.image for case in dataset.cases()] == [tmp_path / "x/a.png", tmp_path / "x/b.png"]
    assert [(note.kind, note.text) for note in dataset.notes] == [
        ("duplicate", f"there is also {tmp_path / 'x/b.JPG'}; the first is used")
    ]


def test_images_in_subfolders_like_their_annotations(formats: Path, tmp_path: Path) -> None:
    for part in ("train", "val"):
        (tmp_path / "labels" / part).mkdir(parents=True)
        (tmp_path / "images" / part).mkdir(parents=True)
        shutil.copy(formats / "yolo/labels/a.txt", tmp_path / f"labels/{part}/a.txt")
        shutil.copy(formats / "images/a.png", tmp_path / f"images/{part}/a.png")
    dataset = DATASETS.load("yolo")(tmp_path, classes=["Effusion"])
    assert [(case.case_id, case.image.parent.name) for case in dataset.cases()] == [
        ("train/a", "train"),
        ("val/a", "val"),
    ]
    assert not dataset.notes


@pytest.mark.parametrize("name", ["No finding", "no_finding", "No Findings", "NORMAL", "no-finding", "healthy"])
def test_names_that_are_no_class(name: str) -> None:
    assert says_nothing(name) and not says_nothing(name, ("Clear",)) and not says_nothing(f"{name} lung")
    assert len(NOTHING) == len({each.casefold() for each in NOTHING})


def test_a_class_that_means_nothing_was_found(formats: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 0.5 0.5 1 1\n")
    (tmp_path / "b.txt").write_text("1 0.5 0.5 1 1\n0 0.5 0.5 0.1 0.1\n")

    def read(**options: Any) -> Dataset:
        found = DATASETS.load("yolo")(tmp_path, annotations=".", images=formats / "images", **options)
        assert isinstance(found, Dataset)
        return found

    dataset = read(classes=["Mass", "No_Finding"])
    first, second = dataset.cases()
    assert dataset.classes == ("Mass",) and first.labels == {"Mass": 0} and not first.regions
    assert second.labels == {"Mass": 1} and set(second.regions) == {"Mass"}
    assert [note.kind for note in dataset.notes][:2] == ["no_finding", "disagreement"]
    assert read(classes=["Mass", "Clear"]).classes == ("Mass", "Clear")
    assert read(classes=["Mass", "Clear"], nothing="clear").classes == ("Mass",)
    assert read(classes=["Mass", "No finding"], nothing=["clear"]).classes == ("Mass", "No finding")


@pytest.mark.parametrize("name", FORMATS)
def test_the_annotations_are_part_of_the_key(formats: Path, tmp_path: Path, name: str) -> None:
    """Files of the classes too; a region that moves in a file changes its bytes, and so the digest."""
    folder, (reader, options, _, _) = tmp_path / "data", FORMATS[name]
    if reader == "nifti":
        pytest.importorskip("nibabel")
    shutil.copytree(formats / name.split()[0], folder)
    config = DatasetConfig("mine", folder, reader, None, {**options, "images": str(formats / "images")})

    def digest() -> str:
        dataset = DATASETS.load(reader)(folder, **config.options)
        return dataset_digest(dataset, dataset.cases(), config)

    first = digest()
    assert first == digest()
    named = [Path(str(value)).name for value in options.values() if isinstance(value, str)]
    for file in DATASETS.load(reader)(folder, **config.options).sources():
        whole = file.read_bytes()
        if file.suffix in (".txt", ".csv", ".yaml", ".xml", ".json"):
            file.write_bytes(whole + b"\n")
            assert digest() != first, file.name
            file.write_bytes(whole)
        named = [other for other in named if other != file.name]
    assert not [other for other in named if (folder / other).is_file()] and digest() == first


def test_the_code_that_reads_a_format_is_part_of_the_key(formats: Path) -> None:
    modules = closure([type(opened(formats, "yolo")).__module__])
    own = {"formats.yolo", "formats.file_format", "formats.empty_class_names", "formats.named_images", "region_shapes"}
    assert {f"xbench_fast.runtime.data.datasets.{name}" for name in own} <= set(modules)
    assert not {f"xbench_fast.runtime.data.datasets.{name}" for name in ("formats.voc", "formats.cvat", "siim")} & set(
        modules
    )


def test_coco_draws_the_same_masks(formats: Path, expected: Mapping[str, NDArray[np.bool_]]) -> None:
    """Boxes with an empty segmentation, and a compressed run-length mask."""
    dataset = DATASETS.load("coco")(formats / "coco", annotations="instances.json", images=formats / "images")
    first, second = dataset.cases()
    for finding in BOTH:
        np.testing.assert_array_equal(first.regions[finding].mask(43, 61), expected[finding])
    assert set(second.labels.values()) == {0} and not second.regions and not dataset.notes


def test_these_are_the_shared_fixtures(shared: Path, formats: Path) -> None:
    """All but what the viewer OHIF made, which only this project has."""
    for file in formats.rglob("*"):
        if file.is_file() and file.name != "README.md" and "ohif" not in file.parts:
            assert file.read_bytes() == (shared / "formats" / file.relative_to(formats)).read_bytes(), file
