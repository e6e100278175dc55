"""Full exports: what the graphs promise, what they compute, and what bundle.json records."""

from __future__ import annotations

import json
import re
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.prompts.prompt_encoding import TextEncoder
from xbench_fast.engines.select import open_engine
from xbench_fast.export.pipeline import ModelSource, export_bundle
from xbench_fast.export.prompts.builtin import builtin_sets

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

FACTS = {
    "kad-demo": {"grid": 14, "text": 64, "mode": "squash", "saliency": "attention", "inputs": 2, "scale": 1.0},
    "kad-224": {"grid": 14, "text": 768, "mode": "squash", "saliency": "attention", "inputs": 2, "scale": 1.0},
    "clip-vit-b-32": {"grid": 7, "text": 512, "mode": "crop", "saliency": "similarity", "inputs": 1, "scale": 1 / 0.07},
}


def tensors(values: Any) -> dict[str, tuple[str, list[int | str]]]:
    """name -> (type, shape with axis names) as the ONNX file states it."""
    found = {}
    for value in values:
        kind = value.type.tensor_type
        shape = [axis.dim_param or axis.dim_value for axis in kind.shape.dim]
        found[value.name] = (onnx.TensorProto.DataType.Name(kind.elem_type), shape)
    return found


def test_the_interface_is_fixed_and_its_axes_are_free(exported: Any) -> None:
    facts = FACTS[exported.folder.name]
    image = onnx.load(exported.folder / "image.onnx").graph
    cells, width = facts["grid"], facts["text"]
    assert tensors(image.input) == {
        "pixels": ("UINT8", ["batch", 1, 224, 224]),
        "text": ("FLOAT", ["findings", width]),
    }
    assert tensors(image.output) == {
        "logits": ("FLOAT", ["batch", "findings"]),
        "saliency": ("FLOAT", ["batch", "findings", cells, cells]),
    }
    text = onnx.load(exported.folder / "text.onnx").graph
    names = ["input_ids", "attention_mask"][: facts["inputs"]]
    assert tensors(text.input) == {name: ("INT64", ["texts", "tokens"]) for name in names}
    assert tensors(text.output) == {"features": ("FLOAT", ["texts", width])}


def test_the_files_are_plain_onnx_and_name_no_machine(exported: Any, root: Path) -> None:
    for name in ("image.onnx", "text.onnx"):
        data = (exported.folder / name).read_bytes()
        model = onnx.load_from_string(data)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 20)]
        assert exported.result.bundle.manifest.opset == 20 and model.ir_version >= 8
        assert not model.functions and not model.metadata_props and not model.graph.metadata_props
        assert not any(node.metadata_props or node.doc_string for node in model.graph.node)
        assert not any(value.metadata_props or value.doc_string for value in model.graph.value_info)
        assert not any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer)
        for place in (str(root), str(Path.home()) + "/", sysconfig.get_path("purelib"), "site-packages", 'File "'):
            assert place.encode() not in data, f"{name} contains {place}"
        onnx.checker.check_model(str(exported.folder / name), full_check=True)


def test_no_weight_is_in_a_graph_that_does_not_use_it(exported: Any) -> None:
    weights = sum(tensor.numel() * tensor.element_size() for tensor in exported.adapter.module.state_dict().values())
    files = sum((exported.folder / name).stat().st_size for name in ("image.onnx", "text.onnx"))
    assert files < 1.02 * weights + 500_000


def test_parity_was_proven_and_is_recorded(exported: Any) -> None:
    report, manifest = exported.result.report, exported.result.bundle.manifest
    assert report and manifest.parity["passed"] is True
    assert manifest.parity["compared"] == len(report.checks) > 200
    assert 0 < manifest.parity["needed"] < 1e-4 == manifest.parity["tolerance"]
    image = {(check.output, check.batch, check.slot) for check in report.checks if check.output != "features"}
    for output in ("logits", "saliency"):
        for batch in (1, 2, 3, 8, 17):
            assert {slot for o, b, slot in image if (o, b) == (output, batch)} == set(range(batch))
    findings = {check.findings for check in report.checks if check.output == "saliency"}
    sizes = {len(record.texts) for record in manifest.prompt_sets.values()}
    assert findings >= {1, 2, 22} | sizes
    texts = [check for check in report.checks if check.output == "features"]
    assert {check.batch for check in texts} == {1, 2, 3, 22}
    context = exported.adapter.context
    assert {check.compares.split(",")[0] for check in texts} == {"model"}
    assert {check.batch for check in texts if check.findings == context} == {1, 2}, "one long text, two padded ones"
    assert exported.result.peak_memory_mib > 0
    assert set(exported.result.seconds) > {"image graph", "text graph", "parity"}


def test_exporting_again_gives_an_equal_bundle(kad_demo: Any, tmp_path: Path) -> None:
    """Equal digests let an evaluation keep what it has computed with the earlier export."""
    again = export_bundle(ModelSource("kad", variant="demo"), tmp_path)
    assert again.bundle.digest == kad_demo.result.bundle.digest


