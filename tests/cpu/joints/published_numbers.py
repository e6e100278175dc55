"""The numbers of published scorers, as a report states them, with other features (docs/joints.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from boxes_with_commands import BOXES, CELL, call, shown, spoil, stop, two_files
from joint_inputs import LIMITED, put_phrases
from joint_world import World, command
from pairs_of_boxes import only_these
from pairs_of_phrases import asked
from PIL import Image
from xbench_fast.runtime.host.protocols import SCORERS

OTHERS = "boxes:others"
FIRST, SECOND = [0.1, 0.2, 0.5, 0.6], [0.25, 0.2, 0.5, 0.9]


def published(world: World, *more: object, out: str = "run") -> dict[str, dict[str, Any]]:
    """Model -> scorer -> number -> value, in the report of a run on one dataset."""
    return {
        item["model"]: {name: found["values"] for name, found in item["published"].items()}
        for item in shown(world, *more, out=out)["boxes"]
    }


def whole(world: World) -> dict[str, Any]:
    """Those of the answers of the originals, in one piece."""
    world.whole(model=f"boxes:{world.originals.folder / 'answers.jsonl'}")
    made = world.originals.made[(f"boxes:{world.originals.folder / 'answers.jsonl'}",)]
    if not (made / "report").is_dir():
        command("report", made, "--no-page", "--quiet", "--replicates", 40)
    (item,) = json.loads((made / "report" / "report.json").read_text())["boxes"]
    found = {name: told["values"] for name, told in item["published"].items()}
    assert set(found) == set(SCORERS) - {"grid_hit"} and 0 < found["afloc"]["iou_pairs"] < 1
    return found


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return f"boxes:{path}"


def scorers_resume(world: World) -> None:
    stop(world)
    world.eval(model=world.own_boxes)
    assert world.entry(CELL)["computed"] == 8 and published(world)[BOXES] == whole(world)


def scorers_limit(world: World) -> None:
    world.eval("--limit", LIMITED, model=world.own_boxes)
    document = json.loads((world.own("data") / "annotations.json").read_text())
    kept = {image["id"] for image in document["images"][:LIMITED]}
    document["images"] = document["images"][:LIMITED]
    document["annotations"] = [one for one in document["annotations"] if one["image_id"] in kept]
    (world.data / "annotations.json").write_text(json.dumps(document))
    only_these(world.own("answers"))
    world.eval(model=world.own_boxes, out="few")
    assert published(world) == published(world, out="few") and published(world)[BOXES] != whole(world)


def scorers_shards(world: World) -> None:
    world.shards(model=world.own_boxes)
    world.merge()
    assert published(world)[BOXES] == whole(world)


def scorers_subsets(world: World) -> None:
    world.eval(model=two_files(world))
    everything = published(world)
    part = published(world, "--model", BOXES, "--protocol", "afloc", "--protocol", "radvlm")
    assert part == {BOXES: {name: everything[BOXES][name] for name in ("afloc", "radvlm")}}
    text = (world.folder / "run/report/tables.md").read_text()
    assert "| radvlm |" in text and "chexagent" not in text and OTHERS not in text


def scorers_compare(world: World) -> None:
    world.eval(model=two_files(world))
    run = world.folder / "run"
    ran = command("compare", run, "--model", BOXES, "--model", OTHERS, "--fail-if", "avg_iou > 0")
    assert ran.status == 2 and "unknown name 'avg_iou'; known are flipped_hits" in ran.text, ran.text


def scorers_studies(world: World) -> None:
    world.eval(model=world.own_boxes)
    ran = command("study", "errors", world.folder / "run", "--protocol", "radvlm")
    assert ran.status == 2 and "No such option" in ran.text and "--protocol" in ran.text, ran.text


def scorers_live(world: World) -> None:
    call(world, [world.own_boxes])
    assert published(world) == {BOXES: whole(world)}
    table = next(text for name, text in world.tables().items() if "published scorers" in name)
    assert BOXES in table and "mine" not in table


def scorers_missing(world: World) -> None:
    spoil(world)
    world.eval(model=world.own_boxes)
    assert published(world)[BOXES] == whole(world)


def scorers_moved(world: World) -> None:
    """Every image has the same size and a patient of its own, so that the next answer of a class is the moved one."""
    world.eval(model=f"moved:{world.answers}")
    document = json.loads((world.data / "annotations.json").read_text())
    patients = {Path(image["file_name"]).stem: image["patient_id"] for image in document["images"]}
    header, *lines = lines_of(world.answers)
    true = {(one["image_id"], one["category_id"]) for one in document["annotations"]}
    names = {image["id"]: Path(image["file_name"]).stem for image in document["images"]}
    pairs = [
        (names[image["id"]], finding)
        for image in document["images"]
        for place, finding in enumerate(("Mass", "Effusion"), 1)
        if (image["id"], place) in true
    ]
    answers = {(line["case"], line["finding"]): line["boxes"] for line in lines}
    told = [header]
    for finding in ("Mass", "Effusion"):
        own = [case for case, name in pairs if name == finding]
        for place, case in enumerate(own):
            later = own[place + 1 :] + own[:place]
            other = next(name for name in later if patients[name] != patients[case])
            told.append({"case": case, "finding": finding, "boxes": answers[other, finding]})
    world.eval(model=write(world.folder / "moved.jsonl", told), out="written")
    moved, written = published(world), published(world, out="written")
    assert moved["moved:answers"] == written["boxes:moved"] != whole(world)


def scorers_second(world: World) -> None:
    data = world.folder / "padchest"
    data.mkdir()
    studies, lines = [], list[dict[str, Any]]([{"xbench_boxes": 1, "frame": "unit"}])
    for place, (boxes, extra) in enumerate((([FIRST], [SECOND]), ([FIRST, SECOND], [FIRST]), ([FIRST], None))):
        told = {"sentence_en": "An effusion.", "abnormal": True, "boxes": boxes, "labels": ["effusion"]}
        told |= {"extra_boxes": extra} if extra else {}
        studies.append({"StudyID": f"s{place}", "ImageID": f"i{place}.png", "findings": [told]})
        lines += [{"case": f"i{place}", "phrase": "an effusion.", "boxes": extra}] if extra else []
        Image.fromarray(np.zeros((60, 80), np.uint8)).save(data / f"i{place}.png")
    (data / "grounded_reports_20240819.json").write_text(json.dumps(studies))
    ran = command(
        "eval", "--data", f"padchest_gr={data}", "--dataset", "padchest_gr", "--model", "reader:second",
        "--model", write(world.folder / "others.jsonl", lines), "--out", world.folder / "run",
    )  # fmt: skip
    assert ran.status == 0, ran.text
    found = published(world)
    assert found["reader:second"] == found[OTHERS] and found[OTHERS]["afloc"]["pairs_left_out"] == 1


def scorers_several(world: World) -> None:
    files = two_files(world)
    world.eval(model=files)
    world.eval(model=files[1], out="other")
    assert published(world) == {BOXES: whole(world), **published(world, out="other")}


def scorers_phrases(world: World) -> None:
    put_phrases(world.folder / "others.jsonl", world.data, by="finding")
    put_phrases(world.folder / "true.jsonl", world.data, shift=0)
    files = [f"boxes:{path}" for path in (world.phrases, world.folder / "others.jsonl", world.folder / "true.jsonl")]
    world.eval(*asked(world), model=files)
    found = published(world)
    assert found["boxes:phrases"] == found[OTHERS] != found["boxes:true"]
    assert {value for name, value in found["boxes:true"]["radfact"].items() if name != "cases"} == {1.0}
