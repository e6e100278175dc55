"""Files that `ask` wrote with features of an evaluation (docs/joints.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ask_server import AskServer
from joint_inputs import FP32, LIMITED
from joint_world import World, command, first

BOX = {"content": '[{"bbox_2d": [100, 100, 600, 700], "label": "x"}]'}
CELL = "boxes:asked--coco"


def asked(
    world: World,
    *more: object,
    plan: Mapping[str, Any] | None = None,
    status: int = 0,
    dataset: str = "coco",
    name: str = "asked",
) -> str:
    """The file of a run of `ask` in the dialect qwen3vl, as a model."""
    out = world.folder / f"{name}.jsonl"
    with AskServer(**{"default": BOX, "count_tokens": 32, **(plan or {})}) as server:
        line = ["--endpoint", server.url, "--dialect", "qwen3vl", "--dataset", dataset, "--concurrency", 1]
        ran = command("ask", *line, "--data", f"{dataset}={world.data}", "--out", out, *more)
        assert ran.status == status, ran.text
    return f"boxes:{out}"


def stopped(world: World, name: str = "asked") -> str:
    """A run that stops at its 4th request about a patient; two come before to prove the view."""
    return asked(world, plan={"script": [BOX] * 5 + [{"status": 401}]}, status=1, name=name)


def asked_limit(world: World) -> None:
    few, whole = asked(world, "--limit", LIMITED, name="few"), asked(world)
    world.eval("--limit", LIMITED, model=[few, whole])
    world.eval(out="whole", model=whole)
    rows = first(world.rows(CELL, "whole"))
    assert world.rows("boxes:few--coco").equals(rows) and world.rows(CELL).equals(rows)


def asked_resume(world: World) -> None:
    undisturbed = asked(world, name="other")
    stopped(world)
    file = world.folder / "asked.jsonl"
    assert file.read_bytes() != (world.folder / "other.jsonl").read_bytes()
    continued = asked(world)
    assert file.read_bytes() == (world.folder / "other.jsonl").read_bytes()
    world.eval(model=undisturbed)
    (world.folder / "again").mkdir()
    same = file.rename(world.folder / "again" / "other.jsonl")
    assert continued and "finished before, reused" in world.eval(model=f"boxes:{same}")


def asked_missing(world: World) -> None:
    model = stopped(world)
    lines = (world.folder / "asked.jsonl").read_text().splitlines()[1:]
    assert len(lines) == 3
    text = world.eval(model=model, status=1)
    assert "57.1% of the pairs with a region have no line" in text
    states = [row["state"] for row in world.rows(CELL)["answer"].to_pylist() if row]
    assert states.count(4) == 4 and states.count(0) == 3, "missing, and answered"
    world.eval("--missing", "leave-out", out="left", model=model)
    (counted,) = {item["pairs"] for item in world.numbers("left")["boxes"]}
    assert counted == 3


def asked_boxes(world: World) -> None:
    model = asked(world)
    hand = world.folder / "hand.jsonl"
    lines = [json.loads(line) for line in (world.folder / "asked.jsonl").read_text().splitlines()[1:]]
    hand.write_text(
        '{"xbench_boxes": 1, "dialect": "qwen3vl"}\n' + "\n".join(json.dumps(line) for line in reversed(lines))
    )
    world.eval(model=[model, f"boxes:{hand}"])
    assert world.rows(CELL).equals(world.rows("boxes:hand--coco"))
    assert any("boxes:asked" in text and "boxes:hand" in text for text in world.tables().values())


def asked_phrases(world: World) -> None:
    model = asked(world, dataset="mscxr", plan={"count_tokens": 0})
    lines = [json.loads(line) for line in (world.folder / "asked.jsonl").read_text().splitlines()[1:]]
    keys = [(line["case"], line["phrase"].lower()) for line in lines]
    assert len(set(keys)) == len(keys) and not any("~" in case for case, _ in keys)
    world.eval("--data", f"mscxr={world.data}", "--dataset", "mscxr", model=model)
    states = [row["state"] for row in world.rows("boxes:asked--mscxr")["answer"].to_pylist() if row]
    assert states and set(states) == {0}
    assert all("boxes:asked: view not proved" in text for text in world.tables().values() if "boxes:asked" in text)


def study(world: World, *more: object) -> tuple[str, list[dict[str, Any]]]:
    """What `study asked` prints, and its rows."""
    ran = command("study", "asked", world.folder / "run", "--replicates", 40, *more)
    assert ran.status == 0, ran.text
    return ran.text, json.loads((world.folder / "run/studies/asked/asked.json").read_text())["asked"]


def asked_study(world: World) -> None:
    refused, cut, empty = {"content": None, "refusal": "No."}, {"content": "[", "finish": "length"}, {"content": ""}
    script = [BOX, BOX, refused, cut, empty]  # the proof of the view; both findings of the first image, then again
    first = asked(world, "--negatives", "match", "--attempts", 2, plan={"script": script})
    second = f"boxes:second={world.folder / 'asked.2.jsonl'}"
    world.eval(model=[first, second, f"moved:{world.folder / 'asked.jsonl'}", FP32])
    text, rows = study(world, "--prices", "0,1000000")
    kinds = ("asked", "answered", "refused", "truncated", "empty", "without_answer")
    assert {(row["model"], row["truth"]): [row[kind] for kind in kinds] for row in rows} == {
        ("boxes:asked", "present"): [7, 5, 1, 1, 0, 0],
        ("boxes:asked", "absent"): [7, 7, 0, 0, 0, 0],
        ("boxes:second", "present"): [7, 6, 0, 0, 1, 0],
        ("boxes:second", "absent"): [7, 7, 0, 0, 0, 0],
    }
    assert all(row["completion_tokens"] == row["cost"] == 5 * 7 for row in rows), "the server counts 5 of each answer"
    assert "moved:asked." in text and f"{FP32}." in text


def asked_changed(world: World) -> None:
    world.eval(model=asked(world, "--limit", LIMITED))
    whole = asked(world)
    text, rows = study(world)
    assert not rows and "do not give the file that was evaluated" in text
    world.eval(model=whole)
    text, (row,) = study(world)
    assert row["asked"] == row["answered"] == 7 and "do not give" not in text


def asked_protocol(world: World) -> None:
    world.eval()
    world.eval("--protocol", "chexlocalize", model=asked(world))
    text, (row,) = study(world)
    assert (
        row["model"] == "boxes:asked"
        and "Answers of asked models, protocol chexlocalize"
        in (world.folder / "run/studies/asked/asked.md").read_text()
    )
    assert "protocol default, not studied: " in text
