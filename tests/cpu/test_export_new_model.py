"""The worked example of docs/add-a-model.md, as it stands there, exported and evaluated."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from synthetic import make_dataset
from xbench_fast.engines.bundle import Bundle
from xbench_fast.export import load_adapter

torch = pytest.importorskip("torch")
for package in ("onnx", "onnxscript", "onnxruntime", "tokenizers"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, a checkpoint of its model, and prompts for the data set."""
    made = tmp_path_factory.mktemp("add-a-model")
    (code,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "add-a-model.md").read_text(), re.DOTALL)
    (made / "tiny.py").write_text(code)
    random = torch.Generator().manual_seed(3)
    shapes = {"patches.weight": (16, 3, 8, 8), "patches.bias": (16,), "words.weight": (12, 16)}
    torch.save({name: torch.randn(shape, generator=random) for name, shape in shapes.items()}, made / "tiny.pt")
    (made / "prompts.json").write_text(json.dumps({"coco": {"Mass": ["a blob"], "Effusion": ["rod"]}}))
    return made


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    command = [sys.executable, "-m", "xbench_fast.export.cli", "--model", "tiny.py:TinyAdapter"]
    command += ["--checkpoint", "tiny.pt", "--prompts", "prompts.json", "--out", "bundles"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return Bundle.load(folder / "bundles" / "tiny-64")


def test_the_bundle_is_the_models(bundle: Bundle, folder: Path) -> None:
    manifest = bundle.manifest
    assert (manifest.model, manifest.variant, manifest.weights) == ("tiny", "64", "published")
    assert manifest.checkpoint is not None and manifest.checkpoint["name"] == "tiny.pt"
    assert manifest.parity["passed"] is True and len(manifest.prompt_sets) == 8
    table = torch.load(folder / "tiny.pt")["words.weight"].numpy()
    np.testing.assert_allclose(bundle.prompt_set("coco").features[1], table[[2, 8, 3]].mean(0), atol=1e-6)


def test_it_is_evaluated_like_any_other(bundle: Bundle, folder: Path) -> None:
    """The logits of the run are those of the adapter on the decoded pictures."""
    make_dataset(folder / "data", 12)
    command = [sys.executable, "-m", "xbench_fast.runtime.cli", "eval", "--all", "--bundles", str(folder / "bundles")]
    command += ["--data", f"coco={folder / 'data'}", "--out", str(folder / "run"), "--threads", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads((folder / "run" / "run.json").read_text())
    (cell,) = run["cells"].values()
    rows = pq.read_table(folder / "run" / cell["file"]).to_pylist()
    assert len(rows) == 24
    adapter = load_adapter(f"{folder / 'tiny.py'}:TinyAdapter", folder / "tiny.pt")
    prompts = bundle.prompt_set("coco")
    for row in rows:
        (picture,) = (folder / "data").rglob(f"{row['case_id']}*.png")
        pixels = Image.open(picture).convert("L").resize((64, 64), Image.Resampling.BICUBIC)
        image = (torch.from_numpy(np.asarray(pixels, np.float32) / 255) - 0.5) / 0.25
        with torch.inference_mode():
            logits, _ = adapter.forward(image.expand(1, 3, 64, 64), torch.from_numpy(prompts.features))
        column = prompts.findings.index(row["finding"])
        assert row["logit"] == pytest.approx(float(logits[0, column]), abs=1e-4)
