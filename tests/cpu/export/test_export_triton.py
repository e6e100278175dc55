"""`xbench-export triton`: Triton's own messages read every config.pbtxt, ONNX Runtime every graph.

Answers are compared with those of the served models in test_serve_models; a real Triton in test_triton_server.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from synthetic import GRID, SIZE, make_bundle, model, prompt_set, save_graph
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export.cli import main
from xbench_fast.export.triton.dali_step import dali_source
from xbench_fast.export.triton.repository import RepositoryChoices, write_repository
from xbench_fast.runtime.data.images.resizing import resize_plan, to_model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
messages = pytest.importorskip("tritonclient.grpc.model_config_pb2")
text_format = pytest.importorskip("google.protobuf.text_format")

PIXELS = np.random.default_rng(3).integers(0, 256, (5, 1, SIZE, SIZE), dtype=np.uint8)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("triton")
    graph = save_graph(folder / "blocks.onnx")
    (folder / "models").mkdir()
    make_bundle(folder / "models" / "blocks-32", graph=graph)
    several = {"several": True, "weights": "demo", "sets": ("coco", "other")}
    make_bundle(folder / "models" / "several-32", graph=graph, geometry=Geometry("crop", 32, 40, "bicubic"), **several)
    return folder / "models"


def export(bundles: Path, out: Path, *arguments: object) -> int:
    return main(["triton", "--bundles", str(bundles), "--out", str(out), *map(str, arguments)])


def config(folder: Path) -> Any:
    return text_format.Parse((folder / "config.pbtxt").read_text(), messages.ModelConfig())


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    assert export(*arguments) in (1, 2)
    said = capsys.readouterr().err
    assert said.startswith("xbench-export: ") and len(said.strip().splitlines()) == 1
    return said


def test_a_repository_of_all_bundles(bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "all", "--max-batch", 12, "--max-delay-ms", 1.5, "--queue", 9, "--instances", 2)
    assert export(bundles, tmp_path / "repository", *options, "--jpeg", "--text-input") == 0
    names = {path.name for path in (tmp_path / "repository").iterdir()}
    sets = {"blocks-32--coco", "several-32--coco", "several-32--other"}
    steps = {"jpeg-squash-32-32-bilinear", "jpeg-crop-32-40-bicubic"}
    assert names == sets | {f"{name}--jpeg" for name in sets} | steps | {"blocks-32", "several-32"}
    assert {Path(line).name for line in capsys.readouterr().out.splitlines()} == names
    for name in names:
        read = config(tmp_path / "repository" / name)
        assert read.name == name and (tmp_path / "repository" / name / "1").is_dir()
        assert read.max_batch_size == (0 if name in ("blocks-32", "several-32") else 12)
    read = config(tmp_path / "repository" / "several-32--coco")
    assert read.platform == "onnxruntime_onnx" and list(read.dynamic_batching.preferred_batch_size) == [3, 6, 12]
    assert read.dynamic_batching.max_queue_delay_microseconds == 1500
    assert read.dynamic_batching.default_queue_policy.max_queue_size == 9
    assert [(group.count, group.kind) for group in read.instance_group] == [(2, messages.ModelInstanceGroup.KIND_GPU)]
    assert [(item.name, item.data_type, list(item.dims)) for item in read.input] == [
        ("pixels", messages.TYPE_UINT8, [1, SIZE, SIZE])
    ]
    assert [(item.name, list(item.dims)) for item in read.output] == [
        ("logits", [3]),
        ("saliency", [3, GRID, GRID]),
        ("logits_negative", [3]),
    ]
    assert read.parameters["xbench.weights"].string_value == "demo"
    assert read.parameters["xbench.prompt_set"].string_value == "coco"
    labels = tmp_path / "repository" / "several-32--coco" / read.output[0].label_filename
    assert labels.read_text().splitlines() == ["Mass", "Effusion", "Unicorn"]


def test_a_bundle_that_states_its_largest_batch_gets_no_larger_one(
    bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    make_bundle(tmp_path / "models" / "few-32", graph=bundles.parent / "blocks.onnx", largest_batch=8)
    make_bundle(tmp_path / "models" / "many-32", graph=bundles.parent / "blocks.onnx", largest_batch=64)
    options = ("--model", "all", "--max-batch", 12, "--jpeg", "--text-input")
    assert export(tmp_path / "models", tmp_path / "repository", *options) == 0
    said = capsys.readouterr().err
    assert "few-32: max_batch_size 8 instead of 12" in said and "many-32: max_batch_size" not in said
    assert "few-32: Triton passes a request on as it is; send at most 8 images in one" in said
    for name, most in (("few-32--coco", 8), ("few-32--coco--jpeg", 8), ("many-32--coco", 12), ("few-32", 0)):
        assert config(tmp_path / "repository" / name).max_batch_size == most
    read = config(tmp_path / "repository" / "few-32--coco")
    assert list(read.dynamic_batching.preferred_batch_size) == [2, 4, 8]
    assert read.parameters["xbench.largest_batch"].string_value == "8"


def test_an_int8_graph_runs_on_no_other_runtime(bundles: Path, tmp_path: Path) -> None:
    """OpenVINO leaves out roundings of such a graph (docs/parity.md §5.1)."""
    plain = Bundle.load(bundles / "blocks-32")
    low = Bundle(plain.path, replace(plain.manifest, precision="int8"), plain.digest)
    for bundle, said in ((low, 1), (plain, 0)):
        lines: list[str] = []
        out = tmp_path / bundle.manifest.precision
        (name,) = write_repository([bundle], out, RepositoryChoices(cpu=True), lines.append)
        words = "OpenVINO, as a backend or an accelerator of config.pbtxt, gives other maps"
        assert sum(words in line for line in lines) == said
        read = config(out / name)
        assert read.platform == "onnxruntime_onnx" and not read.optimization.ByteSize()
        assert ("xbench.not_on" in read.parameters) == bool(said)
    assert config(tmp_path / "int8" / name).parameters["xbench.not_on"].string_value == "OpenVINO"


def test_an_ensemble_fits_its_steps(bundles: Path, tmp_path: Path) -> None:
    assert export(bundles, tmp_path, "--model", "several-32", "--jpeg", "--device", "cpu") == 0
    whole = config(tmp_path / "several-32--other--jpeg")
    have = {item.name: (item.data_type, list(item.dims)) for item in whole.input}
    for step in whole.ensemble_scheduling.step:
        part = config(tmp_path / step.model_name)
        assert part.instance_group[0].kind == messages.ModelInstanceGroup.KIND_CPU
        assert {item.name: have[step.input_map[item.name]] for item in part.input} == {
            item.name: (item.data_type, list(item.dims)) for item in part.input
        }
        have |= {step.output_map[item.name]: (item.data_type, list(item.dims)) for item in part.output}
    assert {item.name: (item.data_type, list(item.dims)) for item in whole.output}.items() <= have.items()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_graphs_answer_for_their_set(bundles: Path, tmp_path: Path, device: str) -> None:
    """By hand: means over the positive prompts, over the negative ones, NaN where there are none."""
    assert export(bundles, tmp_path, "--model", "all", "--device", device) == 0
    for name, several in (("blocks-32--coco", False), ("several-32--coco", True)):
        graph = onnx.load(str(tmp_path / name / "1" / "model.onnx"))
        onnx.checker.check_model(graph, full_check=True)
        session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        assert [item.name for item in session.get_inputs()] == ["pixels"]
        promised = {item.name: list(item.dims) for item in config(tmp_path / name).output}
        assert {item.name: item.shape[1:] for item in session.get_outputs()} == promised
        positive = ([[0, 1], [3], [5]], [[2], [4], []]) if several else ([[0], [1], [2]],)
        for count in (1, 2, 5):
            logits, saliency = model(PIXELS[:count], prompt_set(several=several).features)
            got = dict(zip(promised, session.run(list(promised), {"pixels": PIXELS[:count]}), strict=True))
            for key, array, places in (
                ("logits", logits, positive[0]),
                ("saliency", saliency, positive[0]),
                *([("logits_negative", logits, positive[1])] if several else []),
            ):
                for finding, queries in enumerate(places):
                    found = got[key][:, finding]
                    if queries:
                        np.testing.assert_array_equal(found, array[:, queries].mean(1, dtype=np.float64).astype("f4"))
                    else:
                        assert found.shape == (count,) and np.isnan(found).all()


def older(graph: Path, opset: int) -> Path:
    """The same graph with another opset; its own operators are the same from 13 to 18."""
    loaded = onnx.load(str(graph))
    loaded.opset_import[0].version = opset
    onnx.save(loaded, str(graph))
    return graph


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("opset", [13, 14, 15, 17, 18])
def test_graphs_of_older_opsets_answer_as_well(tmp_path: Path, opset: int, device: str) -> None:
    """A user's own graph, wrapped, need not be of the exporter's opset."""
    (tmp_path / "models").mkdir()
    graph = older(save_graph(tmp_path / "blocks.onnx"), opset)
    make_bundle(tmp_path / "models" / "several-32", graph=graph, several=True)
    assert export(tmp_path / "models", tmp_path / "out", "--model", "all", "--device", device) == 0
    written = tmp_path / "out" / "several-32--coco" / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(str(written), providers=["CPUExecutionProvider"])
    for count in (1, 3):
        logits, _ = model(PIXELS[:count], prompt_set(several=True).features)
        (found,) = session.run(["logits"], {"pixels": PIXELS[:count]})
        wanted = np.stack([logits[:, queries].mean(1, dtype=np.float64) for queries in ([0, 1], [3], [5])], 1)
        np.testing.assert_allclose(found, wanted.astype("f4"), rtol=1e-6)


def test_a_graph_too_old_or_broken_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for opset, words in ((12, "has opset 12, a Triton model needs 13 or later"), (13, "is no valid ONNX graph")):
        models = tmp_path / f"models-{opset}"
        models.mkdir()
        graph = older(save_graph(tmp_path / "blocks.onnx"), opset)
        if opset == 13:
            broken = onnx.load(str(graph))
            broken.graph.node[0].op_type = "NoSuchOperator"
            onnx.save(broken, str(graph))
        make_bundle(models / "blocks-32", graph=graph)
        assert words in refused(capsys, models, tmp_path / "out", "--model", "all")
        assert not list((tmp_path / "out").iterdir())


def test_the_graph_with_text_input_is_the_bundles(bundles: Path, tmp_path: Path) -> None:
    assert export(bundles, tmp_path, "--model", "blocks", "--text-input") == 0
    copied = (tmp_path / "blocks-32" / "1" / "model.onnx").read_bytes()
    assert copied == (bundles / "blocks-32" / "image.onnx").read_bytes()
    read = config(tmp_path / "blocks-32")
    assert {item.name: list(item.dims) for item in read.input} == {"pixels": [-1, 1, SIZE, SIZE], "text": [-1, 2]}
    assert {item.name: list(item.dims) for item in read.output} == {"logits": [-1, -1], "saliency": [-1, -1, 4, 4]}


def test_plans_are_taken_from_a_folder(bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", "blocks-32", "--backend", "tensorrt", "--plans", tmp_path)
    said = refused(capsys, bundles, tmp_path / "out", *arguments)
    assert "trtexec" in said and "--maxShapes=pixels:16x1x32x32" in said and not (tmp_path / "out").exists()
    (tmp_path / "blocks-32--coco.plan").write_bytes(b"a plan")
    assert export(bundles, tmp_path / "out", *arguments) == 0
    made = tmp_path / "out" / "blocks-32--coco"
    assert [path.name for path in (made / "1").iterdir()] == ["model.plan"]
    assert (made / "1" / "model.plan").read_bytes() == b"a plan"
    read = config(made)
    assert read.platform == "tensorrt_plan" and list(read.instance_group[0].profile) == ["0"]


def test_the_parser_of_tensorrt_takes_the_graph(bundles: Path, tmp_path: Path) -> None:
    """TensorRT for RTX builds without a GPU; its parser is TensorRT's."""
    pytest.importorskip("tensorrt_rtx")
    from xbench_fast.engines.plans.build import build_plan
    from xbench_fast.engines.plans.family import load_family
    from xbench_fast.engines.plans.key import Profile

    assert export(bundles, tmp_path, "--model", "several-32", "--prompt-set", "coco") == 0
    graph = tmp_path / "several-32--coco" / "1" / "model.onnx"
    built = build_plan(load_family("tensorrt-rtx"), graph, Profile((1, 4, 8), (1, 1, 1)), "fp32", capability="8.0")
    assert len(built.plan) > 1000


