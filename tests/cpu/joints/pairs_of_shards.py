"""Shards, and inputs that change, each with the features after it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import numpy as np
from joint_inputs import FP16, FP32, NUMPY, STOPPED, move_box, put_bundle
from joint_world import World
from synthetic import prompt_set

ONES = "baseline:ones"
OTHER = ("--data-option", "coco.prompts=other")
MAPS = "maps:maps--coco"


def _not_merged(world: World, *words: str, model: str = FP32) -> None:
    said = world.merge(status=1)
    (line,) = [line for line in said.split("\n") if line.startswith("Error: ")]
    assert line.startswith(f"Error: {model} on coco:") and "are of different evaluations" in line
    assert all(word in line for word in words), line


def shards_changed(world: World) -> None:
    images = world.own("data") / "images"
    world.eval("--shard", "1/2")
    move_box(world.data / "annotations.json", 6, 100)
    (images / "case0001.png").unlink()
    (images / "case0010.png").write_bytes(b"no image")
    world.eval("--shard", "2/2")
    _not_merged(world, "dataset")
    world.eval("--shard", "1/2")
    world.merge_all()
    assert not world.rows().equals(world.whole())
    entry = world.entry()
    assert (entry["missing"], entry["unreadable"], entry["outside"]) == (1, 1, 1)


def shards_baselines(world: World) -> None:
    models = ["baseline:ones", "baseline:center", "baseline:chance", "baseline:prior"]
    world.shards(model=models)
    world.merge_all(model=models)
    for model in models:
        assert world.rows(f"{model}--coco").equals(world.whole(model=model))


def shards_maps(world: World) -> None:
    folder = world.own("maps")
    world.eval("--shard", "1/2", model=world.own_maps)
    np.save(folder / "case0000" / "Mass.npy", np.eye(14, dtype=np.float32))
    world.eval("--shard", "2/2", model=world.own_maps)
    _not_merged(world, "map", model="maps:maps")
    world.eval("--shard", "1/2", model=world.own_maps)
    world.merge_all(model=world.own_maps)


def shards_twin(world: World) -> None:
    world.shards(*world.twin)
    world.merge_all(*world.twin)
    for name in ("coco", "again"):
        assert world.rows(f"{FP32}--{name}").equals(world.whole())


def shards_prompts(world: World) -> None:
    world.eval("--shard", "1/2")
    world.eval("--shard", "2/2", *OTHER)
    _not_merged(world, "prompt_set")


def shards_precision(world: World) -> None:
    models = world.own("models")
    world.eval("--shard", "1/2")
    put_bundle(world.originals, models / FP32, "fp16", [prompt_set()])
    world.eval("--shard", "2/2")
    _not_merged(world, "bundle", "engine")


def shards_reader(world: World) -> None:
    reader = world.own("reader")
    world.eval("--shard", "1/2", *world.own_reader)
    reader.write_text(reader.read_text().replace("MOVED = 0", "MOVED = 2"))
    world.eval("--shard", "2/2", *world.own_reader)
    _not_merged(world)
    world.eval("--shard", "1/2", *world.own_reader)
    world.merge_all(*world.own_reader)
    assert not world.rows().equals(world.whole())


def shards_cache(world: World) -> None:
    world.decoding()
    world.shards("--cache", world.folder / "cache")
    assert world.decoding() == 12
    world.merge_all()
    assert world.rows().equals(world.whole())


def shards_engine(world: World) -> None:
    world.eval("--shard", "1/2", "--engine", "auto")
    world.eval("--shard", "2/2", "--engine", "onnxruntime-cpu")
    world.merge_all()
    assert world.rows().equals(world.whole())
    world.eval("--shard", "2/2", "--engine", NUMPY)
    _not_merged(world, "engine")


def changed_baselines(world: World) -> None:
    world.own("data")
    world.eval(model=[FP32, ONES])
    move_box(world.data / "annotations.json")
    world.eval()
    for name, text in world.tables().items():
        lines = [line.split("|")[1] for line in text.split("\n") if line.startswith("|")]
        if name.startswith("Table 1"):
            assert not (any(FP32 in line for line in lines) and any(ONES in line for line in lines)), name


def changed_maps(world: World) -> None:
    folder = world.own("maps")
    world.eval(model=world.own_maps)
    one, two = (folder / f"case000{case}" / "Mass.npy" for case in (0, 3))
    assert one.stat().st_size == two.stat().st_size
    before = one.stat().st_mtime_ns
    one.write_bytes(two.read_bytes())
    os.utime(one, ns=(before, before))
    assert "computed again, because this changed" in world.eval(model=world.own_maps)
    assert world.rows(MAPS).equals(world.fresh(model=world.own_maps, cell=MAPS))


def changed_twin(world: World) -> None:
    data = world.own("data")
    shutil.copy2(data / "annotations.json", data / "second.json")
    twin = (*world.twin, "--data-option", "again.annotations=second.json")
    world.eval(*twin)
    move_box(data / "second.json")
    said = world.eval(*twin)
    assert f"{FP32} on coco: finished before, reused" in said
    assert f"{FP32} on again: computed again, because this changed: dataset" in said
    assert world.rows().equals(world.whole()) and not world.rows(f"{FP32}--again").equals(world.whole())


def changed_prompts(world: World) -> None:
    models = world.own("models")
    world.eval()
    sets = [prompt_set(), replace(prompt_set("other"), texts=("another", "text", "here"))]
    put_bundle(world.originals, models / FP32, "fp32", sets)
    assert "computed again, because this changed: bundle\n" in world.eval()
    assert world.rows().equals(world.whole())


def changed_precision(world: World) -> None:
    world.own("data")
    world.eval(model=[FP32, FP16])
    move_box(world.data / "annotations.json")
    world.eval()
    found = world.differences("pointing")[FP32, FP16]
    assert (found["shared"], found["left_out"]) == (6, 2)


def changed_reader(world: World) -> None:
    reader = world.own("reader")
    world.eval(*world.own_reader)
    reader.write_text(reader.read_text() + "\n# a comment\n")
    assert "finished before, reused" in world.eval(*world.own_reader)
    reader.write_text(reader.read_text().replace("MOVED = 0", "MOVED = 2"))
    assert "computed again, because this changed" in world.eval(*world.own_reader)
    assert world.rows().equals(world.fresh(*world.own_reader)) and not world.rows().equals(world.whole())


def changed_cache(world: World) -> None:
    images = world.own("data") / "images"
    world.eval()
    world.eval("--engine", STOPPED, out="stopped", status=130)
    one, two, aside = images / "case0000.png", images / "case0003.png", images / "aside.png"
    assert one.stat().st_size == two.stat().st_size and one.stat().st_mtime_ns == two.stat().st_mtime_ns
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    assert "computed again, because this changed" in world.eval()
    assert world.rows().equals(world.fresh()) and not world.rows().equals(world.whole())
    world.eval("--engine", NUMPY, out="stopped")
    assert world.rows(out="stopped").equals(world.rows())


def changed_engine(world: World) -> None:
    world.own("data")
    world.eval()
    world.eval("--engine", STOPPED, out="stopped", status=130)
    move_box(world.data / "annotations.json")
    for engine, changed in ((NUMPY, ("dataset", "engine")), ("onnxruntime-cpu", ("engine",))):
        said = world.eval("--engine", engine)
        (line,) = [line for line in said.split("\n") if "computed again, because this changed" in line]
        assert all(name in line for name in changed)
        assert world.rows().equals(world.fresh()) and not world.rows().equals(world.whole())
    said = world.eval("--engine", NUMPY, out="stopped")
    assert "taken over" not in said and world.rows(out="stopped").equals(world.rows())
