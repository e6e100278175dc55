"""A metric of one's own, Dice at 0.5 of maps and regions, with the features whose results it reads (docs/joints.md)."""

from __future__ import annotations

import csv

from joint_inputs import FP16, FP32
from joint_world import World
from pairs_of_patients import named

CODE = """
def dice(map, mask):
    above = map >= 0.5
    return 2 * (above & mask).sum() / (above.sum() + mask.sum())
"""
_COLUMNS = ("percent", "low", "high")


def reported(world: World, *more: object, out: str = "run", code: str = CODE) -> tuple[set[str], str]:
    """The models that have the metric, in a report where it is Dice at 0.5 with its interval wherever there is one; and
    the tables."""
    (world.folder / "m.py").write_text(code)
    config = world.folder / "own.toml"
    config.write_text("[metrics.mine]\nfunction = 'm.py:dice'\nmaps = true\n")
    folder = world.report("--config", config, *more, out=out)
    with (folder / "classes.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["mine_percent"]]
    for row in rows if code == CODE else ():
        assert [row[f"mine_{name}"] for name in _COLUMNS] == [row[f"dice_fixed_{name}"] for name in _COLUMNS], row
    return {row["model"] for row in rows}, (folder / "tables.md").read_text()


def metrics_protocol(world: World) -> None:
    world.eval()
    for name in ("default", "medklip"):
        assert reported(world, "--protocol", name)[0] == {FP32}


def metrics_shards(world: World) -> None:
    world.shards()
    world.merge()
    assert reported(world)[0] == {FP32}


def metrics_changed(world: World) -> None:
    world.eval()
    _, before = reported(world)
    _, after = reported(world, code="def dice(map, mask):\n    return 0.125\n")
    assert "12.50" in after and "12.50" not in before
    first, second = (text.split("m.py:dice, SHA-256 ")[1][:12] for text in (before, after))
    assert first != second


def metrics_baselines(world: World) -> None:
    world.eval(model=[FP32, "baseline:ones"])
    models, tables = reported(world)
    assert models == {FP32} and "n/a (no maps)" in tables


def metrics_maps(world: World) -> None:
    world.eval(model=[FP32, world.own_maps])
    assert reported(world)[0] == {FP32, f"maps:{world.maps.name}"}


def metrics_boxes(world: World) -> None:
    world.eval(model=[FP32, world.own_boxes])
    models, tables = reported(world)
    assert models == {FP32} and "n/a (no maps)" in tables
    assert world.differences("pointing")[FP32, "boxes:answers"]["shared"] == 7


def metrics_tiles(world: World) -> None:
    world.eval("--tiles", "2x2@0.25")
    assert reported(world)[0] == {f"{FP32}+2x2@0.25"}


def metrics_precision(world: World) -> None:
    world.eval(model=[FP32, FP16])
    assert reported(world)[0] == {FP32, FP16}


def metrics_patients(world: World) -> None:
    world.eval(*named(world))
    assert reported(world)[0] == {FP32}