def test_the_manifest_says_what_the_model_is(exported: Any) -> None:
    facts, manifest = FACTS[exported.folder.name], exported.result.bundle.manifest
    assert f"{manifest.model}-{manifest.variant}" == exported.folder.name
    assert manifest.weights == "stand-in" and manifest.checkpoint is None
    assert manifest.geometry.mode == facts["mode"] and manifest.geometry.size == 224
    assert manifest.grid == (facts["grid"],) * 2 and manifest.saliency["kind"] == facts["saliency"]
    assert manifest.logit_scale == pytest.approx(facts["scale"])
    assert {"torch", "onnx", "onnxscript", "onnxruntime", "python", "xbench-fast"} <= set(manifest.exporter)
    assert manifest.text["context"] == exported.adapter.context and "kind" in manifest.text["tokenizer"]
    assert "/" not in json.dumps(json.loads(manifest.dump())["text"]["tokenizer"]["source"])
    assert Bundle.load(exported.folder).digest == exported.result.bundle.digest
    assert sorted(path.name for path in exported.folder.parent.iterdir()) == [exported.folder.name]


@pytest.mark.parametrize(("batch", "name"), [(1, "rsna"), (2, "chestxdet10"), (5, "vindr")])
def test_the_engine_gives_both_outputs_as_the_official_preprocessing_does(
    exported: Any, shared: Path, batch: int, name: str
) -> None:
    """The reference goes the authors' way: RGB picture, torchvision's to_tensor and normalize, the model in PyTorch."""
    image = pytest.importorskip("PIL.Image")
    functional = pytest.importorskip("torchvision.transforms.functional")
    adapter = exported.adapter
    paths = sorted((shared / "data" / "images" / "chestxdet10").glob("*.png"))[:batch]
    pictures = [image.open(path).convert("L").resize((224, 224), image.Resampling.BICUBIC) for path in paths]
    normal = [functional.normalize(functional.to_tensor(p.convert("RGB")), adapter.mean, adapter.std) for p in pictures]
    prompts = exported.result.bundle.prompt_set(name)
    with torch.inference_mode():
        logits, saliency = adapter.forward(torch.stack(normal), torch.from_numpy(prompts.features))
    with open_engine(exported.result.bundle, "onnxruntime-cpu", threads=2) as engine:
        scores = engine.run(np.stack([np.asarray(picture)[None] for picture in pictures]), prompts.features)
    count, cells = len(prompts.texts), FACTS[exported.folder.name]["grid"]
    assert scores.logits.shape == (batch, count) and scores.saliency.shape == (batch, count, cells, cells)
    assert scores.logits.dtype == scores.saliency.dtype == np.float32
    np.testing.assert_allclose(scores.logits, logits.numpy(), rtol=0, atol=1e-4 * np.abs(logits.numpy()).max())
    np.testing.assert_allclose(scores.saliency, saliency.numpy(), rtol=0, atol=1e-4 * np.abs(saliency.numpy()).max())
    assert np.ptp(scores.saliency, axis=(2, 3)).min() > 0


def test_prompt_sets_are_the_table_encoded_by_the_model(exported: Any) -> None:
    bundle = exported.result.bundle
    words = builtin_sets(bundle.manifest.model)
    assert set(bundle.manifest.prompt_sets) == set(words)
    for name, entries in words.items():
        stored = bundle.prompt_set(name)
        assert stored.findings == tuple(entry.finding for entry in entries)
        assert stored.texts == tuple(text for entry in entries for text in entry.positive + entry.negative)
        assert stored.status == tuple(entry.status for entry in entries)
        assert stored.features.shape == (len(stored.texts), FACTS[exported.folder.name]["text"])
        assert np.abs(stored.features).max() > 0.1
    if bundle.manifest.model == "clip":
        assert set(bundle.prompt_set("rsna").polarity.tolist()) == {1, -1}


@pytest.mark.parametrize(
    ("fixture", "golden", "ids"), [("kad_224", "kad_224", "input_ids"), ("clip_b32", "clip_vit_b_32", "tokens")]
)
def test_the_text_graph_gives_the_goldens(
    request: pytest.FixtureRequest, shared: Path, fixture: str, golden: str, ids: str
) -> None:
    """Text features of the authors' modules with the same stand-in weights (docs/parity.md §2)."""
    bundle = request.getfixturevalue(fixture).result.bundle
    arrays = np.load(shared / "parity" / f"{golden}.npz")
    mask = arrays["attention_mask"].astype(np.int64) if "attention_mask" in arrays else None
    got = TextEncoder.of(bundle, threads=2).run(arrays[ids].astype(np.int64), mask)
    wanted = arrays["text_features"]
    assert np.abs(got - wanted).max() <= 2e-5 * np.abs(wanted).max() + 2e-5


def test_progress_is_a_line_per_step(exported: Any) -> None:
    text = "\n".join(exported.lines)
    for words in ("image.onnx", "text.onnx", r"encoding \d+ prompts of 7 sets", r"parity: \d+ comparisons", "verified"):
        assert re.search(words, text)
    assert all(len(line) < 200 and "\n" not in line for line in exported.lines)
