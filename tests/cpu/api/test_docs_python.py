"""docs/python.md and docs/tour.ipynb: their code runs, and every public name is in them."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import doc_blocks
import pandas as pd
import pytest
import xbench_fast as xb

TYPES = {
    "Counts",
    "ModelInput",
    "OpenClipModel",
    "TransformersModel",
    "PairedDifference",
    "Prediction",
    "Predictor",
    "Radiograph",
    "Radiographs",
    "Run",
}
TYPES |= {"RunComparison"}
"""Names that an example uses without writing them: what functions return."""


@pytest.fixture
def checkout(kad_demo: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like a checkout after `make demo`, with a small bundle in the place of the demo's."""
    (tmp_path / "demo" / "out" / "bundles").mkdir(parents=True)
    shutil.copytree(kad_demo.folder, tmp_path / "demo" / "out" / "bundles" / "kad-demo")
    (tmp_path / "demo" / "chestxdet10").symlink_to(root / "demo" / "chestxdet10")
    shutil.copy(root / "demo" / "xbench.toml", tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_run_and_name_everything(root: Path, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for block in doc_blocks.blocks(root, "docs/python.md") if block.language == "python"]
    space: dict[str, Any] = {}
    for block in blocks:
        if block.reason is None:
            exec(compile(block.text, "python.md", "exec"), space)
    printed = capsys.readouterr().out
    assert "There is no baseline 'baseline:centre': did you mean 'baseline:center'" in printed
    used = set(re.findall(r"xb\.(\w+)", "".join(block.text for block in blocks)))
    made = {type(value).__name__ for value in space.values()} | {"Predictor"}
    assert type(space["engine"]).__name__ == "Predictor"
    assert used | TYPES == set(xb.__all__) and made >= TYPES


def test_the_tables_of_the_page_are_those_there_are(root: Path, checkout: Path) -> None:
    page = (root / "docs" / "python.md").read_text()
    both = {"out": "run", "limit": 12, "progress": False}
    radiographs = xb.load_dataset("chestxdet10", "demo/chestxdet10", frame=512)
    run = xb.evaluate(["demo/out/bundles/kad-demo"], radiographs, **both)  # type: ignore[arg-type]
    listed = dict(re.findall(r"^\| `(\w+)` \| (.*`.*) \|$", page[page.index("| table | content |") :], re.M))
    for name in ("grounding", "recognition", "coverage"):
        of_maps, _, of_boxes = listed[name].partition("of predicted boxes")
        metrics = set(re.findall(r"`(\w+)`", of_maps))
        assert set(run.table(name, replicates=0).metric) == metrics  # type: ignore[arg-type]
    assert {"engine", "protocol", "state"} <= set(run.table(name, replicates=0).columns)  # type: ignore[arg-type]
    answers = checkout / "answers.jsonl"
    lines = (
        {"case": one.case_id, "finding": one.findings[0], "boxes": [], "frame": "pixels"}
        for one in list(radiographs)[:12]
        if one.findings
    )
    answers.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    run = xb.evaluate([], radiographs, boxes=[answers], limit=12, out="boxes", progress=False)
    assert set(re.findall(r"`(\w+)`", of_boxes)) < set(run.table("coverage", replicates=0).metric)


def test_the_notebook_is_made_from_its_script_and_runs(
    root: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code is that of docs/tour.py, its outputs are there, and its cells run without Jupyter."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.syspath_prepend(str(root / "docs"))
    script = importlib.import_module("make_tour").cells((root / "docs" / "tour.py").read_text())
    notebook = json.loads((root / "docs" / "tour.ipynb").read_text())
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]] == script
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert sum("image/png" in item.get("data", {}) for cell in code for item in cell["outputs"]) == 2
    assert not any(item["output_type"] == "error" for cell in code for item in cell["outputs"])
    assert (root / "docs" / "tour.ipynb").stat().st_size < 200_000
    space: dict[str, Any] = {}
    tables = 0
    for cell in code:
        *lines, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(lines, []), "tour.ipynb", "exec"), space)
        if not isinstance(last, ast.Expr):
            exec(compile(ast.Module([last], []), "tour.ipynb", "exec"), space)
            continue
        shown = eval(compile(ast.Expression(last.value), "tour.ipynb", "eval"), space)
        if isinstance(shown, pd.DataFrame):
            (printed,) = ("".join(item["data"]["text/plain"]) for item in cell["outputs"] if "data" in item)
            assert printed.split("\n")[0].split() == list(shown.columns), "run docs/make_tour.py again"
            # the bundle is another than the demo's here, and so are its hits and boxes
            if "metric" in shown:
                names = [line.split()[1:3] for line in printed.split("\n")[1:]]
                assert names == shown[["model", "metric"]].to_numpy().tolist(), "run docs/make_tour.py again"
            tables += 1
    assert tables == 5
    assert set(space["table"].model) == {"epoch-0", "epoch-1", "epoch-2"}
