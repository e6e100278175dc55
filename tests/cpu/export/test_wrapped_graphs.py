"""`xbench-export wrap` examines a graph's outputs, and its images in batches of every size that anything here uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.base import Engine, EngineInfo, EngineOptions, Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.export.cli import main
from xbench_fast.export.parity.alone import batch_sizes

onnx = pytest.importorskip("onnx")
for package in ("torch", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
g (uint8[B, 1, 32, 32] pixels, float[F, 2] text) => (float[B, F] logits, float[B, F, 4, 4] saliency)
<int64[3] flat = {{0, 1, 16}}, int64[4] grid = {{0, 0, 4, 4}}, int64 zero = {{0}}, int64 one = {{1}},
 int64 last = {{{last}}}, int64[1] first = {{0}}, float nothing = {{0}},
 float[8, 1, 1, 1] eight = {{0, 0, 0, 0, 0, 0, 0, 0}}>
{{
  grey = Cast<to = 1>(pixels)
  count = Shape<end = 1>(grey)
  {images}
  cells = AveragePool<kernel_shape = [8, 8], strides = [8, 8]>(images)
  rows = Reshape(cells, flat)
  waves = Sin(rows)
  seen = Concat<axis = 1>(rows, waves)
  map = MatMul(text, seen)
  maps = Reshape(map, grid)
  scores = ReduceMean<axes = [2], keepdims = 0>(map)
  {logits}
  {saliency}
}}
"""
ALL = "images = Identity(grey)"
REPEATS = """number = Squeeze(count)
  slots = Range(zero, number, one)
  kept = Min(slots, last)
  images = Gather<axis = 0>(grey, kept)"""
"""All images behind the one in the slot `last` repeat it."""
SAME = f"""none = Mul(grey, nothing)
  stripes = Constant<value_floats = [{", ".join(f"{7.0 * column}" for column in range(32))}]>()
  images = Add(none, stripes)"""
HOLDS_EIGHT = """room = Slice(eight, first, count)
  images = Add(grey, room)"""
TEXT = np.array([[0.02, 1], [-0.03, 2], [0.05, -3]], np.float32)


def save(folder: Path, *, images: str = ALL, last: int = 0, logits: str = "", saliency: str = "") -> Path:
    parts = {"logits": logits or "logits = Identity(scores)", "saliency": saliency or "saliency = Identity(maps)"}
    onnx.save(onnx.parser.parse_model(GRAPH.format(images=images, last=last, **parts)), folder / "g.onnx")
    return folder / "g.onnx"


def wrap(folder: Path, *options: object, **sets: np.ndarray[Any, Any]) -> int:
    sets = sets or {"mine": TEXT}
    np.savez(folder / "f.npz", **sets)  # type: ignore[arg-type]
    prompts = {name: {f"Finding {row}": [f"text {row}"] for row in range(len(text))} for name, text in sets.items()}
    (folder / "p.json").write_text(json.dumps(prompts))
    given = (
        "--name",
        "g-32",
        "--geometry",
        "squash:32",
        "--features",
        folder / "f.npz",
        "--prompts",
        folder / "p.json",
    )
    return main(["wrap", str(folder / "g.onnx"), *map(str, (*given, "--out", folder / "out", *options))])


def bundle_of(folder: Path) -> Bundle:
    return Bundle.load(folder / "out" / "g-32")


class WholeBatches(Engine):
    """Gives the graph what it gets, as an engine of another package may."""

    def _open(self) -> EngineInfo:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(self.bundle.file("image"), providers=["CPUExecutionProvider"])
        return EngineInfo("whole batches", "cpu", "fp32", "test")

    def _run(self, pixels: Any, text: Any) -> Scores:
        return Scores(*self._session.run(["logits", "saliency"], {"pixels": pixels, "text": text}))

    def _close(self) -> None:
        del self._session


@pytest.mark.parametrize(
    ("right", "batch", "advice"),
    [
        (1, 2, "do not depend on one another."),
        (2, 3, "with --batch 2."),
        (8, 9, "with --batch 8."),
        (9, 16, "with --batch 9."),
        (16, 17, "with --batch 16."),
        (17, 64, "with --batch 17."),
        (64, 256, "with --batch 64."),
        (255, 256, "with --batch 64."),
    ],
)
def test_the_first_batch_with_other_results_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], right: int, batch: int, advice: str
) -> None:
    """The case wrap-right-to-eight-images, and graphs that are right for more and for fewer images."""
    save(tmp_path, images=REPEATS, last=right - 1)
    assert wrap(tmp_path) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"g.onnx gives images other results in a batch of {batch} than alone: " in error
    assert f"alone; {batch} in the batch, slot " in error and error.endswith(advice)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("side", "asked", "more"),
    [
        (128, None, (64, 256)),
        (129, None, (64,)),
        (256, None, (64,)),
        (257, None, ()),
        (512, 40, (40,)),
        (512, 256, (256,)),
        (224, 256, (64, 256)),
        (32, 64, (64,)),
    ],
)
def test_large_batches_are_of_small_images_or_asked_for(side: int, asked: int | None, more: tuple[int, ...]) -> None:
    assert batch_sizes(side, asked) == (2, 3, 8, 9, 16, 17, *more)


