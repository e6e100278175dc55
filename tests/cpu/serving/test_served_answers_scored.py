"""A served demo bundle, scored from its answers as docs/serve.md says: what it says is run as it stands there."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.demo.phantoms import phantoms, write
from xbench_fast.runtime.cli import main

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)

PHANTOMS = 12


@pytest.fixture
def after_the_demo(root: Path, kad_demo: Any, tmp_path: Path) -> Path:
    """The folder of the repository after `make demo`, with stand-in weights and a few phantoms."""
    out = tmp_path / "demo" / "out"
    shutil.copytree(kad_demo.folder, out / "bundles" / "kad-demo")
    shutil.copy(root / "demo" / "xbench.toml", tmp_path / "demo")
    arguments = ["--bundles", out / "bundles", "--model", "kad-demo", "--prompt-set", "phantoms"]
    with pytest.raises(SystemExit, match="0"):
        main(list(map(str, ["prompts", "encode", *arguments, "--prompts", root / "demo" / "prompts.yaml"])))
    write(out / "phantoms", phantoms("test", PHANTOMS))
    return tmp_path


def counted(folder: Path) -> dict[str, NDArray[np.float64]]:
    """By finding and pair: Dice, IoU and whether the first box's centre is a hit, of answers.jsonl, pixel by pixel."""
    document = json.loads((folder / "demo/out/phantoms/annotations.json").read_text())
    names = {item["id"]: item["name"] for item in document["categories"]}
    files = {item["id"]: Path(item["file_name"]).stem for item in document["images"]}
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    answers = {(line["case"], line["finding"]): line for line in lines}
    assert len(answers) == len(lines) == PHANTOMS * len(names)
    found = defaultdict(list)
    for item in document["annotations"]:
        (height, width), runs = item["segmentation"]["size"], item["segmentation"]["counts"]
        true = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T
        line = answers[files[item["image_id"]], names[item["category_id"]]]
        assert line["view"] == [width, height], "phantoms have the size of the grid"
        mine = np.zeros_like(true)
        for left, top, right, bottom in line["boxes"]:
            mine[top:bottom, left:right] = True
        both, either = (mine & true).sum(), (mine | true).sum()
        hit = False
        if line["boxes"]:
            left, top, right, bottom = line["boxes"][int(np.argmax(line["scores"]))]
            hit = true[(top + bottom) // 2, (left + right) // 2]
        found[names[item["category_id"]]].append([2 * both / (mine.sum() + true.sum()), both / either, hit])
    return {name: np.array(values, float) for name, values in found.items()}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_recipe_of_the_page(root: Path, after_the_demo: Path) -> None:
    page = (root / "docs" / "serve.md").read_text()
    (block,) = (
        text
        for text in re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
        if "answers.jsonl\n" in text and "eval" in text
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        block = block.replace("8000", str(free.getsockname()[1]))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", block.replace("report served", "report served --no-page --replicates 20")],
        cwd=after_the_demo,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    report = after_the_demo / "served" / "report"
    found = json.loads((report / "report.json").read_text())
    (cell,) = found["cells"]
    expected = counted(after_the_demo)
    macro = np.mean([values.mean(axis=0) for values in expected.values()], axis=0)
    told = cell["grounding"]["macro"]
    assert [told[name] for name in ("dice_fixed", "iou_fixed", "pointing")] == pytest.approx(macro, abs=2e-10)
    assert 0 < macro[0] < 1, "not every box is right or wrong"
    (boxes,) = found["boxes"]
    pairs = sum(map(len, expected.values()))
    assert (boxes["model"], boxes["pairs"], boxes["missing"]) == ("boxes:served", pairs, 0)
    asked = boxes["negatives_asked"], boxes["negatives_not_asked"]
    assert asked == (PHANTOMS * len(expected) - pairs, 0), "every finding of every phantom has a line"
    # Phantoms have masks: there is no box to match, and no published number, instead of one about nothing.
    assert boxes["f1_0.5_percent"] is boxes["precision_0.5_of_all_boxes_percent"] is None and boxes["published"] == {}
    assert boxes["dice_native_percent"] == pytest.approx(100 * macro[0]), "drawn on the image's own pixels, the same"
    told_boxes = sum(len(json.loads(line)["boxes"]) for line in (after_the_demo / "answers.jsonl").open())
    assert boxes["boxes"] + boxes["negatives_boxes"] == told_boxes
    tables = (report / "tables.md").read_text()
    for heading in ("Table 1", "Coverage", "Phantoms: matched boxes", "Phantoms: what was answered"):
        assert f"## {heading}" in tables
    assert "in no matching and no published number" in tables and "Phantoms: published scorers" not in tables
    with (report / "coverage.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["model"], row["dataset"], row["cases"], row["pairs"]) == (
        "boxes:served",
        "phantoms",
        str(PHANTOMS),
        str(pairs),
    )