def test_what_cannot_be_written_is_said(bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert "no bundle called 'absent'" in refused(capsys, bundles, out, "--model", "absent")
    assert "no prompt set 'vindr'" in refused(capsys, bundles, out, "--model", "all", "--prompt-set", "vindr")
    assert "There is no bundle in" in refused(capsys, tmp_path / "nothing", out, "--model", "all")
    pair = ("--backend", "tensorrt", "--device", "cpu")
    assert "needs a GPU" in refused(capsys, bundles, out, "--model", "all", *pair)
    assert not out.exists()
    assert export(bundles, out, "--model", "blocks-32") == 0
    capsys.readouterr()
    before = (out / "blocks-32--coco" / "config.pbtxt").read_text()
    assert "already exists" in refused(capsys, bundles, out, "--model", "blocks-32", "--max-batch", 3)
    assert (out / "blocks-32--coco" / "config.pbtxt").read_text() == before
    assert export(bundles, out, "--model", "blocks-32", "--max-batch", 3, "--force") == 0
    assert config(out / "blocks-32--coco").max_batch_size == 3
    assert [path.name for path in out.iterdir()] == ["blocks-32--coco"]


def test_a_padded_geometry_has_no_ensemble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models").mkdir()
    graph = save_graph(tmp_path / "blocks.onnx")
    make_bundle(tmp_path / "models" / "area-32", graph=graph, geometry=Geometry("pad_crop", 32, 40, "area"))
    assert export(tmp_path / "models", tmp_path / "out", "--model", "all", "--jpeg") == 0
    assert "area-32--coco--jpeg is left out: DALI has no resize into a black square" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["area-32--coco"]


def test_torch_is_not_needed(bundles: Path, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'torchvision', 'transformers', 'open_clip', 'onnxscript'): sys.modules[name] = None\n"
        "from xbench_fast.export.cli import main\n"
        f"sys.exit(main(['triton', '--model', 'all', '--bundles', {str(bundles)!r}, '--out', {str(tmp_path / 'o')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["crop", "floor_crop"])
def test_dali_cuts_where_an_evaluation_cuts(mode: Any) -> None:
    """The written function, without DALI."""
    geometry = Geometry(mode, 32, 32, "bilinear")
    helper = dali_source(geometry, 8, gpu=False).partition("\ndef middle")[2]
    names: dict[str, Any] = {"fn": SimpleNamespace(cast=lambda value, dtype: value), "types": SimpleNamespace(INT32=0)}
    exec("def middle" + helper, names)
    for longer in range(32, 80):
        assert names["middle"](longer) == resize_plan(longer, 32, geometry)[2], longer


@pytest.mark.parametrize(
    "geometry",
    [
        Geometry("squash", 64, 64, "bilinear"),
        Geometry("squash", 64, 64, "bicubic"),
        Geometry("crop", 64, 64, "bicubic"),
        Geometry("crop", 48, 65, "bilinear"),
        Geometry("floor_crop", 48, 51, "bilinear"),
    ],
    ids=lambda geometry: geometry.key,
)
def test_dali_prepares_like_an_evaluation(tmp_path: Path, geometry: Geometry) -> None:
    """To three grey levels inside; at the border DALI repeats the last pixel."""
    pytest.importorskip("nvidia.dali", reason="DALI is not installed (extra gpu)")
    source = tmp_path / "dali.py"
    source.write_text(dali_source(geometry, 8, gpu=False))
    spec = importlib.util.spec_from_file_location("written", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pipeline = module.pipe(prefetch_queue_depth=1)
    pipeline.build()
    files = []
    for height, width in ((300, 411), (512, 301), (333, 333), (257, 700), (201, 200)):
        y, x = np.mgrid[0:height, 0:width] / 300.0
        film = np.clip(120 + 80 * np.cos(6 * x) * np.sin(5 * y), 0, 255).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(film).save(stream, "JPEG", quality=95)
        files.append(stream.getvalue())
    pipeline.feed_input("image", [np.frombuffer(file, np.uint8) for file in files])
    (pixels,) = pipeline.run()
    found = np.array(pixels.as_tensor())
    assert found.shape == (5, 1, geometry.size, geometry.size) and found.dtype == np.uint8
    for one, file in zip(found[:, 0], files, strict=True):
        wanted = to_model(np.asarray(Image.open(io.BytesIO(file))), geometry)
        error = np.abs(one.astype(int) - wanted)
        assert error[3:-3, 3:-3].max() <= 3 and error.mean() < 1


def test_bundles_and_sets_with_separators_are_models_of_their_own(bundles: Path, tmp_path: Path) -> None:
    graph = bundles / "blocks-32" / "image.onnx"
    make_bundle(tmp_path / "models" / "k", graph=graph, sets=("x--y",))
    make_bundle(tmp_path / "models" / "k--x", graph=graph, sets=("y",))
    assert export(tmp_path / "models", tmp_path / "repository", "--model", "all", "--force") == 0
    assert len(list((tmp_path / "repository").iterdir())) == 2


def test_two_models_of_one_name_are_refused(bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`a--b` with `--text-input` is called as the set `b` of the bundle `a`."""
    graph = bundles / "blocks-32" / "image.onnx"
    make_bundle(tmp_path / "models" / "a", graph=graph, sets=("b",))
    make_bundle(tmp_path / "models" / "a--b", graph=graph, sets=("c",))
    options = ("--model", "all", "--force", "--text-input")
    said = refused(capsys, tmp_path / "models", tmp_path / "repository", *options)
    assert "Two models of the repository are called 'a--b'" in said
