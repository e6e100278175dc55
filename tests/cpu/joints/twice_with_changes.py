"""One bundle under two names in one run directory, the second time after a change (docs/joints.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from joint_inputs import CASES, FP16, FP32, put_bundle
from joint_world import World, command
from synthetic import prompt_set

AGAIN = "blocks-again"
FIELDS = ("pointing", "dice_best", "dice_cross_fitted", "auc")
EXCHANGED = (0, 3, 4, 5)  # three of the seven pairs are of 0, 3 and 4, two of them of 0


def twice(world: World) -> World:
    """With a second name of the bundle, and without patients."""
    put_bundle(world.originals, world.own("models") / AGAIN, "fp32", [prompt_set()])
    file = world.own("data") / "annotations.json"
    document = json.loads(file.read_text())
    for image in document["images"]:
        del image["patient_id"]
    file.write_text(json.dumps(document))
    return world


def patients(world: World, names: list[str], file: str = "patients.csv") -> list[object]:
    """The option with a file that gives each image in turn one of these patients."""
    path = world.folder / file
    lines = [f"case{case:04d}.png,{name}" for case, name in enumerate(names)]
    path.write_text("\n".join(["file_name,patient_id", *lines]) + "\n")
    return ["--data-option", f"coco.patients={path}"]


def compare(world: World, a: str, b: str, *more: object, status: int = 0) -> tuple[str, dict[str, Any]]:
    """What `compare` prints, and the cell of its JSON."""
    file = world.folder / "compared.json"
    how = ["compare", world.folder / "run", "--model", a, "--model", b, "--json", file, "--markdown", f"{file}.md"]
    ran = command(*how, *more)
    assert ran.status == status, ran.text
    (cell,) = json.loads(file.read_text())["cells"]
    return (world.folder / f"{file.name}.md").read_text(), cell


def nothing(item: dict[str, Any]) -> bool:
    """Whether a difference, of a report or of `compare`, is 0 with an interval of 0."""
    interval = item["interval"]
    value = item.get("difference", item.get("change"))
    return value == 0 and (interval is None or interval["low"] == interval["high"] == 0)


def twice_images(world: World) -> None:
    twice(world).eval(model=[FP32, world.own_maps])
    files = [world.data / "images" / f"case{case:04d}.png" for case in EXCHANGED]
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)
    world.eval(model=AGAIN)
    both, maps = (FP32, AGAIN), "maps:maps"
    for field in FIELDS:
        item = world.differences(field).get(both)
        assert item is None or nothing(item), item
    found = world.differences("pointing")
    assert (found[both]["shared"], found[both]["left_out"]) == (3, 8)
    assert {found[tuple(sorted((maps, name)))]["shared"] for name in both} == {7}
    tables = world.tables()
    counted = "other image files: 4 of 12 images, which not all models read from the same file"
    assert counted in tables["Table 1: grounding"] and counted in tables["Coverage"]
    (differences,) = [text for title, text in tables.items() if title.startswith("Differences between models: ")]
    assert f"other image files: 4 of {AGAIN} and {FP32}" in differences
    assert "left out, as only one of the two models has them" not in differences
    assert counted in command("study", "strata", world.folder / "run").text
    text, cell = compare(world, FP32, AGAIN, "--fail-if", "changed_images > 3", status=1)
    assert (cell["images"], cell["pairs"]) == (8, 3) and all(map(nothing, cell["changes"]))
    assert cell["other_files"] == [f"case{case:04d}" for case in EXCHANGED] and not cell["other_patients"]
    assert [item["reason"] for item in cell["only_a"]["cases"]] == ["another image file"] * 4
    assert f"other image files: 4 of {FP32} → {AGAIN} on " in text


def twice_patients(world: World) -> None:
    twice(world).eval()
    world.eval(*patients(world, [f"w{case // 2}" for case in range(CASES)]), model=AGAIN)
    report = world.numbers()
    of_both = [item for item in report["differences"] if {item["first"], item["second"]} == {FP32, AGAIN}]
    assert {item["field"] for item in of_both} == set(FIELDS)
    assert all(map(nothing, [*of_both, *report["auc_differences"]]))
    assert [item["interval"] is None for item in of_both if item["field"] == "auc"] == [False]
    for cell in report["cells"]:
        assert (cell["patients"], cell["unnamed"]) == (6, 0)
    for a, b in ((FP32, AGAIN), (AGAIN, FP32)):
        _, cell = compare(world, a, b)
        assert cell["pairs"] == 7 and all(map(nothing, [*cell["changes"], *cell["findings"]]))


def twice_renamed(world: World) -> None:
    names = [f"w{case}" for case in range(CASES)]
    twice(world).eval(*patients(world, names))
    world.eval(*patients(world, ["v0", *names[1:9], "v9", *names[10:]], "others.csv"), model=AGAIN)
    (item,) = world.differences("pointing").values()
    assert (item["shared"], item["left_out"]) == (4, 6) and nothing(item)
    tables = world.tables()
    assert "other patients: 2 of 12 images, whose patient has not the same name" in tables["Table 1: grounding"]
    (differences,) = [text for title, text in tables.items() if title.startswith("Differences between models: ")]
    assert f"other patients: 2 of {AGAIN} and {FP32}" in differences
    _, cell = compare(world, FP32, AGAIN)
    assert cell["other_patients"] == ["case0000", "case0009"] and not cell["other_files"] and cell["pairs"] == 4


def twice_names(world: World) -> None:
    names = ["a b", "a_b", "a-b"]
    models = world.own("models")
    for name in names:
        put_bundle(world.originals, models / name, "fp32", [prompt_set()])
    world.eval(model=names)
    assert set(world.cells("run")) == {f"{name}--coco" for name in names}
    folder = world.report("--card")
    report = json.loads((folder / "report.json").read_text())
    assert sorted(cell["model"] for cell in report["cells"]) == sorted(names)
    assert report["differences"] and all(map(nothing, report["differences"]))
    cards = [json.loads(file.read_text()) for file in (folder / "cards").glob("*.json")]
    assert sorted(card["model"] for card in cards) == sorted(names)


def twice_others(world: World) -> None:
    twice(world).eval(model=[FP32, FP16])
    world.eval(*patients(world, [f"w{case // 2}" for case in range(CASES)]), model=FP16)
    file = world.folder / "run" / "report" / "report.json"
    assert command("report", world.folder / "run", "--no-page", "--quiet").status == 0
    wanted = {item["field"]: item for item in json.loads(file.read_text())["differences"]}
    there, back = (compare(world, *models)[1]["changes"] for models in ((FP32, FP16), (FP16, FP32)))
    for one, two in zip(there, back, strict=True):
        assert one["change"] == -two["change"] and one["p"] == two["p"]
        if one["interval"] is not None:
            assert (one["interval"]["low"], one["interval"]["high"]) == (
                -two["interval"]["high"],
                -two["interval"]["low"],
            )
    first = {item["metric"]: item for item in back}  # B minus A, as the report's first minus second
    for field, item in wanted.items():
        same = first[field]
        assert (item["difference"], item["p"]) == (pytest.approx(same["change"], abs=1e-12), same["p"])
        assert item["interval"] == (same["interval"] and pytest.approx(same["interval"], abs=1e-12))
