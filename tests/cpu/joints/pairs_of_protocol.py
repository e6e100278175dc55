"""A protocol and each of the other features."""

from __future__ import annotations

import json

from joint_inputs import FP16, FP32, NUMPY, move_box
from joint_world import World, command, first

MEDKLIP = ("--protocol", "medklip")
CHEXLOCALIZE = ("--protocol", "chexlocalize")


def protocol_limit(world: World) -> None:
    for protocol in (MEDKLIP, CHEXLOCALIZE):
        world.eval(*protocol, "--limit", 6)
        assert world.rows().equals(first(world.whole(*protocol)))


def protocol_shards(world: World) -> None:
    for protocol in (CHEXLOCALIZE, MEDKLIP):
        world.shards(*protocol)
        world.merge_all(*protocol)
    assert world.rows().equals(world.whole(*MEDKLIP))
    world.eval("--shard", "1/2")
    said = world.merge(status=1)
    assert "Error: blocks-32 on coco:" in said and "differ in" in said and "sweep" in said
    assert world.rows().equals(world.whole(*MEDKLIP)), "the merged result is kept"
    world.eval("--protocol", "paper", "--shard", "2/2")
    said = world.merge(status=1)
    assert "differ in protocol" in said, "default and paper sweep alike, and are two protocols"


def protocol_changed(world: World) -> None:
    world.own("data")
    world.eval()
    world.eval(*MEDKLIP)
    move_box(world.data / "annotations.json")
    for protocol in (MEDKLIP, ()):
        assert "computed again, because this changed" in world.eval(*protocol)
        assert world.rows().equals(world.fresh(*protocol)) and not world.rows().equals(world.whole(*protocol))
        assert "reused" in world.eval(*protocol)


def protocol_baselines(world: World) -> None:
    models = [FP32, "baseline:ones", "baseline:center"]
    world.eval(model=models)
    said = world.eval(*MEDKLIP, model=models)
    assert "baseline:center on coco: skipped, the protocol medklip cuts maps as they are" in said
    kept = world.entry("baseline:center--coco")
    assert kept["protocol"] == "default" and kept["last_attempt"]["state"] == "skipped"
    assert world.rows("baseline:center--coco").equals(world.whole(model="baseline:center"))
    assert world.rows("baseline:ones--coco").equals(world.whole(*MEDKLIP, model="baseline:ones"))
    tables = [text for name, text in world.tables().items() if name != "Coverage"]
    assert any("center" in text for text in tables)
    assert not any("center" in text and FP32 in text for text in tables if "| Point" in text or "per class" in text)


def protocol_maps(world: World) -> None:
    world.eval(model=world.own_maps, out="one")
    world.eval(*MEDKLIP, model=world.own_maps, out="two")
    tables = [
        (world.report(*how, out=out) / "table1.csv").read_text()
        for out, how in (("one", MEDKLIP), ("two", ()), ("one", ()))
    ]
    assert tables[0] == tables[1] != tables[2]


def protocol_twin(world: World) -> None:
    world.eval()
    world.eval(*world.twin, *MEDKLIP, "--dataset", "again")
    report = world.numbers()
    assert {cell["dataset"] for cell in report["cells"]} == {"coco", "again"}
    assert report["models"][FP32]["datasets"] == 1, "a mean over the datasets of one protocol"
    assert not any("coco" in text and "again" in text for name, text in world.tables().items() if "Table 1" in name)
    for study in ("thresholds", "calibration"):
        ran = command("study", study, world.folder / "run", "--replicates", 40)
        assert ran.status == 0
        for folder, dataset in ((study, "coco"), (f"{study}-medklip", "again")):
            made = json.loads((world.folder / "run" / "studies" / folder / f"{study}.json").read_text())
            kinds = [made[name] for name in ("sensitivity", "delta_dice", "cells", "models") if name in made]
            assert {row["dataset"] for rows in kinds for row in rows if "dataset" in row} == {dataset}
            assert f"{FP32} has no mean over datasets: it has 1 of 2 datasets." in made["facts"]


def protocol_prompts(world: World) -> None:
    other = ("--data-option", "coco.prompts=other")
    world.eval(*other, *MEDKLIP)
    one, two = world.rows(), world.whole(*other)
    for column in ("logit", "logit_negative", "saliency"):
        assert one[column].equals(two[column])
    assert not one["area"].equals(two["area"])
    assert not one["logit"].equals(world.whole()["logit"])


def protocol_precision(world: World) -> None:
    world.eval()
    world.eval(*MEDKLIP, model=FP16)
    ran = command("compare", world.folder / "run", "--model", FP32, "--model", FP16)
    assert ran.status == 1 and ran.text.startswith("Error: ")
    assert f"on coco: {FP32} was evaluated by protocol 'default', {FP16} by 'medklip'" in ran.text
    assert world.differences("pointing") == {}
    assert not any("**" in text for name, text in world.tables().items() if name.startswith("Table 1"))


def protocol_reader(world: World) -> None:
    for protocol in (MEDKLIP, CHEXLOCALIZE):
        world.eval(*world.own_reader, *protocol)
        assert world.rows().equals(world.whole(*protocol))


def protocol_cache(world: World) -> None:
    rsna = ("--data", f"rsna={world.originals.folder / 'rsna'}", "--dataset", "rsna")
    cell, cache = f"{FP32}--rsna", ("--cache", world.folder / "cache")
    one, two = (world.whole(*rsna, *how, cell=cell) for how in ((), MEDKLIP))
    assert not one["logit"].equals(two["logit"]), "the images are not equalised"
    three = world.whole(*rsna, *CHEXLOCALIZE, cell=cell)
    assert three["native"].null_count < len(three) and three["logit"].equals(one["logit"])
    for how, wanted in (((), one), (MEDKLIP, two), ((), one), (CHEXLOCALIZE, three)):
        world.eval(*rsna, *how, *cache)
        assert world.rows(cell).equals(wanted)


def protocol_engine(world: World) -> None:
    assert "12 cases" in world.eval(*MEDKLIP, "--engine", "auto")
    before = world.entry()
    assert "finished before, reused" in world.eval(*MEDKLIP, "--engine", "onnxruntime-cpu")
    said = world.eval(*MEDKLIP, "--engine", "onnxruntime-cpux", status=2)
    assert said.startswith("Error: ") and "did you mean 'onnxruntime-cpu'" in said
    assert world.entry() == before and NUMPY not in str(before)
