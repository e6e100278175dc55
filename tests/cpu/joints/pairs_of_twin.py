"""The last features with one another: a twin dataset, prompt sets, precision, own reader, cache and engine."""

from __future__ import annotations

import pytest
from joint_inputs import FP16, FP32, NUMPY, put_bundle
from joint_world import World
from synthetic import prompt_set

OTHER = ("--data-option", "coco.prompts=other")
TWIN = f"{FP32}--again"


def twin_prompts(world: World) -> None:
    world.eval(*world.twin, "--data-option", "again.prompts=other")
    assert world.rows().equals(world.whole()) and world.rows(TWIN).equals(world.whole(*OTHER))


def twin_precision(world: World) -> None:
    world.eval(*world.twin, model=[FP32, FP16])
    one, two, mean = (world.differences("dice_best", name)[FP32, FP16] for name in ("coco", "again", ""))
    assert one["difference"] == two["difference"]
    assert mean["difference"] == pytest.approx((one["difference"] + two["difference"]) / 2)
    assert mean["datasets"] == ["coco", "again"] and (one["shared"], mean["shared"]) == (7, 14)


def twin_reader(world: World) -> None:
    world.eval(
        *world.twin, "--data-option", f"again.reader={world.reader}:Films", "--data-option", "again.prompts=coco"
    )
    assert world.rows().equals(world.rows(TWIN)) and world.rows().equals(world.whole())


def twin_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    for out in ("one", "two"):
        world.eval(*world.twin, *cache, out=out)
        assert world.rows(out=out).equals(world.whole()) and world.rows(TWIN, out).equals(world.whole())
        world.decoding() if out == "one" else None
    assert world.decoding() == 0


def twin_engine(world: World) -> None:
    world.eval(*world.twin)
    said = world.eval(*world.twin, "--dataset", "again", "--engine", NUMPY)
    assert f"{FP32} on again: computed again, because this changed: engine" in said
    assert f"{FP32} on coco: finished before, reused" in world.eval()
    coverage = [line for line in world.tables()["Coverage"].split("\n") if FP32 in line]
    assert {("numpy" in line, "onnxruntime-cpu" in line) for line in coverage} == {(True, False), (False, True)}


def prompts_precision(world: World) -> None:
    said = world.eval(*OTHER, model=[FP32, FP16], status=1)
    assert f"Error: {FP16} on coco: The bundle {FP16} has no prompt set 'other'" in said
    assert world.rows().equals(world.whole(*OTHER)) and world.entry(f"{FP16}--coco")["state"] == "failed"


def prompts_reader(world: World) -> None:
    films = (
        "--data",
        f"films={world.data}",
        "--data-option",
        f"films.reader={world.reader}:Films",
        "--dataset",
        "films",
    )
    said = world.eval(*films, status=1)
    assert f"{FP32} on films: skipped, the bundle has no prompt set 'films' (it has: coco, mass, other, rsna)" in said
    assert "films.prompts=SET" in said
    world.eval(*films, "--data-option", "films.prompts=coco")
    assert world.rows(f"{FP32}--films").equals(world.whole())


def prompts_cache(world: World) -> None:
    world.eval()
    world.whole(*OTHER)
    world.decoding()
    world.eval(*OTHER)
    assert world.decoding() == 0 and world.rows().equals(world.whole(*OTHER))


def prompts_engine(world: World) -> None:
    world.eval(*OTHER)
    assert "computed again, because this changed: engine\n" in world.eval(*OTHER, "--engine", NUMPY)
    assert world.rows().equals(world.whole(*OTHER)) and not world.rows().equals(world.whole())


def precision_reader(world: World) -> None:
    world.eval(*world.own_reader, model=FP16)
    assert world.rows(f"{FP16}--coco").equals(world.whole(model=FP16))


def precision_cache(world: World) -> None:
    models = world.own("models")
    world.eval()
    put_bundle(world.originals, models / FP32, "fp16", [prompt_set()])
    world.whole(model=FP16)
    world.decoding()
    said = world.eval()
    assert world.decoding() == 0 and "computed again, because this changed: bundle, engine" in said
    assert world.rows().equals(world.whole(model=FP16)) and not world.rows().equals(world.whole())


def precision_engine(world: World) -> None:
    world.eval(model=FP16)
    before = world.entry(f"{FP16}--coco")
    assert before["engine"]["precision"] == "fp16"
    said = world.eval("--tf32", model=FP16, status=2)
    assert said.startswith("Error: --tf32 is for engines on a GPU") and world.entry(f"{FP16}--coco") == before


def reader_cache(world: World) -> None:
    reader = world.own("reader")
    world.eval(*world.own_reader)
    text = reader.read_text().replace('image["file_name"]', "document['images'][-row]['file_name']")
    reader.write_text(text)
    world.eval(*world.own_reader)
    assert world.rows().equals(world.fresh(*world.own_reader)) and not world.rows().equals(world.whole())


def reader_engine(world: World) -> None:
    world.eval(*world.own_reader, "--engine", NUMPY)
    assert world.rows().equals(world.whole())


def cache_engine(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.eval(*cache, out="one")
    assert world.decoding() == 12
    world.eval(*cache, "--engine", NUMPY, out="two")
    assert world.decoding() == 0 and world.rows(out="two").equals(world.rows(out="one"))
