"""What an export says about metrics in lower precision: the numbers, and the user's images and boxes behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score
from xbench_fast.engines.errors import ConfigError, DataError, ImageError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export.parity.metric_changes import SIDE, Tally, TrialImage, probe_cases
from xbench_fast.export.parity.placing import place
from xbench_fast.export.parity.user_images import read_parity_data
from xbench_fast.runtime.images.geometry import to_model

PIXELS = np.zeros((1, 8, 8), np.uint8)


def region(top: int, left: int, bottom: int, right: int) -> Any:
    mask = np.zeros((SIDE, SIDE), bool)
    mask[top:bottom, left:right] = True
    return mask


def spot(row: int, column: int) -> Any:
    """A 7 x 7 map, each cell 32 pixels wide, with one bright cell."""
    values = np.zeros((1, 7, 7), np.float32)
    values[0, row, column] = 1
    return values


def test_a_moved_maximum_flips_and_is_the_worst_case() -> None:
    tally = Tally(("Mass",))
    here, logits = region(0, 0, 64, 64), np.zeros(1, np.float32)
    tally.add(TrialImage("a", PIXELS, {0: here}, frozenset({0})), (logits, spot(1, 1)), (logits, spot(1, 1)))
    tally.add(TrialImage("b", PIXELS, {0: here}, frozenset({0})), (logits, spot(1, 1)), (logits, spot(5, 5)))
    found = tally.summary()
    assert (found["pairs"], found["hits"], found["hits_flipped"]) == (2, [2, 1], 1)
    (worst,) = found["worst"]
    assert worst["image"] == "b" and worst["hit"] == [True, False] and worst["finding"] == "Mass"
    enlarged = np.asarray(Image.fromarray(spot(1, 1)[0]).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    bright = {tuple(place) for place in np.argwhere(enlarged >= enlarged.max() / 2)}
    wanted = 2 * len(bright & {tuple(place) for place in np.argwhere(here)}) / (len(bright) + 64 * 64)
    assert worst["dice"] == [pytest.approx(wanted), 0.0] and found["dice_change"] == pytest.approx(wanted)
    assert found["auc"] is None and found["auc_change"] is None


def test_auc_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(3)
    before, after = random.normal(size=(2, 12, 3)).astype(np.float32)
    after[2, 0] = after[3, 0]  # a tie
    labels = random.random((12, 3)) < 0.5
    labels[:, 2] = True  # no negative image: no AUC
    tally, maps = Tally(("A", "B", "C")), np.zeros((3, 7, 7), np.float32)
    for row in range(12):
        case = TrialImage(str(row), PIXELS, {}, frozenset(np.flatnonzero(labels[row]).tolist()))
        tally.add(case, (before[row], maps), (after[row], maps))
    wanted = np.array([[roc_auc_score(labels[:, n], table[:, n]) for table in (before, after)] for n in range(2)])
    found = tally.summary()
    assert found["auc"] == pytest.approx(wanted.mean(0).tolist())
    assert found["auc_change"] == pytest.approx(np.abs(wanted[:, 0] - wanted[:, 1]).max())
    assert (found["pairs"], found["hits"], found["dice"], found["worst"]) == (0, None, None, [])


def test_equal_outputs_change_nothing_and_probe_cases_have_both_labels() -> None:
    cases = probe_cases(16, 3)
    tally, random = Tally(("A", "B", "C")), np.random.default_rng(0)
    for case in cases:
        assert case.pixels.shape == (1, 16, 16) and all(0 < mask.sum() < mask.size for mask in case.regions.values())
        same = random.normal(size=3).astype(np.float32), random.random((3, 4, 4), dtype=np.float32)
        tally.add(case, same, same)
    found = tally.summary()
    assert (found["images"], found["pairs"], found["hits_flipped"], found["worst"]) == (10, 30, 0, [])
    assert found["dice_change"] == found["auc_change"] == 0.0


# The user's images


def folder(path: Path, *rows: str, header: str = "image,class,x_min,y_min,x_max,y_max") -> Path:
    (path / "images").mkdir()
    (path / "annotations.csv").write_text("\n".join([header, *rows]) + "\n")
    for name, size in (("a.png", (40, 20)), ("b.png", (20, 40))):
        values = np.random.default_rng(len(name)).integers(0, 256, size[::-1], dtype=np.uint8)
        Image.fromarray(values).save(path / "images" / name)
    return path


def test_boxes_stand_where_the_models_frame_has_them(tmp_path: Path) -> None:
    data = read_parity_data(
        folder(tmp_path, "a.png,Mass,0,0,20,10", "a.png,Mass,30,10,40,20", "a.png,Nodule,,,,", "b.png,,,,,")
    )
    assert data.classes == ("Mass", "Nodule")
    sets = {"other": ["Mass"], "more": ["Mass", "Nodule", "Edema", "Rod"], "both": ["Edema", "Nodule", "Mass"]}
    assert data.choose(sets) == "both"
    squashed = list(data.cases(Geometry("squash", 112, 112, "bilinear"), sets["both"]))
    assert [case.name for case in squashed] == ["annotations.csv row 2", "annotations.csv row 5"]
    assert squashed[0].positive == {1, 2} and squashed[1].positive == frozenset() and not squashed[1].regions
    wanted = region(0, 0, 112, 112) | region(112, 168, 224, 224)
    (mask,) = squashed[0].regions.values()
    assert list(squashed[0].regions) == [2] and (mask != wanted).mean() < 0.01
    cropped = next(data.cases(Geometry("crop", 112, 112, "bicubic"), sets["both"]))  # the middle 20 x 20 pixels
    assert (cropped.regions[2] != region(0, 0, 112, 112)).mean() < 0.01
    padded = next(data.cases(Geometry("pad_crop", 224, 224, "area"), sets["both"]))
    wanted = region(56, 0, 112, 112) | region(112, 168, 168, 224)
    assert (padded.regions[2] != wanted).mean() < 0.01


def test_sizes_and_sixteen_bits_are_read(tmp_path: Path) -> None:
    data = folder(tmp_path, "a.png,Mass,10,5,20,10", header="image,class,x,y,width,height")
    Image.fromarray(np.array([[100, 4000], [2050, 100]], np.uint16)).save(tmp_path / "images" / "a.png")
    (case,) = read_parity_data(data).cases(Geometry("squash", 2, 2, "bilinear"), ["Mass"])
    np.testing.assert_array_equal(case.pixels[0], [[0, 255], [128, 0]])


@pytest.mark.parametrize(
    ("geometry", "size", "steps"),
    [
        (Geometry("squash", 32, 32, "bicubic"), (61, 47), 0),
        (Geometry("squash", 32, 32, "bilinear"), (20, 47), 0),
        (Geometry("crop", 24, 32, "bicubic"), (61, 47), 0),
        (Geometry("pad_crop", 24, 32, "area"), (61, 47), 1),
    ],
)
def test_pixels_are_those_of_an_evaluation(geometry: Geometry, size: tuple[int, int], steps: int) -> None:
    grey = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    found, wanted = place(Image.fromarray(grey), geometry), to_model(grey, geometry)
    assert found.shape == wanted.shape and np.abs(found.astype(int) - wanted).max() <= steps


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["c.png,Mass,0,0,1,1"], "row 2: there is no image c.png"),
        (["../a.png,Mass,0,0,1,1"], "row 2: there is no image"),
        ([",Mass,0,0,1,1"], "row 2: image is empty"),
        (["a.png,Mass,0,0,1,1", "a.png,Mass,0,x,1,1"], "row 3: a box coordinate is no number"),
        (["a.png,Mass,5,0,1,1"], "row 2: the box 5, 0, 1, 1 ends before it begins"),
        (["a.png,Mass,0,0,inf,1"], "row 2: the box"),
        (["a.png,,0,0,1,1"], "row 2: the row has a box but no class"),
        (["a.png,,,,,"], "no row names a class"),
        (["a.png"], "no row names a class"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence_with_its_row(tmp_path: Path, rows: list[str], words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_parity_data(folder(tmp_path, *rows))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"annotations\.csv cannot be read .*images/"):
        read_parity_data(tmp_path)
    data = read_parity_data(folder(tmp_path, "a.png,Blob,0,0,1,1"))
    with pytest.raises(ConfigError, match="has the classes Blob, and no prompt set asks"):
        data.choose({"rsna": ["Pneumonia"]})
    (tmp_path / "images" / "a.png").write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"a\.png cannot be read"):
        list(data.cases(Geometry("squash", 8, 8, "bilinear"), ["Blob"]))
    (tmp_path / "annotations.csv").write_text("image,class,x,y\n")
    with pytest.raises(DataError, match="the header has image, class, x, y; needed are"):
        read_parity_data(tmp_path)