def test_a_graph_for_few_images_gets_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, images=REPEATS, last=7)
    assert wrap(tmp_path, "--batch", 9) == 1 and "in a batch of 9 than alone" in capsys.readouterr().err
    assert wrap(tmp_path, "--batch", 8) == 0
    bundle = bundle_of(tmp_path)
    assert bundle.manifest.largest_batch == 8
    assert {check["batch"] for check in bundle.manifest.parity["worst_per_kind"]} == {2, 3, 8}
    pixels = np.random.default_rng(0).integers(0, 256, (19, 1, 32, 32), dtype=np.uint8)
    said: list[str] = []
    options = EngineOptions(max_batch=16, say=said.append)
    with open_engine(bundle, f"{__file__}:WholeBatches", options=options) as engine:
        assert engine.options.max_batch == 8
        together, alone = engine.run(pixels, TEXT), [engine.run(pixels[slot : slot + 1], TEXT) for slot in range(19)]
    np.testing.assert_allclose(together.saliency, np.concatenate([each.saliency for each in alone]), rtol=1e-5)
    np.testing.assert_allclose(together.logits, np.concatenate([each.logits for each in alone]), rtol=1e-5)
    assert said == [
        "g-32: batches of at most 8 images instead of 16, the largest that its bundle.json states as compared"
    ]


def test_the_usual_batches_are_compared_and_the_asked_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, images=REPEATS, last=298)
    assert wrap(tmp_path, "--batch", 300) == 1 and "in a batch of 300 than alone" in capsys.readouterr().err
    assert wrap(tmp_path, mine=TEXT, one=TEXT[:1]) == 0
    manifest = bundle_of(tmp_path).manifest
    assert manifest.largest_batch == 256
    often = {(size, texts) for size in (2, 3, 8, 9) for texts in (1, 3)}
    compared = {(check["batch"], check["findings"]) for check in manifest.parity["worst_per_kind"]}
    assert compared == often | {(size, 3) for size in (16, 17, 64, 256)}
    assert manifest.parity["engine"].startswith("onnxruntime 1.") and "remarks" not in manifest.parity


def test_a_batch_that_cannot_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, images=HOLDS_EIGHT)
    assert wrap(tmp_path) == 1
    assert "g.onnx cannot run a batch of 9 images: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"saliency": "saliency = Mul(maps, nothing)"}, "every map is 0 everywhere"),
        ({"saliency": "none = Mul(maps, nothing) saliency = Cos(none)"}, "every map has one value in all its cells"),
        ({"logits": "none = Mul(scores, nothing) logits = Cos(none)"}, "the logits do not depend on the text"),
        (
            {"logits": "mean = ReduceMean<axes = [1]>(scores) none = Mul(scores, nothing) logits = Add(mean, none)"},
            "the logits do not depend on the text",
        ),
        (
            {
                "logits": "first_one = Gather<axis = 1>(scores, first) none = Mul(scores, nothing) "
                "logits = Add(first_one, none)"
            },
            "the logits do not depend on the text",
        ),
        (
            {"logits": "none = Mul(scores, nothing) ones = Cos(none) logits = CumSum(ones, one)"},
            "the logits do not depend on the text",
        ),
        ({"logits": "logits = Sigmoid(scores)"}, "the logits are probabilities, the values of a Sigmoid"),
        ({"logits": "made = Softmax<axis = 1>(scores) logits = Identity(made)"}, "the values of a Softmax"),
        ({"logits": "made = Softmax<axis = 1>(scores) logits = Abs(made)"}, "whose sum over the texts is 1"),
        (
            {"logits": "logits = LogSoftmax<axis = 1>(scores)"},
            "logarithms of probabilities, the values of a LogSoftmax",
        ),
        (
            {"logits": "made = LogSoftmax<axis = 1>(scores) less = Neg(made) logits = Neg(less)"},
            "logarithms of probabilities, whose sum over the texts is 1",
        ),
        ({"logits": "logits = Log(scores)"}, "logits has a value that is not finite, for probe picture 1 and text 2"),
        (
            {"saliency": "saliency = ReduceMean<axes = [1]>(maps)"},
            "saliency [1, 1, 4, 4] for a batch of 1 images and 3 texts; wanted are [1, 3] and [1, 3, 4, 4]",
        ),
        ({"saliency": "saliency = Div(maps, nothing)"}, "saliency has a value that is not finite"),
    ],
)
def test_outputs_that_give_no_right_number_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: dict[str, str], words: str
) -> None:
    save(tmp_path, **parts)
    assert wrap(tmp_path) == 1
    error = capsys.readouterr().err
    assert words in error.splitlines()[-1] and "Traceback" not in error and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"logits": "grown = Exp(scores) more = Exp(grown) logits = Div(grown, more)"}, ["All logits"]),
        ({"logits": "logits = Exp(scores)"}, ["No logit of the probe pictures is below 0"]),
        ({"images": SAME}, ["The logits of all probe pictures", "The maps of all probe pictures"]),
        (
            {"saliency": "mean = ReduceMean<axes = [1]>(maps) none = Mul(maps, nothing) saliency = Add(mean, none)"},
            ["The maps of all texts are the same"],
        ),
        ({"saliency": "saliency = Relu(maps)"}, ["of 30 maps of the probe pictures"]),
    ],
)
def test_outputs_that_look_wrong_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: dict[str, str], words: list[str]
) -> None:
    save(tmp_path, **parts)
    assert wrap(tmp_path) == 0
    said = [line.removeprefix("warning: ") for line in capsys.readouterr().err.splitlines() if "warning: " in line]
    assert len(said) == len(words) and all(word in line for word, line in zip(words, said, strict=True))
    assert bundle_of(tmp_path).manifest.parity["remarks"] == said


def test_a_graph_in_bytes_says_where_it_gives_other_maps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = onnx.load(save(tmp_path))
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2000, np.int8), "bytes"))
    onnx.save(graph, tmp_path / "g.onnx")
    assert wrap(tmp_path) == 0
    manifest = bundle_of(tmp_path).manifest
    assert (
        manifest.precision == "int8" and "warning: The graph is in int8, to which OpenVINO" in capsys.readouterr().err
    )
    assert len(manifest.parity["remarks"]) == 1
