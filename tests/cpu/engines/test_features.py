"""`encode` and `ask` of the engines on a small graph whose results are known; all models: test_torch_engine.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import synthetic
from xbench_fast.engines.backends import graph_cut, ort_parts
from xbench_fast.engines.backends.graph_parts import GraphParts
from xbench_fast.engines.backends.ort_session import CPU_PROVIDER, open_session
from xbench_fast.engines.base import EngineOptions, Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.select import open_engine

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 1, synthetic.SIZE, synthetic.SIZE), np.uint8)
TEXTS = [np.array(rows, np.float32) for rows in ([[1, 0], [-1, 3]], [[2, 1]], [[0, 1], [1, 1], [3, -2]])]
TEXTS.append(TEXTS[2][::-1])  # not contiguous


def bundle(folder: Path, change: Any = None, largest_batch: int | None = None) -> Bundle:
    graph = synthetic.save_graph(folder / "graph.onnx")
    if change is not None:
        model = onnx.load(graph)
        change(model.graph)
        onnx.save(model, graph)
    return synthetic.make_bundle(folder / "blocks", graph=graph, largest_batch=largest_batch)


def check(engine: Any, features: Any, texts: Sequence[Any] = TEXTS) -> None:
    for text in texts:
        for have, want in zip(vars(engine.ask(features, text)).values(), synthetic.model(PIXELS, text), strict=True):
            np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("name", ["onnxruntime-cpu", "torch"])
@pytest.mark.parametrize("options", [{}, {"pad": True, "max_batch": 4}, {"throughput": True}])
def test_several_texts_of_images_computed_once(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    """Batches are cut by the bundle and by the engine; an unused image changes nothing."""
    if name == "torch":
        pytest.importorskip("torch")
    lines = list[str]()
    made = bundle(tmp_path, largest_batch=3)
    with open_engine(made, name, threads=2, options=EngineOptions(say=lines.append, **options)) as engine:
        features = engine.encode(PIXELS)
        assert features.parts is not None and len(features.parts) == 2
        check(engine, features)
        np.testing.assert_array_equal(engine.run(PIXELS, TEXTS[0]).logits, synthetic.model(PIXELS, TEXTS[0])[0])
        check(engine, features)
        with pytest.raises(EngineError, match="takes text as float32"):
            engine.ask(features, np.ones((1, 3), np.float32))
        with pytest.raises(EngineError, match="takes pixels as uint8"):
            engine.encode(PIXELS.astype(np.float32))  # type: ignore[arg-type]
        with pytest.raises(EngineError, match="a logit that is not finite \\(image 0 of the batch, query 1\\)"):
            engine.ask(features, np.array([[1, 0], [np.inf, 0]], np.float32))
    assert not [line for line in lines if "again" in line]


def mixed_in_at_once(graph: Any) -> None:
    """The text is a factor of the pixels, before the first layer."""
    model = onnx.ModelProto(graph=graph)
    nodes = list(model.graph.node)
    nodes[1].input[0] = "tinted"
    tint = [
        onnx.helper.make_node("ReduceSum", ["gain4", "second"], ["one"]),
        onnx.helper.make_node("Mul", ["grey", "one"], ["tinted"]),
    ]
    del graph.node[:]
    graph.node.extend([nodes[0], *nodes[2:6], *tint, nodes[1], *nodes[6:]])


@pytest.mark.parametrize("name", ["onnxruntime-cpu", "torch"])
@pytest.mark.parametrize("why", ["mixed", "large"])
def test_other_graphs_are_run_whole_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    if name == "torch":
        pytest.importorskip("torch")
    lines = list[str]()
    if why == "large":
        monkeypatch.setattr(graph_cut, "LARGEST_FEATURES", 4 * synthetic.GRID**2 - 1)
    made = bundle(tmp_path, mixed_in_at_once if why == "mixed" else None)
    with open_engine(made, name, threads=1, options=EngineOptions(say=lines.append)) as engine:
        for _ in range(2):
            features = engine.encode(PIXELS)
            assert features.parts is None
            want, have = engine.run(PIXELS, TEXTS[0]), engine.ask(features, TEXTS[0])
            np.testing.assert_array_equal(have.saliency, want.saliency)
        if why == "large":
            check(engine, features)
    reason = "its graph does not fall apart" if why == "mixed" else "an image has 0 MiB of features, 0 are allowed"
    assert [line for line in lines if "again" in line] == [
        f"blocks: each prompt set computes the images again, because {reason}"
    ]


def test_an_engine_of_the_user_runs_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = synthetic.make_bundle(tmp_path / "blocks")
    with synthetic.BlockEngine(made) as engine:
        check(engine, engine.encode(PIXELS))
        assert engine.calls == [5] * len(TEXTS)
        assert engine.encode(PIXELS[..., ::-1]).pixels.flags.c_contiguous
        monkeypatch.setattr(engine, "_encode", None)  # why is known, and not asked again
        check(engine, engine.encode(PIXELS))


@pytest.mark.parametrize("same", [True, False])
def test_all_images_are_asked_at_once_where_the_bits_are_those_of_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """Seen once for each number of images and texts."""
    asked, ask = list[int](), ort_parts.OrtParts.ask

    def watched(self: Any, features: Any, text: Any) -> Any:
        images = len(features.pixels)
        asked.append(images)
        scores = ask(self, features, text)
        return scores if same or images == 2 else Scores(scores.logits, np.nextafter(scores.saliency, np.float32(9e9)))

    monkeypatch.setattr(ort_parts.OrtParts, "ask", watched)
    with open_engine(bundle(tmp_path), "onnxruntime-cpu", threads=1) as engine:
        features = engine.encode(PIXELS)
        check(engine, features, TEXTS[:1])
        assert asked == [6, 2, 2, 2], "five images, the last one twice"
        check(engine, features, TEXTS[:1])
        assert asked[4:] == ([6] if same else [2, 2, 2])
        check(engine, features, TEXTS[1:2])
        assert asked[-4:] == [6, 2, 2, 2]


@pytest.mark.parametrize(
    ("feature", "made", "joins"),
    [
        ([2, 4], [2, 4], False),
        (["batch", "patches"], [2, 4], False),
        (["patches", 4], [7, 4], False),
        (["batch", 4], [2, 4], True),
        ([3, "batch"], [3, 2], True),
    ],
)
def test_features_that_are_not_one_for_each_image_are_not_joined(feature: Any, made: Any, joins: bool) -> None:
    """feature: as the graph names its axes; made: as they are for two images."""
    parts = object.__new__(ort_parts.OrtParts)
    parts._axes = ort_parts._image_axes(SimpleNamespace(get_outputs=lambda: [SimpleNamespace(shape=feature)]))
    parts._value = lambda array: array
    array = np.arange(np.prod(made), dtype=np.float32).reshape(made)
    value = SimpleNamespace(shape=lambda: made, numpy=lambda: array)
    several = [ort_parts.PartFeatures(PIXELS[:2], [value])] * 2
    joined = parts.joined(several)
    assert (joined is not None) is joins
    if joined is not None:
        axis = feature.index("batch")
        assert len(joined.pixels) == 4 and np.array_equal(joined.values[0], np.concatenate([array, array], axis))


@pytest.mark.parametrize("name", ["onnxruntime-cpu", "torch"])
def test_the_part_of_the_text_can_ask_for_the_shape_of_the_pixels(tmp_path: Path, name: str) -> None:
    if name == "torch":
        pytest.importorskip("torch")
    make = onnx.helper.make_node

    def change(graph: Any) -> None:
        nodes = list(graph.node)
        nodes[4].output[0] = "plain"
        one = [
            make("Shape", ["pixels"], ["count"], end=1),
            make("Cast", ["count"], ["images"], to=onnx.TensorProto.FLOAT),
            make("Div", ["images", "images"], ["one"]),
            make("Mul", ["plain", "one"], ["gain4"]),
        ]
        del graph.node[:]
        graph.node.extend([*nodes[:6], *one, *nodes[6:]])

    made = bundle(tmp_path, change)
    parts = GraphParts.of(tmp_path / "graph.onnx")
    assert parts is not None and parts.cut.features == ("blocks",), "and not the number of images"
    with open_engine(made, name, threads=1) as engine:
        check(engine, engine.encode(PIXELS))


def test_lengths_of_axes_of_features_are_written_as_they_are(tmp_path: Path) -> None:
    parts = GraphParts.of(synthetic.save_graph(tmp_path / "graph.onnx"))
    assert parts is not None
    shape = ["images", None, 0, 1, 127, 128, 129, 300, 16384, 2**31]
    feature = SimpleNamespace(name="blocks", type="tensor(float16)", shape=shape)
    given = onnx.load_from_string(parts.text([feature])).graph.input[-1]
    axes = given.type.tensor_type.shape.dim
    assert [axis.dim_param or (axis.dim_value if axis.HasField("dim_value") else None) for axis in axes] == shape
    assert given.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16


def test_a_feature_that_is_no_tensor_is_not_kept(tmp_path: Path) -> None:
    session = SimpleNamespace(get_outputs=lambda: [SimpleNamespace(name="b", type="seq(tensor(float))", shape=[])])
    why = ort_parts.OrtParts.of(synthetic.save_graph(tmp_path / "graph.onnx"), lambda part: session)
    assert isinstance(why, str) and why.startswith("the parts of its graph cannot be opened")


def test_the_size_of_features_is_that_of_their_types() -> None:
    values = [
        SimpleNamespace(shape=lambda: [2, 3, 5], data_type=lambda kind=kind: f"tensor({kind})")
        for kind in ("float16", "bfloat16", "float", "int32", "int64", "double")
    ]
    assert ort_parts.PartFeatures(PIXELS[:2], values).size == 15 * (2 + 2 + 4 + 4 + 8 + 8)


def test_the_whole_graph_is_closed_for_its_parts(tmp_path: Path) -> None:
    """Its weights would be in memory twice."""
    with open_engine(bundle(tmp_path), "onnxruntime-cpu", threads=1) as engine:
        engine.encode(PIXELS)
        assert engine._session is None  # type: ignore[attr-defined]


def test_parts_read_weights_outside_the_file_and_subgraphs(tmp_path: Path) -> None:
    """A branch of the text's part reads a feature that no node outside it reads."""
    make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info

    def change(graph: Any) -> None:
        names = [node.output[0] for node in graph.node]
        branches = [
            onnx.helper.make_graph([make(operator, ["blocks", "gain4"], [operator])], operator, [],
                                   [value(operator, onnx.TensorProto.FLOAT, None)])
            for operator in ("Mul", "Add")
        ]  # fmt: skip
        node = make("If", ["always"], ["seen"], then_branch=branches[0], else_branch=branches[1])
        graph.node[names.index("seen")].CopyFrom(node)
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "always"))

    model = onnx.load(synthetic.save_graph(tmp_path / "graph.onnx"))
    change(model.graph)
    model.graph.value_info.extend(value(name, onnx.TensorProto.FLOAT, None) for name in ("grey", "total"))
    onnx.save(model, tmp_path / "graph.onnx", save_as_external_data=True, location="weights.bin", size_threshold=200)
    assert (tmp_path / "weights.bin").stat().st_size, "the layer's kernel"
    before = sorted(tmp_path.iterdir())
    parts = GraphParts.of(tmp_path / "graph.onnx")
    assert parts is not None and parts.cut.features == ("blocks",)
    feature = SimpleNamespace(name="blocks", type="tensor(float)", shape=["batch", 1, 4, 4])
    image, text = (onnx.load_from_string(part).graph for part in (parts.image(), parts.text([feature])))
    assert [item.name for item in image.initializer] == ["kernel"], "weights are in the part that reads them"
    assert "kernel" not in {item.name for item in text.initializer}
    assert [[item.name for item in graph.value_info] for graph in (image, text)] == [["grey"], ["total"]]
    entries = {ort_parts.EXTERNAL_DATA: str(tmp_path)}
    divided = ort_parts.OrtParts(parts, lambda part: open_session(part, [CPU_PROVIDER], 1, entries=entries))
    scores = divided.ask(divided.encode(PIXELS), TEXTS[0])
    np.testing.assert_array_equal(scores.saliency, synthetic.model(PIXELS, TEXTS[0])[1])
    assert sorted(tmp_path.iterdir()) == before, "nothing is written beside it"


