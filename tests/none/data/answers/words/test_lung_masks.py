"""The frame of the thorax from masks of the lungs (docs/words.md §4)."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from test_word_files import read, world
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.metrics_gpu.zones.thorax_places import FIXED, ThoraxFrame, rectangle_of
from xbench_fast.runtime.data.answers.words.class_answers import Remark
from xbench_fast.runtime.data.answers.words.thorax_frames import ThoraxFrames, WordOptions

Mask = NDArray[np.bool_]
LINE = {"case": "a", "finding": "Mass", "text": "Mass in the right upper zone and the left base."}


def lungs(shift: int = 0) -> list[Mask]:
    """Right and left lung on a grid of 100 x 100, whose outline is the fixed frame; each is an L, not a rectangle."""
    right, left = np.zeros((2, 100, 100), np.bool_)
    right[12:60, 14 + shift : 30 + shift] = right[55:82, 14 + shift : 50 + shift] = True
    left[20:82, 50 + shift : 86 + shift] = left[12:30, 60 + shift : 66 + shift] = True
    return [right, left]


def runs(mask: Mask) -> str:
    """CheXmask's runs, written pixel by pixel: each is a run of length 1."""
    return " ".join(f"{at + 1} 1" for at in np.flatnonzero(mask.ravel()).tolist())


def png_pair(folder: Path, masks: list[Mask]) -> Path:
    for side, mask in zip(("right", "left"), masks, strict=True):
        Image.fromarray(mask.astype(np.uint8) * 255).save(folder / f"a_{side}.png")
    return folder


def cxas_png(folder: Path, masks: list[Mask]) -> Path:
    (folder / "a").mkdir()
    for side, mask in zip(("right lung", "left lung"), masks, strict=True):
        Image.fromarray(mask).convert("1").save(folder / "a" / f"{side}.png")
    return folder


def cxas_array(folder: Path, masks: list[Mask]) -> Path:
    array = np.zeros((159, 100, 100), np.bool_)
    array[135], array[136] = masks
    np.save(folder / "a.npy", array)
    return folder


def cxas_compressed(folder: Path, masks: list[Mask]) -> Path:
    array = np.load(cxas_array(folder, masks) / "a.npy")
    (folder / "a.npy").unlink()
    np.savez_compressed(folder / "a.npz", array)
    return folder


def segmentation(folder: Path, masks: list[Mask]) -> Path:
    pydicom = pytest.importorskip("pydicom")
    data = pydicom.dcmread(Path(__file__).parents[4] / "formats/dicom/seg_binary.dcm")
    data.Rows = data.Columns = 100
    bits = np.packbits(np.stack(masks).reshape(-1).astype(np.uint8), bitorder="little").tobytes()
    data.PixelData = bits + b"\0" * (len(bits) % 2)
    for segment, label in zip(data.SegmentSequence, ("Right Lung", "left lung"), strict=True):
        segment.SegmentLabel = label
    (folder / "a").mkdir()
    data.save_as(folder / "a" / "seg.dcm")
    return folder


def chexmask(folder: Path, masks: list[Mask], quality: float = 0.9, name: str = "a.png") -> Path:
    row = f'x,{name},{quality},"1,2 3",{runs(masks[1])},{runs(masks[0])},1 1,100,100\n'
    path = folder / "masks.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("Patient ID,image_id,Dice RCA (Mean),Landmarks,Left Lung,Right Lung,Heart,Height,Width\n" + row)
    return path


SOURCES: dict[str, Callable[[Path, list[Mask]], Path]] = {
    "pairs of PNG": png_pair, "CXAS PNG": cxas_png, "CXAS npy": cxas_array, "CXAS npz": cxas_compressed,
    "DICOM SEG": segmentation, "CheXmask": chexmask,
}  # fmt: skip


def frame(path: Path) -> tuple[ThoraxFrame, bool]:
    return ThoraxFrames(WordOptions(lungs=path), world({"a": {"Mass": 1}, "b": {"Mass": 1}})).frame(0)


@pytest.mark.parametrize("source", SOURCES)
def test_masks_equal_to_the_fixed_frame_give_its_places(source: str, tmp_path: Path) -> None:
    masked, is_fixed = frame(SOURCES[source](tmp_path, lungs()))
    assert not is_fixed
    for name in ("RU", "RM'", "LL,", "L.apex", "heart", "R.middle_lobe"):
        for size in ((1024, 1024), (2544, 3056), (250, 1000)):  # of 250, an edge lies on a whole pixel
            expected = FIXED.pixels(rectangle_of(name), size)
            np.testing.assert_allclose(masked.pixels(rectangle_of(name), size), expected, rtol=0, atol=1e-9)
            assert [int(x) for x in masked.pixels(rectangle_of(name), size)] == [int(x) for x in expected]


