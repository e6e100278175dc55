"""The CheXlocalize sample with its official Grad-CAM maps through the command line, at native size."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.reporting.native_tables import load_native, native_scores, native_tables
from xbench_fast.runtime.results.load_rows import load_run

FIRST, SECOND = "patient64541_study1_view1_frontal", "patient64542_study1_view1_frontal"
# What the benchmark's own programme gives on its sample, without a table of thresholds.
OFFICIAL = {
    (FIRST, "Enlarged Cardiomediastinum"): 0.4623,
    (FIRST, "Cardiomegaly"): 0.3662,
    (FIRST, "Airspace Opacity"): 0.0,
    (SECOND, "Support Devices"): 0.0333,
}
MODEL = "maps:gradcam_maps_val"


@pytest.fixture(scope="module")
def sample(shared: Path) -> Path:
    folder = shared / "data"
    if not (folder / "annotations" / "chexlocalize" / "gradcam_maps_val").is_dir():
        pytest.skip("the CheXlocalize sample is not among the shared data")
    return folder


def line(sample: Path, *more: str) -> list[str]:
    options = {
        "split": "val",
        "segmentations": "annotations/chexlocalize/gt_segmentations_val.json",
        "polygons": "annotations/chexlocalize/gt_annotations_val.json",
        "labels": "annotations/chexlocalize/valid.csv",
        "images": "images/chexlocalize/CheXpert/valid",
    }
    words = ["eval", "--model", f"maps:{sample / 'annotations' / 'chexlocalize' / 'gradcam_maps_val'}"]
    words += ["--protocol", "chexlocalize", "--data", f"chexlocalize={sample}", *more]
    for key, value in options.items():
        words += ["--data-option", f"chexlocalize.{key}={value}"]
    return words


def test_the_official_numbers_come_out_of_the_command(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for more in ((), ("--data-option", "chexlocalize.regions=polygons", "--out", "outlines")):
        with pytest.raises(SystemExit) as caught:
            main(line(sample, *more))
        assert caught.value.code == 0
        out = tmp_path / ("outlines" if more else "run")
        entry = json.loads((out / "run.json").read_text())["cells"][f"{MODEL}--chexlocalize"]
        assert (entry["protocol"], entry["missing"], entry["unreadable"]) == ("chexlocalize", 0, 0)
        found = {}
        for row in pq.read_table(out / entry["file"]).to_pylist():
            if native := row["native"]:
                union = native["otsu_area"] + native["region"] - native["otsu_overlap"]
                found[row["case_id"], row["finding"]] = round(native["otsu_overlap"] / union, 4)
                assert (native["height"], native["width"]) in ((2320, 2828), (2022, 2021))
        assert found == OFFICIAL


def test_the_table_prints_them(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(line(sample, "--model", "baseline:ones"))
    run = load_run(tmp_path / "run")
    rows = load_native(run, MODEL, "chexlocalize")
    assert rows is not None
    assert {item.name: round(item.otsu or 0, 4) for item in native_scores(rows)[:-1]} == {
        name: value for (_, name), value in OFFICIAL.items()
    }
    (table,) = native_tables(run)
    printed = {row[1]: row[[c.title for c in table.columns].index("Otsu")] for row in table.rows}
    assert [printed[name] for _, name in OFFICIAL] == ["46.23", "36.62", "0.00", "3.33"]
    with pytest.raises(SystemExit) as caught:
        main(["report", "run", "--quiet"])
    assert caught.value.code == 0
