"""An export that goes wrong says why and leaves nothing; one that would be wrong is not written."""

from __future__ import annotations

import dataclasses
import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import (
    BundleError,
    ConfigError,
    ExportError,
    MissingExtraError,
    ParityError,
    XBenchError,
)
from xbench_fast.engines.prompts.prompt_files import FindingPrompts
from xbench_fast.engines.tokenizing import HashTokenizer
from xbench_fast.export import pipeline
from xbench_fast.export.parity import compare_graphs

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
graph = pytest.importorskip("xbench_fast.export.onnx_graph")

PROMPTS = {"mine": (FindingPrompts("Effusion", ("fluid",), ("no fluid",)), FindingPrompts("Mass", ("mass",)))}


@pytest.fixture
def ready(kad_demo: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The small model, with its graphs already exported: `export_image` and `export_text` copy them."""

    def copy(name: str) -> Callable[[Any, Path, int], Any]:
        def export(adapter: Any, folder: Path, opset: int) -> Any:
            spec = kad_demo.result.bundle.graph(name)
            shutil.copyfile(kad_demo.folder / spec.file, folder / spec.file)
            return spec

        return export

    monkeypatch.setattr(graph, "export_image", copy("image"))
    monkeypatch.setattr(graph, "export_text", copy("text"))
    return kad_demo


@pytest.fixture
def quick(ready: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As `ready`, and the comparison is not repeated: the same graphs passed it when they were made."""
    monkeypatch.setattr(compare_graphs, "check_parity", lambda *arguments, **options: ready.result.report)
    return ready


def damage(path: Path, change: Callable[[Any], None]) -> None:
    model = onnx.load(path)
    change(model.graph)
    onnx.save(model, path)


def perturb(fraction: float, choose: Callable[[Any], bool]) -> Callable[[Any], None]:
    """Adds `fraction` of its largest value to one element of the largest weight that `choose` accepts."""

    def change(network: Any) -> None:
        floats = [t for t in network.initializer if t.data_type == onnx.TensorProto.FLOAT and choose(t)]
        tensor = max(floats, key=lambda t: np.prod(t.dims))
        values = onnx.numpy_helper.to_array(tensor).copy()
        values.flat[values.size // 2] += fraction * np.abs(values).max() + 1e-3
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    return change


@pytest.mark.parametrize("name", ["image", "text"])
def test_one_wrong_weight_is_a_parity_error_and_no_bundle(
    ready: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    honest = getattr(graph, f"export_{name}")

    def dishonest(adapter: Any, folder: Path, opset: int) -> Any:
        spec = honest(adapter, folder, opset)
        # Not the token table (128 rows): some of its rows belong to words nobody asks for. In the text tower the choice
        # is the position table, whose middle row only a long text uses.
        damage(folder / spec.file, perturb(0.5, lambda t: len(t.dims) == 2 and 128 not in t.dims))
        return spec

    monkeypatch.setattr(graph, f"export_{name}", dishonest)
    output = "features" if name == "text" else "logits|saliency"
    with pytest.raises(
        ParityError, match=rf"checks failed\): ({output}) .*needs a tolerance of .*no bundle was written"
    ):
        pipeline.export_adapter(ready.adapter, tmp_path / "out", pipeline.BundleOptions(prompts=PROMPTS))
    assert not (tmp_path / "out").exists()


def checked(ready: Any, folder: Path) -> Any:
    return compare_graphs.check_parity(ready.adapter, HashTokenizer(128, 64), folder, {})


def graphs(ready: Any, folder: Path) -> Path:
    for name in ("image.onnx", "text.onnx"):
        shutil.copyfile(ready.folder / name, folder / name)
    return folder


@pytest.mark.parametrize("output", ["logits", "saliency"])
def test_outputs_that_swap_slots_are_seen_though_a_batch_of_one_is_right(
    kad_demo: Any, tmp_path: Path, output: str
) -> None:
    """The fault users of other tools meet: right for one image, wrong for several. Here the batch is reversed."""

    def reverse(network: Any) -> None:
        for node in network.node:
            node.output[:] = ["honest" if name == output else name for name in node.output]
            node.input[:] = ["honest" if name == output else name for name in node.input]
        for name, value in (("start", -1), ("stop", -(2**31)), ("axis", 0), ("step", -1)):
            network.initializer.append(onnx.numpy_helper.from_array(np.array([value], np.int64), name))
        network.node.append(onnx.helper.make_node("Slice", ["honest", "start", "stop", "axis", "step"], [output]))

    damage(graphs(kad_demo, tmp_path) / "image.onnx", reverse)
    report = checked(kad_demo, tmp_path)
    failed = [check for check in report.checks if not check]
    assert not report and {check.output for check in failed} == {output}
    assert {check.batch for check in failed} == {2, 3, 8, 17}
    assert all(check for check in report.checks if check.slot == check.batch // 2 and check.batch % 2)


def test_a_graph_that_repeats_its_first_slot_is_seen(kad_demo: Any, tmp_path: Path) -> None:
    def repeat(network: Any) -> None:
        for node in network.node:
            node.input[:] = ["first" if name == "pixels" else name for name in node.input]
        index = onnx.numpy_helper.from_array(np.array([0], np.int64), "zero_index")
        network.initializer.append(index)
        network.node.insert(0, onnx.helper.make_node("Gather", ["pixels", "zero_index"], ["one"], axis=0))
        network.node.insert(1, onnx.helper.make_node("Shape", ["pixels"], ["pixel_shape"]))
        network.node.insert(2, onnx.helper.make_node("Expand", ["one", "pixel_shape"], ["first"]))

    damage(graphs(kad_demo, tmp_path) / "image.onnx", repeat)
    report = checked(kad_demo, tmp_path)
    assert not report
    assert all(check for check in report.checks if check.output != "features" and check.slot == 0)
    slots = {(c.batch, c.slot) for c in report.checks if not c}
    assert slots == {(batch, slot) for batch in (2, 3, 8, 17) for slot in range(1, batch)}


def test_a_graph_that_ignores_the_mask_is_seen(kad_demo: Any, tmp_path: Path) -> None:
    def unmask(network: Any) -> None:
        for node in network.node:
            node.input[:] = ["all_ones" if name == "attention_mask" else name for name in node.input]
        shape = onnx.helper.make_node("Shape", ["input_ids"], ["ids_shape"])
        one = onnx.numpy_helper.from_array(np.array([1], np.int64))
        network.node.insert(0, shape)
        network.node.insert(1, onnx.helper.make_node("ConstantOfShape", ["ids_shape"], ["all_ones"], value=one))

    damage(graphs(kad_demo, tmp_path) / "text.onnx", unmask)
    failed = [check for check in checked(kad_demo, tmp_path).checks if not check]
    assert failed and {check.output for check in failed} == {"features"}
    assert any("padded" in check.compares for check in failed)


def test_a_graph_that_cannot_run_is_an_export_error(kad_demo: Any, tmp_path: Path) -> None:
    (graphs(kad_demo, tmp_path) / "image.onnx").write_bytes(b"no graph")
    with pytest.raises(ExportError, match=r"cannot run the exported image\.onnx"):
        checked(kad_demo, tmp_path)


def test_a_model_that_fixes_an_axis_is_refused(kad_demo: Any, tmp_path: Path) -> None:
    """What the exporter bakes into the graph, or trips over, is one sentence."""

    class Fixed(SimpleNamespace):
        def forward(self, image: Any, text: Any) -> Any:
            logits, saliency = kad_demo.adapter.forward(image, text)
            return logits.reshape(2, -1), saliency

    facts = {
        name: getattr(kad_demo.adapter, name) for name in ("module", "mean", "std", "geometry", "grid", "text_shape")
    }
    with pytest.raises(ExportError, match=r"image\.onnx") as caught:
        graph.export_image(Fixed(**facts), tmp_path)
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


def test_an_existing_bundle_is_kept_unless_forced(quick: Any, tmp_path: Path) -> None:
    first = pipeline.export_adapter(quick.adapter, tmp_path, pipeline.BundleOptions(prompts=PROMPTS)).bundle
    with pytest.raises(BundleError, match=r"already exists.*--force"):
        pipeline.export_adapter(quick.adapter, tmp_path, pipeline.BundleOptions(prompts=PROMPTS))
    assert Bundle.load(first.path).digest == first.digest
    changed = {**PROMPTS, "other": (FindingPrompts("Nodule", ("nodule",)),)}
    second = pipeline.export_adapter(
        quick.adapter, tmp_path, pipeline.BundleOptions(prompts=changed, force=True)
    ).bundle
    assert second.path == first.path and "other" in Bundle.load(first.path).manifest.prompt_sets
    assert [path.name for path in tmp_path.iterdir()] == ["kad-demo"]


def test_a_folder_that_is_no_bundle_is_never_replaced(ready: Any, tmp_path: Path) -> None:
    precious = tmp_path / "kad-demo" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    with pytest.raises(BundleError, match="is no bundle"):
        pipeline.export_adapter(ready.adapter, tmp_path, pipeline.BundleOptions(prompts=PROMPTS, force=True))
    assert precious.read_text() == "years of work"


def test_the_users_sets_are_added_to_the_built_in_ones(quick: Any, tmp_path: Path) -> None:
    sets = {**PROMPTS, "rsna": (FindingPrompts("Pneumonia", ("lung infection",)),)}
    bundle = pipeline.export_adapter(quick.adapter, tmp_path, pipeline.BundleOptions(prompts=sets)).bundle
    assert bundle.prompt_set("rsna").texts == ("lung infection",) and bundle.prompt_set("rsna").status == ("user",)
    assert bundle.prompt_set("mine").polarity.tolist() == [1, -1, 1]
    assert len(bundle.manifest.prompt_sets) == 8 and len(bundle.prompt_set("vindr").findings) == 21


def test_a_demo_model_has_only_the_users_sets(quick: Any, tmp_path: Path) -> None:
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "fluid", "no", "mass")
    spec = dataclasses.replace(quick.adapter.tokenizer, vocabulary=pieces)
    demo = dataclasses.replace(quick.adapter, weights="demo", tokenizer=spec)
    with pytest.raises(ConfigError, match="give some with --prompts"):
        pipeline.export_adapter(demo, tmp_path)
    bundle = pipeline.export_adapter(demo, tmp_path, pipeline.BundleOptions(prompts=PROMPTS)).bundle
    assert list(bundle.manifest.prompt_sets) == ["mine"] and bundle.manifest.weights == "demo"
    assert bundle.manifest.text["tokenizer"]["source"] == "the checkpoint"


def full_disk(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted(*arguments: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["export_text", "check_parity", "save"])
@pytest.mark.parametrize(("fault", "error"), [(full_disk, XBenchError), (interrupted, KeyboardInterrupt)])
def test_nothing_is_left_whatever_step_fails(
    quick: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str, fault: Any, error: type[BaseException]
) -> None:
    where = {
        "export_text": "xbench_fast.export.onnx_graph.export_text",
        "check_parity": "xbench_fast.export.parity.compare_graphs.check_parity",
        "save": "xbench_fast.engines.prompts.prompt_set.PromptSet.save",
    }
    monkeypatch.setattr(where[step], fault)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "other").mkdir()
    with pytest.raises(error) as caught:
        pipeline.export_adapter(quick.adapter, tmp_path / "out", pipeline.BundleOptions(prompts=PROMPTS))
    if fault is full_disk:
        assert "the disk is full" in str(caught.value) and "kad-demo" in str(caught.value)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["other"]


def test_too_little_room_is_said_before_the_work(ready: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, used=0, free=1000))
    monkeypatch.setattr(graph, "export_image", interrupted)
    with pytest.raises(ExportError, match=r"needs about \d+ MiB .* 0 MiB are free"):
        pipeline.export_adapter(ready.adapter, tmp_path / "a" / "b", pipeline.BundleOptions(prompts=PROMPTS))
    assert not (tmp_path / "a").exists()


def test_a_place_that_cannot_be_written_is_one_sentence(ready: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot be written"):
        pipeline.export_adapter(ready.adapter, tmp_path / "file", pipeline.BundleOptions(prompts=PROMPTS))


def test_a_missing_package_is_said_before_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(MissingExtraError, match=r"needs onnxscript.*xbench-fast\[export\]"):
        pipeline.export_bundle(pipeline.ModelSource("kad", variant="demo"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
