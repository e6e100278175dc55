"""The study of groups of models with the features whose results it reads (docs/joints.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import xbench_fast as xb
from int8_with_commands import STAMP
from int8_with_commands import both as in_both_precisions
from joint_inputs import FP16, FP32, INT8
from joint_world import World, command
from pairs_of_patients import named
from studies_with_features import MEDKLIP, SQUASH, Rows, live, rows_of

BOXES = "boxes:answers"


def grouped(
    world: World, out: str = "run", first: Sequence[str] = (FP32,), second: Sequence[str] = (FP16,)
) -> tuple[str, Rows]:
    """What `study groups` prints for these two groups, and its rows."""
    return rows_of(world, out, "groups", "groups", "--config", written(world, first, second), "--replicates", 40)


def written(world: World, first: Sequence[str], second: Sequence[str]) -> str:
    file = world.folder / "groups.toml"
    file.write_text(f"[groups.kind]\none = {json.dumps([*first])}\ntwo = {json.dumps([*second])}\n")
    return str(file)


def groups_protocol(world: World) -> None:
    world.eval(model=[FP32, FP16])
    world.eval(*world.twin, *MEDKLIP, "--dataset", "again", model=[FP32, FP16])
    _, one = grouped(world)
    other = json.loads((world.folder / "run" / "studies" / "groups-medklip" / "groups.json").read_text())
    assert other["settings"]["protocol"] == "medklip" and len(other["contrasts"]) == len(one["contrasts"])
    tested = [row for row in (*one["contrasts"], *other["contrasts"]) if row["measure"] != "auc"]
    assert len(tested) == 6 and {row["family"] for row in tested} == {1}


def groups_shards(world: World) -> None:
    world.shards(model=[FP32, FP16])
    world.merge()
    world.eval(model=[FP32, FP16], out="piece")
    assert grouped(world)[1] == grouped(world, "piece")[1]


def groups_baselines(world: World) -> None:
    world.eval(model=[FP32, FP16, "baseline:center", "baseline:ones"])
    said, rows = grouped(world, second=[FP16, "baseline:center"])
    assert "auc: baseline:center left out, without this number" in said
    assert "in no group" not in said, "baselines are not missed"
    assert {row["measure"]: row["models"] for row in rows["contrasts"]}["pointing"] == "1 and 2"


def groups_boxes(world: World) -> None:
    world.eval(model=[FP32, world.own_boxes])
    said, rows = grouped(world, second=[BOXES])
    assert {row["measure"] for row in rows["contrasts"]} == {"pointing", "dice_fixed"}
    assert "auc: boxes:answers left out" in said and "dice_cross_fitted: boxes:answers left out" in said
    assert world.differences("pointing")[FP32, BOXES]["shared"] == 7


def groups_twin(world: World) -> None:
    world.eval(model=[FP32, FP16])
    one = grouped(world)[1]["contrasts"]
    world.eval(*world.twin, "--dataset", "coco", "--dataset", "again", model=[FP32, FP16])
    two = grouped(world)[1]["contrasts"]
    assert [row["difference"] for row in one] == [row["difference"] for row in two], "the mean of two that are equal"


def groups_precision(world: World) -> None:
    in_both_precisions(world).eval(model=[FP32, INT8])
    said, rows = grouped(world, second=[INT8])
    assert STAMP in said and len(rows["models"]) == 2


def groups_patients(world: World) -> None:
    world.eval(model=[FP32, FP16])
    _, before = grouped(world)
    world.eval(*named(world), model=[FP32, FP16])
    _, after = grouped(world)
    one, two = ([row["difference"] for row in rows["contrasts"]] for rows in (before, after))
    assert one == two


def groups_sets(world: World) -> None:
    world.eval("--prompts", "coco", "--prompts", "other")
    _, rows = grouped(world, first=[f"{FP32}@coco"], second=[f"{FP32}@other"])
    assert [row["model"] for row in rows["models"]] == [f"{FP32}@coco", f"{FP32}@other"]
    ran = command("study", "groups", world.folder / "run", "--config", written(world, [FP32], [f"{FP32}@other"]))
    assert ran.status == 2 and f"names '{FP32}' in 'one'" in ran.text


def groups_live(world: World) -> None:
    world.eval(model=[FP32, FP16], out="bundle")
    world.eval(model=FP16)
    xb.evaluate(live, "coco", world.data, geometry=SQUASH, name=FP32, out=world.folder / "run", progress=False)
    assert sorted(map(str, grouped(world)[1]["contrasts"])) == sorted(
        map(str, grouped(world, "bundle")[1]["contrasts"])
    )
