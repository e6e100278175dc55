"""Images in tiles with every other feature."""

from __future__ import annotations

from joint_inputs import CASES, FP16, FP32, LIMITED, NUMPY, STOPPED, move_box
from joint_world import World, command, first
from pairs_of_patients import named, only_patients_differ
from pairs_of_phrases import CELL as PHRASES
from pairs_of_phrases import asked
from pairs_of_phrases import whole as whole_of_phrases

NAME = "2x2@0.25"
TILES = ("--tiles", NAME)
MEDKLIP = ("--protocol", "medklip")


def cell(model: str = FP32, dataset: str = "coco") -> str:
    return f"{model}+{NAME}--{dataset}"


CELL = cell()


def expected(world: World, *how: object, model: str = FP32) -> object:
    return world.whole(*TILES, *how, model=model, cell=cell(model))


def protocol_tiles(world: World) -> None:
    world.eval(*TILES)
    before = world.rows(CELL)
    assert "because this changed: sweep" in world.eval(*TILES, *MEDKLIP)
    assert world.rows(CELL)["logit"].equals(before["logit"]) and not world.rows(CELL).equals(before)


def limit_tiles(world: World) -> None:
    world.eval(*TILES, "--limit", LIMITED)
    assert world.rows(CELL).equals(first(expected(world)))
    assert "computed again, because this changed: dataset, limit\n" in world.eval(*TILES)
    assert world.rows(CELL).equals(expected(world))


def shards_tiles(world: World) -> None:
    world.shards(*TILES)
    world.merge_all(*TILES)
    assert world.rows(CELL).equals(expected(world))


def changed_tiles(world: World) -> None:
    world.own("data")
    world.eval(*TILES, "--engine", STOPPED, status=130)
    world.eval(*TILES, "--engine", NUMPY)
    assert world.rows(CELL).equals(expected(world, "--engine", NUMPY))
    move_box(world.data / "annotations.json")
    assert "because this changed: dataset\n" in world.eval(*TILES, "--engine", NUMPY)
    assert world.rows(CELL).equals(world.fresh(*TILES, "--engine", NUMPY, cell=CELL))
    world.eval(*TILES, "--tile-score", "largest", "--engine", NUMPY)
    assert set(world.cells("run")) == {CELL, CELL.replace(NAME, f"{NAME}-largest")}


def baselines_tiles(world: World) -> None:
    world.eval(*TILES, model=[FP32, "baseline:center"])
    assert set(world.cells("run")) == {CELL, "baseline:center--coco"}
    world.eval()
    text = next(text for name, text in world.tables().items() if name.startswith("Table 1"))
    assert f"{FP32}+{NAME}: images in tiles (2 x 2, overlap 0.25, score: the whole image's)" in text
    ran = command("study", "resolution", world.folder / "run", "--replicates", 40)
    assert ran.status == 0 and f"{FP32}+{NAME} [7 x 7]" in ran.text and f"{FP32} [4 x 4]" in ran.text


def maps_tiles(world: World) -> None:
    world.eval(model=world.own_maps)
    said = world.eval(*TILES, model=[FP32, world.own_maps])
    assert "finished before, reused" in said and len(world.cells("run")) == 2


def boxes_tiles(world: World) -> None:
    world.eval(model=world.own_boxes)
    said = world.eval(*TILES, model=[FP32, world.own_boxes])
    assert "finished before, reused" in said and len(world.cells("run")) == 2


def twin_tiles(world: World) -> None:
    world.eval(*world.twin, *TILES)
    assert world.rows(CELL).equals(expected(world)) and world.rows(cell(dataset="again")).equals(expected(world))


def prompts_tiles(world: World) -> None:
    other = ("--data-option", "coco.prompts=other")
    world.eval(*TILES)
    assert "because this changed: prompt_set\n" in world.eval(*TILES, *other)
    assert world.rows(CELL).equals(expected(world, *other))


def sets_tiles(world: World) -> None:
    world.eval(*TILES, "--prompts", "coco", "--prompts", "other")
    for name in ("coco", "other"):
        alone = expected(world, "--data-option", f"coco.prompts={name}")
        assert world.rows(f"{FP32}@{name}+{NAME}--coco").equals(alone)


def views_tiles(world: World) -> None:
    views = ("--data-option", "coco.augment=flip")
    world.eval(*TILES, *views)
    assert set(world.cells("run")) == {CELL} and world.rows(CELL).equals(expected(world))
    world.eval(*views)
    assert set(world.cells("run")) == {CELL, f"{FP32}--coco", f"{FP32}+flip--coco"}


def tiles_precision(world: World) -> None:
    world.eval(*TILES, model=[FP32, FP16])
    assert world.rows(CELL).equals(expected(world))
    assert world.rows(cell(FP16)).equals(expected(world, model=FP16))


def tiles_reader(world: World) -> None:
    world.eval(*world.own_reader, *TILES)
    assert world.rows(CELL).equals(expected(world))


def tiles_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.eval(*cache, *TILES)
    assert world.decoding() == CASES and world.rows(CELL).equals(expected(world))
    world.eval(*cache)
    assert world.decoding() == 0 and world.rows().equals(world.whole())


def tiles_engine(world: World) -> None:
    world.eval(*TILES, "--engine", NUMPY)
    assert "computed again, because this changed: engine\n" in world.eval(*TILES)
    assert world.rows(CELL).equals(expected(world))


def tiles_patients(world: World) -> None:
    world.eval(*TILES, *named(world))
    assert only_patients_differ(world.rows(CELL), expected(world))


def tiles_phrases(world: World) -> None:
    world.eval(*asked(world), *TILES)
    world.eval(*asked(world))
    tiled = PHRASES.replace("--", f"+{NAME}--")
    assert world.rows(PHRASES).equals(whole_of_phrases(world)) and tiled in world.cells("run")
    assert world.rows(tiled)["logit"].equals(world.rows(PHRASES)["logit"])
    assert not world.rows(tiled)["saliency"].equals(world.rows(PHRASES)["saliency"])


def trust_tiles(world: World) -> None:
    world.eval(*TILES)
    world.eval()
    ran = command("study", "trust", world.folder / "run", "--replicates", 40)
    assert ran.status == 0 and f"{FP32}+{NAME}" in ran.text
