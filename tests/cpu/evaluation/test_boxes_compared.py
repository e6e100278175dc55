"""Dice, IoU and pointing of boxes against boxes and against maps: differences and tests by loops."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from box_world import CLASSES, answers, command, evaluate, make_box_data, pairs_of
from xbench_fast.runtime.results import schema
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.stored_boxes import load_boxes

Pair = tuple[str, str]


def drawn(boxes: list[list[float]], size: tuple[int, int]) -> Any:
    """The union on 224 x 224, painted on the image first."""
    width, height = size
    mask = np.zeros((height, width), bool)
    for x1, y1, x2, y2 in boxes:
        mask[int(y1) : max(int(y2), int(y1) + 1), int(x1) : max(int(x2), int(x1) + 1)] = True
    return mask[np.ix_(np.arange(224) * height // 224, np.arange(224) * width // 224)]


def overlaps(one: Any, two: Any) -> dict[str, float]:
    shared, total = int((one & two).sum()), int(one.sum()) + int(two.sum())
    return {"dice_fixed": 2 * shared / total, "iou_fixed": shared / (total - shared)}


def by_signs(one: dict[Pair, float], two: dict[Pair, float], patient: dict[str, str]) -> tuple[float, float]:
    """The difference of the means over classes, and p of all sign patterns of the patients."""
    parts = dict.fromkeys(patient.values(), 0.0)
    for (case, finding), value in one.items():
        number = sum(other == finding for _, other in one)
        parts[patient[case]] += (value - two[case, finding]) / number / len({name for _, name in one})
    each = np.array(list(parts.values()))
    sums = [abs(float(each @ np.array(signs))) for signs in product((1, -1), repeat=len(each))]
    return float(each.sum()), float(np.mean([value >= abs(each.sum()) - 1e-12 for value in sums]))


def test_unions_of_boxes_are_tested_against_boxes_and_against_maps(tmp_path: Path) -> None:
    data = make_box_data(tmp_path / "data")
    told = json.loads((data / "annotations.json").read_text())
    names, maps = dict(zip((1, 2, 3), CLASSES, strict=True)), tmp_path / "maps"
    truth = {(entry["image_id"], names[entry["category_id"]]): entry["bbox"] for entry in told["annotations"]}
    patient = {image["id"]: image["patient_id"] for image in told["images"]}
    files = {"boxes:a": answers(data, tmp_path / "a.jsonl"), "boxes:b": answers(data, tmp_path / "b.jsonl", seed=9)}
    rng = np.random.default_rng(2)
    scores: dict[str, dict[Pair, dict[str, float]]] = {"boxes:a": {}, "boxes:b": {}, "maps:maps": {}}
    for case, finding, _, size in pairs_of(data):
        x, y, w, h = truth[case, finding]
        true = drawn([[x, y, x + w, y + h]], size)
        for name, lines in files.items():
            scores[name][case, finding] = overlaps(drawn(lines[case, finding]["boxes"], size), true)
        saliency = np.repeat(np.repeat(rng.random((28, 28)), 8, 0), 8, 1).astype(np.float32)
        (maps / case).mkdir(parents=True, exist_ok=True)
        np.save(maps / case / f"{finding}.npy", saliency)
        scaled = (saliency - saliency.min()) / (saliency.max() - saliency.min())
        scores["maps:maps"][case, finding] = overlaps(scaled >= 0.5, true)
    models = ["--model", f"boxes:{tmp_path / 'a.jsonl'}", "--model", f"boxes:{tmp_path / 'b.jsonl'}"]
    assert evaluate(data, *models, "--model", f"maps:{maps}") == 0
    assert command("report", tmp_path / "run", "--quiet", "--no-page", "--replicates", 50) == 0
    found = json.loads((tmp_path / "run/report/report.json").read_text())["differences"]
    kinds = {(item["field"], frozenset((item["first"], item["second"]))) for item in found}
    pairs = [frozenset(pair) for pair in (("boxes:a", "boxes:b"), ("boxes:a", "maps:maps"), ("boxes:b", "maps:maps"))]
    # Of a best threshold there is nothing to compare, and no model has a score.
    assert kinds == {(field, pair) for field in ("pointing", "dice_fixed", "iou_fixed") for pair in pairs}
    for item in found:
        if item["field"] == "pointing":
            continue
        one, two = (
            {pair: each[item["field"]] for pair, each in scores[item[side]].items()} for side in ("first", "second")
        )
        difference, p = by_signs(one, two, patient)
        assert item["difference"] == pytest.approx(difference, abs=1e-9)
        assert item["p"] == pytest.approx(p) and item["family"] == 3 and item["shared"] == len(one)
        assert min(1.0, item["p"]) <= item["p_holm"] <= min(1.0, 3 * item["p"] + 1e-12)
    with (tmp_path / "run/report/differences.csv").open(newline="") as stream:
        assert {row["number"] for row in csv.DictReader(stream)} == {"pointing", "dice_fixed", "iou_fixed"}
    text = (tmp_path / "run/report/tables.md").read_text()
    table = text[text.index("## Differences between models: coco") :].split("\n## ")[0]
    head = next(line for line in table.split("\n") if line.startswith("| first"))
    assert all(name in head for name in ("Point: p", "Dice 0.5: p", "IoU 0.5: p")) and "Dice*" not in head


def test_maps_alone_are_compared_as_before(tmp_path: Path) -> None:
    data, maps = make_box_data(tmp_path / "data"), tmp_path / "maps"
    rng = np.random.default_rng(2)
    for name in ("one", "two"):
        for case, finding, _, _ in pairs_of(data):
            (maps / name / case).mkdir(parents=True, exist_ok=True)
            np.save(maps / name / case / f"{finding}.npy", rng.random((14, 14)).astype(np.float32))
    assert evaluate(data, "--model", f"maps:{maps / 'one'}", "--model", f"maps:{maps / 'two'}") == 0
    assert command("report", tmp_path / "run", "--quiet", "--no-page", "--replicates", 40) == 0
    found = json.loads((tmp_path / "run/report/report.json").read_text())["differences"]
    assert {item["field"] for item in found} == {"pointing", "dice_best", "dice_cross_fitted"}


def test_the_answers_of_a_cell_are_the_same_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_box_data(tmp_path / "data")
    answers(data, tmp_path / "a.jsonl", without=("c3",))
    assert evaluate(data, "--model", f"boxes:{tmp_path / 'a.jsonl'}", "--chunk", 4) == 0
    run = load_run(tmp_path / "run")
    whole = load_boxes(run, run.cell("boxes:a", "coco"))
    monkeypatch.setattr(schema, "_PART_ROWS", 1)
    parts = load_boxes(run, run.cell("boxes:a", "coco"))
    assert (parts.not_asked, parts.left_out, parts.truth) == (whole.not_asked, whole.left_out, whole.truth)
    for name in ("boxes", "offsets", "scores"):
        np.testing.assert_array_equal(getattr(parts.answers.given, name), getattr(whole.answers.given, name))
    for name in ("class_of", "case_of", "sizes", "negative_case"):
        np.testing.assert_array_equal(getattr(parts.answers, name), getattr(whole.answers, name))
    for name in ("state", "places", "given"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    np.testing.assert_array_equal(parts.native.area, whole.native.area)
    assert whole.of_state("missing") and set(whole.answers.case_of.tolist()) == set(range(14))
    area = parts.cell.counts.area
    assert area.strides == (4, 0) and len(area) == len(pairs_of(data))