@pytest.mark.parametrize("source", SOURCES)
def test_shifted_masks_move_the_places_and_mirrored_ones_stop(source: str, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    (tmp_path / "mirrored").mkdir()
    path = SOURCES[source](tmp_path / "moved", lungs(10))
    questions = world({"a": {"Mass": 1}})
    moved = read(tmp_path, LINE, questions=questions, lungs=path).positives.boxes
    fixed = read(tmp_path, LINE, questions=questions).positives.boxes
    np.testing.assert_allclose(moved, fixed + np.array([102.4, 0, 102.4, 0]), rtol=0, atol=1e-9)
    with pytest.raises(DataError, match="masks are mirrored"):
        frame(SOURCES[source](tmp_path / "mirrored", lungs()[::-1]))


def test_a_run_over_several_rows_reaches_both_edges(tmp_path: Path) -> None:
    header = "image_id,Left Lung,Right Lung,Height,Width\n"
    path = tmp_path / "runs.csv"  # the left lung: from column 6 of row 2 to column 7 of row 4, on 10 x 10
    path.write_text(header + "a,27 22,21 3,10,10\n")
    masked, _ = frame(path)
    assert (masked.x0, masked.y0, masked.x1, masked.y1) == (0.0, 0.2, 1.0, 0.5) and masked.middle == 0.15


def test_the_midline_lies_between_the_lungs(tmp_path: Path) -> None:
    right, left = lungs()
    right[:, 40:], left[:, :54] = False, False  # the lungs end at 40 and begin at 54
    left[30, 54] = True
    masked, _ = frame(png_pair(tmp_path, [right, left]))
    assert masked.middle == pytest.approx(0.47) and masked.across(0.5) == pytest.approx(0.47)
    assert masked.across(0.25) == pytest.approx((0.14 + 0.47) / 2) and masked.across(1.0) == pytest.approx(0.86)


def test_images_without_masks_or_with_poor_ones_get_the_fixed_frame(tmp_path: Path) -> None:
    assert frame(png_pair(tmp_path, [lungs()[0], np.zeros((100, 100), np.bool_)])) == (FIXED, True)
    assert frame(chexmask(tmp_path, lungs(), quality=0.69)) == (FIXED, True)
    assert not frame(chexmask(tmp_path, lungs(), quality=0.7))[1]
    assert frame(chexmask(tmp_path, lungs(), name="c.png")) == (FIXED, True)
    file = read(tmp_path, LINE, questions=world({"a": {"Mass": 1}}), lungs=chexmask(tmp_path, lungs(), 0.1))
    (answer,) = file.positives.words or ()
    assert answer.remarks & Remark.FRAME_FIXED


def broken(path: Path, content: Any) -> Path:
    path.write_bytes(content)
    return path


def test_masks_and_the_whole_image_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave out --lungs, or --thorax image"):
        WordOptions(thorax="image", lungs=tmp_path)


def test_what_is_no_source_of_masks_stops(tmp_path: Path) -> None:
    header = b"image_id,Left Lung,Right Lung,Height,Width\n"
    for path, words in [
        (tmp_path / "absent", "do not exist"),
        (broken(tmp_path / "masks.txt", b""), "neither a CSV"),
        (broken(tmp_path / "a.csv", b"image_id,Left Lung\n"), "lacks the columns Right Lung, Height, Width"),
        (broken(tmp_path / "b.csv", header + b"a,1 2 3,1 1,10,10\n"), "line 2: a number"),
        (broken(tmp_path / "c.csv", header + b"a,1 2,99 9,10,10\n"), "line 2: a number"),
        (broken(tmp_path / "d.csv", header + b"a,1 2,1 1,inf,10\n"), "line 2: a number"),
        (broken(tmp_path / "e.csv", header + b"a,9223372036854775807 9,1 1,10,10\n"), "line 2: a number"),
        (broken(tmp_path / "f.csv", header + b"a,8 2,1 1,10,10\n" * 2 + b"a,7 2,1 1,10,10\n"), "line 4: another row"),
        (broken(tmp_path / "g.csv.gz", gzip.compress(header)[:-9]), "cannot be read as CSV"),
        (broken(tmp_path / "h.csv.gz", gzip.compress(header)[:12] + b"\xff" * 99), "cannot be read as CSV"),
    ]:
        with pytest.raises(DataError, match=words):
            frame(path)
    np.save(tmp_path / "a.npy", np.zeros((3, 4, 4), np.bool_))
    with pytest.raises(DataError, match="CXAS writes"):
        frame(tmp_path)
    np.save(tmp_path / "a.npy", np.full((159, 4, 4), "x"))
    with pytest.raises(DataError, match="CXAS writes"):
        frame(tmp_path)
    (tmp_path / "a.npy").unlink()
    for content in (b"PK\x03\x04", b"abc"):
        broken(tmp_path / "a.npz", content)
        with pytest.raises(DataError, match="no array of numbers"):
            frame(tmp_path)
