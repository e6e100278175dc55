"""The studies of subgroups and readers, and the command trust, with the features of an evaluation (docs/joints.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import xbench_fast as xb
from int8_with_commands import STAMP
from joint_inputs import FP32, INT8, move_box, put_boxes, put_bundle
from joint_world import World, command
from numpy.typing import NDArray
from pairs_of_patients import named
from pairs_of_phrases import asked
from PIL import Image
from synthetic import make_dataset, model, prompt_set
from xbench_fast.engines.geometry import Geometry

CROWD, IMAGES = 144, 24
QUICK = ("--batch", 16, "--chunk", 64)
MEDKLIP = ("--protocol", "medklip")
READER = "reader:radiologist"
FINDINGS = ("Nodule/Mass", "Pleural effusion")
SQUASH = Geometry("squash", 32, 32, "bilinear")
Rows = dict[str, list[dict[str, Any]]]


def live(pixels: NDArray[np.uint8], texts: Sequence[str]) -> tuple[Any, Any]:
    """The model of the bundle, asked with the features of its prompt set."""
    prompts = prompt_set(findings=("Mass", "Effusion") if "Mass" in texts else FINDINGS)
    known = dict(zip(prompts.findings, prompts.features, strict=True))
    return model(pixels, np.stack([known.get(text, np.zeros(2, np.float32)) for text in texts]))


def crowd(world: World) -> World:
    """With 144 images of 72 patients instead of 12 of 6."""
    world.data = world.originals.folder / "crowd"
    if not world.data.is_dir():
        make_dataset(world.data, CROWD)
    return world


def people(world: World, cases: Sequence[str] = ()) -> Path:
    """A table in which every second patient is a woman."""
    names = cases or [f"case{place:04d}" for place in range(CROWD)]
    lines = [f"{name},{'FM'[int(name[4:8]) // 2 % 2]}" for name in names]
    (world.folder / "people.csv").write_text("\n".join(["case,sex", *lines]) + "\n")
    return world.folder / "people.csv"


def grouped(world: World, out: str = "run", dataset: str = "coco", folder: str = "subgroups") -> tuple[str, Rows]:
    """What `study subgroups` prints by this table, and its rows."""
    given = ("--attributes", f"{dataset}={people(world)}", "--replicates", 40)
    return rows_of(world, out, folder, "subgroups", *given)


def rows_of(world: World, out: str, folder: str, name: str, *given: object) -> tuple[str, Rows]:
    ran = command("study", name, world.folder / out, *given)
    assert ran.status == 0, ran.text
    told = json.loads((world.folder / out / "studies" / folder / f"{name}.json").read_text())
    return ran.text, {key: rows for key, rows in told.items() if key not in ("results", "figures") and _are_rows(rows)}


def _are_rows(told: Any) -> bool:
    return isinstance(told, list) and all(isinstance(row, dict) for row in told)


def subgroups_protocol(world: World) -> None:
    crowd(world).eval(*QUICK)
    world.eval(*world.twin, *MEDKLIP, *QUICK, "--dataset", "again")
    given = [word for name in ("coco", "again") for word in ("--attributes", f"{name}={people(world)}")]
    _, one = rows_of(world, "run", "subgroups", "subgroups", *given, "--replicates", 40)
    other = json.loads((world.folder / "run" / "studies" / "subgroups-medklip" / "subgroups.json").read_text())
    assert {row["dataset"] for row in one["groups"]} == {"coco"}
    assert {row["dataset"] for row in other["groups"]} == {"again"}
    counts, values = (
        [[row[name] for row in rows["groups"]] for rows in (one, other)] for name in ("pairs", "average_precision")
    )
    assert counts[0] == counts[1] and None not in values[0] and values[0] != values[1]


def subgroups_shards(world: World) -> None:
    crowd(world).shards(*QUICK)
    world.merge()
    world.eval(*QUICK, out="piece")
    assert grouped(world)[1] == grouped(world, "piece")[1]


def subgroups_changed(world: World) -> None:
    def line() -> dict[str, Any]:
        (file,) = (world.report("--card") / "cards").glob("*.json")
        found: dict[str, Any] = next(each for each in json.loads(file.read_text())["lines"] if each["line"] == 8)
        return found

    crowd(world).eval(*QUICK)
    grouped(world)
    before = line()
    assert "earlier results" not in str(before["notes"]) and before["numbers"]
    data = world.own("data")
    move_box(data / "annotations.json")
    files = [data / "images" / f"case{case:04d}.png" for case in (0, 3)]
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, reversed(contents), strict=True):
        file.write_bytes(content)
    world.eval(*QUICK)
    after = line()
    assert "is of earlier results" in str(after["notes"]) and after["numbers"] != before["numbers"]
    grouped(world)
    assert line()["numbers"] == after["numbers"]


def subgroups_precision(world: World) -> None:
    put_bundle(world.originals, world.own("models") / INT8, "int8", [prompt_set()])
    crowd(world).eval(*QUICK, model=[FP32, INT8])
    said, rows = grouped(world)
    assert STAMP in said and [row["model"] for row in rows["summary"]] == [FP32, INT8]
    assert [(row["tested"], row["not_tested"]) for row in rows["summary"]] == [(1, 0)] * 2, "a family of each model"


def subgroups_live(world: World) -> None:
    crowd(world).eval(*QUICK, out="bundle")
    xb.evaluate(live, "coco", world.data, geometry=SQUASH, name=FP32, out=world.folder / "run", progress=False)
    assert grouped(world)[1] == grouped(world, "bundle")[1]


def subgroups_maps(world: World) -> None:
    world.eval(model=[FP32, world.own_maps])
    _, rows = grouped(world)
    by = {name: [row for row in rows["groups"] if row["model"] == name] for name in (FP32, f"maps:{world.maps.name}")}
    one, two = ([(row["group"], row["pairs"], row["patients"]) for row in found] for found in by.values())
    assert one == two and sum(pairs for _, pairs, _ in one) == 7


def subgroups_boxes(world: World) -> None:
    crowd(world)
    put_boxes(world.folder / "answers.jsonl", world.data)
    world.answers = world.folder / "answers.jsonl"
    world.eval(*QUICK, model=[FP32, world.own_boxes])
    said, rows = grouped(world)
    (boxes, *_) = [row for row in rows["groups"] if row["model"] == "boxes:answers"]
    assert boxes["pointing"] is not None and boxes["dice_fixed"] is not None
    assert boxes["average_precision"] is boxes["auc"] is None
    assert "boxes:answers on coco has no average precision: boxes from a file have no map." in said


def subgroups_patients(world: World) -> None:
    crowd(world).eval(*QUICK)
    _, before = grouped(world)
    world.eval(*QUICK, *named(world, together=12, cases=CROWD))
    _, after = grouped(world)
    for one, two in zip(before["groups"], after["groups"], strict=True):
        assert (one["pairs"], one["pointing"]) == (two["pairs"], two["pointing"]) and one["pointing"] is not None
        assert one["patients"] > two["patients"]


def subgroups_phrases(world: World) -> None:
    """A table that names images serves all cases of an image."""
    world.eval(*asked(world))
    _, rows = grouped(world, dataset="mscxr")
    cases = {row["case_id"] for row in world.rows(f"{FP32}--mscxr").to_pylist()}
    assert any("~2" in case for case in cases)
    assert [row["group"] for row in rows["groups"]] == ["F", "M"], "nobody is unknown"
    assert sum(row["images"] for row in rows["groups"]) == len(cases)


def subgroups_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    crowd(world).eval(*cache, *QUICK)
    _, before = grouped(world)
    world.decoding()
    assert "finished before, reused" in world.eval(*cache, *QUICK, "--verify")
    assert world.decoding() == 0 and grouped(world)[1] == before


def three_readers(world: World) -> list[object]:
    """24 images in VinDr's form, each by three readers of whom one is left out; the third is silent on some."""
    data = world.originals.folder / "three"
    if not data.is_dir():
        rng = np.random.default_rng(6)
        (data / "train").mkdir(parents=True)
        lines = ["image_id,rad_id,class_name,x_min,y_min,x_max,y_max"]
        for place in range(IMAGES):
            picture = rng.integers(0, 120, (40, 56), np.uint8)
            x, y = (int(value) for value in rng.integers(2, 20, 2))
            picture[y : y + 14, x : x + 14] += 100
            Image.fromarray(picture).save(data / "train" / f"i{place:02d}.png")
            for at, reader in enumerate(("R1", "R2", "R3")):
                silent = reader == "R3" and place % 3 == 0
                box = f"{x + at},{y},{x + 14},{y + 14 + at}"
                lines.append(f"i{place:02d},{reader},{'No finding,,,,' if silent else f'{FINDINGS[place % 2]},{box}'}")
        (data / "annotations_train.csv").write_text("\n".join(lines) + "\n")
    world.data = data
    for name, precision in ((FP32, "fp32"), (INT8, "int8")):
        put_bundle(world.originals, world.folder / "models" / name, precision, [prompt_set("vindr", findings=FINDINGS)])
    world.models = world.folder / "models"
    options = [("--data-option", f"vindr.{option}") for option in ("split=train", "readers=leave-one-out")]
    return ["--data", f"vindr={data}", "--dataset", "vindr", *(word for each in options for word in each)]


