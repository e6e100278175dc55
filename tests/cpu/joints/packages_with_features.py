"""A protocol, a scorer and a dialect of an installed package with the features that they meet (docs/joints.md)."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xbench_fast as xb
from joint_inputs import FP32
from joint_world import World, command
from studies_with_features import SQUASH, live

CODE = """
import json
from xbench_fast.metrics_gpu.detection.published.scorer import Scorer
from xbench_fast.metrics_gpu.grounding.protocols import Protocol
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping
from xbench_fast.runtime.data.answers.dialects.dialect_registry import Dialect
from xbench_fast.runtime.data.answers.dialects.parsed import Parsed

NEAREST = Protocol("nearest", "a paper", Sweeping("nearest"))
COUNTING = Scorer("counting", "a paper", "n", "It counts.", lambda answers, table: {"n": len(answers.given.boxes)})

def read(text):
    return Parsed([tuple(box) for box in json.loads(text)])

LISTED = Dialect("Lists", read, "unit")
"""
ENTRIES = """
[xbench_fast.protocols]
nearest = joint_addon:NEAREST
[xbench_fast.dialects]
listed = joint_addon:LISTED
[xbench_fast.scorers]
counting = joint_addon:COUNTING
"""
NEAREST = ("--protocol", "nearest")


@contextmanager
def installed(world: World) -> Iterator[Path]:
    """The package's only module."""
    folder = world.folder / "installed"
    made = folder / "joint_addon-1.0.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: joint-addon\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text(ENTRIES)
    (folder / "joint_addon.py").write_text(CODE)
    sys.path.insert(0, str(folder))
    try:
        yield folder / "joint_addon.py"
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("joint_addon", None)


def change(module: Path, old: str, new: str) -> None:
    module.write_text(module.read_text().replace(old, new))
    del sys.modules["joint_addon"]


def packages_protocol(world: World) -> None:
    with installed(world):
        world.eval()
        world.eval(*world.twin, *NEAREST, "--dataset", "again")
        report = world.numbers()
        assert report["models"][FP32]["datasets"] == 1, "a mean over the datasets of one protocol"
        assert [block["protocol"] for block in report["other_protocols"]] == ["nearest"]
        assert (world.folder / "run" / "report" / "table1-nearest.csv").is_file()
        ran = command("study", "thresholds", world.folder / "run", "--replicates", 40)
        assert ran.status == 0 and (world.folder / "run" / "studies" / "thresholds-nearest").is_dir()


def packages_shards(world: World) -> None:
    with installed(world) as module:
        world.shards(*NEAREST)
        world.merge_all(*NEAREST)
        assert not world.rows().equals(world.whole())
        change(module, '"a paper", Sweeping', '"another paper", Sweeping')
        world.eval("--shard", "1/2", *NEAREST)
        assert "differ in protocol" in world.merge(status=1)


def packages_changed(world: World) -> None:
    with installed(world) as module:
        world.eval(*NEAREST)
        before = world.rows()
        change(module, 'Sweeping("nearest")', 'Sweeping("align_corners")')
        ran = command("report", world.folder / "run")
        assert ran.status == 1 and "by other code of the protocol 'nearest'; evaluate again" in ran.text, ran.text
        assert "because this changed: protocol, sweep" in world.eval(*NEAREST)
        assert not world.rows().equals(before) and world.numbers()["cells"][0]["protocol"] == "nearest"
    ran = command("report", world.folder / "run")
    assert ran.status == 2 and f"{FP32} on coco: Unknown protocol 'nearest'" in ran.text, "the package is gone"


def packages_baselines(world: World) -> None:
    with installed(world):
        world.eval(*NEAREST, model=[FP32, "baseline:ones", "baseline:center"])
        assert world.rows("baseline:ones--coco").equals(world.whole(model="baseline:ones"))
        table = next(text for name, text in world.tables().items() if name.startswith("Table 1"))
        table = table.replace("\\", "")
        assert all(name in table for name in (FP32, "baseline:ones", "baseline:center", "nearest: joint_addon:NEAREST"))


def packages_maps(world: World) -> None:
    with installed(world):
        world.eval(model=world.own_maps, out="one")
        world.eval(*NEAREST, model=world.own_maps, out="two")
        tables = [
            (world.report(*how, out=out) / "table1.csv").read_text()
            for out, how in (("one", NEAREST), ("two", ()), ("one", ()))
        ]
        assert tables[0] == tables[1] != tables[2]


def packages_boxes(world: World) -> None:
    """Images of 40 x 56 pixels."""
    header, *lines = map(json.loads, world.answers.read_text().splitlines())
    texts = [header | {"dialect": "listed", "frame": "unit"}]
    for line in lines:
        boxes = [[x1 / 56, y1 / 40, x2 / 56, y2 / 40] for x1, y1, x2, y2 in line.pop("boxes")]
        texts.append({**line, "text": json.dumps(boxes)} if boxes else {**line, "boxes": []})
    said = world.folder / "said.jsonl"
    said.write_text("\n".join(map(json.dumps, texts)) + "\n")
    with installed(world) as module:
        world.eval(model=[world.own_boxes, f"boxes:{said}"])
        columns = ["case_id", "finding", "label", "hit", "area", "overlap"]
        one, two = (world.rows(f"boxes:{name}--coco").select(columns) for name in ("answers", "said"))
        assert one.equals(two)
        with (world.report("--protocol", "counting") / "published.csv").open(newline="") as stream:
            counts = [(row["scorer"], row["value"]) for row in csv.DictReader(stream)]
        assert counts == [("counting", counts[0][1])] * 2 and float(counts[0][1]) > 0
        change(module, "tuple(box)", "(*box,)")
        told = world.eval(model=[world.own_boxes, f"boxes:{said}"])
        assert "boxes:said on coco: computed again, because this changed: map" in told
        assert "boxes:answers on coco: finished before, reused" in told


def packages_live(world: World) -> None:
    with installed(world):
        world.eval(*NEAREST, out="bundle")
        how = {"geometry": SQUASH, "name": FP32, "protocol": "nearest", "progress": False}
        xb.evaluate(live, "coco", world.data, out=world.folder / "run", **how)
        one, two = (world.rows(out=out).select(["case_id", "finding", "area", "overlap"]) for out in ("run", "bundle"))
        assert one.equals(two)


def packages_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    with installed(world):
        world.eval(*cache)
        world.decoding()
        world.eval(*cache, *NEAREST)
        assert world.decoding() == 0 and world.rows().equals(world.fresh(*NEAREST))
        assert "finished before, reused" in world.eval(*cache, *NEAREST, "--verify")
