"""A dataset that asks each image its own phrases, with every other feature."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from joint_inputs import FP16, FP32, NUMPY
from joint_world import World, command
from numpy.typing import NDArray
from synthetic import BlockEngine
from xbench_fast.engines.base import Scores
from xbench_fast.runtime.data.datasets.phrases.ms_cxr import MsCxr

MEDKLIP = ("--protocol", "medklip")
CELL = f"{FP32}--mscxr"
EACH = 8
CSV = "MS_CXR_Local_Alignment_v1.1.0.csv"
COUPLED = f"{__name__}:Coupled"
READER = '''
from dataclasses import replace
from xbench_fast.runtime.data.datasets.phrases.ms_cxr import MsCxr


class Own(MsCxr):
    """MS-CXR, by a reader of one's own."""
'''


class Coupled(BlockEngine):
    """The NumPy engine with queries that see one another."""

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        return super()._run(pixels, (text + text.sum(0) - text[:1]).astype(np.float32))


def asked(world: World) -> list[object]:
    return ["--data", f"mscxr={world.data}", "--dataset", "mscxr"]


def whole(world: World) -> pa.Table:
    return world.whole("--data", f"mscxr={world.originals.folder / 'data'}", "--dataset", "mscxr", cell=CELL)


def pairs(rows: pa.Table) -> pa.Table:
    found = rows.select(["case_id", "patient_id", "finding", "label", "region_area", "region"])
    return found.filter(rows["region"].is_valid())


def protocol_phrases(world: World) -> None:
    world.eval(*asked(world))
    before = world.rows(CELL)
    assert "(protocol medklip instead of default)" in world.eval(*asked(world), *MEDKLIP)
    after = world.rows(CELL)
    for column in ("case_id", "logit", "saliency", "region"):
        assert after[column].equals(before[column]), column
    assert not after["area"].equals(before["area"]) and before.equals(whole(world))


def limit_phrases(world: World) -> None:
    world.eval(*asked(world), "--limit", 3)
    assert world.rows(CELL).equals(whole(world).slice(0, 3 * EACH))
    assert world.rows(CELL)["case_id"].to_pylist()[::EACH] == ["case0000", "case0000~2", "case0001"]


def shards_phrases(world: World) -> None:
    world.shards(*asked(world))
    world.merge_all(*asked(world))
    assert world.rows(CELL).equals(whole(world))


def changed_phrases(world: World) -> None:
    file = world.own("data") / CSV
    world.eval(*asked(world))
    for old, new in (("Another edema", "another edema"), ("another edema", "another one")):
        file.write_text(file.read_text().replace(old, new, 1))
        assert "computed again, because this changed: dataset\n" in world.eval(*asked(world))
    logits = world.rows(CELL)["logit"].to_pylist(), whole(world)["logit"].to_pylist()
    assert [place // EACH for place in range(len(logits[0])) if logits[0][place] != logits[1][place]] == [1]


def baselines_phrases(world: World) -> None:
    world.eval(*asked(world), model=[FP32, "baseline:ones"])
    ones = world.rows("baseline:ones--mscxr")
    assert pairs(ones).equals(pairs(world.rows(CELL))) and ones["logit"].null_count == len(ones)
    table = next(text for name, text in world.tables().items() if name.startswith("Table 1"))
    assert FP32 in table and "baseline:ones" in table


def maps_phrases(world: World) -> None:
    folder, rng = world.folder / "own", np.random.default_rng(2)
    for case in MsCxr(world.data).cases():
        (folder / case.case_id).mkdir(parents=True)
        for finding in case.phrases:
            np.save(folder / case.case_id / f"{finding}.npy", rng.random((14, 14), dtype=np.float32))
    world.eval(*asked(world), model=f"maps:{folder}")
    rows = world.rows("maps:own--mscxr")
    assert pairs(rows).equals(pairs(whole(world))) and rows["saliency"].null_count == len(rows) - len(pairs(rows))
    (first, *_) = rows.filter(rows["region"].is_valid()).to_pylist()
    want = np.load(folder / first["case_id"] / f"{first['finding']}.npy").reshape(-1)
    np.testing.assert_array_equal(np.array(first["saliency"], np.float32), want)


def twin_phrases(world: World) -> None:
    world.eval(*asked(world), "--dataset", "coco")
    assert world.rows(CELL).equals(whole(world)) and world.rows().equals(world.whole())
    recognised = next(text for name, text in world.tables().items() if "ecognition" in name)
    assert "MS-CXR" not in recognised and "coco" in recognised


def prompts_phrases(world: World) -> None:
    said = world.eval(*asked(world), "--data-option", "mscxr.prompts=coco", status=2)
    assert (
        "The dataset 'mscxr' asks each image its own phrases, so it takes no prompt set; leave prompts=coco out" in said
    )


def precision_phrases(world: World) -> None:
    world.eval(*asked(world), model=[FP32, FP16])
    found = world.differences("pointing", "mscxr")[FP32, FP16]
    assert found["shared"] == len(pairs(whole(world)))


def reader_phrases(world: World) -> None:
    file = world.folder / "own.py"
    file.write_text(READER)
    world.eval(*asked(world), "--data-option", f"mscxr.reader={file}:Own")
    assert world.rows(CELL).equals(whole(world))


def cache_phrases(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.eval(*asked(world), *cache, out="one")
    # The case of an image that asks two phrases of one finding is decoded for each; the one without a phrase is not.
    cases = len(whole(world)) // EACH
    world.decoding()
    store = world.folder / "cache" / "phrase-features.sqlite"
    before = store.read_bytes()
    world.eval(*asked(world), *cache, out="two")
    assert world.decoding() == 0 and store.read_bytes() == before and cases == 15
    assert world.rows(CELL, "one").equals(whole(world)) and world.rows(CELL, "two").equals(whole(world))
    assert "deleted: phrase-features.sqlite" in command("cache", "clear", *cache).text
    assert "0 stores" in command("cache", *cache).text


def engine_phrases(world: World) -> None:
    world.eval(*asked(world))
    assert "computed again, because this changed: engine\n" in world.eval(*asked(world), "--engine", NUMPY)
    assert world.rows(CELL).equals(whole(world))
    said = world.eval(*asked(world), "--engine", COUPLED, out="coupled")
    assert "its queries see one another, so each phrase is asked alone" in said
    assert world.rows(CELL, "coupled").equals(whole(world)), "alone, none sees another"


def patients_phrases(world: World) -> None:
    said = world.eval(*asked(world), "--data-option", "mscxr.patients=who.csv", status=2)
    assert "The dataset 'mscxr' has no option 'patients'" in said
    patients = dict(zip(*(whole(world)[name].to_pylist() for name in ("case_id", "patient_id")), strict=True))
    assert patients["case0000"] == patients["case0000~2"] == patients["case0001"] == "p10000000"
    assert patients["case0002"] == "p10000001"
