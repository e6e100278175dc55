"""Where a model's prompts come from, and whether its images were equalised, reaches the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from evaluation_world import World
from stored_counts import CLASSES, add_cell, random_rows
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.errors import RunError
from xbench_fast.engines.strict_json import CHECKSUM, checksum_of
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.csv_and_json import to_json
from xbench_fast.runtime.reporting.provenance import hashes
from xbench_fast.runtime.reporting.report import Report, make_report
from xbench_fast.runtime.reporting.tables.metric_names import NONE
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_directory import RunDirectory

OTHER = "prompts that are not the authors' official ones (docs/parity.md §7): "
PLAIN = "equalise the histogram of every image before the resize; this protocol does not"


def prompts(*status: str) -> dict[str, Any]:
    return {"set": "one", "queries": len(status), "status": dict(zip(CLASSES, status, strict=True))}


def made(path: Path, **models: dict[str, Any]) -> Report:
    with RunDirectory(path) as run:
        run.begin({})
        for seed, (name, details) in enumerate(models.items()):
            add_cell(run, name, "one", random_rows(seed), **details)
    return make_report(path, Choices(replicates=0))


def notes(report: Report) -> dict[str, tuple[str, ...]]:
    return {table.name: table.notes for table in report.tables}


def test_the_status_of_prompts_is_in_the_provenance_and_in_notes(tmp_path: Path) -> None:
    report = made(
        tmp_path / "run",
        kad={"prompts": prompts("official", "official", "own")},
        clip={"prompts": prompts("own", "own", "own")},
        carzero={"prompts": prompts("official", "official", "official")},
        older={},
    )
    told = {row["model"]: row["prompt status"] for row in hashes(report.results, report.run.data)}
    assert told == {"kad": "official 2, own 1", "clip": "own", "carzero": "official", "older": NONE}
    line = f"{OTHER}kad: official 2, own 1; clip: own"
    found = notes(report)
    for name in ("table1", "recognition", "provenance"):
        assert line in found[name]
    cells = to_json(report.results, report.blocks, report.run.data)["cells"]
    assert cells[0]["prompt_status"] == {"Mass": "official", "Effusion": "official", "Edema": "own"}
    assert cells[3]["prompt_status"] == {} and cells[3]["equalised"] is False


def test_official_prompts_need_no_note(tmp_path: Path) -> None:
    report = made(tmp_path / "run", kad={"prompts": prompts(*["official"] * 3)})
    assert not any(OTHER in line for lines in notes(report).values() for line in lines)


def test_an_evaluation_stores_the_status_of_the_classes_it_asked(tmp_path: Path) -> None:
    world, data = World(tmp_path), DatasetConfig("coco", make_dataset(tmp_path / "data", 8), "coco")
    world.run([make_bundle(tmp_path / "blocks-32", several=True).path], [data], baselines=["baseline:ones"])
    assert world.entry()["prompts"] == {"set": "coco", "queries": 6, "status": {"Mass": "own", "Effusion": "own"}}
    assert "prompts" not in world.entry("baseline:ones--coco")
    report = make_report(world.out, Choices(replicates=0))
    assert not report.results.cells["baseline:ones", "coco"].prompt_status
    assert f"{OTHER}blocks-32: own" in notes(report)["table1"]


def test_the_gelu_that_weights_do_not_state_is_told(tmp_path: Path) -> None:
    """From the bundle to the run, and from the run to the notes below its tables."""
    told = "QuickGELU, assumed, because no CLIP file states it"
    world, data = World(tmp_path), DatasetConfig("coco", make_dataset(tmp_path / "data", 8), "coco")
    known = {"name": "x.pt", "sha256": "0" * 64}
    stated = make_bundle(tmp_path / "blocks-32", checkpoint=known | {"activation": told})
    world.run([stated.path, make_bundle(tmp_path / "plain-32", checkpoint=known).path], [data])
    assert world.entry()["activation"] == told and "activation" not in world.entry("plain-32--coco")
    report = make_report(world.out, Choices(replicates=0))
    line = f"GELU of the layers, which weights do not state: blocks-32: {told}"
    for name in ("table1", "recognition", "provenance"):
        assert line in notes(report)[name]
    cells = to_json(report.results, report.blocks, report.run.data)["cells"]
    assert [cell["activation"] for cell in cells] == [told, ""]


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("prompts", []),
        ("prompts", {"set": "a"}),
        ("prompts", {"set": "a", "queries": 1, "status": {"Mass": 3}}),
        ("activation", ["GELU"]),
    ],
)
def test_a_damaged_status_is_a_sentence(tmp_path: Path, key: str, bad: object) -> None:
    made(tmp_path / "run", kad={"prompts": prompts("own", "own", "own")})
    file = tmp_path / "run" / "run.json"
    document = json.loads(file.read_text())
    document["cells"]["kad--one"][key] = bad
    document[CHECKSUM] = checksum_of(document)
    file.write_text(json.dumps(document))
    with pytest.raises(RunError, match=r"run\.json is damaged: the cell 'kad--one'"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("family", "reader", "shown"),
    [("medklip", "rsna", True), ("mavl", "rsna", True), ("kad", "rsna", False), ("medklip", "siim", False)],
)
def test_images_that_the_authors_equalise_and_the_protocol_does_not(
    tmp_path: Path, family: str, reader: str, shown: bool
) -> None:
    report = made(tmp_path / "run", it={"model_family": family, "reader": reader})
    for name in ("table1", "recognition", "provenance"):
        assert any(PLAIN in line for line in notes(report)[name]) == shown


def test_equalised_images_need_no_note(tmp_path: Path) -> None:
    how = {"engine": "numpy fp32", "limit": None, "intensity": "equalised"}
    details = {"model_family": "medklip", "reader": "rsna", "protocol": "medklip", "ingredients": how}
    with RunDirectory(tmp_path / "run") as run:
        run.begin({})
        add_cell(run, "it", "one", random_rows(1))
        entry = run.cell("it", "one")
        assert entry is not None
        run.set_cell(**{**entry, **details})
    report = make_report(tmp_path / "run", Choices(replicates=0))
    assert report.results.finished and not any(PLAIN in line for line in notes(report)["table1"])
