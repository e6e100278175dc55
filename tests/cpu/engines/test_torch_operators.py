"""Each operator of the engine torch against ONNX Runtime, with several attributes, types and shapes.

About ten seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

OF = "xbench_fast.engines.backends.torch_graph."
arithmetic, elementwise, indexing, normalising, pooling, reducing = (
    pytest.importorskip(OF + name)
    for name in ("arithmetic", "elementwise", "indexing", "normalising", "pooling", "reducing")
)
table, compiler, shaping = (pytest.importorskip(OF + name) for name in ("operator_table", "compiler", "shaping"))
SHAPES, traced = compiler.SHAPES, compiler.traced
fused = pytest.importorskip(OF + "fusion").fused
read_graph = pytest.importorskip(OF + "graph").read_graph
PlainKernels = pytest.importorskip(OF + "kernels").PlainKernels
Operator = pytest.importorskip(OF + "operators").Operator
UnsupportedNodeError = pytest.importorskip(OF + "refusal").UnsupportedNodeError

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 5, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 1, 4)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.5)
WIDE = (X * 20).astype(np.float32)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49, -7.0], np.float32)
ODD = np.array([1, -np.inf, np.nan, np.inf, 0, -0.0], np.float32)
N = RNG.integers(-9, 10, (2, 3, 4))
D = RNG.integers(1, 5, (3, 4))
B, C = RNG.random((2, 3, 4)) > 0.5, RNG.random((3, 4)) > 0.5
IMAGE = RNG.standard_normal((2, 4, 9, 8)).astype(np.float32)
LINE = RNG.standard_normal((2, 4, 11)).astype(np.float32)
SQUARE = RNG.standard_normal((4, 5)).astype(np.float32)
BYTES = RNG.integers(0, 256, (2, 3, 4), dtype=np.uint8)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def half(values: Any) -> Any:
    return values.astype(np.float16)


WEIGHT, GROUPED, BIAS = floats(6, 4, 3, 3), floats(8, 2, 3, 2), floats(6)
SCALE = np.abs(floats(4)) + np.float32(0.1)

Case = tuple[str, Sequence[Any], dict[str, Any]]
UNARY = ["Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity"]
UNARY += ["LeakyRelu", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign"]
UNARY += ["Tanh", "Dropout", "GlobalAveragePool", "GlobalMaxPool", "Softmax", "LogSoftmax", "Flatten", "Transpose"]
COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]
ARITHMETIC = ["Add", "Sub", "Mul", "Div", "Max", "Min"]
REDUCTIONS = ["L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]

CASES: list[Case] = [
    *[(name, [X], {}) for name in UNARY],
    *[(name, [half(X)], {}) for name in ("Relu", "Sigmoid", "Tanh", "Softmax", "Gelu", "Erf", "Abs", "Neg", "Sqrt")],
    *[(name, [POSITIVE], {}) for name in ("Log", "Sqrt")],
    *[(name, [N], {}) for name in ("Abs", "Neg", "Sign", "Identity")],
    ("Sigmoid", [WIDE], {}),
    ("Softplus", [WIDE], {}),
    ("Round", [HALVES], {}),
    ("Gelu", [X], {"approximate": "tanh"}),
    ("LeakyRelu", [X], {"alpha": 0.3}),
    ("Elu", [X], {"alpha": 0.7}),
    ("HardSigmoid", [WIDE], {"alpha": 0.1, "beta": 0.4}),
    ("PRelu", [X, floats(3, 1, 1)], {}),
    ("IsNaN", [ODD], {}),
    *[("IsInf", [ODD], {"detect_negative": n, "detect_positive": p}) for n, p in ((1, 1), (0, 1), (1, 0), (0, 0))],
    ("Clip", [X, np.float32(-0.5), np.float32(0.4)], {}),
    ("Clip", [X, None, np.float32(0.4)], {}),
    ("Clip", [X, np.float32(0.1)], {}),
    ("Clip", [X, np.float32(2), np.float32(1)], {}),
    ("Clip", [N, np.int64(-2), np.int64(3)], {}),
    *[("Cast", [values], {"to": to}) for values in (BYTES, N, B, half(X)) for to in (1, 10, 7, 6, 9, 11)],
    ("Cast", [WIDE], {"to": 6}),
    ("CastLike", [N, X], {}),
    *[(name, [X, Y], {}) for name in (*ARITHMETIC, *COMPARISONS)],
    *[(name, [half(X), half(Y)], {}) for name in ARITHMETIC],
    *[(name, [N, D], {}) for name in (*ARITHMETIC, *COMPARISONS)],
    *[(name, [B, C], {}) for name in ("And", "Or", "Xor")],
    ("Not", [B], {}),
    ("Pow", [POSITIVE, Y], {}),
    ("Pow", [X, np.float32(2)], {}),
    ("Pow", [X, np.int64(3)], {}),
    ("Mod", [N, D], {}),
    ("Mod", [N, -D], {}),
    ("Mod", [N, D], {"fmod": 1}),
    ("Mod", [X, POSITIVE], {"fmod": 1}),
    *[(name, [X, Y, X[:1]], {}) for name in ("Max", "Min", "Sum", "Mean")],
    ("Where", [B, floats(2, 3, 4), floats(3, 1)], {}),
    ("Where", [C, N, D], {}),
    ("Concat", [X, X[:, :1]], {"axis": 1}),
    ("Concat", [N, N, N], {"axis": -1}),
    ("Expand", [Y, ints(2, 3, 5, 1)], {}),
    ("Expand", [X, ints(1)], {}),
    ("Expand", [D, ints(2, 1, 4)], {}),
    ("Flatten", [X], {"axis": 0}),
    ("Flatten", [X], {"axis": -1}),
    ("Flatten", [X], {"axis": 4}),
    ("Reshape", [X, ints(0, -1, 2)], {}),
    ("Reshape", [X, ints(6, 20)], {"allowzero": 1}),
    ("Reshape", [X[:0], ints(0, 5)], {"allowzero": 1}),
    ("Transpose", [X], {"perm": [0, 2, 3, 1]}),
    ("Squeeze", [X[:1, :, :1]], {}),
    ("Squeeze", [X[:1, :, :1], ints(-2)], {}),
    ("Unsqueeze", [X, ints(-1, 0)], {}),
    ("Unsqueeze", [X, ints(2, 4)], {}),
    ("Tile", [Y, ints(2, 1, 3)], {}),
    ("Slice", [X, ints(1, 0), ints(3, -1), ints(-1, 1)], {}),
    ("Slice", [X, ints(0, 1), ints(9, 2**62), ints(1, 2), ints(2, 2)], {}),
    ("Slice", [X, ints(-1), ints(-99), ints(2), ints(-2)], {}),
    ("Slice", [X, ints(3), ints(0), ints(2), ints(-1)], {}),
    ("Slice", [X, ints(0, 0), ints(1, 2)], {}),
    ("Split", [X, ints(2, 1, 2)], {"axis": 2}),
    ("Split", [X], {"axis": 2, "num_outputs": 2}),
    ("Pad", [X, ints(0, 1, 0, 2, 1, 0, 0, 3)], {}),
    ("Pad", [X, ints(1, 2), np.float32(7), ints(-1)], {}),
    ("Pad", [X, ints(0, 0, -1, 0, 0, 0, 0, -2)], {}),
    ("Pad", [N, ints(1, 1), np.int64(4), ints(1)], {}),
    *[("Pad", [X, ints(0, 2, 1, 0, 1, 2, 3, 3)], {"mode": mode}) for mode in ("edge", "wrap")],
    ("Pad", [X, ints(0, 2, 1, 0, 1, 2, 3, 3)], {"mode": "reflect"}),
    ("ConstantOfShape", [ints(2, 3)], {}),
    ("ConstantOfShape", [ints(4)], {"value": onnx.numpy_helper.from_array(ints(5))}),
    ("Range", [np.int64(2), np.int64(11), np.int64(3)], {}),
    ("Range", [np.float32(1), np.float32(-1), np.float32(-0.5)], {}),
    ("Gather", [X, np.int64(-1)], {"axis": 1}),
    ("Gather", [X, np.array([[0, -1], [2, 1]])], {"axis": 1}),
    ("Gather", [SQUARE, ints(3, 0)], {}),
    ("GatherElements", [SQUARE, RNG.integers(-5, 5, (4, 2))], {"axis": 1}),
    ("ArgMax", [X], {"axis": 1}),
    ("ArgMax", [X], {"axis": -1, "keepdims": 0}),
    ("CumSum", [X, np.int64(2)], {}),
    ("CumSum", [X, np.int64(-1)], {"reverse": 1}),
    ("Trilu", [SQUARE], {}),
    ("Trilu", [SQUARE, np.int64(-1)], {"upper": 0}),
    ("Trilu", [SQUARE, np.int64(2)], {"upper": 1}),
    *[(f"Reduce{name}", [POSITIVE, ints(1, -1)], {"keepdims": keep}) for name in REDUCTIONS for keep in (0, 1)],
    *[(f"Reduce{name}", [X], {}) for name in REDUCTIONS],
    ("ReduceSum", [X], {"noop_with_empty_axes": 1}),
    ("ReduceSum", [N, ints(0)], {}),
    *[(name, [X], {"axis": axis}) for name in ("Softmax", "LogSoftmax") for axis in (0, 1, -2)],
    ("MatMul", [X, floats(4, 6)], {}),
    ("MatMul", [floats(2, 1, 3, 4), floats(5, 4, 2)], {}),
    ("MatMul", [floats(4), SQUARE], {}),
    ("MatMul", [half(X), half(floats(4, 6))], {}),
    ("Gemm", [SQUARE, floats(5, 3)], {}),
    ("Gemm", [SQUARE, floats(3, 5), floats(3)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [SQUARE, floats(4, 3), floats(5, 1)], {"transA": 1}),
    ("Gemm", [SQUARE, floats(5, 3), floats(3)], {"beta": 0.0, "alpha": 3.0}),
    ("Einsum", [floats(2, 3, 4), floats(2, 5, 4)], {"equation": "bqd,bkd->bqk"}),
    ("Conv", [IMAGE, WEIGHT], {}),
    ("Conv", [IMAGE, WEIGHT, BIAS], {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    ("Conv", [IMAGE, WEIGHT, BIAS], {"pads": [0, 1, 2, 0], "dilations": [2, 1]}),
    ("Conv", [IMAGE, GROUPED], {"group": 2, "kernel_shape": [3, 2]}),
    *[
        ("Conv", [IMAGE, WEIGHT], {"auto_pad": how, "strides": [2, 3]})
        for how in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    ],
    ("Conv", [half(IMAGE), half(WEIGHT), half(BIAS)], {"pads": [1, 1, 1, 1]}),
    ("Conv", [LINE, floats(2, 4, 3), floats(2)], {"pads": [2, 1], "strides": [2]}),
    ("Conv", [floats(1, 2, 5, 4, 6), floats(3, 2, 2, 3, 3)], {"pads": [0, 1, 1, 0, 1, 1]}),
    ("ConvTranspose", [IMAGE, floats(4, 3, 3, 2), floats(3)], {"strides": [2, 2], "pads": [1, 0, 1, 0]}),
    ("ConvTranspose", [LINE, floats(4, 1, 3)], {"group": 2, "strides": [3], "output_padding": [1], "dilations": [2]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1, "strides": [2, 2]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "pads": [0, 1, 1, 0], "dilations": [2, 1]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"}),
    ("MaxPool", [LINE], {"kernel_shape": [4], "strides": [3]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2]}),
    *[
        ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": pads, "count_include_pad": count})
        for pads in ([1, 1, 1, 1], [0, 2, 1, 0])
        for count in (0, 1)
    ],
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", [LINE], {"kernel_shape": [4], "auto_pad": "SAME_UPPER", "strides": [2]}),
    ("Resize", [IMAGE, None, np.array([1, 1, 2, 2], np.float32)],
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    *[("Resize", [IMAGE, None, None, ints(2, 4, 13, 5)], {"mode": mode, "coordinate_transformation_mode": way})
      for mode in ("linear", "cubic") for way in ("half_pixel", "align_corners")],
    ("BatchNormalization", [IMAGE, SCALE, floats(4), floats(4), SCALE], {"epsilon": 1e-3}),
    ("InstanceNormalization", [IMAGE, SCALE, floats(4)], {"epsilon": 1e-2}),
    ("GroupNormalization", [IMAGE, SCALE, floats(4)], {"num_groups": 2}),
    ("LayerNormalization", [X, floats(4)], {}),
    ("LayerNormalization", [X, floats(5, 4), floats(5, 4)], {"axis": 2, "epsilon": 1e-2}),
    ("LayerNormalization", [X, floats(4), floats(4)], {"axis": -2}),
    ("LayerNormalization", [half(X), half(floats(4)), half(floats(4))], {}),
]  # fmt: skip


def opset_of(name: str) -> int:
    return max(20, table.OPERATORS[name].since) if name in table.OPERATORS else 20


def saved(folder: Path, nodes: list[Any], inputs: dict[str, Any], constants: dict[str, Any], opset: int = 20) -> Path:
    """A graph of these nodes; its outputs are those of the last one, and their types are not stated."""
    given = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    stored = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    results = [onnx.ValueInfoProto(name=name) for name in nodes[-1].output]
    graph = onnx.helper.make_graph(nodes, "one", given, results, stored)
    path = folder / "graph.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10), path)
    return path


def by_torch(path: Path, inputs: dict[str, Any], channels_last: bool = True) -> list[Any]:
    kernels = PlainKernels(channels_last)
    values = {name: torch.tensor(value) for name, value in inputs.items()}
    trace = traced(read_graph(path), {name: value.to("meta") for name, value in values.items()}, kernels)
    values |= trace.known
    for call in fused(trace):
        made = call(*(values[name] for name in call.inputs))
        values.update(zip(call.outputs, (made,) if isinstance(made, torch.Tensor) else made, strict=False))
        for name in call.outputs:
            shape = trace.shapes[name]
            assert (values[name].shape, values[name].dtype) == (shape.shape, shape.dtype), "as it was traced"
    return [values[name].numpy() for name in trace.outputs]


def by_onnxruntime(path: Path, inputs: dict[str, Any]) -> list[Any]:
    return list(ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs))


def compared(path: Path, inputs: dict[str, Any]) -> None:
    wanted, have = by_onnxruntime(path, inputs), by_torch(path, inputs)
    assert len(wanted) == len(have)
    for want, got in zip(wanted, have, strict=True):
        assert (want.shape, want.dtype) == (got.shape, got.dtype)
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
            continue
        finite = np.abs(want[np.isfinite(want)].astype(np.float64))
        bound = (4e-3 if want.dtype == np.float16 else 2e-6) * max(1.0, float(finite.max(initial=0)))
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=bound)


def made(folder: Path, case: Case, *, stored: Sequence[int] | None = None) -> tuple[Path, dict[str, Any]]:
    """The graph of a case; `stored`: the inputs that are constants, by default all that must be."""
    name, values, attributes = case
    operator = table.OPERATORS[name]
    fixed = {*operator.host, *(stored or ())}
    if name == "Range":
        fixed |= {0, 1, 2}
    given = {f"in{at}": np.asarray(v) for at, v in enumerate(values) if v is not None and at not in fixed}
    constants = {f"in{at}": value for at, value in enumerate(values) if value is not None and at in fixed}
    names = ["" if value is None else f"in{at}" for at, value in enumerate(values)]
    parts = len(values[1]) if name == "Split" and len(values) > 1 else attributes.get("num_outputs", 1)
    node = onnx.helper.make_node(name, names, [f"out{at}" for at in range(parts)], name="it", **attributes)
    return saved(folder, [node], given, constants, opset_of(name)), given


def title(case: Case) -> str:
    name, values, attributes = case
    return f"{name}-{np.asarray(values[0]).dtype}-{'-'.join(f'{k}={v}' for k, v in attributes.items())[:60]}"


@pytest.mark.parametrize("case", CASES, ids=title)
def test_an_operator_gives_the_result_of_onnxruntime(tmp_path: Path, case: Case) -> None:
    compared(*made(tmp_path, case))


@pytest.mark.parametrize("case", [case for case in CASES if len(case[1]) > 1], ids=title)
def test_inputs_may_be_constants(tmp_path: Path, case: Case) -> None:
    """All but the first."""
    compared(*made(tmp_path, case, stored=range(1, len(case[1]))))


def test_every_operator_has_a_case(root: Path) -> None:
    assert {name for name, _, _ in CASES} == set(table.OPERATORS)
    count = len(table.OPERATORS) + len(("Constant", *SHAPES))
    assert f"It has {count} operators of ONNX, opsets 13 to 25." in (root / "docs/recipes/gpu.md").read_text()


def test_attributes_are_those_of_onnx_in_every_opset() -> None:
    """What ONNX adds later is refused, because no function takes it; what a function takes is ONNX's."""
    for name, operator in table.OPERATORS.items():
        known: set[str] = set()
        for opset in range(max(13, operator.since), 26):
            known |= set(onnx.defs.get_schema(name, max_inclusive_version=opset).attributes)
        taken = operator.attributes - {"kernels", "relu"}
        extra = {"axes"} if name.startswith("Reduce") else {"num_outputs"} if name == "Split" else set[str]()
        assert taken <= known | extra, name


