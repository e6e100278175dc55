"""The all-ones baseline of whole test lists, from the command to the printed table (docs/metrics.md §4)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from xbench_fast.runtime.cli import main


@pytest.mark.parametrize(
    ("name", "options", "n", "dice", "iou"),
    [
        ("rsna", {"list": "medklip_test.csv"}, 1218, "20.20", "11.97"),
        ("siim", {"annotations": "train-rle.csv", "list": "mavl_test.csv", "unit": "row"}, 647, "3.16", "1.64"),
    ],
)
def test_the_report_prints_the_known_floors(
    shared: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    options: dict[str, str],
    n: int,
    dice: str,
    iou: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/metrics.md §4: the all-ones values of the published test lists; the films themselves are not here."""
    root = shared / "data" / "annotations" / name / "full"
    if not root.is_dir():
        pytest.skip("the whole annotation files are not among the shared data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    line = ["eval", "--model", "baseline:ones", "--data", f"{name}={root}"]
    for key, value in options.items():
        line += ["--data-option", f"{name}.{key}={value}"]
    with pytest.raises(SystemExit) as caught:
        main(line)
    assert caught.value.code == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["report"])
    out = capsys.readouterr().out
    row = next(text for text in out.splitlines() if text.strip().startswith("baseline:ones "))
    assert row.split()[1:6] == [iou, dice, dice, iou, iou]
    cell = json.loads(Path("run/report/report.json").read_text())["cells"][0]
    assert cell["n"] == n
