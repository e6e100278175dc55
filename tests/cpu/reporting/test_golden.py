"""Numbers that must not move: a run of version b0ab629 and what that version made of it, value for value.

tests/golden/run holds the demo model, the same model with another saliency map, and baseline:center on the demo's 40
radiographs, and the demo model on 60 phantoms. Beside it stand the report, the comparison of the two models and the
studies that b0ab629 wrote. Names may change (`RENAMED`), sentences may be written anew; numbers may not move by more
than the rounding of a pair's values makes them (docs/metrics.md §8.1), and none that is printed moves.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xbench_fast as xb
from xbench_fast.runtime.cli.app import main

GOLDEN = Path(__file__).parents[2] / "golden"
RENAMED = {
    "honest": "cross_fitted",
    "optimistic": "in_sample",
    "rescued": "sub_pixel",
    "adjusted": "p_holm",
    "delong_p": "p_delong",
}
"""Part of a key or column name of b0ab629 -> the same part today."""

OF_THE_MACHINE = {"run", "made", "created", "updated", "machine", "code_version", "path", "a", "b"}
"""Keys at the top that tell where and when, not what."""


def renamed(name: str) -> str:
    for old, new in RENAMED.items():
        name = name.replace(old, new)
    return name


IN_POINTS = (".csv", "delta", "percent", "points", "drop", "recovered", "max_dice_change")
"""Parts of the places of numbers that are a hundred times a fraction, as in tables, or a ratio of such numbers."""


def bound(where: str, value: float) -> float:
    """By how much a number may have moved."""
    if "recovered" in where:
        return 3e-8 + 1e-7 * abs(value)  # a share of a gain, which can be small
    return 3e-8 if any(part in where for part in IN_POINTS) else 2e-10


def differences(then: Any, now: Any, where: str = "") -> Iterator[str]:
    """Every place where a value that is not a sentence differs; floats by more than their `bound`."""
    if isinstance(then, dict):
        if not isinstance(now, dict):
            yield f"{where}: was an object, is {now!r}"
            return
        for key, value in then.items():
            if renamed(key) not in now:
                yield f"{where}.{key}: is gone"
            else:
                yield from differences(value, now[renamed(key)], f"{where}.{key}")
    elif isinstance(then, list):
        if then and all(isinstance(each, str) and " " in each for each in then):
            return  # sentences: of the run itself, and of images that are not here
        if not isinstance(now, list) or len(now) != len(then):
            yield f"{where}: had {len(then)} entries, has {len(now) if isinstance(now, list) else now!r}"
            return
        for index, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif isinstance(then, float) and isinstance(now, int | float):
        if abs(then - now) > bound(where, then) or math.isnan(then) != math.isnan(now):
            yield f"{where}: was {then!r}, is {now!r}"
    elif isinstance(then, str):
        if " " not in then and isinstance(now, str) and renamed(then) != now:
            yield f"{where}: was {then!r}, is {now!r}"
    elif then != now:
        yield f"{where}: was {then!r}, is {now!r}"


def number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return [{key: number(value) for key, value in row.items()} for row in csv.DictReader(stream)]


def told(path: Path) -> Any:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found = json.loads(text)
    return {key: value for key, value in found.items() if key not in OF_THE_MACHINE}


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, where commands may write into it."""
    folder = tmp_path_factory.mktemp("golden") / "run"
    shutil.copytree(GOLDEN / "run", folder)
    return folder


def test_the_comparison_sees_a_changed_number() -> None:
    then = {"n": 3, "model": "kad", "values": [0.5, {"dice": 0.25}], "note": "a sentence"}
    assert not list(differences(then, {**then, "note": "another sentence", "more": 1}))
    assert list(differences(then, {**then, "values": [0.5, {"dice": 0.25 + 1e-9}]})) == [
        ".values[1].dice: was 0.25, is 0.250000001"
    ]
    assert len(list(differences(then, {"n": 4, "model": "clip", "values": [0.5]}))) == 4


def test_the_report(copy: Path) -> None:
    run("report", str(copy))
    written = copy / "report"
    found = list(differences(told(GOLDEN / "report/report.json.gz"), told(written / "report.json")))
    assert not found, "\n".join(found[:40])
    for path in sorted((GOLDEN / "report").glob("*.csv")):
        found = list(differences(rows(path), rows(written / renamed(path.name)), path.name))
        assert not found, "\n".join(found[:40])


def test_the_comparison_of_two_models(copy: Path, tmp_path: Path) -> None:
    file = tmp_path / "compare.json"
    run(
        *("compare", str(copy), "--model-a", "kad-demo", "--model-b", "kad-demo-layer-mean-head-max"),
        *("--json", str(file), "--quiet"),
    )
    found = list(differences(told(GOLDEN / "compare.json.gz"), told(file)))
    assert not found, "\n".join(found[:40])


@pytest.mark.parametrize("study", [path.name.partition(".")[0] for path in sorted((GOLDEN / "studies").iterdir())])
def test_a_study(copy: Path, tmp_path: Path, study: str) -> None:
    run("study", study, str(copy), "--out", str(tmp_path), "--quiet")
    then, now = told(GOLDEN / f"studies/{study}.json.gz"), told(tmp_path / f"{study}.json")
    found = list(differences(then, now))
    assert not found, "\n".join(found[:40])
    if study in ("thresholds", "calibration"):  # baseline:center was not asked for the phantoms
        assert "baseline:center has no mean over datasets: it has 1 of 2 datasets." in now["facts"]


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