@pytest.mark.parametrize("attributes", [{}, {"start": 1}, {"end": -1}, {"start": -3, "end": 2}])
def test_shapes_are_numbers_before_the_graph_runs(tmp_path: Path, attributes: dict[str, int]) -> None:
    node = onnx.helper.make_node("Shape", ["x"], ["shape"], **attributes)
    compared(saved(tmp_path, [node], {"x": X}, {}), {"x": X})
    compared(saved(tmp_path, [onnx.helper.make_node("Size", ["x"], ["size"])], {"x": X}, {}), {"x": X})
    assert SHAPES == ("Shape", "Size")
    make = onnx.helper.make_node
    nodes = [
        make("Shape", ["x"], ["shape"], end=2),
        make("Concat", ["shape", "rest"], ["target"], axis=0),
        make("Reshape", ["x", "target"], ["y"]),
    ]
    path = saved(tmp_path, nodes, {"x": X}, {"rest": ints(-1)})
    compared(path, {"x": X})
    trace = traced(read_graph(path), {"x": torch.tensor(X).to("meta")}, PlainKernels())
    assert [call.node.operator for call in trace.calls] == ["Reshape"]


def test_axes_are_attributes_before_opset_18(tmp_path: Path) -> None:
    node = onnx.helper.make_node("ReduceMean", ["x"], ["y"], axes=[1, -1], keepdims=0)
    compared(saved(tmp_path, [node], {"x": X}, {}, 17), {"x": X})
    node = onnx.helper.make_node("Split", ["x"], ["a", "b"], axis=3)
    compared(saved(tmp_path, [node], {"x": X}, {}, 13), {"x": X})