def read(world: World, out: str = "run", folder: str = "readers") -> tuple[str, Rows]:
    """What `study readers` prints, and its rows."""
    return rows_of(world, out, folder, "readers", "--replicates", 40)


def readers_protocol(world: World) -> None:
    given = three_readers(world)
    world.eval(*given, model=[FP32, READER])
    _, alone = read(world)
    world.eval(*given, *MEDKLIP, model=INT8)
    said, rows = read(world)
    assert rows == alone and "medklip" in said


def readers_shards(world: World) -> None:
    given, models = three_readers(world), [FP32, READER]
    world.shards(*given, model=models)
    world.merge()
    world.eval(*given, model=models, out="piece")
    assert read(world)[1] == read(world, "piece")[1]


def readers_precision(world: World) -> None:
    world.eval(*three_readers(world), model=[FP32, INT8, READER])
    said, rows = read(world)
    means = [row for row in rows["models"] if row["finding"] == "mean" and row["measure"] == "pointing"]
    assert STAMP in said and [(row["model"], row["family"]) for row in means] == [(FP32, 2), (INT8, 2)]


def readers_live(world: World) -> None:
    """An image is asked once for its three cases."""
    given, sizes = three_readers(world), list[int]()

    def counted(pixels: NDArray[np.uint8], texts: Sequence[str]) -> tuple[Any, Any]:
        sizes.append(len(pixels))
        return live(pixels, texts)

    world.eval(*given, "--batch", 6, model=[FP32, READER], out="bundle")
    dataset = xb.load_dataset("vindr", world.data, split="train", readers="leave-one-out")
    how: dict[str, Any] = {"geometry": SQUASH, "name": FP32, "batch": 6, "progress": False}
    xb.evaluate([counted, READER], dataset, out=world.folder / "run", **how)
    assert sum(sizes) == 1 + IMAGES, "and a black image before"
    assert read(world)[1] == read(world, "bundle")[1]


