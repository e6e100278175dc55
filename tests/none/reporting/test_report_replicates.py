"""A percentile interval needs replicates beyond both of its ends; of fewer there is none, and a sentence says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stored_counts import add_cell, other_answers, random_rows
from xbench_fast.engines.errors import ConfigError
from xbench_fast.metrics_gpu.statistics.correlation import trend_band
from xbench_fast.metrics_gpu.statistics.intervals import least_replicates, percentile_interval, percentile_intervals
from xbench_fast.runtime.reporting.comparison.comparison import compare_runs
from xbench_fast.runtime.reporting.comparison.comparison_tables import comparison_facts
from xbench_fast.runtime.reporting.report import Report, make_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.fields import FIELDS
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import Resampling
from xbench_fast.runtime.trust.card.making import make_cards


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replicates") / "run"
    with RunDirectory(path) as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1))
        add_cell(made, "mavl", "one", other_answers(random_rows(1), 3))
    return path


@pytest.mark.parametrize(("level", "least"), [(0.5, 4), (0.9, 20), (0.95, 40), (0.98, 100), (0.99, 200), (0.999, 2000)])
def test_one_replicate_lies_beyond_each_end(level: float, least: int) -> None:
    assert least_replicates(level) == least
    values = np.random.default_rng(0).random(least)
    found = percentile_interval(values, level)
    assert found is not None and (values < found.low).sum() == (values > found.high).sum() == 1
    assert percentile_interval(values[1:], level) is None
    lacking = np.where(np.arange(least) < 1, np.nan, values)
    columns = np.column_stack([values, lacking])
    assert percentile_intervals(columns, level) == [found, None], "replicates that define the number are counted"
    assert percentile_intervals(columns[1:], level) == [None, None]
    with pytest.raises(ValueError, match="between 0 and 1"):
        least_replicates(1.0)


def bootstrapped(report: Report) -> int:
    """How many of all numbers have a bootstrap interval."""
    cells = report.results.finished
    numbers = [cell.number(field, name) for cell in cells for field in FIELDS for name in ("", *cell.names)]
    return sum(bool(number.interval and number.interval.method == "bootstrap") for number in numbers)


@pytest.mark.parametrize("replicates", [1, 2, 39])
def test_fewer_than_40_replicates_give_no_bootstrap_interval(run: Path, replicates: int) -> None:
    report = make_report(run, Choices(replicates=replicates))
    sentence = f"no bootstrap intervals: at 95 % they need --replicates 40 or more, not {replicates}"
    assert bootstrapped(report) == 0 and report.facts["intervals"] == sentence
    tables = {table.name: table for table in report.tables}
    for name in ("table1", "recognition"):
        assert any(note.startswith(sentence) for note in tables[name].notes), tables[name].notes
        assert "Brackets" not in tables[name].caption and "[low, high]" not in " ".join(tables[name].notes)
    compared = compare_runs(load_run(run), load_run(run), ("kad", "mavl"), resampling=Resampling(replicates))
    assert sentence in comparison_facts(compared) and Resampling(replicates).fact == sentence
    with pytest.raises(ConfigError, match=f"--replicates is {replicates}; give 40 or more"):
        make_cards(report, ())


def test_40_replicates_and_none_at_all_need_no_sentence(run: Path) -> None:
    for replicates in (40, 0):
        report = make_report(run, Choices(replicates=replicates))
        assert (bootstrapped(report) > 0) == (replicates == 40)
        told = [*report.facts.values(), *(note for table in report.tables for note in table.notes)]
        assert not any("no bootstrap intervals" in line for line in told)
    assert "99 % intervals" in Resampling(200, level=0.99).fact
    few = "no bootstrap intervals: at 99 % they need --replicates 200 or more, not 199"
    assert Resampling(199, level=0.99).fact == few


def test_a_band_needs_as_many_lines() -> None:
    x, y, groups = np.arange(8.0), np.array([0.0, 2, 1, 3, 5, 4, 6, 8]), list("aabbccdd")
    assert trend_band(x, y, x, groups=groups, replicates=39) is None
    assert trend_band(x, y, x, groups=groups, replicates=60) is not None
