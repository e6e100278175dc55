"""The study of errors: of predicted boxes, against the reference, and of maps beside them, with the same true boxes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from study_world import answer, study
from xbench_fast.metrics_gpu.detection.error_kinds import KINDS
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.results.run_json import read_run, store_run

SIDE = 1024


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time of a study."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def evaluated(data: Path, *models: str, reader: str = "chestxdet10") -> Path:
    out = data.parent / "run"
    chosen = [word for model in models for word in ("--model", model)]
    with pytest.raises(SystemExit) as stop:
        main(["eval", *chosen, "--data", f"{reader}={data}", "--dataset", reader, "--out", str(out)])
    assert not stop.value.code
    return out


def of_kind(run: Path, **key: Any) -> dict[str, dict[str, Any]]:
    rows = answer(run, "errors")["errors"]
    return {row["kind"]: row for row in rows if all(row[name] == value for name, value in key.items())}


@pytest.mark.usefixtures("plain")
def test_the_numbers_are_those_of_the_reference(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data/test_data").mkdir(parents=True)
    shutil.copy(shared / "data/annotations/chestxdet10/test.json", tmp_path / "data")
    run = evaluated(tmp_path / "data", *(f"boxes:{shared}/boxes/predictions/{name}.jsonl" for name in ("scored",)))
    study(capsys, "errors", run, "--replicates", 40, "--no-overlays")
    wanted = json.loads((shared / "boxes/reference.json").read_text())["scored"]
    found = of_kind(run, group="all")
    assert set(found) == set(KINDS)
    for kind, row in found.items():
        assert (row["n"], row["tau"], row["cut"]) == (966, None, "boxes")
        assert {name: row[name] for name in ("boxes", "pairs")} == {
            k: wanted["errors"][kind][k] for k in ("boxes", "pairs")
        }
        assert row["dice"] == pytest.approx(wanted["dice"]["pairs"], abs=1e-9)
        assert row["f1"] == pytest.approx(wanted["f1@0.5"]["f1"], abs=1e-9)
        if kind != "hit":
            gains = {"dice_gain": wanted["errors"][kind]["dice_gain"], "f1_gain": wanted["errors"][kind]["f1@0.5_gain"]}
            assert {name: row[name] for name in gains} == pytest.approx(gains, abs=1e-9), kind
            assert row["f1_gain_low"] <= row["f1_gain"] <= row["f1_gain_high"]
    rows = answer(run, "errors")["errors"]
    for group in ("class", "size"):
        for kind in KINDS:
            own = [row for row in rows if (row["group"], row["kind"]) == (group, kind)]
            assert sum(row["n"] for row in own) == 966
            for name in ("boxes", "pairs"):
                assert sum(row[name] for row in own) == found[kind][name]
            if kind != "hit":
                assert sum(row["n"] * row["dice_gain"] for row in own) == pytest.approx(966 * found[kind]["dice_gain"])
    classes = [row["f1"] for row in rows if (row["group"], row["kind"]) == ("class", "hit")]
    assert np.mean(classes) == pytest.approx(wanted["f1@0.5"]["classes"], abs=1e-9)


Boxes = Sequence[Sequence[int]]
TOUCHING: Boxes = [[0, 0, 256, 512], [256, 0, 512, 512]]
APART: Boxes = [[640, 640, 896, 896]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two images of 1024 x 1024 without files: in a two boxes touch, in b there is one."""
    (tmp_path / "data/test_data").mkdir(parents=True)
    entries = [
        {"file_name": f"{name}.png", "syms": ["Mass"] * len(boxes), "boxes": boxes}
        for name, boxes in (("a", TOUCHING), ("b", APART))
    ]
    (tmp_path / "data/test.json").write_text(json.dumps(entries))
    return tmp_path / "data"


