"""Answers in words with the features whose rows or tables they share (docs/joints.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from joint_inputs import FP32, LIMITED, put_phrases
from joint_world import World, command, first
from pairs_of_phrases import asked

WORDS = "words:said"
CELL = f"{WORDS}--coco"
TEXTS = ("{} in the left lower zone.", "Small right {}.", "No {}.", "{}.", "Possible {} at both bases.")


def said(world: World, folder: Path | None = None, name: str = "said", shift: int = 0) -> str:
    """A file with a sentence for each line of the answers, as a model."""
    lines: list[dict[str, Any]] = [{"xbench_boxes": 1, "dialect": "text"}]
    for number, text in enumerate(world.answers.read_text().splitlines()[1:]):
        line = json.loads(text)
        sentence = TEXTS[(number + shift) % len(TEXTS)].format(line["finding"].lower())
        lines.append({"case": line["case"], "finding": line["finding"], "text": sentence})
    path = (folder or world.folder) / f"{name}.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return f"boxes:{path}"


def words_protocol(world: World) -> None:
    world.eval(model=said(world))
    world.eval("--protocol", "chexlocalize", model=said(world), out="other")
    text = world.eval("--protocol", "medklip", model=said(world), out="third", status=1)
    assert world.rows(CELL).equals(world.rows(CELL, "other")) and "boxes are no map" in text


def words_limit(world: World) -> None:
    world.eval(model=[said(world), "words:prior"])
    world.eval("--limit", LIMITED, model=[said(world), "words:prior"], out="limited")
    for cell in (CELL, "words:prior--coco"):
        assert world.rows(cell, "limited").equals(first(world.rows(cell)))


def words_shards(world: World) -> None:
    models = [said(world), "words:bilateral"]
    world.shards(model=models)
    world.merge_all(model=models)


def words_changed(world: World) -> None:
    world.eval(model=said(world))
    assert "finished before, reused" in world.eval(model=said(world))
    before = world.rows(CELL)
    assert "reused" not in world.eval("--thorax", "image", model=said(world))
    assert not world.rows(CELL).equals(before)
    assert "reused" not in world.eval("--uncertain", "absent", "--thorax", "image", model=said(world))
    assert "reused" not in world.eval(model=said(world, shift=1))


def words_boxes(world: World) -> None:
    world.eval(model=[FP32, world.own_boxes, said(world), f"mirrored:{world.folder / 'said.jsonl'}", "words:bilateral"])
    tables = world.tables()
    assert {"dice_fixed", "iou_fixed", "pointing"} == {
        item["field"] for item in world.numbers()["differences"] if WORDS in (item["first"], item["second"])
    }
    rows = [line.split("|")[1:-1] for line in tables["coco: matched boxes"].splitlines() if line.startswith("| ")]
    dashes = {name.strip() for name, *cells in rows if {cell.strip() for cell in cells} == {"-"}}
    assert dashes == {WORDS, "mirrored:said", "words:bilateral"}
    (words,) = [text for title, text in tables.items() if title.endswith(": words")]
    assert f"| {WORDS}" in words and "| boxes:answers" not in words and f"| {FP32}" not in words
    assert "words reach at most their ceiling" in tables["Table 1: grounding"]


def words_compare(world: World) -> None:
    world.eval(model=[FP32, said(world)])
    ran = command(
        "compare", world.folder / "run", "--model", FP32, "--model", WORDS, "--replicates", 40, "--json",
        world.folder / "c.json",
    )  # fmt: skip
    assert ran.status == 0 and "words reach at most their ceiling" in ran.text, ran.text


def words_studies(world: World) -> None:
    world.eval(model=[world.own_boxes, said(world)])
    told = {
        name: command("study", name, world.folder / "run", "--replicates", 40)
        for name in ("strata", "errors", "failures")
    }
    assert all(ran.status == 0 for ran in told.values())
    assert WORDS in told["strata"].text
    assert f"{WORDS} on " in told["errors"].text and "a zone that words name is no box" in told["errors"].text


def words_moved(world: World) -> None:
    world.eval(model=[said(world), f"moved:{world.folder / 'said.jsonl'}"])
    (words,) = [text for title, text in world.tables().items() if title.endswith(": words")]
    assert "| moved:said" in words and "each answer is the one to the image of another patient" in words
    moved = [row for row in world.rows("moved:said--coco").to_pylist() if row["answer"] and row["answer"]["truth"]]
    own = {(row["case_id"], row["finding"]): row for row in world.rows(CELL).to_pylist()}
    for row in moved:  # the truth is that of its own image
        assert row["answer"]["words"]["true"] == own[row["case_id"], row["finding"]]["answer"]["words"]["true"]
    assert any(
        row["answer"]["words"]["places"] != own[row["case_id"], row["finding"]]["answer"]["words"]["places"]
        for row in moved
    )


def words_subsets(world: World) -> None:
    world.eval(model=[said(world), said(world, name="others", shift=2)])
    whole = world.numbers()["words"]
    (one,) = json.loads((world.report("--model", WORDS) / "report.json").read_text())["words"]
    assert one == next(item for item in whole if item["model"] == WORDS) and len(whole) == 2


def words_missing(world: World) -> None:
    said(world)
    path = world.folder / "said.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    world.eval(model=f"boxes:{path}")
    counted = world.numbers()["words"][0]
    world.eval("--missing", "leave-out", model=f"boxes:{path}", out="left")
    left = world.numbers("left")["words"][0]
    assert (counted["missing"], left["missing"]) == (1, 0) and counted["pairs"] == left["pairs"] + 1


def words_phrases(world: World) -> None:
    cells = []
    for by in ("phrase", "finding"):
        path = world.folder / f"{by}.jsonl"
        put_phrases(path, world.data, by=by)
        _, *lines = map(json.loads, path.read_text().splitlines())
        words = [
            {k: v for k, v in line.items() if k != "boxes"} | {"text": "In the left lower zone."} for line in lines
        ]
        path.write_text("\n".join(map(json.dumps, [{"xbench_boxes": 1, "dialect": "text"}, *words])) + "\n")
        world.eval(*asked(world), model=f"boxes:{path}", out=by)
        cells.append(world.rows(f"words:{by}--mscxr", by))
    assert cells[0].equals(cells[1])
    answers = [row["answer"]["words"] for row in cells[0].to_pylist() if row["answer"] and row["answer"]["truth"]]
    assert len(answers) == len(lines) and all(answer["places"] == ["LL"] for answer in answers)
