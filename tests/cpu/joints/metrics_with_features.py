"""Metrics of one's own, Dice at 0.5 of maps and regions and Dice at each threshold of counts, with the features whose
results they read (docs/joints.md)."""

from __future__ import annotations

import csv
import json

import xbench_fast as xb
from joint_inputs import FP16, FP32, LIMITED, NUMPY
from joint_world import World, command
from pairs_of_patients import named
from pairs_of_phrases import asked
from pairs_of_sets import ALL as SETS
from pairs_of_views import ALL as VIEWS
from phrases_with_commands import TEXTS
from studies_with_features import SQUASH, live, rows_of

CODE = """
def dice(map, mask):
    above = map >= 0.5
    return 2 * (above & mask).sum() / (above.sum() + mask.sum())
def each(area, overlap, region):
    return 2 * overlap / (area + region)
"""
CONFIG = """
[metrics.mine]
function = 'm.py:dice'
maps = true
[metrics.each]
function = 'm.py:each'
levels = true
"""
_COLUMNS = ("percent", "low", "high")
_PARTS = ("fixed", "best", "cross_fitted")


def reported(world: World, *more: object, out: str = "run", code: str = CODE) -> tuple[set[str], str]:
    """The models that have the metric of maps, in a report where it is Dice at 0.5 with its interval wherever there is
    one, and that of counts is Dice at 0.5, at its best threshold and cross-fitted everywhere; and the tables."""
    (world.folder / "m.py").write_text(code)
    config = world.folder / "own.toml"
    config.write_text(CONFIG)
    folder = world.report("--config", config, *more, out=out)
    with (folder / "classes.csv").open(newline="") as stream:
        rows = [*csv.DictReader(stream)]
    for row in rows:
        names = {f"each_{part}": f"dice_{part}" for part in _PARTS}
        names |= {"mine": "dice_fixed"} if row["mine_percent"] and code == CODE else {}
        for own, built_in in names.items():
            assert [row[f"{own}_{end}"] for end in _COLUMNS] == [row[f"{built_in}_{end}"] for end in _COLUMNS], row
    assert any(row["each_best_percent"] for row in rows)
    return {row["model"] for row in rows if row["mine_percent"]}, (folder / "tables.md").read_text()


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
    _, after = reported(world, code=f"{CODE}def dice(map, mask):\n    return 0.125\n")
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


def metrics_limit(world: World) -> None:
    world.eval("--limit", LIMITED)
    models, tables = reported(world)
    assert models == {FP32} and "only the first 6 cases" in tables
    assert world.numbers()["cells"][0]["n"] == 4


def metrics_twin(world: World) -> None:
    world.eval(*world.twin)
    assert reported(world)[0] == {FP32}
    with (world.folder / "run" / "report" / "table1.csv").open(newline="") as stream:
        one, two = csv.DictReader(stream)
    assert one["mine_percent"] == two["mine_percent"] and one["each_best_low"] == two["each_best_low"]


def metrics_prompts(world: World) -> None:
    world.eval("--data-option", "coco.prompts=other")
    assert reported(world)[0] == {FP32}


def metrics_sets(world: World) -> None:
    world.eval(*SETS)
    assert reported(world)[0] == {f"{FP32}@{name}" for name in ("coco", "mass", "other")}
    said, rows = rows_of(world, "run", "prompts", "prompts", "--config", world.folder / "own.toml", "--replicates", 40)
    assert "each, cross-fitted" in said or "each cross-fitted" in said
    for table in ("values", "differences", "spread"):
        by = dict[str, list[dict[str, object]]]()
        for row in rows[table]:
            by.setdefault(row.pop("measure"), []).append(row)
        assert by["mine"] and by["mine"] == by["dice_fixed"], table
        assert all(by[f"each_{part}"] == by[f"dice_{part}"] for part in _PARTS), table


def metrics_views(world: World) -> None:
    world.eval(*VIEWS)
    assert reported(world)[0] == {FP32, f"{FP32}+flip", f"{FP32}+shift-8"}


def metrics_reader(world: World) -> None:
    world.eval(*world.own_reader)
    assert reported(world)[0] == {FP32}


def metrics_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.eval(*cache)
    before = reported(world)
    world.decoding()
    assert "finished before, reused" in world.eval(*cache, "--verify")
    assert reported(world) == before and world.decoding() == 0


def metrics_engine(world: World) -> None:
    world.eval()
    assert reported(world)[0] == {FP32}
    world.eval("--engine", NUMPY, out="other")
    assert reported(world, out="other")[0] == {FP32}
    one, two = ((world.folder / out / "report" / "table1.csv").read_text() for out in ("run", "other"))
    assert one == two


def metrics_phrases(world: World) -> None:
    world.eval(*asked(world))
    models, tables = reported(world)
    assert models == {FP32} and not any(text in tables.lower() for text in TEXTS)
    (world.folder / "m.py").write_text(f"{CODE}def dice(map, mask):\n    return 1 / 0\n")
    ran = command("report", world.folder / "run", "--no-page", "--quiet", "--config", world.folder / "own.toml")
    assert ran.status == 1 and "raised ZeroDivisionError (division by zero) in " in ran.text, ran.text
    assert f"of mscxr, model {FP32}; correct" in ran.text and not any(text in ran.text.lower() for text in TEXTS)


def metrics_live(world: World) -> None:
    world.eval(out="bundle")
    xb.evaluate(live, "coco", world.data, geometry=SQUASH, name=FP32, out=world.folder / "run", progress=False)
    assert reported(world)[0] == reported(world, out="bundle")[0] == {FP32}
    one, two = ((world.folder / out / "report" / "differences.csv").read_text() for out in ("run", "bundle"))
    assert one == two


def metrics_compare(world: World) -> None:
    world.eval(model=[FP32, FP16])
    reported(world)
    models = ("--model", FP32, "--model", FP16, "--config", world.folder / "own.toml")
    condition = ("--fail-if", "mine_drop < -100", "--fail-if", "each_best_drop > -100")
    ran = command("compare", world.folder / "run", *models, *condition, "--json", world.folder / "compared.json")
    assert ran.status == 1 and "pass: mine_drop < -100" in ran.text and "FAIL: each_best_drop > -100" in ran.text
    (cell,) = json.loads((world.folder / "compared.json").read_text())["cells"]
    changes = {change.pop("metric"): change for change in cell["changes"]}
    assert changes["mine"] == changes["dice_fixed"]
    assert all(changes[f"each_{part}"] == changes[f"dice_{part}"] for part in _PARTS)