def maps(folder: Path, **boxes: Boxes) -> str:
    """A folder of maps of 32 x 32 that are 1 in the boxes."""
    for case, drawn in boxes.items():
        (folder / case).mkdir(parents=True)
        saliency = np.zeros((32, 32), np.float32)
        for x1, y1, x2, y2 in drawn:
            saliency[y1 // 32 : y2 // 32, x1 // 32 : x2 // 32] = 1
        np.save(folder / case / "Mass.npy", saliency)
    return f"maps:{folder}"


def answered(path: Path, **boxes: Boxes) -> str:
    lines: list[dict[str, Any]] = [{"xbench_boxes": 1, "frame": "pixels"}]
    lines += [{"case": case, "finding": "Mass", "boxes": given} for case, given in boxes.items()]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return f"boxes:{path}"


@pytest.mark.usefixtures("plain")
def test_maps_are_judged_by_the_true_boxes_of_the_run_or_by_parts(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = maps(tmp_path / "mine", a=[TOUCHING[0]], b=APART)
    run = evaluated(data, own)
    said = " ".join(study(capsys, "errors", run, "--replicates", 40).split())
    assert (
        "the region on the grid of 224, where boxes that touch are one (maps:mine on ChestX-Det10: 2 of 2 pairs)"
        in said
    )
    found = of_kind(run, group="all", cut="0.5")
    assert {kind: row["boxes"] for kind, row in found.items() if row["boxes"]} == {"hit": 2}
    # The part is half of what the two true boxes make together, which is a hit at IoU 0.5, and Dice lacks the rest.
    assert found["hit"]["dice"] == pytest.approx((2 / 3 + 1) / 2)

    evaluated(data, own, answered(tmp_path / "told.jsonl", a=TOUCHING, b=[[128, 640, 384, 896]]))
    said = " ".join(study(capsys, "errors", run, "--replicates", 40).split())
    assert "where boxes that touch are one" not in said
    found = of_kind(run, model="maps:mine", group="all", cut="0.5")
    assert {kind: row["boxes"] for kind, row in found.items() if row["boxes"]} == {"hit": 2, "missed": 1}
    assert found["missed"]["dice_gain"] == pytest.approx((1 - 2 / 3) / 2)
    told = of_kind(run, model="boxes:told", group="all")
    assert {kind: row["boxes"] for kind, row in told.items() if row["boxes"]} == {"hit": 2, "wrong_side": 1}
    assert told["wrong_side"]["dice_gain"] == pytest.approx(1 / 2)
    (case,) = [row for row in answer(run, "errors")["cases"] if row["model"] == "boxes:told"]
    assert (case["case"], case["kind"], case["dice_if_fixed"]) == ("b", "wrong_side", 1.0)
    # The true boxes are those of the run, whatever model is shown.
    study(capsys, "errors", run, "--replicates", 40, "--model", "maps:mine")
    assert of_kind(run, group="all", cut="0.5") == found
    # True boxes of other contents of the dataset are not those of the maps.
    stored = read_run(run)
    stored["cells"]["boxes:told--chestxdet10"]["ingredients"]["dataset"][1] = "0" * 64
    store_run(run, stored)
    study(capsys, "errors", run, "--replicates", 40, "--model", "maps:mine")
    assert of_kind(run, group="all", cut="0.5")["missed"]["boxes"] == 0


@pytest.mark.usefixtures("plain")
def test_regions_that_are_no_boxes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs of boxes are left out; those of maps are judged by the parts of the region."""
    data = tmp_path / "data"
    data.mkdir()
    images = [{"id": n, "file_name": f"{n}.png", "width": SIDE, "height": SIDE} for n in ("a", "b", "c")]
    corners = [640, 640, 896, 640, 896, 896, 640, 896]
    shapes = ({"bbox": [640, 640, 256, 256]}, {"segmentation": [corners]}, {"bbox": [0, 0, 64, 64]})
    annotations = [
        {"image_id": image["id"], "category_id": 1, **shape} for image, shape in zip(images, shapes, strict=True)
    ]
    document = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "Mass"}]}
    (data / "annotations.json").write_text(json.dumps(document))
    told = answered(tmp_path / "told.jsonl", a=APART, b=APART, c=APART)
    own = maps(tmp_path / "mine", a=APART, b=APART, c=APART)
    run = evaluated(data, told, own, reader="coco")
    said = " ".join(study(capsys, "errors", run, "--replicates", 40, "--no-overlays").split())
    assert "boxes:told on coco: 1 pairs whose region is no union of boxes are left out." in said
    assert "maps:mine on coco: 1 of 3 pairs" in said
    kinds = ("hit", "hallucinated", "missed")
    found = of_kind(run, model="boxes:told", group="all")
    assert [(found[kind]["n"], found[kind]["boxes"]) for kind in kinds] == [(2, 1), (2, 1), (2, 1)]
    sizes = [row for row in answer(run, "errors")["errors"] if (row["cut"], row["group"]) == ("boxes", "size")]
    assert {row["name"]: row["n"] for row in sizes} == {"tiny": 1, "medium": 1}
    found = of_kind(run, model="maps:mine", group="all", cut="0.5")
    assert [(found[kind]["n"], found[kind]["boxes"]) for kind in kinds] == [(3, 2), (3, 1), (3, 1)]


@pytest.mark.usefixtures("plain")
def test_an_overlay_shows_the_truth_and_marks_the_kind(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    run = evaluated(data, answered(tmp_path / "told.jsonl", a=[*TOUCHING, [640, 640, 768, 768]], b=[]))
    study(capsys, "errors", run, "--replicates", 40)
    drawn = {row["kind"]: row["overlay"] for row in answer(run, "errors")["cases"]}
    assert set(drawn) == {"hallucinated", "silent"}

    def colour(kind: str, x: int, y: int) -> tuple[int, ...]:
        """Of the corner of a box at this pixel of the image: in the left and in the right picture."""
        with Image.open(run / "studies/errors" / drawn[kind]) as image:
            pixels = np.asarray(image.convert("RGB"))
        assert pixels.shape == (448 + 48, 896, 3)
        at = y * 448 // SIDE, x * 448 // SIDE
        return tuple(
            {(0, 0, 0): 0, (64, 220, 96): 1, (90, 200, 255): 2, (255, 170, 60): 3}[
                tuple(pixels[at[0], at[1] + side].tolist())
            ]
            for side in (0, 448)
        )

    assert colour("hallucinated", 640, 640) == (0, 3), "what was invented is on the right only"
    assert colour("hallucinated", 0, 300) == (1, 2), "a hit covers the true box on the right"
    assert colour("silent", 640, 640) == (1, 3), "what was not found is true"
    assert colour("silent", 100, 100) == (0, 0)


def test_the_figure_has_a_bar_for_each_cut(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = answered(tmp_path / "told.jsonl", a=[*TOUCHING, [640, 640, 768, 768]], b=[])
    run = evaluated(data, told, maps(tmp_path / "mine", a=TOUCHING, b=APART))
    study(capsys, "errors", run, "--replicates", 40, "--no-overlays")
    folder = run / "studies/errors"
    drawing, page = (folder / "errors.svg").read_text(), (folder / "errors.md").read_text()
    for kind in KINDS:
        assert kind.replace("_", " ") in drawing
    for bar in (
        "boxes:told, ChestX-Det10, boxes",
        "maps:mine, ChestX-Det10, 0.50",
        "maps:mine, ChestX-Det10, cross-fitted",
    ):
        assert bar in drawing and f"{bar}, n = 2: hit " in page
    assert "hit 100.0, duplicate 0.0, too large 0.0" in page and "hallucinated 50.0, silent 50.0, missed 0.0" in page
