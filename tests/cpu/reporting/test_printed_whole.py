"""Every table of report, compare and the studies in terminals of several widths: no word and no number is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from printed_whole import check_whole
from stored_counts import CLASSES, add_cell, other_answers, random_rows
from xbench_fast.runtime.reporting.comparison.comparison import compare_runs
from xbench_fast.runtime.reporting.comparison.comparison_tables import comparison_tables
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.reporting.studies.calibration_study import study_calibration
from xbench_fast.runtime.reporting.studies.correlation_study import study_correlation
from xbench_fast.runtime.reporting.studies.errors_study import study_errors
from xbench_fast.runtime.reporting.studies.failures_study import study_failures
from xbench_fast.runtime.reporting.studies.gap.finding_points import Quadrants
from xbench_fast.runtime.reporting.studies.gap.gap_study import study_gap
from xbench_fast.runtime.reporting.studies.groups.groups_study import study_groups
from xbench_fast.runtime.reporting.studies.material import load_materials
from xbench_fast.runtime.reporting.studies.resolution_study import study_resolution
from xbench_fast.runtime.reporting.studies.strata_study import study_strata
from xbench_fast.runtime.reporting.studies.thresholds_study import study_thresholds
from xbench_fast.runtime.reporting.studies.variant_studies import study_prompts
from xbench_fast.runtime.reporting.tables.table import Table
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import Resampling

SHORT = ("kad", "clip", "one", "two", CLASSES)
LONG = (
    "our-own-model-with-saliency-of-the-last-layer-224",
    "another-model-of-ours_with-an-even-longer-name-of-sixty-signs",
    "a-dataset-of-our-own-hospital",
    "two",
    ("Enlarged Cardiomediastinum, mild or severe", "Pneumoretroperitoneum-of-unknown-origin", "Ödem (alveoläres)"),
)


@pytest.fixture(scope="module", params=[SHORT, LONG], ids=["short", "long"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    first, second, one, two, classes = request.param
    path: Path = tmp_path_factory.mktemp("printed") / "run"
    with RunDirectory(path) as made:
        made.begin({})
        for dataset, seed in ((one, 1), (two, 2)):
            for model, rows in ((first, random_rows(seed)), (second, other_answers(random_rows(seed), seed + 5))):
                for row in rows:
                    row.finding = classes[CLASSES.index(row.finding)]
                details = {"title": f"The {dataset}", "findings": list(classes), "model_family": "kad"}
                add_cell(made, model, dataset, rows, **details)
    return path


def tables(run: Path) -> Iterator[Table]:
    yield from make_report(run, Choices(replicates=40)).tables
    stored = load_run(run)
    if "kad" in stored.models:  # the longer names of the other run are enough for the slower tables
        return
    found = compare_runs(stored, stored, (stored.models[0], stored.models[1]), (), Resampling(10, 1))
    yield from comparison_tables(found)
    materials = load_materials((run,), (), (), Resampling(10, 1))
    for study in (study_thresholds, study_correlation, study_strata, study_calibration):
        yield from study(materials[0]).tables  # type: ignore[operator]
    yield from study_failures(materials[0], top=2, cases=2, overlays=False, datasets={}).tables
    yield from study_errors(materials[0], overlays=False).tables
    yield from study_gap(materials[0], Quadrants(0.8, 0.5, 0.95), overlays=False).tables
    groups = {"kinds of models": {"the first": stored.models[:1], "all others of them": stored.models[1:]}}
    yield from study_groups(materials[0], groups).tables
    for several in (lambda given: study_prompts(given, by="family"), study_resolution):
        yield from several(materials).tables


def test_no_word_is_broken_in_any_table(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # figures take most of the time of a study
    found = list(tables(run))
    assert len(found) > (9 if "kad" in load_run(run).models else 25)
    for table in found:
        for width in (80, 100, 120, 200):
            check_whole(table, width)


def test_a_closed_pipe_loses_no_file(run: Path) -> None:
    """`report RUN | head -1` writes everything: files come before print."""
    if "kad" not in load_run(run).models:
        pytest.skip("once is enough")
    code = "from xbench_fast.runtime.cli.app import main; import sys; main(sys.argv[1:])"
    done = subprocess.run(
        f'"{sys.executable}" -c "{code}" report "{run}" --no-page --full --replicates 0 | head -1',
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        timeout=300,
        check=True,
    )
    assert "Traceback" not in done.stderr and len(done.stdout.splitlines()) == 1
    written = {path.name for path in (run / "report").iterdir()}
    assert {"tables.md", "tables.tex", "report.json", "table1.csv", "coverage.csv"} <= written
