"""`xbench-export wrap`: a ready graph becomes a bundle that is evaluated, or is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import GRID, SIZE, model, save_graph
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.export.cli import main

onnx = pytest.importorskip("onnx")
for package in ("torch", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

PROMPTS = {"coco": {"Mass": ["a mass", "a lump"], "Effusion": {"positive": ["fluid"], "negative": ["no fluid"]}}}
FEATURES = np.array([[1, 2], [0.5, 1], [2, 0], [0, 3]], np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_graph(tmp_path / "blocks.onnx")
    (tmp_path / "prompts.json").write_text(json.dumps(PROMPTS))
    np.savez(tmp_path / "features.npz", coco=FEATURES)
    return tmp_path


def wrap(folder: Path, **changes: Any) -> int:
    options = {"name": "blocks-32", "geometry": f"squash:{SIZE}", "features": folder / "features.npz"}
    options |= {"prompts": folder / "prompts.json", "out": folder / "out", **changes}
    flags = [text for key, value in options.items() if key != "graph" for text in (f"--{key}", str(value))]
    return main(["wrap", str(changes.get("graph", folder / "blocks.onnx")), *flags])


def test_the_bundle_runs_and_says_what_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wrap(folder, geometry=f"crop:{SIZE}:40:bicubic", smoothing=2) == 0
    assert capsys.readouterr().out.strip() == str(folder / "out" / "blocks-32")
    bundle = Bundle.load(folder / "out" / "blocks-32")
    manifest = bundle.manifest
    assert (manifest.model, manifest.variant, manifest.grid) == ("blocks", "32", (GRID, GRID))
    assert manifest.smoothing == 2
    assert manifest.geometry.key == f"crop-{SIZE}-40-bicubic" and manifest.exporter["wrapped"] == "blocks.onnx"
    assert manifest.parity["passed"] is True and "alone" in json.dumps(manifest.parity)
    prompts = bundle.prompt_set("coco")
    assert prompts.texts == ("a mass", "a lump", "fluid", "no fluid") and prompts.polarity.tolist() == [1, 1, 1, -1]
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1, SIZE, SIZE), dtype=np.uint8)
    with open_engine(bundle, "onnxruntime-cpu", threads=2) as engine:
        scores = engine.run(pixels, prompts.features)
    logits, saliency = model(pixels, FEATURES)
    np.testing.assert_array_equal(scores.saliency, saliency)
    np.testing.assert_allclose(scores.logits, logits, rtol=1e-6)
    assert wrap(folder) == 1 and "already exists" in capsys.readouterr().err


def edited(folder: Path, change: Any) -> Path:
    graph = onnx.load(folder / "blocks.onnx")
    change(graph.graph)
    onnx.save(graph, folder / "edited.onnx")
    return folder / "edited.onnx"


def mixing(graph: Any) -> None:
    """Logits of a picture that depend on the whole batch."""
    helper, total = onnx.helper, onnx.numpy_helper.from_array(np.array([0]), "batch_axis")
    graph.initializer.append(total)
    graph.node[-1].output[0] = "own"
    graph.node.append(helper.make_node("ReduceMax", ["own", "batch_axis"], ["largest"], keepdims=1))
    graph.node.append(helper.make_node("Sub", ["own", "largest"], ["logits"]))


def fixed_batch(graph: Any) -> None:
    for value in (*graph.input[:1], *graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1


def renamed(graph: Any) -> None:
    graph.output[1].name = "map"
    graph.node[8].output[0] = graph.node[9].input[0] = "map"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (mixing, "logits (alone; 2 in the batch"),
        (fixed_batch, "0 is a free axis"),
        (renamed, "in this order"),
    ],
)
def test_another_interface_or_mixed_images_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Any, words: str
) -> None:
    assert wrap(folder, graph=edited(folder, change)) == 1
    assert words in capsys.readouterr().err and not (folder / "out").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"geometry": "squash"}, "not MODE:SIZE"),
        ({"geometry": "squash:32:64"}, "sizes do not fit"),
        ({"geometry": "squash:64"}, "wanted are pixels uint8 [batch, 1, 64, 64]"),
        ({"name": "blocks"}, "has no variant"),
        ({"name": "mine-a/b"}, "--name mine-a/b cannot name a bundle"),
        ({"name": "../mine-32"}, "cannot name a bundle"),
        ({"name": "mine-a b"}, "cannot name a bundle"),
        ({"graph": "absent.onnx"}, "There is no file absent.onnx"),
    ],
)
def test_wrong_options_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], words: str
) -> None:
    assert wrap(folder, **changes) in (1, 2)
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error and not (folder / "out").exists()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"coco": FEATURES[:3]}, "[4, D...]"),
        ({"coco": FEATURES.astype(np.float64)}, "float64"),
        ({"other": FEATURES}, "features for ['other']"),
        ({"coco": np.ones((4, 3), np.float32)}, "takes text features"),
    ],
)
def test_features_that_do_not_fit_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, Any], words: str
) -> None:
    np.savez(folder / "features.npz", **arrays)
    assert wrap(folder) in (1, 2)
    assert words in capsys.readouterr().err
    (folder / "features.npz").write_bytes(b"PK\x03\x04 not an archive")
    assert wrap(folder) in (1, 2)
    assert "cannot be read" in capsys.readouterr().err
