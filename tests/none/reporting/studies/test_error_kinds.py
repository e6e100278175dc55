"""The study of errors on maps drawn by hand: every pair has the kind that it was drawn for, and its gain."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from result_rows import ResultRow
from stored_counts import CLASSES, add_cell
from study_world import answer, study
from xbench_fast.metrics_gpu.detection.boxes import Answers, BoxLists, part_boxes
from xbench_fast.metrics_gpu.detection.error_kinds import KINDS
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.reporting.studies.anatomy.anatomy_rows import error_rows, errors_of
from xbench_fast.runtime.reporting.studies.anatomy.judged import JudgedAnswers, TrueBoxes, judged
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.run_directory import RunDirectory

CELLS = 56
Box = tuple[int, int, int, int]

# In cells of 4 x 4 pixels, (x1, y1, x2, y2): what the map marks, the true boxes, and the kinds that follow.
TRUE: Box = (4, 4, 16, 16)
DRAWN: list[tuple[list[Box], list[Box], dict[str, int]]] = [
    ([TRUE], [TRUE], {"hit": 1}),
    ([(2, 2, 24, 24)], [TRUE], {"too_large": 1}),
    ([(6, 6, 12, 12)], [TRUE], {"too_small": 1}),
    ([(10, 10, 22, 22)], [TRUE], {"poorly_placed": 1}),
    ([(40, 4, 52, 16)], [TRUE], {"wrong_side": 1}),
    ([(20, 40, 30, 50)], [TRUE], {"hallucinated": 1, "missed": 1}),
    ([], [TRUE, (30, 30, 41, 41)], {"silent": 2}),
    ([TRUE, (45, 45, 50, 50)], [TRUE], {"hit": 1, "hallucinated": 1}),
    ([TRUE], [TRUE, (30, 30, 41, 41)], {"hit": 1, "missed": 1}),
]


def drawn(boxes: list[Box], cells: int) -> NDArray[np.float32]:
    found = np.zeros((cells, cells), np.float32)
    for x1, y1, x2, y2 in boxes:
        scale = cells // CELLS
        found[y1 * scale : y2 * scale, x1 * scale : x2 * scale] = 1
    return found


def fill(row: ResultRow, saliency: NDArray[np.float32], mask: NDArray[np.bool_]) -> None:
    packed = pack_masks(mask[None])
    row.take(sweep(saliency[None], packed, size=(224, 224)), 0)
    row.keep(packed[0], (0.0, 0.0, 1.0, 1.0), saliency)


def drawn_rows(times: int) -> list[ResultRow]:
    """Each drawing for as many patients, as Mass; no other class has a region."""
    rows = []
    for case in range(times * len(DRAWN)):
        marked, true, _ = DRAWN[case % len(DRAWN)]
        for finding in CLASSES:
            row = ResultRow(f"c{case:02}", f"p{case}", finding, "ok", None, int(finding == "Mass"))
            rows.append(row)
            row.logit, row.region_area, row.sub_pixel = np.float32(0), 0, False
            if finding == "Mass":
                fill(row, drawn(marked, CELLS), drawn(true, 224) > 0)
    return rows


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time of a study."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def run_of(path: Path, times: int = 2) -> Path:
    with RunDirectory(path) as made:
        made.begin({})
        add_cell(made, "kad", "one", drawn_rows(times), grid=[CELLS, CELLS])
        add_cell(made, "ones", "one", drawn_rows(times), "baseline", grid=None)
    return path


def by_kind(rows: list[dict[str, Any]], **key: str) -> dict[str, dict[str, Any]]:
    return {row["kind"]: row for row in rows if all(row[name] == value for name, value in key.items())}


@pytest.mark.usefixtures("plain")
def test_each_drawing_has_its_kind_and_its_gain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, times = run_of(tmp_path / "run"), 2
    said = study(capsys, "errors", run, "--replicates", 40)
    assert "kad on The one: 18 of 18 pairs" in " ".join(said.split()) and "ones on" not in said
    data = answer(run, "errors")
    rows = data["errors"]
    assert {row["model"] for row in rows} == {"kad"}, "a baseline ignores the image"
    found = by_kind(rows, cut="0.5", group="all")
    pairs = times * len(DRAWN)
    tp = times * sum("hit" in kinds for *_, kinds in DRAWN)
    boxes, true = (times * sum(len(drawing[part]) for drawing in DRAWN) for part in (0, 1))
    for kind in KINDS:
        row, each = found[kind], [kinds[kind] for *_, kinds in DRAWN if kind in kinds]
        assert (row["n"], row["boxes"], row["pairs"]) == (pairs, times * sum(each), times * len(each)), kind
        assert row["boxes_per_pair"] == row["boxes"] / pairs and row["tau"] == 0.5
        assert row["f1"] == pytest.approx(2 * tp / (boxes + true))
        gained = {"hallucinated": 0, "duplicate": 0}.get(kind, row["boxes"])
        more = {"hallucinated": -row["boxes"], "silent": row["boxes"], "missed": row["boxes"]}.get(kind, 0)
        if kind == "hit":
            assert row["f1_gain"] is row["dice_gain"] is None
        else:
            assert row["f1_gain"] == pytest.approx(2 * (tp + gained) / (boxes + more + true) - row["f1"]), kind
        ends = row["boxes_per_pair_low"], row["boxes_per_pair_high"]
        assert ends == (None, None) if not row["boxes"] else ends[0] <= row["boxes_per_pair"] <= ends[1]
    dice = {"too_large": 2 * 144 / (144 + 484), "too_small": 2 * 36 / (144 + 36), "poorly_placed": 36 / 144}
    for kind, now in dice.items():
        assert found[kind]["dice_gain"] == pytest.approx((1 - now) / len(DRAWN)), kind
    assert found["silent"]["dice_gain"] == found["wrong_side"]["dice_gain"] == pytest.approx(1 / len(DRAWN))
    extra = 2 * 144 / (288 + 25)  # the box that was invented beside a hit
    assert found["hallucinated"]["dice_gain"] == pytest.approx((1 - extra) / len(DRAWN))
    part, both = 2 * 144 / (144 + 265), 2 * 144 / (288 + 100)
    assert found["missed"]["dice_gain"] == pytest.approx((1 - part + both) / len(DRAWN))
    # Groups: all pairs are of one class, and by size each pair is once in a stratum.
    assert by_kind(rows, cut="0.5", group="class", name="Mass")["missed"]["f1_gain"] == found["missed"]["f1_gain"]
    sizes = [row for row in rows if (row["cut"], row["group"], row["kind"]) == ("0.5", "size", "hit")]
    assert {row["name"]: row["n"] for row in sizes} == {"medium": pairs - 2 * times, "large": 2 * times}
    assert sum(row["boxes"] for row in sizes) == found["hit"]["boxes"]
    # Of equal examples the first.
    cases = {row["kind"]: row["case"] for row in data["cases"] if row["cut"] == "0.5"}
    assert cases == {
        "too_large": "c01", "too_small": "c02", "poorly_placed": "c03", "wrong_side": "c04", "hallucinated": "c07",
        "silent": "c06", "missed": "c05",
    }  # fmt: skip
    assert [row["f1_gain"] for row in rows] == [
        None if row["f1_gain"] == "" else pytest.approx(float(row["f1_gain"]))
        for row in csv.DictReader((run / "studies/errors/errors.csv").open(newline=""))
    ]


@pytest.mark.usefixtures("plain")
def test_the_best_threshold_is_one_for_the_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, run = drawn_rows(1), tmp_path / "run"
    away = np.hypot(*(np.indices((CELLS, CELLS)) - 9.5))
    for place, row in enumerate(rows):
        if row.finding == "Mass" or (row.finding == "Effusion" and row.case_id < "c03"):
            row.label = 1
            region = TRUE if row.finding == "Mass" else (8, 8, 12, 12)
            fill(row, np.exp(-away / (3 + place / 9)).astype(np.float32), drawn([region], 224) > 0)
    with RunDirectory(run) as made:
        made.begin({})
        add_cell(made, "kad", "one", rows, grid=[CELLS, CELLS])
    study(capsys, "errors", run, "--replicates", 40)
    data = answer(run, "errors")
    pairs = [row for row in rows if row.area is not None]
    curves = [
        [2 * row.overlap / (row.area + row.region_area) for row in pairs if row.finding == name]  # type: ignore[operator]
        for name in ("Mass", "Effusion")
    ]
    curve = np.mean([np.mean(own, axis=0) for own in curves], axis=0)
    (tau,) = {row["tau"] for row in data["errors"] if row["cut"] == "best*"}
    alone = [np.argmax(np.mean(own, axis=0)) / 100 for own in curves]
    assert tau == np.argmax(curve) / 100 and tau not in (0.5, alone[0])
    material = load_material(run)
    _, best, fitted = judged(material.cells[0], material.run, TrueBoxes(material.run))
    assert (best.cut, fitted.cut, fitted.tau) == ("best*", "cross-fitted", None)
    for place, row in enumerate(pairs):  # every patient is a fold
        others = [[other for other in pairs if other.finding == name and other.patient_id != row.patient_id]
                  for name in ("Mass", "Effusion")]  # fmt: skip
        dice = [[2 * other.overlap / (other.area + other.region_area) for other in own] for own in others]  # type: ignore[operator]
        level = np.argmax(np.mean([np.mean(own, axis=0) for own in dice], axis=0)) / 100
        assert row.saliency is not None
        values = scaled_map(row.saliency.reshape(CELLS, CELLS))
        boxes = part_boxes(values >= np.float32(level))[0]
        start, stop = fitted.answers.given.offsets[place : place + 2]
        assert sorted(fitted.answers.given.boxes[start:stop].tolist()) == sorted(boxes.tolist())
    few = [row for row in data["errors"] if row["group"] == "all"]
    assert all(row["f1_gain_low"] is None for row in few), "no interval of 9 patients"
    assert all((run / "studies/errors" / row["overlay"]).is_file() for row in data["cases"])
    study(capsys, "errors", run, "--replicates", 40, "--cases", 0, "--no-overlays")
    assert not list((run / "studies/errors").rglob("*.png")) and not answer(run, "errors")["cases"]


@pytest.mark.usefixtures("plain")
def test_the_part_with_the_highest_value_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ring as large as the region, and a brighter block inside: the block is the hit and the ring its duplicate."""
    true, block = (4, 4, 24, 24), (6, 6, 22, 22)
    ring = drawn([true], CELLS) - drawn([(5, 5, 23, 23)], CELLS)
    rows = drawn_rows(1)
    for row in rows:
        if row.area is not None:
            fill(row, 0.6 * ring + drawn([block], CELLS), drawn([true], 224) > 0)
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", rows, grid=[CELLS, CELLS])
    study(capsys, "errors", tmp_path / "run", "--replicates", 40, "--no-overlays")
    found = by_kind(answer(tmp_path / "run", "errors")["errors"], cut="0.5", group="all")
    assert (found["hit"]["boxes"], found["duplicate"]["boxes"]) == (9, 9)
    assert found["duplicate"]["dice"] + found["duplicate"]["dice_gain"] == pytest.approx(2 * 256 / (256 + 400))


