"""The worked example of docs/add-a-model.md, as it stands there, exported and evaluated."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from synthetic import make_dataset
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import BundleError, ConfigError
from xbench_fast.export import load_adapter
from xbench_fast.export.bundle_options import BundleOptions
from xbench_fast.export.cli import main
from xbench_fast.export.cli.radiographs import EvaluationMetrics
from xbench_fast.export.pipeline import export_adapter
from xbench_fast.runtime.trust.probes.randomised import RandomisedGraph

torch = pytest.importorskip("torch")
for package in ("onnx", "onnxscript", "onnxruntime", "tokenizers"):
    pytest.importorskip(package)

COMMANDS = {"xbench-export": "xbench_fast.export.cli", "xbench-fast": "xbench_fast.runtime.cli"}
MEASURED = ("grid", "text_shape", "context", "vocabulary_size", "text_inputs")


def block(root: Path, kind: str) -> str:
    """The first block of code of that kind in the page's part on classes."""
    text = (root / "docs" / "add-a-model.md").read_text().partition("## A Python class")[2]
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0]


def run(line: str, folder: Path) -> None:
    name, *arguments = shlex.split(line)
    command = [sys.executable, "-m", COMMANDS[name], *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, a checkpoint of its model, and the data set; then the page's commands are run there."""
    made = tmp_path_factory.mktemp("add-a-model")
    for name, kind in (("tiny.py", "python"), ("xbench.toml", "toml"), ("prompts.json", "json")):
        (made / name).write_text(block(root, kind))
    random = torch.Generator().manual_seed(3)
    shapes = {"patches.weight": (16, 3, 8, 8), "patches.bias": (16,), "words.weight": (12, 16)}
    torch.save({name: torch.randn(shape, generator=random) for name, shape in shapes.items()}, made / "tiny.pt")
    make_dataset(made / "phantoms", 12)
    for line in block(root, "sh").splitlines():
        run(line, made)
    return made


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    return Bundle.load(folder / "bundles" / "mine-64")


def test_the_bundle_is_the_models(bundle: Bundle, folder: Path) -> None:
    manifest = bundle.manifest
    assert (manifest.model, manifest.variant, manifest.weights) == ("mine", "64", "own")
    assert manifest.checkpoint is not None and manifest.checkpoint["name"] == "tiny.pt"
    assert manifest.parity["passed"] is True and len(manifest.prompt_sets) == 8
    assert manifest.text["compared"] is None, "the model names no library"
    assert bundle.prompt_set("rsna").texts == ("pneumonia",), "the words are still those of the class's prompt_style"
    table = torch.load(folder / "tiny.pt")["words.weight"].numpy()
    np.testing.assert_allclose(bundle.prompt_set("phantoms").features[1], table[[2, 8, 3]].mean(0), atol=1e-6)


def test_it_is_evaluated_like_any_other(bundle: Bundle, folder: Path) -> None:
    """The logits of the run are those of the adapter on the decoded pictures."""
    run_json = json.loads((folder / "run" / "run.json").read_text())
    (cell,) = run_json["cells"].values()
    rows = pq.read_table(folder / "run" / cell["file"]).to_pylist()
    assert len(rows) == 24
    adapter = load_adapter(f"{folder / 'tiny.py'}:TinyAdapter", folder / "tiny.pt")
    prompts = bundle.prompt_set("phantoms")
    for row in rows:
        (picture,) = (folder / "phantoms").rglob(f"{row['case_id']}*.png")
        pixels = Image.open(picture).convert("L").resize((64, 64), Image.Resampling.BICUBIC)
        image = (torch.from_numpy(np.asarray(pixels, np.float32) / 255) - 0.5) / 0.25
        with torch.inference_mode():
            logits, _ = adapter.forward(image.expand(1, 3, 64, 64), torch.from_numpy(prompts.features))
        column = prompts.findings.index(row["finding"])
        assert row["logit"] == pytest.approx(float(logits[0, column]), abs=1e-4)


def test_a_class_in_a_package_beside_the_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another working directory; a flag wins over the table, and the search path is as it was."""
    package = tmp_path / "project" / "hospital_models"
    package.mkdir(parents=True)
    shutil.copy(folder / "tiny.py", package / "small.py")
    shutil.copy(folder / "tiny.pt", tmp_path / "project" / "weights.pt")
    (tmp_path / "project" / "xbench.toml").write_text(
        'bundles = "made"\n[models.ours]\nclass = "hospital_models.small:TinyAdapter"\ncheckpoint = "weights.pt"\n'
        'variant = "64"\n'
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert main(["--model", "ours", "--config", "project/xbench.toml"]) == 0
    bundle = Bundle.load(tmp_path / "project" / "made" / "ours-64")
    assert bundle.manifest.weights == "own" and bundle.manifest.checkpoint["name"] == "weights.pt"
    stated = ("--weights", "published", "--source", "ours, the release of May", "--out", "stated")
    assert main(["--model", "ours", "--config", "project/xbench.toml", *stated]) == 0
    manifest = Bundle.load(tmp_path / "stated" / "ours-64").manifest
    assert (manifest.weights, manifest.weights_source) == ("published", "as stated: ours, the release of May")
    assert sys.path == before


def test_what_the_class_leaves_out(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes are those of the network; `outputs` are what `forward` returns; stand-in weights are refused in words."""
    adapter = load_adapter(f"{folder / 'tiny.py'}:TinyAdapter", folder / "tiny.pt")
    assert (adapter.grid, adapter.text_shape, adapter.vocabulary_size) == ((8, 8), (16,), 12)
    assert adapter.context == 512, "a mean of words has no longest text"
    image, text = torch.ones(1, 3, 64, 64), torch.ones(2, 16)
    logits, saliency = adapter.forward(image, text)
    assert (logits.shape, saliency.shape) == ((1, 2), (1, 2, 8, 8))
    line = ["--model", f"{folder / 'tiny.py'}:TinyAdapter", "--weights", "stand-in", "--out", str(tmp_path)]
    assert main(line) == 2
    assert "has no stand-in weights; give a checkpoint" in capsys.readouterr().err


def test_sizes_are_found_by_running(folder: Path) -> None:
    """A table of positions limits the context, also one whose mask is missing; a wrong shape is named."""
    adapter = load_adapter(f"{folder / 'tiny.py'}:TinyAdapter", folder / "tiny.pt")

    class Positions(type(adapter)):  # type: ignore[misc]
        places, rows = 37, 5

        def encode_text(self, ids: Any, mask: Any = None) -> Any:
            places = torch.nn.functional.embedding(torch.arange(ids.shape[1]), torch.ones(self.places, 16))
            return (self.module.words(ids) + places).sum(1)

        def forward(self, image: Any, text: Any) -> Any:
            return image.new_zeros(1, len(text)), image.new_zeros(1, len(text), self.rows, 3)

    stated = {item.name: getattr(adapter, item.name) for item in fields(adapter) if item.name not in MEASURED}
    found = Positions(**stated, text_inputs=("input_ids",))
    assert (found.context, found.vocabulary_size, found.grid, found.text_shape) == (37, 12, (5, 3), (16,))
    assert Positions(**stated, text_inputs=("input_ids",), context=20).context == 20
    Positions.forward = lambda self, image, text: (image.new_zeros(1, 2), image.new_zeros(1, 5, 3))
    with pytest.raises(ConfigError, match=r"returns logits \[1, 2\] and saliency \[1, 5, 3\]"):
        Positions(**stated, text_inputs=("input_ids",))
    Positions.encode_text = lambda self, ids, mask=None: torch.ones(16)
    with pytest.raises(ConfigError, match=r"encode_text of tiny returns \[16\] for 3 texts"):
        Positions(**stated, text_inputs=("input_ids",))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_constants_that_no_checkpoint_has_are_named_in_the_bundle(folder: Path, tmp_path: Path, precision: str) -> None:
    """Under their names in the graph; trust tests find no learnt layer besides."""
    adapter = load_adapter(f"{folder / 'tiny.py'}:TinyAdapter", folder / "tiny.pt")
    patches = adapter.module.patches
    for name in ("weight", "bias"):
        values = getattr(patches, name).data
        delattr(patches, name)
        patches.register_buffer(name, values, persistent=False)
    patches.register_buffer("unused", torch.ones(8, 8), persistent=False)
    options = BundleOptions(precision=precision, metrics=EvaluationMetrics() if precision == "fp16" else None)
    found = export_adapter(adapter, tmp_path, options).bundle
    constants = {"network.patches.weight", "network.patches.bias"}
    assert set(Bundle.load(found.path).manifest.not_learnt) == constants
    with pytest.raises(BundleError, match="has no learnt layer"):
        RandomisedGraph(found)
