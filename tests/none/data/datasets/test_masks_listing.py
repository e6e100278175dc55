"""Which files of a folder of masks are read, joined, or counted (docs/formats.md §9.8)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import encode
from numpy.typing import NDArray
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.masks.mask_names import first_name, seems_further

SIZE = (12, 16)


def square(number: int) -> NDArray[np.uint8]:
    """A mask of one pixel a number, so that the area of a union tells its parts."""
    values = np.zeros(SIZE, np.uint8)
    values[5, number] = 255
    return values


def world(root: Path, names: list[str], images: tuple[str, ...] = ("a", "b"), **options: Any) -> Dataset:
    (root / "images").mkdir()
    for image in images:
        (root / f"images/{image}.png").write_bytes(encode(np.eye(*SIZE, dtype=np.uint8), "PNG"))
    for number, name in enumerate(names):
        path = root / "masks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(square(number), "PNG"))
    return DATASETS.load("masks")(root, **options)


def found(dataset: Dataset) -> dict[str, dict[str, list[int]]]:
    """Case -> class -> the numbers of the files whose masks make the region."""
    return {
        case.case_id: {name: np.flatnonzero(region.mask(*SIZE)[5]).tolist() for name, region in case.regions.items()}
        for case in dataset.cases()
    }


def kinds(dataset: Dataset) -> dict[str, str]:
    """Kind -> what is counted, of the notes about files."""
    return {note.kind: note.text.rpartition(": ")[2] for note in dataset.notes if note.kind != "not_annotated"}


MASK, LAST = {"files": "{class}/{image}_mask.png"}, {"files": "{image}_{class}.png"}


@pytest.mark.parametrize(
    ("names", "options", "regions", "notes"),
    [
        (["M/a_mask.png", "M/a_mask_1.png", "M/a_mask_02.png", "M/b_mask.png"], MASK, {"a": [0, 1, 2], "b": [3]},
         {"joined_masks": "2"}),
        (["M/a_mask.png", "M/a_mask-1.png"], MASK, {"a": [0, 1]}, {"joined_masks": "1"}),
        (["M/a_mask.png", "M/b_mask_1.png", "M/b_mask_2.png"], MASK, {"a": [0], "b": [1, 2]}, {"joined_masks": "1"}),
        (["M/a_mask.png", "M/c_mask_1.png"], MASK, {"a": [0]}, {"other_file": "1"}),  # no image c
        (["M/a_mask.png", "M/a_mask (1).png", "M/a_mask_1b.png"], MASK, {"a": [0]},
         {"other_file": "2", "unread_mask": "2"}),
        (["M/a_mask.png", "M/a_mask1.png", "M/a_mask.1.png", "M/a_mask_b.PNG", "M/a_mask copy.png", "M/A_mask_1001.png",
          "M/a_mask_1.png", "M/a_mask_1_1.png"], MASK, {"a": [0, 6]},
         {"other_file": "6", "unread_mask": "6", "joined_masks": "1"}),
        (["M/a_mask.png", "M/a_masked.png", "M/c_mask_b.png", "N/a_mask_b.png", "M/a_mask_b.txt", "M/a_mask/b.png"],
         MASK,
         {"a": [0]}, {"other_file": "5"}),
        (["a_m.png", "a_m (2).png"], {"files": "{image}_m.png", "values": {"M": 255}}, {"a": [0]},
         {"other_file": "1", "unread_mask": "1"}),
        (["M/a_mask.png", "M/a_mask.jpg", "M/a_mask.bmp", "M/a_mask.npy", "M/.a_mask.png"], MASK, {"a": [0]},
         {"other_file": "3"}),
        (["M/a_mask.png", "M/a_mask.PNG"], MASK, {"a": [0, 1]}, {"joined_masks": "1"}),
        (["M/a_mask.png", ".x/a_mask.png", "M/.ipynb_checkpoints/a_mask.png"], MASK, {"a": [0]}, {}),
        (["a_M.png", "a_M_1.png", "b_M.png"], LAST, {"a": [0, 1], "b": [2]}, {"joined_masks": "1"}),
        (["a/M.png", "a/M_1.png"], {"files": "{image}/{class}.png"}, {"a": [0, 1]}, {"joined_masks": "1"}),
        (["M/a.png", "M/a_1.png"], {}, {"a": [0]}, {"other_file": "1", "unread_mask": "1"}),
        (["M/a.png", "N/a_1.png"], {}, {"a": [0], "a_1": [1]}, {}),  # the mask of an image that is missing
        (["a.png", "a_1.png"], {"values": {"M": 255}}, {"a": [0]}, {"other_file": "1", "unread_mask": "1"}),
    ],
)  # fmt: skip
def test_files_beside_those_of_the_form(
    tmp_path: Path, names: list[str], options: dict[str, Any], regions: dict[str, list[int]], notes: dict[str, str]
) -> None:
    dataset = world(tmp_path, names, **options)
    assert {
        name: sorted(number for numbers in areas.values() for number in numbers)
        for name, areas in found(dataset).items()
    } == regions
    assert kinds(dataset) == notes
    assert audit(dataset).passed == ("unread_mask" not in notes and "a_1" not in regions)
    read = sum(len(numbers) for numbers in regions.values())
    assert len(dataset.sources()) == read  # joined files are part of the key


@pytest.mark.parametrize("files", ["{class}/{image}.png", "{class}/{image}_mask.png"])
def test_a_number_may_be_part_of_an_images_name(tmp_path: Path, files: str) -> None:
    names = [f"M/{name}.png" for name in ("a", "a_1", "p-2")]
    if "_mask" in files:
        names = [name.replace(".png", "_mask.png") for name in names]
    dataset = world(tmp_path, names, images=("a", "a_1", "p-2"), files=files)
    assert found(dataset) == {"a": {"M": [0]}, "a_1": {"M": [1]}, "p-2": {"M": [2]}} and not dataset.notes


def test_a_number_may_be_part_of_a_classs_name(tmp_path: Path) -> None:
    names = ["a/Zone.png", "a/Zone_1.png", "a/Zone_2.png"]
    dataset = world(tmp_path, names, files="{image}/{class}.png", classes=["Zone", "Zone_1", "Zone_2"])
    assert found(dataset) == {"a": {"Zone": [0], "Zone_1": [1], "Zone_2": [2]}} and not kinds(dataset)
    shutil.rmtree(tmp_path / "images")
    (tmp_path / "masks/a/Zone.png").unlink()
    dataset = world(tmp_path, [], files="{image}/{class}.png")
    assert dataset.classes == ("Zone_1", "Zone_2") and not kinds(dataset)


def test_a_suffix_of_the_images_and_subfolders(tmp_path: Path) -> None:
    dataset = world(
        tmp_path, ["M/a_mask.png", "M/x/b_mask_1.png"], images=("a_f", "b_f"), suffix="_f", classes=["M"], **MASK
    )
    assert found(dataset) == {"a": {"M": [0]}, "x/b": {"M": [1]}} and not kinds(dataset)


def test_a_folder_below_that_of_the_class_may_be_the_class(tmp_path: Path) -> None:
    dataset = world(tmp_path, ["train/M/a.png", "train/N/b.png", "M/c.png"])
    assert dataset.classes == ("M", "train")
    assert kinds(dataset) == {"class_folder": "2"} and not audit(dataset).passed
    (text,) = (note.text for note in dataset.notes if note.kind == "class_folder")
    assert "the first is of the class 'train' and the image 'M/a'" in text and "in the option files" in text
    shutil.rmtree(tmp_path / "masks/M")
    dataset = DATASETS.load("masks")(tmp_path, files="train/{class}/{image}.png")
    assert found(dataset) == {"a": {"M": [0]}, "b": {"N": [1]}} and not kinds(dataset)
    assert "class_folder" not in kinds(DATASETS.load("masks")(tmp_path, files="{class}/M/{image}.png"))
    assert not kinds(DATASETS.load("masks")(tmp_path, classes=["train"]))
    for name in ("images/p/m/a.png", "images/N/b.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.move(tmp_path / "images" / Path(name).name, tmp_path / name)
    assert "class_folder" not in kinds(DATASETS.load("masks")(tmp_path))


def test_images_below_the_folder_of_the_masks_are_no_masks(tmp_path: Path) -> None:
    world(tmp_path, ["M/a.png"])
    shutil.copytree(tmp_path / "masks/M", tmp_path / "M")
    dataset = DATASETS.load("masks")(tmp_path, annotations=".", files="{class}/{image}.png")
    assert "images" not in dataset.classes


def test_the_file_of_the_values_is_no_other_file(tmp_path: Path) -> None:
    world(tmp_path, ["M/a.png"])
    (tmp_path / "masks/v.csv").write_text("class,value\nM,255\n")
    dataset = DATASETS.load("masks")(tmp_path, values="masks/v.csv", files="{class}/{image}.png")
    assert not kinds(dataset) and found(dataset)["a"] == {"M": [0]}


def test_the_case_of_several_files_of_an_image(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "tests/cases/mask-several-files-per-image", tmp_path / "x")
    dataset = DATASETS.load("masks")(tmp_path / "x", **MASK | {"files": "{class}/{image}_mask.png"})
    (case,) = dataset.cases()
    assert case.regions["Mass"].mask(60, 80).sum() == 650
    assert [note.kind for note in dataset.notes] == ["joined_masks"] and audit(dataset).passed


def test_the_case_of_hidden_folders(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "tests/cases/folder-hidden-checkpoints/masks", tmp_path / "x")
    dataset = DATASETS.load("masks")(tmp_path / "x")
    assert dataset.classes == ("Mass",) and len(dataset.cases()) == 1 and not dataset.notes


def test_names_with_a_number_at_the_end() -> None:
    names = {
        "a_1": "a",
        "a-02": "a",
        "a_b_123": "a_b",
        "a1": None,
        "a_1234": None,
        "_1": None,
        "a_1_": None,
        "a (1)": None,
    }
    assert {name: first_name(name) for name in names} == names


def test_names_with_more_behind_that_of_a_mask() -> None:
    masks = {"m/a_mask", "m/c"}
    for more in ("1", ".1", " (1)", "_b", " copy", "-1_1", "_1001"):
        assert seems_further(f"M/A_mask{more}", masks)
    for name in ("M/a_mask", "M/a_masked", "M/b_mask_b", "N/a_mask_b", "M/a_mask/b", "M/a_mas", ""):
        assert not seems_further(name, masks), name


def test_files_of_covid_rural_beside_its_masks(tmp_path: Path) -> None:
    for folder in ("jpgs", "pngs_masks"):
        (tmp_path / folder).mkdir()
    for name in ("a_x", "b_x"):
        (tmp_path / f"jpgs/{name}.png").write_bytes(encode(np.eye(*SIZE, dtype=np.uint8), "PNG"))
    names = ["a_x.png", "a_x_1.png", "b_x.PNG", "a_x.jpg", "._a_x.png", "a_x.PNG"]
    for number, name in enumerate(names):
        (tmp_path / "pngs_masks" / name).write_bytes(encode(square(number), "PNG"))
    dataset = DATASETS.load("covid_rural")(tmp_path)
    assert found(dataset) == {"a_x": {"COVID-19": [0]}, "b_x": {"COVID-19": [2]}}
    assert {note.kind: Path(note.file).name for note in dataset.notes} == {
        "other_file": "a_x.PNG", "unread_mask": "a_x_1.png",
    }  # fmt: skip
    assert not audit(dataset).passed and dataset.notes[0].text.endswith("not used: 2")
    (tmp_path / "pngs_masks").rename(tmp_path / "away")
    (tmp_path / "pngs_masks").write_bytes(b"")
    with pytest.raises(DataError, match="pngs_masks"):
        DATASETS.load("covid_rural")(tmp_path).cases()
