"""Above 500 patients the folds of cross-fitting are the dataset's, whatever pairs a model has (metrics.md §4.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_rows import ResultRow
from stored_counts import PIXELS, add_cell
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import make_results
from xbench_fast.runtime.results.run_directory import RunDirectory

CASES, LACKING = 600, range(0, 590, 60)
FINDINGS = ("Mass", "Effusion")


def rows_of(seed: int, missing: range = range(0)) -> list[ResultRow]:
    """600 patients with an image each; a fifth has a mass, the others an effusion, and some both."""
    truth, rng, rows = np.random.default_rng(0), np.random.default_rng(seed), []
    for case in range(CASES):
        for finding in FINDINGS:
            label = int((case % 5 == 0) == (finding == "Mass") or truth.random() < 0.2)
            region, speed = int(truth.integers(500, 9000)), rng.uniform(0.2, 12, 2)
            row = ResultRow(f"c{case}", f"p{case}", finding, "ok", None, label)
            rows.append(row)
            if case in missing:
                row.status, row.reason = "missing", "no file"
                continue
            row.logit, row.region_area, row.sub_pixel = np.float32(rng.normal()), region * label, False
            if label:
                left = np.exp(-np.arange(101) / 100 * np.sort(speed)[:, None])
                row.overlap = np.floor(region * left[0]).astype(np.int32)
                row.area = row.overlap + np.floor((PIXELS - region) * left[1]).astype(np.int32)
                row.argmax, row.hit, row.degenerate = 0, bool(rng.random() < 0.4), False
    return rows


def told(path: Path) -> Any:
    return json.loads(path.read_text())


def command(*arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    assert ended.value.code == 0


def test_models_with_other_pairs_share_the_folds_and_every_command_prints_one_number(tmp_path: Path) -> None:
    both, alone = tmp_path / "both", tmp_path / "alone"
    for path, models in ((both, {"kad": range(0), "mavl": LACKING}), (alone, {"mavl": LACKING})):
        with RunDirectory(path) as made:
            made.begin({})
            for seed, (model, missing) in enumerate({"kad": range(0), **models}.items()):
                if model in models:
                    add_cell(made, model, "one", rows_of(seed, missing), findings=list(FINDINGS))
    results, studied = make_results(load_run(both)), load_material(both)
    pairs = {model: results.cells[model, "one"].scored for model in ("kad", "mavl")}
    assert len(pairs["mavl"].counts) < len(pairs["kad"].counts)
    seen: dict[str, list[int]] = {}
    for cell in studied.cells:
        for case, folds in zip(cell.case_ids, cell.resampled_pairs.fold_of.T.tolist(), strict=True):
            assert len(folds) == 5 and seen.setdefault(case, folds) == folds, case
    assert len(seen) == CASES and {fold for folds in seen.values() for fold in folds} == set(range(10))

    command("report", both, "--no-page", "--replicates", 0)
    command("report", alone, "--no-page", "--replicates", 0)
    command("compare", both, "--model", "kad", "--model", "mavl", "--json", tmp_path / "compare.json",
            "--replicates", 0)  # fmt: skip
    command("study", "calibration", both, "--out", tmp_path / "study", "--replicates", 10, "--no-maps")
    reported = {
        path: next(cell for cell in told(path / "report" / "report.json")["cells"] if cell["model"] == "mavl")
        for path in (both, alone)
    }
    (compared,) = told(tmp_path / "compare.json")["cells"]
    study = told(tmp_path / "study" / "calibration.json")
    for place, finding in enumerate(FINDINGS):
        numbers = [cell["cross_fitted"]["classes"][place]["dice_best"] for cell in reported.values()]
        numbers += [
            item["b"]
            for item in compared["findings"]
            if (item["metric"], item["finding"]) == ("dice_cross_fitted", finding)
        ]
        wanted = {"model": "mavl", "class": finding, "method": "held_out"}
        numbers += [row["dice"] for row in study["classes"] if wanted.items() <= row.items()]
        # The study has a mean of its own of values in units of 2^-32.
        assert numbers == pytest.approx([numbers[0]] * 4, abs=2e-10), finding