@pytest.mark.usefixtures("plain")
def test_a_run_without_maps_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", drawn_rows(1), grid=None)
    said = study(capsys, "errors", tmp_path / "run", "--replicates", 40)
    assert "No errors of kad on The one: its maps are larger than 64 x 64" in " ".join(said.split())


def test_intervals_are_of_drawn_patients() -> None:
    """Against a loop over the replicates, in which each pair is repeated as often as its patient was drawn."""
    rng = np.random.default_rng(0)
    pairs, patients = 40, 12
    low = rng.integers(0, 150, (2, pairs, 2))
    lists = [
        BoxLists.of([[[x, y, x + 50, y + 50]] for x, y in corners.tolist()])
        for corners in (low[0], low[0] + low[1] // 8)
    ]
    answers = Answers(
        lists[0], lists[1], np.zeros(pairs, np.int64), np.arange(pairs), np.full((pairs, 2), 224), ("Mass",), pairs
    )
    patient_of, draws = rng.integers(0, patients, pairs), draw_patients(patients, 25, 3)

    class Cell:
        model = dataset = "one"
        classes = ("Mass",)

        class counts:
            region = np.full(pairs, 2500)

    cell: Any = Cell()
    cell.patient_of, cell.draws = patient_of, draws
    errors = errors_of(JudgedAnswers(cell, "boxes", None, answers, np.arange(pairs), 0))
    rows = by_kind(list(error_rows(errors, 0.9)), group="all")
    kind = "poorly_placed"
    after, now = errors.after[KINDS.index(kind) - 1], errors.before
    gains: dict[str, list[float]] = {"f1_gain": [], "dice_gain": [], "boxes_per_pair": []}
    for weight in draws.counts[:, patient_of].astype(int):
        own = np.repeat(np.arange(pairs), weight)
        f1 = [2 * each.tp[own].sum() / (each.boxes[own].sum() + len(own)) for each in (now, after)]
        gains["f1_gain"].append(f1[1] - f1[0])
        gains["dice_gain"].append(float(np.mean(after.dice[own] - now.dice[own])))
        gains["boxes_per_pair"].append(float(np.mean(errors.counts[KINDS.index(kind)][own])))
    for name, values in gains.items():
        wanted = np.percentile(values, [5, 95])
        assert rows[kind][name] > 0
        assert [rows[kind][f"{name}_{end}"] for end in ("low", "high")] == pytest.approx(wanted), name


def test_parts_are_those_of_a_flood() -> None:
    rng = np.random.default_rng(1)
    for share in (0.0, 0.3, 0.6, 1.0):
        mask, values = rng.random((23, 31)) < share, rng.random((23, 31), np.float32)
        wanted, seen = [], np.zeros(mask.shape, bool)
        for start in zip(*np.nonzero(mask), strict=True):
            if seen[start]:
                continue
            stack, part = [start], []
            seen[start] = True
            while stack:
                y, x = stack.pop()
                part.append((y, x))
                for near in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                    if 0 <= near[0] < 23 and 0 <= near[1] < 31 and mask[near] and not seen[near]:
                        seen[near] = True
                        stack.append(near)
            ys, xs = np.array(part).T
            wanted.append([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1, max(values[at] for at in part)])
        boxes, peaks = part_boxes(mask, values)
        assert np.array_equal(np.column_stack([boxes, peaks]), np.array(wanted, np.float64).reshape(-1, 5))
