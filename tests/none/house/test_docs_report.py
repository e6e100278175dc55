"""docs/report.md: the command for the paper's own Table 1 gives one table of 21 columns."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from result_rows import ResultRow
from stored_counts import PIXELS, add_cell
from xbench_fast.runtime.cli.report_command import report
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.reporting.paper import paper
from xbench_fast.runtime.results.run_directory import RunDirectory


def hit(finding: str) -> ResultRow:
    row = ResultRow("case", None, finding, "ok", None, None, logit=np.float32(0))
    row.region_area, row.sub_pixel, row.hit, row.degenerate, row.argmax = 900, False, True, False, 0
    row.area = np.linspace(PIXELS, 0, 101).astype(np.int32)
    row.overlap = (row.area.astype(np.int64) * 900 // PIXELS).astype(np.int32)
    return row


def test_the_papers_table_has_21_columns(root: Path, tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as run:
        run.begin({})
        for name in paper().datasets:
            reader = DATASETS.load(name)
            told = {"findings": ["Mass"], "reader": name, "title": reader.title, "model_family": "own"}
            add_cell(run, "mine", name, [hit("Mass")], **told)
    (line,) = re.findall(
        r"^xbench-fast report run/ (--model paper --model mine .*)$", (root / "docs/report.md").read_text(), re.M
    )
    words = [str(tmp_path / "run"), *shlex.split(line), "--no-page", "--quiet"]
    done = CliRunner().invoke(report, words)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "run" / "report" / "latex" / "table1.tex").read_text()
    (columns,) = re.findall(r"\\begin\{tabular\}\{@\{\}(\w+)@\{\}\}", text)
    assert columns == "l" + 21 * "r" and text.count("ddagger$ &") == 7 and "\nOurs &" in text
