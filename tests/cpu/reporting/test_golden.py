"""Numbers that must not move, and texts that move only where a commit shows it: tests/goldens.py, piece by piece."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import goldens
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xbench_fast as xb

GOLDEN = goldens.GOLDEN


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, where commands may write into it."""
    folder = tmp_path_factory.mktemp("golden") / "run"
    shutil.copytree(GOLDEN / "run", folder)
    return folder


def test_the_comparison_sees_a_changed_number() -> None:
    then = {"n": 3, "model": "kad", "values": [0.5, {"dice": 0.25}], "note": "a long sentence", "p": None}
    assert not list(goldens.differences(then, {**then, "note": "another long sentence"}))
    assert list(goldens.differences(then, {**then, "values": [0.5, {"dice": 0.25 + 1e-9}]})) == [
        ".values[1].dice: was 0.25, is 0.250000001"
    ]
    changed = {"n": 4, "model": "clip", "values": [0.5], "note": None, "more": 1}
    assert [line.split(":")[0] for line in goldens.differences(then, changed)] == [
        *(".n", ".model", ".values", ".note", ".p", ".more")
    ]
    assert list(goldens.differences({"n": 1}, {"n": True})) and list(goldens.differences([1.0], [None]))


def test_the_comparison_shows_a_changed_text() -> None:
    changed = list(goldens.changed_texts({"a": "one\ntwo\n", "b": ""}, {"a": "one\n2\n", "c": "new\n"}))
    assert [line for line in changed if line[:3] not in ("---", "+++", "@@ ")] == ["-two", "+2", "+new"]


@pytest.mark.usefixtures("empty_drawings")
@pytest.mark.parametrize("piece", goldens.PIECES)
def test_a_piece(piece: str, tmp_path: Path) -> None:
    documents, texts = goldens.make(piece, tmp_path)
    moved = list(goldens.differences(goldens.kept_values(piece), documents, piece))
    assert not moved, "\n".join(["values moved", *moved[:40]])
    changed = list(goldens.changed_texts(goldens.kept_texts(piece), texts))
    advice = f"texts changed: read the difference, then run `python tests/goldens.py --write {piece}`"
    assert not changed, "\n".join([advice, *changed[:200]])
    if piece in ("study-thresholds", "study-calibration"):  # baseline:center was not asked for the phantoms
        facts = documents[f"{piece.removeprefix('study-')}.json"]["facts"]
        assert "baseline:center has no mean over datasets: it has 1 of 2 datasets." in facts


def test_the_patients_of_the_demo_change_no_estimate(copy: Path, tmp_path: Path) -> None:
    """Every radiograph of the golden is a patient; with the demo's patients.csv only what resamples or splits moves."""
    with (Path(__file__).parents[3] / "demo/chestxdet10/patients.csv").open(newline="") as stream:
        who = {row["file_name"].removesuffix(".png"): row["nih_image_index"][:8] for row in csv.DictReader(stream)}
    named = tmp_path / "run"
    shutil.copytree(GOLDEN / "run", named)
    for path in (named / "cells").glob("*--chestxdet10-*.parquet"):
        table = pq.read_table(path)
        column = pa.array([who[case] for case in table["case_id"].to_pylist()])
        pq.write_table(table.set_column(table.column_names.index("patient_id"), "patient_id", column), path)
    then, now = (xb.load_run(folder) for folder in (copy, named))
    for name in ("grounding", "classes", "recognition"):
        one, other = (
            frame[~frame.metric.str.contains("cross_fitted")].drop(columns=["low", "high"]).reset_index(drop=True)
            for frame in (then.table(name), now.table(name))
        )
        pd.testing.assert_frame_equal(one, other)
    ends = [
        frame.set_index(["model", "dataset", "metric"]).low.sort_index()
        for frame in (then.table("grounding"), now.table("grounding"))
    ]
    assert (ends[0]["kad-demo", "phantoms"] == ends[1]["kad-demo", "phantoms"]).all()
    assert (ends[0]["kad-demo", "chestxdet10"] != ends[1]["kad-demo", "chestxdet10"]).any()
    counts = [frame.set_index(["dataset", "metric"]).value for frame in (then.table("coverage"), now.table("coverage"))]
    assert {*counts[0]["chestxdet10", "patients"]} == {40} and {*counts[1]["chestxdet10", "patients"]} == {39}