def readers_boxes(world: World) -> None:
    given = three_readers(world)
    boxes = [{"xbench_boxes": 1, "frame": "pixels"}]
    for place in range(IMAGES):
        for reader in ("R1", "R2", "R3"):
            case = f"i{place:02d}~{reader}"
            boxes += [{"case": case, "finding": name, "boxes": [[4, 4, 30, 30]]} for name in FINDINGS]
    (world.folder / "mine.jsonl").write_text("\n".join(map(json.dumps, boxes)) + "\n")
    world.eval(*given, model=[f"boxes:{world.folder / 'mine.jsonl'}", READER])
    _, rows = read(world)
    assert {(row["model"], row["measure"]) for row in rows["models"]} == {
        ("boxes:mine", "dice_fixed"),
        ("boxes:mine", "pointing"),
    }


def readers_patients(world: World) -> None:
    given = three_readers(world)
    world.eval(*given, model=[FP32, READER])
    before = read(world)[1]["models"][0]
    lines = [f"i{place:02d},p{place // 4}" for place in range(IMAGES)]
    (world.folder / "who.csv").write_text("\n".join(["image_id,patient_id", *lines]) + "\n")
    said = world.eval(*given, "--data-option", f"vindr.patients={world.folder / 'who.csv'}", model=[FP32, READER])
    after = read(world)[1]["models"][0]
    assert "because this changed: dataset" in said
    assert (before["patients"], after["patients"]) == (IMAGES, IMAGES // 4)
    assert before["difference"] == after["difference"] and after["share"] is None


def readers_cache(world: World) -> None:
    given, cache = three_readers(world), ("--cache", world.folder / "cache")
    world.eval(*given, *cache, model=[FP32, READER])
    _, before = read(world)
    world.decoding()
    assert world.eval(*given, *cache, "--verify", model=[FP32, READER]).count("finished before, reused") == 2
    assert world.decoding() == 0 and read(world)[1] == before
    cell = f"{FP32}--vindr"
    world.eval(*given, *cache, "--batch", 5, "--chunk", 64, out="other")
    world.eval(*given, "--no-cache", "--batch", 1, out="single")
    assert world.rows(cell, "other").equals(world.rows(cell, "single")), "batches of a block, cases of an image in two"


def probed(world: World, *given: object, out: str = "trust", status: int = 0) -> str:
    """`trust` of the bundle with the probe of changed weights."""
    line = ("trust", "--model", world.models / FP32, "--probe", "randomisation", "--blocks", 1, "--seeds", 1)
    ran = command(*line, "--engine", "onnxruntime-cpu", "--threads", 1, "--out", world.folder / out, *given)
    assert ran.status == status, ran.text
    return ran.text


def entries(world: World, out: str = "trust") -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((world.folder / out / "trust.json").read_text())["cells"]
    return found


def probe_rows(world: World, cell: str, out: str = "trust") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(world.folder / out / entries(world, out)[cell]["file"]).to_pylist()
    return found


def of(world: World, name: str = "coco") -> list[object]:
    return ["--data", f"{name}={world.data}"]


def probes_maps(world: World) -> None:
    for name in (world.own_maps, world.own_boxes, "baseline:center", READER):
        ran = command("trust", "--model", name, *of(world), "--out", world.folder / "trust")
        assert ran.status == 2 and "Traceback" not in ran.text and name.split(":")[0] in ran.text, ran.text
    assert not (world.folder / "trust").exists()


def probes_protocol(world: World) -> None:
    probed(world, *of(world))
    words = {}
    for out, given in (("run", ()), ("other", ("--protocol", "medklip"))):
        world.eval(*given, out=out)
        line = ("report", world.folder / out, "--trust", world.folder / "trust", "--no-page", "--replicates", 40)
        ran = command(*line)
        assert ran.status == 0, ran.text
        card = json.loads((world.folder / out / "report" / "cards" / f"{FP32}--coco.json").read_text())
        words[out] = [(card["lines"][place]["verdict"], card["lines"][place]["why"]) for place in (3, 4)]
    assert words["run"][0][0] == "cannot tell" and words["run"][1][0] == "not run"
    for word, why in words["other"]:
        assert word == "not applicable" and "this result is by medklip; evaluate by the default protocol" in why


def probes_twin(world: World) -> None:
    probed(world, *of(world), *world.twin, "--dataset", "coco", "--dataset", "again")
    one, two = (probe_rows(world, f"{FP32}--{name}--randomisation") for name in ("coco", "again"))
    assert one and one == two


def probes_patients(world: World) -> None:
    probed(world, *of(world))
    (before,) = entries(world).values()
    said = probed(world, *of(world), *named(world))
    (after,) = entries(world).values()
    assert "computed again" in said
    for one, two in zip(before["questions"], after["questions"], strict=True):
        assert one["pairs"] == two["pairs"] and one["patients"] > two["patients"]


def probes_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    probed(world, *of(world), out="plain")
    probed(world, *of(world), *cache)
    assert world.decoding() and "reused" in probed(world, *of(world), *cache, "--verify")
    cell = f"{FP32}--coco--randomisation"
    assert world.decoding() == 0 and probe_rows(world, cell) == probe_rows(world, cell, "plain")


def probes_readers(world: World) -> None:
    """Each of the three cases is a pair, and they are of one patient."""
    given = three_readers(world)
    probed(world, *given, "--pairs", 30)
    (entry,) = entries(world).values()
    assert entry["pairs"] >= 30
    (question, *_) = entry["questions"]
    assert question["patients"] < question["pairs"]


def trust_live(world: World) -> None:
    world.eval(out="bundle")
    xb.evaluate(live, "coco", world.data, geometry=SQUASH, name=FP32, out=world.folder / "run", progress=False)
    rows = [rows_of(world, out, "trust", "trust", "--replicates", 40)[1] for out in ("run", "bundle")]
    assert rows[0] == rows[1]


def trust_readers(world: World) -> None:
    world.eval(*three_readers(world), model=[FP32, READER])
    said, rows = rows_of(world, "run", "trust", "trust", "--replicates", 40)
    assert {row["model"] for row in rows["verdicts"]} == {FP32} and "boxes from a file have no map" in said
    (count,) = rows["counts"]
    assert count["pairs"] > 2 * count["patients"]


def trust_cache(world: World) -> None:
    cache = ("--cache", world.folder / "cache")
    world.eval(*cache)
    before = rows_of(world, "run", "trust", "trust", "--replicates", 40)[1]
    assert "finished before, reused" in world.eval(*cache, "--verify")
    assert rows_of(world, "run", "trust", "trust", "--replicates", 40)[1] == before
