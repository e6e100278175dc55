"""README's comparisons with other code are those of the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_comparisons_are_quoted_from_their_results(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")

    def result(name: str) -> Any:
        return json.loads((root / "benchmarks" / "results" / f"{name}-cpu.json").read_text(encoding="utf-8"))

    def row(start: str, against: str) -> str:
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {start}") and against in line)
        return line

    careful, usual = result("prepare-careful"), result("prepare")
    png, dicom, load = careful["png"], careful["dicom"], f"(load {careful['load_average_before']}"
    less = "prepare_times_less_cpu_than"
    line = row("the same, CPU time", "OpenCV")
    assert f"| {png[f'{less}_opencv_pool']} ×; {png[f'{less}_pillow_pool']} × |" in line and load in line
    line = row("the same, CPU time", "pydicom")
    assert f"| {dicom[f'{less}_pillow_pool']} × |" in line and load in line
    assert f"| {usual['png']['prepare_times_faster']:.1f} × |" in row("preparing 1024² PNG", "plain loop")
    assert f"| {usual['dicom']['prepare_times_faster']:.1f} × |" in row("preparing RSNA DICOM", "plain loop")

    found = result("serve-pytriton")
    line = row("`serve`", "PyTriton")
    assert (
        f"{found['ratio_of_requests_per_s']} × the requests" in line
        and f"(load {found['load_average_before']};" in line
    )
    assert f"{found['ratio_of_server_cpu_per_request']} × less CPU" in line
    found = result("serve-batching")
    line = row("`serve`", "without micro-batching")
    assert f"| {found['batching']['ratio']:.2f} × |" in line and f"(load {found['load_average_before']};" in line

    found = result("host-loop")
    line, locked = row("`eval` around an engine", found["before"]), found["under_the_lock_us"]
    assert f"{found['cases']:,} prepared cases, {found['findings']} findings" in line
    assert f"| {found['wall_us']['times_faster']:.2f} ×; {found['cpu_us']['times_faster']:.2f} × less CPU time" in line
    assert f"{locked['16']['median']:.0f} µs an image under the interpreter lock" in line
    assert f"{locked['256']['median']:.0f} µs in batches of 256 |" in line

    found = result("int8")["end_to_end"]
    line = row("`eval`, KAD-224 in INT8", "float32 bundle")
    assert f"| {found['ratio']:.2f} × |" in line and f"{found['images']} prepared radiographs" in line

    table = (root / "docs" / "parity.md").read_text(encoding="utf-8").splitlines()
    for name, entry in result("int8")["models"].items():
        (line,) = (line for line in table if line.startswith(f"| `{name.removesuffix('-int8')}` |"))
        assert f"| {entry['ratio']:.2f} ×" in line and f"| {entry['hits_flipped']} of {entry['pairs']} |" in line
        assert f"| 1/{entry['cpu_ratio']:.2f} |" in line if "cpu_ratio" in entry else "| - |" in line

    found = result("box-lines")
    line, cost = row("`eval` and `report`", "60 s on two idle cores"), found["lines"]["100000"]["together"]
    assert f"| {cost['wall_s']} s, {cost['cpu_s']} s of CPU time, {cost['peak_mb'] / 1000:.2f} GB |" in line
    assert f"(load {found['load_average_before']};" in line
