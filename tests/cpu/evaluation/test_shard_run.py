"""`eval --shard` and `merge` as a user runs them: processes, a real ONNX model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from synthetic import make_bundle, make_dataset, save_graph

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

COMMAND = [sys.executable, "-m", "xbench_fast.runtime.cli"]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [*COMMAND, *map(str, arguments)]
    wide = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(line, capture_output=True, text=True, timeout=300, env=wide)


def result(out: Path) -> Any:
    run = json.loads((out / "run.json").read_text())
    return pq.read_table(out / run["cells"]["blocks-32--coco"]["file"]).replace_schema_metadata()


def test_shards_merged_are_a_run_that_eval_goes_on_with(tmp_path: Path) -> None:
    make_bundle(tmp_path / "models" / "blocks-32", graph=save_graph(tmp_path / "blocks.onnx"))
    make_dataset(tmp_path / "data", 30)
    line = ["eval", "--all", "--bundles", tmp_path / "models", "--data", f"coco={tmp_path / 'data'}"]
    line += ["--batch", 3, "--chunk", 8, "--threads", 1, "--engine", "onnxruntime-cpu"]
    out = tmp_path / "run"
    # Both at once, into one folder: neither waits for the other's lock.
    processes = [
        subprocess.Popen([*COMMAND, *map(str, [*line, "--out", out, "--shard", f"{index}/2"])], stdout=subprocess.PIPE)
        for index in (1, 2)
    ]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert all(b"next: xbench-fast merge" in text for text in said)
    early = command("merge", out / "shard-1-of-2", "--out", out)
    assert early.returncode == 1 and early.stderr.startswith("Error: 1 shard is missing, of 2: 2/2")
    merged = command("merge", out / "shard-2-of-2", out / "shard-1-of-2", "--out", out)
    assert merged.returncode == 0, merged.stderr
    assert "1 cell merged" in merged.stdout and "next: xbench-fast report" in merged.stdout
    again = command(*line, "--out", out)
    assert again.returncode == 0 and "finished before, reused" in again.stdout
    whole = command(*line, "--out", tmp_path / "whole")
    assert whole.returncode == 0 and result(out).equals(result(tmp_path / "whole"))
    assert command("report", out).returncode == 0
