"""A limit and each of the features after it."""

from __future__ import annotations

import numpy as np
from joint_inputs import CASES, FP16, FP32, LIMITED, NUMPY, put_maps
from joint_world import World, first
from PIL import Image

LIMIT = ("--limit", LIMITED)
OTHER = ("--data-option", "coco.prompts=other")


def limit_shards(world: World) -> None:
    world.shards("--limit", 10)
    world.merge_all("--limit", 10)
    assert world.rows().equals(world.whole("--limit", 10)) and world.entry()["cases"] == 10
    world.eval(*LIMIT, "--shard", "1/2")
    said = world.merge(status=1)
    assert "Error: blocks-32 on coco:" in said and "differ in" in said and "limit" in said


def limit_changed(world: World) -> None:
    images = world.own("data") / "images"
    for out, how in (("some", LIMIT), ("all", ())):
        world.eval(*how, out=out)
    Image.fromarray(np.full((40, 56), 77, np.uint8)).save(images / "case0010.png")
    assert "finished before, reused" in world.eval(*LIMIT, out="some")
    assert "computed again, because this changed" in world.eval(out="all")
    assert world.rows(out="all").equals(world.fresh()) and not world.rows(out="all").equals(world.whole())


def limit_baselines(world: World) -> None:
    world.eval(*LIMIT)
    world.eval(model="baseline:ones")
    rests_on_the_pairs_of_the_model(world, FP32, {"Mass": 2, "Effusion": 2})


def rests_on_the_pairs_of_the_model(world: World, model: str, pairs: dict[str, int]) -> None:
    """Where ones stands in a table with the model, its pointing is the chance level of the model's own pairs."""
    rows = [row for row in world.rows(f"{model}--coco").to_pylist() if row["status"] == "ok" and row["area"]]
    of_class = {name: [row["region_area"] for row in rows if row["finding"] == name] for name in pairs}
    assert {name: len(areas) for name, areas in of_class.items()} == pairs and len(rows) == sum(pairs.values())
    chance = 100 * sum(sum(areas) / len(areas) / 224**2 for areas in of_class.values()) / len(pairs)
    for name, text in world.tables().items():
        lines = [line for line in text.split("\n") if line.startswith("|")]
        ones = [line for line in lines if line.split("|")[1].strip() == "baseline:ones"]
        if name.startswith("Table 1") and ones and any(model in line.split("|")[1] for line in lines):
            assert f" {chance:.2f} " in ones[0].replace("<br>", " "), (name, ones[0], chance)


def limit_maps(world: World) -> None:
    world.maps = world.folder / "maps"
    put_maps(world.maps, range(LIMITED))
    for how, cases, missing in ((LIMIT, 6, 0), ((), CASES, 3)):
        world.eval(*how, model=world.own_maps, status=int(missing > 0))
        entry = world.entry("maps:maps--coco")
        assert (entry["cases"], entry["missing"]) == (cases, missing)
    assert first(world.rows("maps:maps--coco")).equals(first(world.whole(model=f"maps:{world.originals.folder}/maps")))


def limit_twin(world: World) -> None:
    world.eval()
    world.eval(*world.twin, "--dataset", "again", *LIMIT)
    table = world.tables()["Coverage"]
    coverage = [line.split("|") for line in table.split("\n") if line.startswith(f"| {FP32}")]
    assert {line[2].strip(): line[3].strip() for line in coverage} == {"coco": "12", "again": "6"}
    assert "again: only the first 6 cases were evaluated" in table and table.count("only the first") == 1


def limit_prompts(world: World) -> None:
    world.eval()
    said = world.eval(*OTHER, *LIMIT)
    (line,) = [line for line in said.split("\n") if "computed again, because this changed" in line]
    assert "limit" in line and "prompt_set" in line
    assert world.rows().equals(first(world.whole(*OTHER)))


def limit_precision(world: World) -> None:
    world.eval()
    world.eval(*LIMIT, model=FP16)
    found = world.differences("pointing")[FP32, FP16]
    assert (found["shared"], found["left_out"]) == (4, 3)


def limit_reader(world: World) -> None:
    world.eval(*world.own_reader, *LIMIT)
    assert world.rows().equals(first(world.whole()))


def limit_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.decoding()
    for how, count in ((LIMIT, 6), ((), 6)):
        world.eval(*how, *cache)
        assert world.decoding() == count
    assert world.rows().equals(world.whole())
    said = world.eval("--cache", world.folder / "small", "--cache-limit", "1kB", out="small")
    assert "would not fit the cache limit" in said and world.stores("small") == []
    assert world.rows(out="small").equals(world.whole())


def limit_engine(world: World) -> None:
    for engine in ("onnxruntime-cpu", NUMPY):
        world.eval("--limit", 5, "--engine", engine)
        assert world.rows().equals(first(world.whole(), 5))
