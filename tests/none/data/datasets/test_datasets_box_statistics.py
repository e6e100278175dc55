"""Boxes of a wrong form, unit or size are found by their statistics (docs/datasets.md §0.7), and real ones are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from PIL import Image
from synthetic import make_bundle
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.checking.box_statistics import box_warnings
from xbench_fast.runtime.data.datasets.dataset import Case, Dataset
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.formats.csv_boxes import CsvBoxes
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.host.config import DatasetConfig

REPOSITORY = Path(__file__).parents[4]
WIDTH, HEIGHT = 80, 60
Edit = Callable[[dict[str, Any]], None]


def boxes() -> list[list[int]]:
    """24 boxes x, y, width, height, spread over images of 80 x 60."""
    rng = np.random.default_rng(3)
    found = [[0, 0, 12, 9], [66, 48, 14, 12]]
    for _ in range(22):
        w, h = (int(side) for side in rng.integers(8, 20, 2))
        found.append([int(rng.integers(0, WIDTH - w)), int(rng.integers(0, HEIGHT - h)), w, h])
    return found


def coco(root: Path, edit: Edit | None = None, *, sized: bool = True, side: float = 1.0) -> Path:
    """The boxes, one on each image, in COCO's form; `side`: the image files are resized by it."""
    (root / "images").mkdir(parents=True)
    stated = {"width": WIDTH, "height": HEIGHT} if sized else {}
    document = {
        "images": [{"id": n, "file_name": f"{n}.png", **stated} for n in range(24)],
        "annotations": [{"image_id": n, "category_id": 1, "bbox": box} for n, box in enumerate(boxes())],
        "categories": [{"id": 1, "name": "Mass"}],
    }
    if edit is not None:
        edit(document)
    (root / "annotations.json").write_text(json.dumps(document))
    size = (round(side * WIDTH), round(side * HEIGHT))
    for name in {image["file_name"] for image in document["images"]}:
        Image.new("L", size, 7).save(root / "images" / name)
    return root


def each(change: Callable[[list[float]], list[float]]) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        for annotation in document["annotations"]:
            annotation["bbox"] = change(annotation["bbox"])

    return edit


def one_image(document: dict[str, Any]) -> None:
    for image in document["images"]:
        image["file_name"] = "0.png"


def exchanged(document: dict[str, Any]) -> None:
    for image in document["images"]:
        image["width"], image["height"] = HEIGHT, WIDTH
    for annotation in document["annotations"]:
        annotation["bbox"] = [5, 5, 9, 9] if annotation["image_id"] % 2 else [40, 50, 9, 9]


corners = each(lambda box: [box[0], box[1], box[0] + box[2], box[1] + box[3]])
fractions = each(lambda box: [box[0] / WIDTH, box[1] / HEIGHT, box[2] / WIDTH, box[3] / HEIGHT])
doubled = each(lambda box: [2 * value for value in box])
halved = each(lambda box: [value / 2 for value in box])
tiny = each(lambda box: [min(box[0], 79), min(box[1], 59), 0.2, 0.2])

STATE = "state height and width of the images on which they were drawn in images."
CORNERS = "; set the option boxes to corners (--data-option coco.boxes=corners)."
FRACTIONS = "size; set the option unit to fractions (--data-option coco.unit=fractions)."
CASES = {
    "right": (None, {}, None, ""),
    "right, of a resized copy": (None, {"side": 0.5}, None, ""),
    "right, sizes of the files": (None, {"sized": False}, None, ""),
    "corners": (corners, {}, "they look like corners x1, y1, x2, y2", CORNERS),
    "corners, sizes of the files": (corners, {"sized": False}, "like corners", CORNERS),
    "fractions": (fractions, {}, "all 24 boxes lie between 0 and 1 pixel", FRACTIONS),
    "of larger images": (doubled, {"sized": False}, "up to 2 times its width or height: they look like", STATE),
    "of smaller images": (halved, {"sized": False}, "like boxes of smaller images, of 40 x 30 pixels", STATE),
    "of the resized copy": (halved, {"side": 0.5}, "80 x 60 and fit the images' own size, 40 x 30: they", STATE),
    "one image": (one_image, {}, "one image file, 0.png, which so counts 24 times", "name each image's own file."),
    "height and width": (exchanged, {}, "24 of 24 stated sizes", "exchange height and width in images."),
}  # fmt: skip


def status(*arguments: object) -> object:
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code


