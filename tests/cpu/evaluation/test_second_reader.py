"""The second reader of a dataset as a row beside models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from box_world import command, evaluate, make_box_data
from PIL import Image

SIDES = (80, 60)
FIRST, SECOND = [0.1, 0.2, 0.5, 0.6], [0.3, 0.2, 0.5, 0.9]


def sentence(text: str, label: str, boxes: list[Any], extra: list[Any] | None, abnormal: bool = True) -> dict[str, Any]:
    found = {"sentence_en": text, "abnormal": abnormal, "boxes": boxes, "labels": [label]}
    return found if extra is None else {**found, "extra_boxes": extra}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three images; of the four pairs the second reader marked two, one of them in two entries."""
    folder = tmp_path / "data"
    folder.mkdir()
    findings = [
        [
            sentence("An effusion.", "effusion", [FIRST], [SECOND]),
            sentence("Another one.", "effusion", [[0.6, 0.6, 0.9, 0.9]], []),
            sentence("Heart normal.", "heart", [], [[0, 0, 1, 1]], abnormal=False),
        ],
        [sentence("A nodule.", "nodule", [FIRST], [FIRST]), sentence("a nodule.", "nodule", [SECOND], [SECOND])],
        [sentence("An effusion.", "effusion", [FIRST], None), sentence("No place.", "nodule", [], [SECOND])],
    ]
    studies = [
        {"StudyID": f"s{place}", "ImageID": f"i{place}.png", "findings": each} for place, each in enumerate(findings)
    ]
    (folder / "grounded_reports_20240819.json").write_text(json.dumps(studies))
    for place in range(3):
        Image.fromarray(np.zeros(SIDES[::-1], np.uint8)).save(folder / f"i{place}.png")
    return folder


def run(data: Path, *more: object) -> tuple[int, Path]:
    out = data.parent / "run"
    return command("eval", "--data", f"padchest_gr={data}", "--dataset", "padchest_gr", "--out", out, *more), out


def painted(boxes: list[list[float]]) -> Any:
    mask = np.zeros(SIDES[::-1], bool)
    for box in boxes:
        x1, y1, x2, y2 = (round(value * side, 6) for value, side in zip(box, SIDES * 2, strict=True))
        mask[int(y1) : int(y2), int(x1) : int(x2)] = True
    return mask


@pytest.mark.parametrize("missing", ["count", "leave-out"])
def test_the_second_reader_is_a_row(data: Path, missing: str) -> None:
    status, out = run(data, "--model", "reader:second", "--missing", missing)
    assert status == 0
    assert command("report", out, "--quiet", "--no-page", "--replicates", 0) == 0
    told = json.loads((out / "report/report.json").read_text())
    (found,) = told["boxes"]
    one, two = painted([FIRST]), painted([SECOND])
    dice = 2 * (one & two).sum() / (one.sum() + two.sum())
    effusion = [dice] if missing == "leave-out" else [dice, 0, 0]
    assert found["dice_native_percent"] == pytest.approx(100 * np.mean([np.mean(effusion), 1.0]))
    assert (found["pairs"], found["answered"]) == ((2, 2) if missing == "leave-out" else (4, 2))
    text = (out / "report/tables.md").read_text()
    assert "reader:second: what a second reader marked, no model" in text and "**100.00**" not in text


def test_a_dataset_without_a_second_reader_is_skipped(data: Path, tmp_path: Path, capsys: Any) -> None:
    assert run(data, "--model", "reader:second", "--data-option", "padchest_gr.region=union")[0] == 1
    assert "second reader; add --data-option padchest_gr.region=boxes" in capsys.readouterr().out
    assert evaluate(make_box_data(tmp_path / "other" / "data"), "--model", "reader:second") == 1
    assert "skipped, the dataset has no boxes of a second reader" in capsys.readouterr().out


def test_without_any_image_the_sizes_are_unknown(data: Path, capsys: Any) -> None:
    for image in data.glob("*.png"):
        image.unlink()
    assert run(data, "--model", "reader:second")[0] == 1
    told = "No image that reader:second marked can be read for its size, such as "
    assert f"{told}{data / 'i1.png'}; correct the dataset's root" in capsys.readouterr().err


def test_an_image_that_is_missing_takes_its_line_with_it(data: Path) -> None:
    (data / "i0.png").unlink()
    status, out = run(data, "--model", "reader:second")
    assert status == 1, "half of the images are missing"
    assert command("report", out, "--quiet", "--no-page", "--replicates", 0) == 0
    (found,) = json.loads((out / "report/report.json").read_text())["boxes"]
    assert (found["pairs"], found["answered"], found["missing"]) == (2, 1, 1)


def test_marks_that_change_are_computed_again(data: Path, capsys: Any) -> None:
    assert run(data, "--model", "reader:second")[0] == 0
    file = data / "grounded_reports_20240819.json"
    file.write_text(file.read_text().replace("0.9]", "0.8]"))
    capsys.readouterr()
    assert run(data, "--model", "reader:second")[0] == 0
    assert "computed again, because this changed: dataset" in capsys.readouterr().out