def test_a_branch_can_give_a_feature_as_it_is(tmp_path: Path) -> None:
    """Then no node inside it reads the feature."""
    value = onnx.helper.make_tensor_value_info("blocks", onnx.TensorProto.FLOAT, None)
    branch = onnx.helper.make_graph([], "branch", [], [value])
    model = onnx.load(synthetic.save_graph(tmp_path / "graph.onnx"))
    node = next(node for node in model.graph.node if node.output[0] == "seen")
    node.CopyFrom(onnx.helper.make_node("If", ["gain4"], ["seen"], then_branch=branch, else_branch=branch))
    parts = GraphParts.of(model.SerializeToString())
    assert parts is not None and parts.cut.features == ("blocks",)


def test_an_engine_with_half_of_two_methods_says_so(tmp_path: Path) -> None:
    """Not a traceback: an engine can be of a third party."""

    class Half(synthetic.BlockEngine):
        def _encode(self, pixels: Any) -> Any:
            return pixels

    with Half(bundle(tmp_path)) as engine:
        features = engine.encode(PIXELS)
        with pytest.raises(EngineError, match="Half has _encode and lacks _ask; add it to this engine"):
            engine.ask(features, TEXTS[0])
        with pytest.raises(EngineError, match="Half has split and lacks join"):
            engine.join(PIXELS, [])