@pytest.mark.parametrize("name", CASES)
def test_check_and_eval_say_what_it_looks_like(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    edit, how, words, mend = CASES[name]
    root = coco(tmp_path / "data", edit, **how)
    data = ("--data", f"coco={root}")
    assert status("datasets", "check", "coco", *data, "--json", "-") == (0 if words is None else 1)
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert len(warnings) == (words is not None)
    assert words is None or (words in warnings[0] and warnings[0].endswith(mend)), warnings
    lines = [f"coco: warning: {warning}" for warning in warnings]
    bundle = make_bundle(tmp_path / "blocks-32").path
    world, config = World(tmp_path), DatasetConfig("coco", root, "coco")
    for _ in range(2):  # the second time from the finished result, when no image is read
        world.run([bundle], [config])
        assert [line for line in world.lines if "warning" in line][-1:] == lines
    out = tmp_path / "ones"
    eval_ = ("eval", "--model", "baseline:ones", "--dataset", "coco", *data, "--out", out, "--no-cache")
    assert status(*eval_) == 0
    told = capsys.readouterr().out.replace("\n", " ")
    if how.get("side") is None and edit is not exchanged:  # a baseline reads no image whose size is stated
        assert told.count("warning:") == len(lines) and all(line in told for line in lines), told
        assert status("report", out, "--no-page", "--quiet") == 0
        page = (out / "report/tables.md").read_text().replace("\\", "")
        assert all(warning in page for warning in warnings)
    assert status("datasets", "check", "coco", *data) == bool(warnings)
    assert all(warning in capsys.readouterr().out.replace("\n", " ") for warning in warnings)


def test_a_resumed_cell_warns_of_all_boxes(tmp_path: Path) -> None:
    """Under the name of the configuration, not of the reader."""
    bundle, root = make_bundle(tmp_path / "blocks-32").path, coco(tmp_path / "data", corners, sized=False)
    told: list[list[str]] = []
    for folder, interrupts in (("whole", ()), ("resumed", (5,))):
        world = World(tmp_path / folder)
        for after in interrupts:
            world.interrupt = (after, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                world.run([bundle], [DatasetConfig("mine", root, "coco", prompts="coco")])
            world.interrupt = None
        world.run([bundle], [DatasetConfig("mine", root, "coco", prompts="coco")])
        told.append([line for line in world.lines if "warning" in line])
    assert told[0] == told[1] and " of 24 boxes " in told[0][0]
    assert told[0][0].endswith("(--data-option mine.boxes=corners).")


def test_the_options_named_mend_it(tmp_path: Path) -> None:
    want = [case.regions["Mass"].mask(HEIGHT, WIDTH) for case in Coco(coco(tmp_path / "right")).cases()]
    both = each(lambda b: [b[0] / WIDTH, b[1] / HEIGHT, (b[0] + b[2]) / WIDTH, (b[1] + b[3]) / HEIGHT])
    for name, edit, options in (
        ("corners", corners, {"boxes": "corners"}),
        ("fractions", fractions, {"unit": "fractions"}),
        ("both", both, {"boxes": "corners", "unit": "fractions"}),
    ):
        dataset = Coco(coco(tmp_path / name, edit), **options)
        assert audit(dataset).passed
        for case, mask in zip(dataset.cases(), want, strict=True):
            drawn = case.regions["Mass"].mask(HEIGHT, WIDTH)
            assert np.count_nonzero(drawn != mask) <= (0 if name == "corners" else 25), "rounded by a pixel at most"


def table(root: Path, head: str, rows: list[list[float]]) -> Path:
    coco(root)
    lines = [f"{n}.png,Mass,{','.join(map(str, row))}" for n, row in enumerate(rows)]
    (root / "annotations.csv").write_text("\n".join([f"image,class,{head}", *lines]))
    return root


def test_a_csv_names_its_own_columns_and_options(tmp_path: Path) -> None:
    wide = [[x, y, x + w, y + h] for x, y, w, h in boxes()]
    root = table(tmp_path / "corners", "x,y,width,height", wide)
    (warning,) = audit(CsvBoxes(root)).warnings
    assert (
        'set the option columns to {x_min = "x", y_min = "y", x_max = "width", y_max = "height"} (--data-option '
        in warning
    )
    assert warning.endswith(""" 'csv.columns={x_min = "x", y_min = "y", x_max = "width", y_max = "height"}').""")
    columns = {"x_min": "x", "y_min": "y", "x_max": "width", "y_max": "height"}
    unused = dict.fromkeys(("x", "y", "width", "height"), "-")
    assert audit(CsvBoxes(root, columns={**columns, **unused})).passed
    unit = [[x / WIDTH, y / HEIGHT, w / WIDTH, h / HEIGHT] for x, y, w, h in boxes()]
    root = table(tmp_path / "fractions", "x,y,width,height", unit)
    (warning,) = audit(CsvBoxes(root)).warnings
    assert (
        "fractions of the image's size; set the option unit to fractions (--data-option csv.unit=fractions)." in warning
    )
    assert audit(CsvBoxes(root, unit="fractions")).passed


def test_chestxdet10_without_its_frame(capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", f"chestxdet10={REPOSITORY / 'demo/chestxdet10'}", "--json", "-")
    assert status("datasets", "check", "chestxdet10", *data) == 1
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert "lie in the top left 48 % of their grid of 1024 x 1024 and fit the images' own size, 512 x 512" in warning
    assert warning.endswith("set the option frame to their side (--data-option chestxdet10.frame=512).")
    status("datasets", "check", "chestxdet10", *data, "--data-option", "chestxdet10.frame=512")
    assert json.loads(capsys.readouterr().out)["warnings"] == []


class Given(Dataset):
    name, title, classes = "given", "Given", ("a",)

    def sources(self) -> tuple[Path, ...]:
        return ()

    def read(self, notes: object) -> list[Case]:
        return []


def warned(tmp_path: Path, boxes: list[tuple[float, float, float, float]], size: int = 1000, file: int = 1000) -> bool:
    cases = [
        Case(str(n), Path(f"{n}.png"), {"a": 1}, {"a": Boxes((box,))}, "all", size=(size, size), rows=(n,))
        for n, box in enumerate(boxes)
    ]
    return bool(box_warnings(Given(tmp_path), cases, {case.case_id: (file, file) for case in cases}))


def test_the_thresholds_are_those_of_the_page(tmp_path: Path) -> None:
    good, beyond = (100.0, 100.0, 900.0, 900.0), (500.0, 500.0, 1500.0, 900.0)
    assert warned(tmp_path, [good] * 27 + [beyond] * 3) and not warned(tmp_path, [good] * 28 + [beyond] * 3)
    assert not warned(tmp_path, [good] + [beyond] * 2) and warned(tmp_path, [beyond] * 3)
    assert not warned(tmp_path, [good] * 3 + [(0.0, 0.0, 1002.0, 1002.0)] * 3), "rounding"
    unit = (0.2, 0.3, 1.0, 0.9)
    assert warned(tmp_path, [unit] * 3) and not warned(tmp_path, [unit] * 2)
    low, high = (10.0, 10.0, 550.0, 550.0), (10.0, 10.0, 551.0, 300.0)
    assert warned(tmp_path, [low] * 10) and not warned(tmp_path, [low] * 9) and not warned(tmp_path, [low] * 9 + [high])
    assert warned(tmp_path, [low] * 5, file=550) and not warned(tmp_path, [low] * 4, file=550)
    near, half = (10.0, 10.0, 274.0, 274.0), (10.0, 10.0, 275.0, 274.0)
    assert not warned(tmp_path, [near] * 5, file=550) and warned(tmp_path, [near] * 4 + [half], file=550)
    part, more = (10.0, 10.0, 750.0, 600.0), (10.0, 10.0, 753.0, 600.0)
    assert warned(tmp_path, [part] * 10, file=750) and not warned(tmp_path, [part] * 9, file=750)
    assert not warned(tmp_path, [part] * 9 + [more], file=750) and not warned(tmp_path, [part] * 40, file=751)
    cell = (500.0, 500.0, 504.4, 504.4)
    assert warned(tmp_path, [good] * 27 + [cell] * 3) and not warned(tmp_path, [good] * 28 + [cell] * 3)
    assert not warned(tmp_path, [good] * 3 + [(500.0, 500.0, 504.5, 504.5)] * 3)
    for rows, said in ((20, True), (19, False)):
        merged = [
            Case(str(n), Path(f"{n}.png"), {"a": 0}, {}, "all", rows=tuple(range(rows if n == 0 else 1)))
            for n in range(9)
        ]
        assert bool(box_warnings(Given(tmp_path), merged, {})) == said