MAKE = onnx.helper.make_node
CONV = MAKE("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1])
OTHER = MAKE("Conv", ["x", "v"], ["d"], pads=[0, 0, 0, 0])
RELU = MAKE("Relu", ["s"], ["y"])
CHAINS = {
    "relu": ([CONV, MAKE("Relu", ["c"], ["y"])], 1),
    "sum": ([CONV, OTHER, MAKE("Add", ["d", "c"], ["s"]), RELU], 2),
    "sum without relu": ([CONV, OTHER, MAKE("Add", ["c", "d"], ["y"])], 2),
    "of the image": ([CONV, MAKE("Relu", ["x"], ["r"]), MAKE("Add", ["r", "c"], ["s"]), RELU], 2),
    "broadcast": ([CONV, MAKE("Add", ["c", "row"], ["s"]), RELU], 3),
    "constant": ([CONV, MAKE("Add", ["c", "full"], ["s"]), RELU], 3),
    "itself": ([CONV, MAKE("Add", ["c", "c"], ["s"]), RELU], 3),
    "twice": ([CONV, OTHER, MAKE("Add", ["c", "d"], ["t"]), MAKE("Add", ["t", "x"], ["s"]), RELU], 4),
    "read elsewhere": ([CONV, MAKE("Relu", ["c"], ["r"]), MAKE("Sub", ["c", "r"], ["y"])], 3),
    "sum read elsewhere": ([CONV, OTHER, MAKE("Add", ["c", "d"], ["s"]), MAKE("Relu", ["s"], ["r"]),
                            MAKE("Sub", ["s", "r"], ["y"])], 4),
}  # fmt: skip


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_a_convolution_is_joined_with_its_sum_and_relu(tmp_path: Path, name: str, channels_last: bool) -> None:
    nodes, calls = CHAINS[name]
    constants = {"w": floats(4, 4, 3, 3), "b": floats(4), "v": floats(4, 4, 1, 1), "row": floats(1, 4, 1, 1)}
    path = saved(tmp_path, nodes, {"x": IMAGE}, constants | {"full": floats(*IMAGE.shape)})
    (want,), (have,) = by_onnxruntime(path, {"x": IMAGE}), by_torch(path, {"x": IMAGE}, channels_last)
    np.testing.assert_allclose(have, want, atol=2e-5)
    trace = traced(read_graph(path), {"x": torch.tensor(IMAGE).to("meta")}, PlainKernels(channels_last))
    assert len(fused(trace)) == calls


REFUSED: list[tuple[list[Any], str]] = [
    ([MAKE("NonZero", ["x"], ["y"], name="where")], "operator NonZero (node where) is not supported"),
    ([MAKE("MaxPool", ["x"], ["y", "z"], kernel_shape=[2, 2])], "operator MaxPool (node y) has 2 outputs"),
    ([MAKE("Cast", ["x"], ["y"], to=8)], "casts to ONNX's type 8"),
    ([MAKE("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 2])], "windows with gaps"),
    ([MAKE("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1)], "attribute antialias"),
    ([MAKE("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode="asymmetric")], "asymmetric"),
    ([MAKE("Resize", ["x", "", "s"], ["y"], mode="nearest")], "half_pixel and round_prefer_floor"),
    ([MAKE("Fancy", ["x"], ["y"], domain="com.somebody")], "of the domain com.somebody"),
    ([MAKE("CumSum", ["x", "i"], ["y"], exclusive=1)], "attribute exclusive"),
    ([MAKE("ArgMax", ["x"], ["y"], select_last_index=1)], "attribute select_last_index"),
    ([MAKE("Cast", ["x"], ["n"], to=7), MAKE("Reshape", ["x", "n"], ["y"])], "from the images or texts"),
    ([MAKE("Conv", ["x", "w"], ["y"])], "does not run with these shapes and types"),
    ([MAKE("Add", ["x", "nowhere"], ["y"])], "reads nowhere, which nothing computes"),
    ([MAKE("ReduceL2", ["x"], ["y"], noop_with_empty_axes=1)], "reduces no axes"),
    ([MAKE("BatchNormalization", ["x", "r", "r", "r", "r"], ["y"], training_mode=1)], "in training mode"),
    ([MAKE("LayerNormalization", ["x", "l"], ["y", "m"])], "has 2 outputs, supported are 1"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_not_supported_is_one_sentence(tmp_path: Path, nodes: list[Any], words: str) -> None:
    constants = {"s": np.ones(4, np.float32), "i": np.array(1), "w": floats(6, 5, 3, 3), "r": SCALE, "l": floats(8)}
    path = saved(tmp_path, nodes, {"x": IMAGE}, constants)
    with pytest.raises(UnsupportedNodeError) as told:
        by_torch(path, {"x": IMAGE})
    assert words in str(told.value), told.value


@pytest.mark.parametrize("opset", [12, 26])
def test_another_opset_is_refused(tmp_path: Path, opset: int) -> None:
    path = saved(tmp_path, [MAKE("Relu", ["x"], ["y"])], {"x": X}, {}, opset)
    with pytest.raises(UnsupportedNodeError, match=f"opset is {opset}, supported are 13 to 25"):
        read_graph(path)


def test_an_operator_younger_than_the_graph_is_refused(tmp_path: Path) -> None:
    node = MAKE("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=2)
    path = saved(tmp_path, [node], {"x": IMAGE}, {"s": SCALE}, 18)
    with pytest.raises(UnsupportedNodeError, match="is of opset 18, supported from 21 on"):
        by_torch(path, {"x": IMAGE})


MUTANTS = {
    "Div": Operator(torch.div),
    "Round": Operator(lambda x: torch.floor(x + 0.5)),
    "Gelu": Operator(lambda x, *, approximate="none": elementwise.gelu(x)),
    "Gather": Operator(lambda x, index, *, axis=0: indexing.gather(x, abs(index), axis=axis), scalar=(1,)),
    "Mod": Operator(lambda x, y, *, fmod=0: torch.fmod(x, y)),
    "Slice": Operator(
        lambda x, starts, ends, axes=None, steps=None: shaping.slice_axes(x, starts, ends, axes), host=(1, 2, 3, 4)
    ),
    "ReduceMean": Operator(reducing.total, host=(1,)),
    "AveragePool": Operator(
        lambda x, *, count_include_pad=0, **how: pooling.average_pool(x, count_include_pad=1, **how)
    ),
    "LayerNormalization": Operator(lambda x, scale, bias=None, *, axis=-1, epsilon=0: normalising.layer_norm(x, scale)),
    "Max": Operator(lambda *tensors: arithmetic.largest(*tensors[:2])),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_operator_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(table.OPERATORS, name, MUTANTS[name])
    cases = [case for case in CASES if case[0] == name]

    def passes(number: int, case: Case) -> bool:
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            compared(*made(folder, case))
        except (AssertionError, UnsupportedNodeError):
            return False
        return True

    assert not all(passes(number, case) for number, case in enumerate(cases))
