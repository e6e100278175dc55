"""Files of boxes with commands and with other models (docs/joints.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any
from unittest.mock import patch

import numpy as np
from joint_inputs import FP16, FP32, LIMITED, put_boxes
from joint_world import World, command, first
from numpy.typing import NDArray
from synthetic import model, phrase_features
from xbench_fast import evaluate
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.evaluation.reference import box_files

BOXES = "boxes:answers"
CELL = f"{BOXES}--coco"
ANY = ("pointing", "dice_fixed", "iou_fixed")
NO_THRESHOLD = "left out, because boxes have no threshold"
Numbers = Mapping[str, Any]


@contextmanager
def interrupted() -> Iterator[None]:
    """Ctrl-C in the second chunk of a file of boxes."""
    real, calls = box_files._Answers.score, list[int]()

    def score(self: Any, *how: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return real(self, *how, **more)

    with patch.object(box_files._Answers, "score", score):
        yield


def stop(world: World, out: str = "run") -> None:
    with interrupted():
        world.eval(model=world.own_boxes, out=out, status=130)


def two_files(world: World) -> list[str]:
    """The answers, and others to the same pairs."""
    put_boxes(world.folder / "others.jsonl", world.data, shift=4)
    return [world.own_boxes, f"boxes:{world.folder / 'others.jsonl'}"]


def shown(world: World, *more: object, out: str = "run") -> dict[str, Any]:
    """report.json, by options of `report`."""
    found: dict[str, Any] = json.loads((world.report(*more, out=out) / "report.json").read_text())
    return found


def of_boxes(told: Numbers) -> dict[tuple[str, str], Numbers]:
    """(model, dataset) -> what report.json says of its boxes."""
    return {(item["model"], item["dataset"]): item for item in told["boxes"]}


def spoil(world: World) -> None:
    """The image of a Mass is deleted, and that of a Mass and an Effusion no image."""
    images = world.own("data") / "images"
    (images / "case0003.png").unlink()
    (images / "case0008.png").write_bytes(b"no image")


def live(pixels: NDArray[np.uint8], texts: Sequence[str]) -> tuple[Any, Any]:
    return model(pixels, phrase_features(texts))


def call(world: World, files: Sequence[str], dataset: str = "coco") -> None:
    """`xb.evaluate` of the callable and files, into run/."""
    evaluate(
        [live, *files], dataset, world.data, geometry=Geometry("squash", 32, 32, "bilinear"), name="mine",
        out=world.folder / "run", batch=2, chunk=4, threads=1, progress=False,
    )  # fmt: skip


def studied(world: World, name: str, rows: str, model: str = "") -> tuple[str, list[dict[str, Any]]]:
    """What a study prints, and its rows of a model."""
    ran = command("study", name, world.folder / "run", "--replicates", 40)
    assert ran.status == 0, ran.text
    told = json.loads((world.folder / "run" / "studies" / name / f"{name}.json").read_text())
    assert len(told["notes"]) == len(set(told["notes"]))
    return ran.text, [row for row in told[rows] if not model or row["model"] == model]


def compared(world: World, *how: object) -> tuple[dict[str, Any], dict[str, float]]:
    """The only cell that `compare` shows; and number -> its change, of those that both sides have, over all classes."""
    file = world.folder / "compared.json"
    ran = command("compare", *how, "--json", file, "--replicates", 40, "--fail-if", "changed_truth > 0")
    assert ran.status == 0, ran.text
    (cell,) = json.loads(file.read_text())["cells"]
    assert not any(cell[side][kind] for side in ("only_a", "only_b") for kind in ("rows", "regions"))
    return cell, {one["metric"]: one["change"] for one in cell["changes"] if one["change"] is not None}


def without_best(world: World, name: str, rows: str, model: str) -> str:
    """A study that shows boxes without a best threshold, and the maps with one."""
    said, boxes = studied(world, name, rows, model)
    _, maps = studied(world, name, rows, FP32)
    assert boxes and all(row["dice_best"] is None and row["tau_best"] is None for row in boxes)
    assert any(row["dice_fixed"] is not None for row in boxes)
    assert maps and any(row["dice_best"] is not None for row in maps)
    return said


def both_are_judged(world: World, model: str) -> str:
    """The study of errors, which judges boxes as they were answered, and the maps at three thresholds."""
    said, rows = studied(world, "errors", "errors")
    cuts = {(row["model"], row["cut"]) for row in rows}
    assert cuts == {*((FP32, cut) for cut in ("0.5", "best*", "cross-fitted")), (model, "boxes")}
    judged = {row["kind"]: row for row in rows if (row["model"], row["group"]) == (model, "all")}
    assert judged["hit"]["boxes"] > 0 and judged["silent"]["boxes"] == 1
    return said


def left_out(world: World, name: str, model: str) -> str:
    """A study that leaves boxes out."""
    ran = command("study", name, world.folder / "run", "--replicates", 40)
    assert ran.status == 0 and f"{model}: {NO_THRESHOLD}" in ran.text, ran.text
    folder = world.folder / "run" / "studies" / name
    assert all(f"{model}," not in path.read_text() for path in folder.glob("*.csv"))
    assert any(f"{FP32}," in path.read_text() for path in folder.glob("*.csv"))
    return ran.text


def boxes_resume(world: World) -> None:
    whole_file, answers = world.own_boxes, world.own("answers")
    stop(world)
    world.eval(model=world.own_boxes)
    assert world.entry(CELL)["computed"] == 8 and world.rows(CELL).equals(world.whole(model=whole_file))
    stop(world, "other")
    put_boxes(answers, world.data, shift=3)
    world.eval(model=world.own_boxes, out="other")
    assert world.entry(CELL, "other")["computed"] == 12
    assert world.rows(CELL, "other").equals(world.fresh(model=world.own_boxes, cell=CELL))


def boxes_subsets(world: World) -> None:
    world.eval(*world.twin, model=[*two_files(world), FP32])
    whole = shown(world)
    part = shown(world, "--model", BOXES, "--dataset", "again")
    assert len(of_boxes(whole)) == 4 and of_boxes(part) == {(BOXES, "again"): of_boxes(whole)[BOXES, "again"]}
    (cell,) = part["cells"]
    (same,) = [one for one in whole["cells"] if (one["model"], one["dataset"]) == (BOXES, "again")]
    assert cell["grounding"] == same["grounding"] and cell["n"] == same["n"] == 7
    tables = (world.folder / "run/report/tables.md").read_text()
    assert "boxes:others" not in tables and FP32 not in tables


def boxes_compare(world: World) -> None:
    answers = world.own("answers")
    world.eval(model=[FP32, world.own_boxes])
    put_boxes(answers, world.data, shift=4)
    world.eval(model=world.own_boxes, out="other")
    runs = (world.folder / "run", world.folder / "other")
    cell, changed = compared(world, *runs, "--dataset", "coco", "--model", BOXES)
    assert set(changed) == set(ANY) and changed["dice_fixed"] < 0 and cell["pairs"] == 7
    cell, changed = compared(world, runs[0], "--model", FP32, "--model", BOXES)
    assert set(changed) == set(ANY) and cell["pairs"] == 7


def boxes_strata(world: World) -> None:
    world.eval(model=[FP32, world.own_boxes])
    without_best(world, "strata", "strata", BOXES)


def boxes_failures(world: World) -> None:
    world.eval(model=[FP32, world.own_boxes])
    said = without_best(world, "failures", "classes", BOXES)
    assert f"No overlays of {BOXES} on coco: boxes from a file have no map." in said


def boxes_errors(world: World) -> None:
    world.eval(model=[FP32, world.own_boxes])
    both_are_judged(world, BOXES)


def boxes_thresholds(world: World) -> None:
    _left_out(world, "thresholds")


def boxes_calibration(world: World) -> None:
    _left_out(world, "calibration")


def _left_out(world: World, name: str) -> None:
    world.eval(model=[FP32, world.own_boxes])
    left_out(world, name, BOXES)
    ran = command("study", name, world.folder / "run", "--model", BOXES, "--replicates", 40)
    assert ran.status == 1 and f"{BOXES}: {NO_THRESHOLD}; evaluate a model with saliency maps into the run" in ran.text


def boxes_live(world: World) -> None:
    call(world, [world.own_boxes])
    assert world.rows(CELL).equals(world.whole(model=world.own_boxes))
    found = world.differences("dice_fixed")[BOXES, "mine"]
    assert (found["shared"], found["left_out"]) == (7, 0)


def boxes_missing(world: World) -> None:
    whole = world.whole(model=world.own_boxes)
    spoil(world)
    world.eval(model=[FP32, world.own_boxes])
    assert world.rows(CELL).equals(whole)
    entry = world.entry()
    assert (entry["missing"], entry["unreadable"]) == (1, 1) and world.entry(CELL)["missing"] == 0
    for field in ANY:
        found = world.differences(field)[FP32, BOXES]
        assert (found["shared"], found["left_out"]) == (5, 2), field


def boxes_moved(world: World) -> None:
    models = [world.own_boxes, f"moved:{world.answers}"]
    world.eval("--limit", LIMITED, model=models, out="few")
    world.shards(model=models)
    world.merge_all(model=models)
    moved = "moved:answers--coco"
    assert world.rows(moved, "few").equals(first(world.rows(moved)))
    assert not world.rows(moved).equals(world.rows(CELL))


def boxes_second(world: World) -> None:
    said = world.eval(model=[world.own_boxes, "reader:second", "reader:radiologist"])
    assert "reader:second on coco: skipped, the dataset has no boxes of a second reader" in said
    assert (
        "reader:radiologist on coco: skipped, the dataset has no marks of a radiologist in addition to its regions"
        in said
    )
    assert world.rows(CELL).equals(world.whole(model=world.own_boxes)) and "finished" in said


def boxes_several(world: World) -> None:
    maps = [FP32, FP16, world.own_maps]
    world.eval(*world.twin, model=[*maps, *two_files(world)])
    told = world.numbers()["differences"]
    names = (FP32, FP16, "maps:maps", BOXES, "boxes:others")
    for dataset in ("coco", "again", ""):
        for field in (*ANY, "dice_best"):
            found = {
                frozenset((one["first"], one["second"])): one
                for one in told
                if (one["field"], one["dataset"]) == (field, dataset)
            }
            assert set(found) == set(map(frozenset, combinations(names if field in ANY else names[:3], 2)))
            assert all(one["left_out"] == 0 for one in found.values())
            assert all(one["shared"] == (7 if dataset else 14) for one in found.values())
