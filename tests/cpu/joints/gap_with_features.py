"""The study of the gap with the features whose results it reads (docs/joints.md)."""

from __future__ import annotations

import json

import xbench_fast as xb
from int8_with_commands import STAMP
from int8_with_commands import both as in_both_precisions
from joint_inputs import FP32, INT8
from joint_world import World, command
from pairs_of_patients import named
from phrases_with_commands import TEXTS
from phrases_with_commands import both as both_on_phrases
from studies_with_features import MEDKLIP, READER, SQUASH, Rows, live, rows_of, three_readers

BASELINES = ("baseline:center", "baseline:ones")


def gap(world: World, out: str = "run", folder: str = "gap", *given: object) -> tuple[str, Rows]:
    """What `study gap` prints, and its rows."""
    return rows_of(world, out, folder, "gap", "--replicates", 40, *given)


def gap_protocol(world: World) -> None:
    world.eval()
    world.eval(*world.twin, *MEDKLIP, "--dataset", "again")
    _, one = gap(world)
    other = json.loads((world.folder / "run" / "studies" / "gap-medklip" / "gap.json").read_text())
    assert {row["dataset"] for row in one["findings"]} == {"coco"}
    assert {row["dataset"] for row in other["findings"]} == {"again"} and other["settings"]["protocol"] == "medklip"
    assert [row["auc"] for row in one["findings"]] == [row["auc"] for row in other["findings"]]
    assert {row["family"] for row in (*one["findings"], *other["findings"])} == {2}


def gap_shards(world: World) -> None:
    world.shards()
    world.merge()
    world.eval(out="piece")
    assert gap(world)[1] == gap(world, "piece")[1]


def gap_baselines(world: World) -> None:
    world.eval(model=[FP32, *BASELINES])
    _, rows = gap(world)
    assert {row["model"] for row in rows["findings"]} == {FP32}
    of = {(row["class"], row["against"]): row for row in rows["references"] if row["measure"] == "pointing"}
    assert {against for _, against in of} == {"chance", BASELINES[0]}
    assert all(row["n"] == of[finding, "chance"]["n"] for (finding, _), row in of.items())


def gap_maps(world: World) -> None:
    world.eval(model=[FP32, world.own_maps])
    said, rows = gap(world)
    name = f"maps:{world.maps.name}"
    assert {row["model"] for row in rows["findings"]} == {FP32}
    assert f"{name} on coco is left out: it has no finite score for each image" in said


def gap_boxes(world: World) -> None:
    world.eval(model=[FP32, world.own_boxes])
    said, rows = gap(world)
    assert {row["model"] for row in rows["findings"]} == {FP32}
    assert "boxes:answers on coco is left out: it has no finite score for each image" in said


def gap_precision(world: World) -> None:
    in_both_precisions(world).eval(model=[FP32, INT8])
    said, rows = gap(world)
    assert STAMP in said and {row["model"] for row in rows["findings"]} == {FP32, INT8}
    assert {row["family"] for row in rows["findings"]} == {4}


def gap_readers(world: World) -> None:
    world.eval(*three_readers(world), model=[FP32, READER])
    _, rows = gap(world, "run", "gap", "--cases", 1)
    assert {row["model"] for row in rows["findings"]} == {FP32}
    found = [row for row in rows["references"] if row["against"] == READER]
    assert len(found) == 2 and all(row["difference"] == row["value"] - row["reference_value"] for row in found)
    assert {row["family"] for row in found} == {2}


def gap_patients(world: World) -> None:
    world.eval()
    _, before = gap(world)
    world.eval(*named(world))
    _, after = gap(world)
    same = ("class", "n", "positives", "auc", "pointing", "chance", "quadrant")
    one, two = ([[row[key] for key in same] for row in rows["findings"]] for rows in (before, after))
    assert one == two and before["findings"] != after["findings"], "the same numbers, other intervals and p"


def gap_phrases(world: World) -> None:
    both_on_phrases(world)
    ran = command("study", "gap", world.folder / "run", "--replicates", 40)
    assert ran.status == 1 and ran.text.count("is left out: it has no finite score for each image") == 2, ran.text
    assert not any(text in ran.text.lower() for text in TEXTS)


def gap_live(world: World) -> None:
    world.eval(out="bundle")
    xb.evaluate(live, "coco", world.data, geometry=SQUASH, name=FP32, out=world.folder / "run", progress=False)
    assert gap(world)[1] == gap(world, "bundle")[1]
