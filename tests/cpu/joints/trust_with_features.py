"""`study trust` with the features of an evaluation (docs/joints.md): its numbers, and what it leaves out."""

from __future__ import annotations

import json
from typing import Any

from boxes_with_commands import studied
from int8_with_commands import both
from joint_inputs import FP16, FP32, INT8, LIMITED, move_box
from joint_world import World, command
from pairs_of_patients import named
from pairs_of_phrases import asked
from phrases_with_commands import no_phrase

MEDKLIP = ("--protocol", "medklip")
CENTER, ONES = "baseline:center", "baseline:ones"


def numbers(world: World, out: str = "run", folder: str = "trust") -> dict[str, Any]:
    """What the study writes of a run, without the texts on it."""
    ran = command("study", "trust", world.folder / out, "--replicates", 40)
    assert ran.status == 0, ran.text
    told = json.loads((world.folder / out / "studies" / folder / "trust.json").read_text())
    return {name: told[name] for name in ("verdicts", "scores", "differences", "counts")}


def models(world: World) -> set[str]:
    return {row["model"] for row in numbers(world)["verdicts"]}


def trust_protocol(world: World) -> None:
    world.eval()
    world.eval(*world.twin, *MEDKLIP, "--dataset", "again")
    default = numbers(world)
    other = json.loads((world.folder / "run" / "studies" / "trust-medklip" / "trust.json").read_text())
    assert {row["dataset"] for row in default["verdicts"]} == {"coco"}
    assert {row["dataset"] for row in other["verdicts"]} == {"again"} and other["settings"]["protocol"] == "medklip"
    ours, theirs = (
        [row["own"] for row in each["verdicts"] if row["baseline"] == "chance"] for each in (default, other)
    )
    assert ours != theirs, "medklip repeats cells, the default interpolates them"


def trust_limit(world: World) -> None:
    world.eval("--limit", LIMITED)
    said, rows = studied(world, "trust", "counts")
    assert [row["pairs"] for row in rows] == [4] and f"only the first {LIMITED} cases were evaluated" in said


def trust_shards(world: World) -> None:
    world.shards()
    world.merge()
    world.eval(out="piece")
    assert numbers(world) == numbers(world, "piece")


def trust_changed(world: World) -> None:
    data = world.own("data")
    world.eval()
    before = numbers(world)
    move_box(data / "annotations.json")
    world.eval()
    after = numbers(world)
    assert before != after and before["counts"] == after["counts"]


def trust_baselines(world: World) -> None:
    world.eval(model=[FP32, ONES, CENTER, "baseline:chance", "baseline:prior"])
    said, rows = studied(world, "trust", "verdicts")
    assert {row["model"] for row in rows} == {FP32, CENTER, "baseline:chance"}
    for name in (ONES, "baseline:prior"):
        assert f"No trust tests of {name} on coco: a run keeps no maps of this baseline." in said
    (fixed,) = [row for row in rows if (row["model"], row["baseline"]) == (CENTER, "other_finding")]
    assert fixed["difference"] == 0 and fixed["verdict"] != "pass"


def trust_maps(world: World) -> None:
    world.eval(model=[FP32, world.own_maps])
    assert models(world) == {FP32, f"maps:{world.maps.name}"}


def trust_boxes(world: World) -> None:
    world.eval(model=[FP32, world.own_boxes])
    said, rows = studied(world, "trust", "verdicts")
    assert {row["model"] for row in rows} == {FP32}
    assert f"No trust tests of boxes:{world.answers.stem} on coco: boxes from a file have no map." in said
    ran = command("study", "trust", world.folder / "run", "--model", f"boxes:{world.answers.stem}")
    assert ran.status == 1 and "has no maps to test" in ran.text


def trust_twin(world: World) -> None:
    world.eval(*world.twin)
    rows = numbers(world)["verdicts"]
    one, two = ([row for row in rows if row["dataset"] == name] for name in ("coco", "again"))
    for ours, theirs in zip(one, two, strict=True):
        assert ours["difference"] == theirs["difference"] and ours["family"] == theirs["family"] == 3


def trust_precision(world: World) -> None:
    both(world).eval(model=[FP32, FP16, INT8])
    said, rows = studied(world, "trust", "verdicts")
    assert {(row["model"], row["family"]) for row in rows} == {(name, 9) for name in (FP32, FP16, INT8)}
    assert "INT8" in said


def trust_views(world: World) -> None:
    world.eval("--data-option", "coco.augment=flip,gamma:0.9")
    _, rows = studied(world, "trust", "verdicts")
    assert {(row["model"], row["family"]) for row in rows} == {
        (name, 9) for name in (FP32, f"{FP32}+flip", f"{FP32}+gamma-0.9")
    }


def trust_patients(world: World) -> None:
    world.eval()
    before = numbers(world)["counts"]
    world.eval(*named(world))
    after = numbers(world)["counts"]
    assert before[0]["pairs"] == after[0]["pairs"] and before[0]["patients"] > after[0]["patients"]
    world.eval(*named(world, together=12))
    told = {row["baseline"]: row for row in numbers(world)["verdicts"]}
    assert told["prior"]["told"] == "cannot tell (0 patients)" and told["chance"]["told"] == "cannot tell (1 patient)"


def trust_phrases(world: World) -> None:
    world.eval(*asked(world))
    said, rows = studied(world, "trust", "verdicts")
    assert {row["dataset"] for row in rows} == {"mscxr"}
    no_phrase(world, said)
