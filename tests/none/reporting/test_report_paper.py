"""When a number has a difference to the paper's."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_rows import ResultRow
from stored_counts import PIXELS, add_cell
from written_report import report
from xbench_fast.runtime.reporting.paper import paper
from xbench_fast.runtime.reporting.tables.table import Cell
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory

QUICK = Choices(replicates=0)
KNOWN = {"weights_source": "best.pt, by its sha256"}
FALLING = np.linspace(PIXELS, 0, 101).astype(np.int32)


INEXACT = ("fp16", "bf16", "int8", "tf32")


def computed(engine: str = "numpy fp32", decoder: str | None = "cpu 1") -> dict[str, Any]:
    """The entry of a cell that an engine made of images from a decoder."""
    return {"ingredients": {"engine": engine, "limit": None} | ({"decoder": decoder} if decoder else {})}


def rows_of(pairs: dict[str, int]) -> list[ResultRow]:
    """That many cases with a region, by class; every fourth is a hit."""
    rows = []
    for finding, count in pairs.items():
        for index in range(count):
            row = ResultRow(f"{finding}{index}", None, finding, "ok", None, None)
            row.region_area, row.sub_pixel, row.hit, row.degenerate, row.argmax = 900, False, index % 4 == 0, False, 0
            row.area, row.overlap = FALLING, (FALLING.astype(np.int64) * 900 // PIXELS).astype(np.int32)
            row.logit = np.float32(0)
            rows.append(row)
    return rows


def made(path: Path, reader: str, pairs: dict[str, int], **details: Any) -> dict[str, Any]:
    """The report of one cell of KAD with these pairs, one class in one case."""
    names, every = list(pairs), rows_of(pairs)
    by_case = {row.case_id: row for row in every}
    filled = []
    for case, row in by_case.items():
        for name in names:
            other = ResultRow(case, None, name, "ok", None, None, logit=np.float32(0), region_area=0, sub_pixel=False)
            filled.append(row if row.finding == name else other)
    status = details.pop("status", "official")
    told: dict[str, Any] = {**KNOWN, **details}
    if status:
        told["prompts"] = {"set": "rsna", "queries": len(names), "status": dict.fromkeys(names, status)}
    with RunDirectory(path) as run:
        run.begin({})
        add_cell(
            run, "kad-224", "lungs", filled, **{"findings": names, "reader": reader, "model_family": "kad", **told}
        )
    data, tables, _ = report(path, QUICK)
    return {"cell": data["cells"][0], "tables": tables, "path": path}


def shown(found: dict[str, Any]) -> tuple[Cell, tuple[str, ...]]:
    """The first cell of Table 1, and its notes on differences."""
    table = found["tables"]["Table 1: grounding"]
    cell = table.rows[-1][1]
    assert isinstance(cell, Cell) and cell.paper
    cells = [note for note in table.notes if note.startswith("no difference to the paper: kad-224 on ")]
    return cell, tuple(cells)


def test_the_papers_pairs_prompts_and_weights_give_a_difference(tmp_path: Path) -> None:
    found = made(tmp_path / "run", "rsna", {"Pneumonia": 1218})
    cell, notes = shown(found)
    printed = paper().table1["kad", "rsna", "pointing"]
    value = 100 * found["cell"]["grounding"]["macro"]["pointing"]
    assert float(cell.difference) == pytest.approx(value - printed.value, abs=0.0051) and not notes
    provenance = next(table for title, table in found["tables"].items() if title == "Provenance")
    assert provenance.rows[0][2] == "published (best.pt, by its sha256)"


@pytest.mark.parametrize(
    ("count", "details", "reason"),
    [
        (29, {}, "with 29 pairs for the paper's 1,218"),
        (1218, {"weights_source": ""}, "as nothing says that the weights are the published ones"),
        (1218, {"weights": "own"}, "as the weights are own"),
        (1218, {"saliency_map": "layer-mean"}, "as layer-mean is not the authors' saliency map"),
        (
            1218,
            {"resized": "by size, trained at 9"},
            "as the pictures have another size than the authors' (by size, tr",
        ),
        *((1218, computed(f"tensorrt {name}"), f"as the model ran in {name} and not in fp32") for name in INEXACT),
        (1218, computed(decoder="dali 2.2.0"), "as dali decoded the images and not the exact decoder"),
        (1218, computed(decoder=None), "as the run does not say what decoded its images"),
        (1218, {"status": "own"}, "as not all prompts are official"),
        (1218, {"status": "official_text_nearest_key"}, "as not all prompts are official"),
        (1218, {"status": ""}, "as the run does not say whether its prompts are official"),
        (1218, {"protocol": "chexlocalize"}, "by protocol chexlocalize"),
        (1218, {"limit": 1218, "dataset_cases": 2000}, "as only a part of the dataset was evaluated"),
        (
            1218,
            {"shard": {"index": 1, "of": 2, "cases": [0, 1218, 2000]}},
            "as only a part of the dataset was evaluated",
        ),
    ],
)
def test_each_reason_leaves_the_papers_cell_alone(
    tmp_path: Path, count: int, details: dict[str, Any], reason: str
) -> None:
    found = made(tmp_path / "run", "rsna", {"Pneumonia": count}, **details)
    cell, notes = shown(found)
    assert (cell.paper, cell.difference) == (paper().table1["kad", "rsna", "pointing"].text, "")
    (note,) = notes
    assert note.startswith("no difference to the paper: kad-224 on The lungs, ") and reason in note.split("; ")[0]
    assert found["cell"]["paper"]["pointing"]["difference_points"] is None
    lines = csv.DictReader(io.StringIO((found["path"] / "report" / "paper.csv").read_text()))
    assert {(line["difference_points"], reason in line["why_no_difference"]) for line in lines} == {("", True)}


def test_a_mean_needs_all_classes_and_a_class_its_own_pairs(tmp_path: Path) -> None:
    pairs = {key[2]: number.pairs or 0 for key, number in paper().classes.items() if key[:2] == ("kad", "chestxray14")}
    whole, _ = shown(made(tmp_path / "whole", "chestxray14", pairs))
    assert whole.difference
    three = dict(list(pairs.items())[:3])
    found = made(tmp_path / "three", "chestxray14", three)
    cell, notes = shown(found)
    assert not cell.difference and any("as 3 of the paper's 8 classes have a region" in note for note in notes)
    table = next(table for title, table in found["tables"].items() if "pointing per class" in title)
    mean, *classes = table.rows[-1][1:]
    assert not mean.difference and all(item.difference for item in classes), "each class has the paper's pairs"
    names = list(pairs)
    mixed = {"set": "own", "queries": 8, "status": {**dict.fromkeys(names, "official"), names[0]: "own"}}
    found = made(tmp_path / "mixed", "chestxray14", pairs, status="", prompts=mixed)
    cell, notes = shown(found)
    assert not cell.difference and any("as not all prompts are official" in note for note in notes)
    table = next(table for title, table in found["tables"].items() if "pointing per class" in title)
    assert [bool(item.difference) for item in table.rows[-1][2:]] == [False, *[True] * (len(names) - 1)]
    moved = {**pairs, names[0]: pairs[names[0]] - 1, names[1]: pairs[names[1]] + 1}
    cell, notes = shown(made(tmp_path / "moved", "chestxray14", moved))
    assert not cell.difference and any("do not have the paper's numbers of pairs" in note for note in notes)


def test_options_that_change_what_is_counted_leave_it_alone(tmp_path: Path) -> None:
    found = made(tmp_path / "run", "rsna", {"Pneumonia": 1218})
    for choices, has in ((Choices(replicates=0, protocol="paper"), True), (Choices(replicates=0, ties="any"), False)):
        _, tables, _ = report(found["path"], choices)
        assert bool(tables["Table 1: grounding"].rows[-1][1].difference) == has
