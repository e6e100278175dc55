"""A bundle in INT8 with every command that runs a bundle or reads its results (docs/joints.md)."""

from __future__ import annotations

import json
import urllib.request

from joint_inputs import FP32, INT8, put_bundle
from joint_world import World, command
from serving_process import ServerProcess, image_request
from synthetic import prompt_set

STAMP = f"{INT8}: computed in INT8"


def both(world: World) -> World:
    """With the bundle in INT8 beside the others."""
    put_bundle(world.originals, world.own("models") / INT8, "int8", [prompt_set()])
    return world


def renamed(world: World, precision: str) -> None:
    """The bundle blocks-32 in another precision."""
    put_bundle(world.originals, world.models / FP32, precision, [prompt_set()])


def int8_eval(world: World) -> None:
    said = both(world).eval(model=[FP32, INT8])
    assert "2 cells finished" in said
    rows = world.rows(f"{INT8}--coco")
    assert rows.num_rows == world.rows().num_rows and not rows.equals(world.rows())
    entry = world.entry(f"{INT8}--coco")
    assert entry["engine"]["precision"] == "int8" and entry["ingredients"]["engine"] == "onnxruntime-cpu int8"
    assert world.eval(model=[FP32, INT8]).count("finished before, reused") == 2


def int8_resume(world: World) -> None:
    both(world).eval(model=INT8)
    wanted = world.rows(f"{INT8}--coco")
    world.eval("--engine", "joint_inputs:StoppedSession", model=INT8, out="cut", status=130)
    world.eval(model=INT8, out="cut")
    assert world.entry(f"{INT8}--coco", "cut")["computed"] == 8, "the first chunk of 4 cases is kept"
    assert world.rows(f"{INT8}--coco", "cut").equals(wanted)
    put_bundle(world.originals, world.models / INT8, "fp32", [prompt_set()])
    said = world.eval(model=INT8)
    assert "computed again, because this changed: bundle, engine" in said
    assert world.rows(f"{INT8}--coco").equals(world.whole())


def int8_merge(world: World) -> None:
    both(world).eval("--shard", "1/2")
    renamed(world, "int8")
    world.eval("--shard", "2/2")
    said = world.merge(status=1)
    assert "bundle" in said and "engine" in said, said
    world.eval("--shard", "1/2")
    world.merge_all()


def int8_report(world: World) -> None:
    both(world).eval(model=[FP32, INT8])
    tables = {title: text for title, text in world.tables().items() if INT8 in text}
    assert tables and all(STAMP in text for text in tables.values())
    found = world.differences("pointing")[FP32, INT8]
    assert found["shared"] == 7 and found["left_out"] == 0


def int8_compare(world: World) -> None:
    both(world).eval(model=[FP32, INT8])
    ran = command("compare", world.folder / "run", "--model", FP32, "--model", INT8)
    assert ran.status == 0 and STAMP in ran.text and "in A and in" not in ran.text
    renamed(world, "int8")
    world.eval(out="other")
    ran = command("compare", world.folder / "run", world.folder / "other", "--fail-if", "max_logit_change > 0")
    assert f"{FP32} on coco: computed in fp32 in A and in int8 in B" in ran.text
    assert ran.status == 1 and "FAIL: max_logit_change > 0" in ran.text


def int8_study(world: World) -> None:
    both(world).eval(model=[FP32, INT8])
    for name in ("thresholds", "strata", "failures"):
        ran = command("study", name, world.folder / "run", "--replicates", 40)
        assert ran.status == 0 and STAMP in ran.text and FP32 in ran.text, ran.text


def int8_trust(world: World) -> None:
    probes = [word for name in ("repeat", "randomisation") for word in ("--probe", name)]
    bundle = both(world).models / INT8
    ran = command("trust", "--model", bundle, "--data", f"coco={world.data}", "--out", world.folder / "trust", *probes)
    assert ran.status == 1 and STAMP in ran.text and "the same image gave the same bits twice" in ran.text, ran.text
    assert "its weights cannot be randomised; use the bundle in fp32 that it was made from" in ran.text


def int8_serve(world: World) -> None:
    both(world).eval(model=INT8)
    rows = world.rows(f"{INT8}--coco").to_pylist()[:2]
    image = (world.data / "images" / "case0000.png").read_bytes()
    with ServerProcess(world.models / INT8, world.folder) as server:
        body, headers = image_request(image, outputs=("logits",))
        place = f"{server.url}/v2/models/{INT8}"
        with urllib.request.urlopen(urllib.request.Request(f"{place}/infer", body, headers)) as answer:
            (logits,) = json.load(answer)["outputs"]
        with urllib.request.urlopen(place) as answer:
            assert json.load(answer)["parameters"]["precision"] == "int8"
    assert logits["data"][:2] == [row["logit"] for row in rows], "of Mass and Effusion"
