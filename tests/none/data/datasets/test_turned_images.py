"""Annotated images that tools show turned by their EXIF orientation are named, and the advice puts regions right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from numpy.typing import NDArray
from PIL import Image, ImageOps
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.data.datasets.checking.audit import Audit, audit
from xbench_fast.runtime.data.datasets.checking.turned_images import turned_images
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.formats.csv_boxes import CsvBoxes
from xbench_fast.runtime.data.datasets.formats.labelme import LabelMe
from xbench_fast.runtime.data.datasets.formats.voc import PascalVoc
from xbench_fast.runtime.data.datasets.formats.yolo import Yolo
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.host.config import DatasetConfig

CASE = Path(__file__).parents[3] / "cases" / "exif-orientation-3-labelme"
BOX = (10, 50, 40, 70)  # x1, y1, x2, y2 on a picture of 60 x 80; leaves one of 80 x 60
NAMES = ("a", "b", "c", "d")
SHOWN: dict[int, Callable[[NDArray[Any]], NDArray[Any]]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.T,
    6: lambda stored: stored.T[:, ::-1],
    7: lambda stored: stored[::-1, ::-1].T,
    8: lambda stored: stored.T[::-1],
}
"""What a viewer makes of the stored pixels, by the table of EXIF 2.3: row 0 and column 0 of 6 are right and top."""
STORED = {**SHOWN, 6: SHOWN[8], 8: SHOWN[6]}
"""The stored pixels of what a viewer shows."""


def picture() -> NDArray[np.uint8]:
    grey = np.full((80, 60), 40, np.uint8)
    grey[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 220
    return grey


def labelme(root: Path, size: tuple[int, int] | None) -> Dataset:
    (root / "annotations").mkdir()
    stated = {} if size is None else {"imageHeight": size[0], "imageWidth": size[1]}
    for name in NAMES:
        shape = {"label": "Mass", "points": [BOX[:2], BOX[2:]], "shape_type": "rectangle"}
        text = json.dumps({"shapes": [shape], "imagePath": f"{name}.jpg", **stated})
        (root / "annotations" / f"{name}.json").write_text(text)
    return LabelMe(root)


def coco(root: Path, size: tuple[int, int] | None) -> Dataset:
    stated = {} if size is None else {"height": size[0], "width": size[1]}
    images = [{"id": number, "file_name": f"{name}.jpg", **stated} for number, name in enumerate(NAMES)]
    box = [*BOX[:2], BOX[2] - BOX[0], BOX[3] - BOX[1]]
    boxes = [{"image_id": number, "category_id": 1, "bbox": box} for number in range(len(NAMES))]
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "Mass"}]}
    (root / "annotations.json").write_text(json.dumps(document))
    return Coco(root)


def voc(root: Path, size: tuple[int, int] | None) -> Dataset:
    (root / "Annotations").mkdir()
    stated = "" if size is None else f"<size><width>{size[1]}</width><height>{size[0]}</height><depth>1</depth></size>"
    box = "".join(f"<{key}>{value}</{key}>" for key, value in zip(("xmin", "ymin", "xmax", "ymax"), BOX, strict=True))
    for name in NAMES:
        (root / "Annotations" / f"{name}.xml").write_text(
            f"<annotation><filename>{name}.jpg</filename>{stated}"
            f"<object><name>Mass</name><bndbox>{box}</bndbox></object></annotation>"
        )
    return PascalVoc(root)


def csv(root: Path, size: tuple[int, int] | None) -> Dataset:
    rows = [f"{name}.jpg,Mass,{','.join(map(str, BOX))}" for name in NAMES]
    (root / "annotations.csv").write_text("\n".join(["image,class,x_min,y_min,x_max,y_max", *rows]))
    return CsvBoxes(root)


def yolo(root: Path, size: tuple[int, int] | None) -> Dataset:
    (root / "labels").mkdir()
    (root / "data.yaml").write_text("names: [Mass]\n")
    x, y, w, h = (BOX[0] + BOX[2]) / 120, (BOX[1] + BOX[3]) / 160, (BOX[2] - BOX[0]) / 60, (BOX[3] - BOX[1]) / 80
    for name in NAMES:
        (root / "labels" / f"{name}.txt").write_text(f"0 {x} {y} {w} {h}\n")
    return Yolo(root)


READERS = {"labelme": labelme, "coco": coco, "voc": voc, "csv": csv, "yolo": yolo}


def write(root: Path, stored: NDArray[Any], orientation: int) -> None:
    (root / "images").mkdir(exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in NAMES:
        Image.fromarray(np.ascontiguousarray(stored)).save(root / "images" / f"{name}.jpg", quality=95, exif=exif)


def world(root: Path, reader: str, orientation: int, *, turned: bool, sized: bool = True) -> Callable[[], Dataset]:
    """Images annotated on what a tool showed that turns images, or one that does not; the latter shows `picture`."""
    stored = STORED[orientation](picture()) if turned else picture()
    write(root, stored, orientation)
    READERS[reader](root, picture().shape if sized else None)
    kind = {"labelme": LabelMe, "coco": Coco, "voc": PascalVoc, "csv": CsvBoxes, "yolo": Yolo}[reader]
    return lambda: kind(root)  # type: ignore[abstract]


def brightest(dataset: Dataset) -> list[float]:
    """The mean grey level of each region, drawn on the stored pixels."""
    levels = []
    for case in dataset.cases():
        grey = read_grey(case.image)
        size = case.size or grey.shape
        mask = case.regions["Mass"].mask(*size)
        levels.append(float(grey[mask].mean()) if size == grey.shape else 0.0)
    return levels


def turn(root: Path) -> None:
    """The first advice."""
    for path in (root / "images").iterdir():
        with Image.open(path) as image:
            ImageOps.exif_transpose(image).save(path, quality=95)


def untag(root: Path) -> None:
    """The second advice."""
    for path in (root / "images").iterdir():
        with Image.open(path) as image:
            image.load()
            image.save(path, quality=95, exif=b"")


def said(found: Audit) -> str:
    texts = [text for text in found.warnings if "EXIF orientation" in text]
    assert len(found.warnings) == len(texts) <= 1, found.warnings
    return "".join(texts)


def test_the_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["datasets", "check", "x", "--data", f"x={CASE}", "--data-option", "x.reader=labelme", "--json", "-"])
    assert stopped.value.code == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["passed"] and len(found["warnings"]) == 1
    assert found["warnings"][0].startswith(
        "12 of 12 annotated images have an EXIF orientation other than 1 (3), a0.jpg first: "
    )
    assert max(brightest(LabelMe(CASE))) < 100, "the regions lie elsewhere"


@pytest.mark.parametrize(
    ("reader", "orientation"),
    [*[("labelme", value) for value in range(1, 9)], *[(reader, value) for reader in READERS for value in (4, 6)]],
)
def test_the_advice_puts_regions_right(tmp_path: Path, reader: str, orientation: int) -> None:
    opened = world(tmp_path, reader, orientation, turned=True)
    found = audit(opened())
    text = said(found)
    if orientation == 1:
        assert found.passed and not text and min(brightest(opened())) > 200
        return
    assert not found.passed and max(brightest(opened())) < 200
    assert f"4 of 4 annotated images have an EXIF orientation other than 1 ({orientation}), a.jpg first" in text
    assert "write these images anew with PIL.ImageOps.exif_transpose" in text
    known = orientation >= 5 and reader != "yolo"
    assert ("the annotation of 4 of them fits the turned image alone, so" in text) == known
    assert ("if it did not, remove the orientation" in text) != known
    turn(tmp_path)
    mended = audit(opened(), decode=True)
    assert mended.passed, mended.warnings
    assert min(brightest(opened())) > 200


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("orientation", [3, 8])
def test_a_tool_that_does_not_turn_is_told_by_its_sizes(tmp_path: Path, reader: str, orientation: int) -> None:
    opened = world(tmp_path, reader, orientation, turned=False)
    text = said(audit(opened()))
    known = orientation >= 5 and reader != "yolo"
    assert ("fits the stored pixels alone, so the tool probably did not turn them: if so, remove" in text) == known
    assert "remove the orientation from these files" in text
    assert min(brightest(opened())) > 200
    untag(tmp_path)
    assert audit(opened()).passed and min(brightest(opened())) > 200


@pytest.mark.parametrize("reader", ["labelme", "coco", "voc"])
def test_without_a_stated_size_boxes_that_leave_the_stored_pixels_tell(tmp_path: Path, reader: str) -> None:
    opened = world(tmp_path, reader, 6, turned=True, sized=False)
    found = audit(opened())
    assert "fits the turned image alone" in said(found)
    assert found.misfits == 4 and all("EXIF orientation turns the image" in text for text in found.misfit_regions)


def test_images_of_both_kinds_are_told_apart(tmp_path: Path) -> None:
    opened = world(tmp_path, "labelme", 6, turned=True)
    file = tmp_path / "annotations" / "a.json"
    document = json.loads(file.read_text())
    document["imageHeight"], document["imageWidth"] = document["imageWidth"], document["imageHeight"]
    document["shapes"][0]["points"] = [[50, 20], [70, 50]]
    file.write_text(json.dumps(document))
    text = said(audit(opened()))
    assert (
        "of 3 of them fits the turned image alone and the annotation of 1 the stored pixels alone: write the former"
        in text
    )


def test_several_orientations_and_square_images(tmp_path: Path) -> None:
    square = np.full((60, 60), 40, np.uint8)
    write(tmp_path, square, 1)
    exif = Image.Exif()
    for name, orientation in zip("bcd", (3, 6, 8), strict=True):
        exif[0x0112] = orientation
        Image.fromarray(square).save(tmp_path / "images" / f"{name}.jpg", exif=exif)
    images = [{"id": n, "file_name": f"{name}.jpg"} for n, name in enumerate(NAMES)]
    boxes = [{"image_id": n, "category_id": 1, "bbox": [5 + 9 * n, 9, 20, 20]} for n in range(3)]
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "Mass"}]}
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    found = turned_images(Coco(tmp_path).cases())
    assert {key: image.orientation for key, image in found.items()} == {"1": 3, "2": 6}, "d.jpg has no region"
    text = said(audit(Coco(tmp_path)))
    assert "2 of 3 annotated images have an EXIF orientation other than 1 (3, 6), b.jpg first" in text
    assert "if the tool showed them turned" in text


def test_eval_and_its_coverage_repeat_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    world(tmp_path / "data", "labelme", 3, turned=True)
    evaluation = World(tmp_path)
    data = DatasetConfig("x", tmp_path / "data", "labelme")
    evaluation.run([], [data], baselines=["baseline:center"])
    lines = [line for line in evaluation.lines if line.startswith("x: warning: 4 of 4 annotated images have an EXIF")]
    assert len(lines) == 1
    kept = evaluation.entry("baseline:center--x")["warnings"]
    assert lines == [f"x: warning: {kept['orientation']}"]
    evaluation.run([], [data], baselines=["baseline:center"])
    assert lines[0] in evaluation.lines, "a result that is taken over warns too"
    with pytest.raises(SystemExit):
        main(["report", str(evaluation.out), "--no-page", "--quiet", "--out", str(tmp_path / "report")])
    pages = "".join(path.read_text() for path in (tmp_path / "report").rglob("*.md"))
    assert "x: warning: 4 of 4 annotated images have an EXIF orientation other than 1" in pages
