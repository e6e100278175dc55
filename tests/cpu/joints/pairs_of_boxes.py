"""Files of boxes with every other feature."""

from __future__ import annotations

import json
from pathlib import Path

from joint_inputs import CASES, FP16, FP32, LIMITED, NUMPY, move_box, put_boxes, put_phrases
from joint_world import World, first
from pairs_of_limit import rests_on_the_pairs_of_the_model
from pairs_of_patients import named, only_patients_differ
from pairs_of_phrases import asked, pairs, whole

BOXES = "boxes:answers"
CELL = f"{BOXES}--coco"
OTHER = ("--data-option", "coco.prompts=other")


def protocol_boxes(world: World) -> None:
    world.eval(model=world.own_boxes)
    said = world.eval("--protocol", "medklip", model=world.own_boxes, status=1)
    assert f"{BOXES} on coco: skipped, the protocol medklip cuts maps as they are, and boxes are no map" in said
    world.eval("--protocol", "chexlocalize", model=world.own_boxes)
    assert world.rows(CELL).equals(world.whole(model=world.own_boxes))
    assert world.entry(CELL)["protocol"] == "chexlocalize"


def limit_boxes(world: World) -> None:
    world.eval("--limit", LIMITED, model=world.own_boxes)
    assert world.rows(CELL).equals(first(world.whole(model=world.own_boxes)))
    only_these(world.own("answers"))
    said = world.eval("--limit", LIMITED, model=[world.own_boxes, f"moved:{world.answers}"], out="few")
    assert world.rows(CELL, "few").equals(world.rows(CELL)) and "boxes:answers on coco: warning" not in said
    assert world.entry(CELL, "few")["boxes"]["missing_share"] == 0
    # The last pair of a class within the limit is answered by one beyond it, which has no line.
    assert "moved:answers on coco: warning: 50.0% of the pairs with a region have no line" in said
    lines = [line for text in world.tables("few").values() for line in text.split("\n")]
    assert not any("boxes:answers: " in line and "have no line" in line for line in lines)


def only_these(answers: Path) -> None:
    """Leaves the lines about the first cases in the file."""
    lines = answers.read_text().splitlines()
    kept = [line for line in lines if json.loads(line).get("case", "") < f"case{LIMITED:04d}"]
    answers.write_text("\n".join(kept) + "\n")


def shards_boxes(world: World) -> None:
    answers = world.own("answers")
    world.eval("--shard", "1/2", model=world.own_boxes)
    put_boxes(answers, world.data, shift=3)
    world.eval("--shard", "2/2", model=world.own_boxes)
    assert "differ in map" in world.merge(status=1)
    world.eval("--shard", "1/2", model=world.own_boxes)
    world.merge_all(model=world.own_boxes)


def changed_boxes(world: World) -> None:
    answers = world.own("answers")
    world.eval(model=world.own_boxes)
    assert "finished before, reused" in world.eval(model=world.own_boxes)
    put_boxes(answers, world.data, shift=3)
    assert "computed again, because this changed: map" in world.eval(model=world.own_boxes)
    world.own("data")
    move_box(world.data / "annotations.json")
    assert "computed again, because this changed: dataset" in world.eval(model=world.own_boxes)
    assert world.rows(CELL).equals(world.fresh(model=world.own_boxes, cell=CELL))


def baselines_boxes(world: World) -> None:
    answers = world.own("answers")
    lines = answers.read_text().splitlines()
    answers.write_text("\n".join(line for line in lines if '"case0009"' not in line) + "\n")
    world.eval("--missing", "leave-out", model=["baseline:ones", world.own_boxes])
    rests_on_the_pairs_of_the_model(world, BOXES, {"Mass": 3, "Effusion": 3})
    assert all("14.3% of the pairs have no line; they are left out" in text for name, text in world.tables().items()
               if name.startswith(("Table 1", "coco")))  # fmt: skip


def maps_boxes(world: World) -> None:
    world.eval(model=[FP32, world.own_maps, world.own_boxes])
    for field in ("pointing", "dice_fixed", "iou_fixed"):
        assert set(world.differences(field)) == {(FP32, "maps:maps"), (FP32, BOXES), (BOXES, "maps:maps")}
    assert set(world.differences("dice_best")) == {(FP32, "maps:maps")}
    rows = [line.split("|") for line in world.tables()["Table 1: grounding"].split("\n") if line.startswith("|")]
    cells = {row[1].strip(): [text.strip() for text in row] for row in rows}
    row = dict(zip(cells["model"], cells[BOXES], strict=True))
    both = {name for name, text in row.items() if text != "-" and name not in ("", "model")}
    assert both and all(name.endswith((" Point", " 0.5")) for name in both), row
    assert "-" in row.values()


def boxes_twin(world: World) -> None:
    world.eval(*world.twin, model=world.own_boxes)
    one, two = (world.rows(f"{BOXES}--{name}") for name in ("coco", "again"))
    assert one.equals(two) and one.equals(world.whole(model=world.own_boxes)) and one.num_rows == 2 * CASES


def boxes_prompts(world: World) -> None:
    _reused(world, *OTHER)


def _reused(world: World, *more: object) -> None:
    world.eval(model=world.own_boxes)
    assert f"{BOXES} on coco: finished before, reused" in world.eval(*more, model=world.own_boxes)


def boxes_precision(world: World) -> None:
    world.eval(model=[FP32, FP16, world.own_boxes])
    assert set(world.differences("pointing")) == {(FP32, FP16), (FP32, BOXES), (FP16, BOXES)}
    assert set(world.differences("dice_best")) == set(world.differences("auc")) == {(FP32, FP16)}


def boxes_reader(world: World) -> None:
    world.eval(*world.own_reader, model=world.own_boxes)
    assert world.rows(CELL).equals(world.whole(model=world.own_boxes))


def boxes_cache(world: World) -> None:
    world.whole(model=world.own_boxes)
    world.decoding()
    world.eval("--cache", world.folder / "cache", model=world.own_boxes)
    assert world.rows(CELL).equals(world.whole(model=world.own_boxes))
    assert world.decoding() == 0 and world.stores("cache") == []


def boxes_engine(world: World) -> None:
    _reused(world, "--engine", NUMPY)


def boxes_patients(world: World) -> None:
    world.eval(*named(world), model=world.own_boxes)
    assert only_patients_differ(world.rows(CELL), world.whole(model=world.own_boxes))


def boxes_phrases(world: World) -> None:
    put_phrases(world.own("answers"), world.data, shift=0, by="finding")
    world.eval(*asked(world), model=[FP32, world.own_boxes])
    rows = world.rows(f"{BOXES}--mscxr")
    assert pairs(rows).equals(pairs(whole(world)))
    scored = rows.filter(rows["region"].is_valid()).to_pylist()
    assert scored and all(row["area"][50] == row["overlap"][50] == row["region_area"] for row in scored)
