"""Baselines, and own maps, each with the features after it."""

from __future__ import annotations

from joint_inputs import CASES, FP16, FP32, NUMPY
from joint_world import World
from pairs_of_limit import rests_on_the_pairs_of_the_model

NAMES = ["baseline:ones", "baseline:center", "baseline:chance", "baseline:prior"]
OTHER = ("--data-option", "coco.prompts=other")
MAPS = "maps:maps"


def baselines_maps(world: World) -> None:
    (world.own("maps") / "case0003" / "Mass.npy").unlink()
    world.eval(model=["baseline:ones", world.own_maps])
    rests_on_the_pairs_of_the_model(world, MAPS, {"Mass": 3, "Effusion": 3})


def baselines_twin(world: World) -> None:
    world.eval(*world.twin, model="baseline:chance")
    one, two = (world.rows(f"baseline:chance--{name}") for name in ("coco", "again"))
    assert one.equals(two) and one.num_rows == 2 * CASES


def baselines_prompts(world: World) -> None:
    _reused(world, NAMES, *OTHER)
    world.eval("--data-option", "coco.prompts=mass")
    rests_on_the_pairs_of_the_model(world, FP32, {"Mass": 4})


def _reused(world: World, models: str | list[str], *more: object) -> None:
    world.eval(model=models)
    said = world.eval(*more, model=models)
    assert said.count("finished before, reused") == (1 if isinstance(models, str) else len(models))


def baselines_precision(world: World) -> None:
    world.eval(model=[FP32, "baseline:center"])
    said = world.eval(model=[FP16, "baseline:center"])
    assert "baseline:center on coco: finished before, reused" in said
    assert set(world.differences("pointing")) == {(FP32, FP16)}


def baselines_reader(world: World) -> None:
    world.eval(*world.own_reader, model=NAMES)
    for name in NAMES:
        assert world.rows(f"{name}--coco").equals(world.whole(model=name))


def baselines_cache(world: World) -> None:
    for path in (world.own("data") / "images").iterdir():
        path.write_bytes(path.read_bytes()[:60])
    world.eval("--cache", world.folder / "cache", model=NAMES)
    for name in NAMES:
        assert world.rows(f"{name}--coco").equals(world.whole(model=name))
    assert world.decoding() == 0 and world.stores("cache") == []


def baselines_engine(world: World) -> None:
    _reused(world, NAMES, "--engine", "tensorrt")


def maps_twin(world: World) -> None:
    world.eval(*world.twin, model=world.own_maps)
    one, two = (world.rows(f"{MAPS}--{name}") for name in ("coco", "again"))
    assert one.equals(two) and one.equals(world.whole(model=world.own_maps))


def maps_prompts(world: World) -> None:
    _reused(world, world.own_maps, *OTHER)


def maps_precision(world: World) -> None:
    world.eval(model=[FP32, FP16, world.own_maps])
    assert set(world.differences("pointing")) == {(FP32, FP16), (FP32, MAPS), (FP16, MAPS)}
    assert set(world.differences("auc")) == {(FP32, FP16)}


def maps_reader(world: World) -> None:
    world.eval(*world.own_reader, model=world.own_maps)
    assert world.rows(f"{MAPS}--coco").equals(world.whole(model=world.own_maps))


def maps_cache(world: World) -> None:
    world.whole(model=world.own_maps)
    world.decoding()
    world.eval("--cache", world.folder / "cache", model=world.own_maps)
    assert world.rows(f"{MAPS}--coco").equals(world.whole(model=world.own_maps))
    assert world.decoding() == 0 and world.stores("cache") == []


def maps_engine(world: World) -> None:
    _reused(world, world.own_maps, "--engine", NUMPY)
