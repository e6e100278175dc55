"""Where graphs fall apart, found by hand for small ones."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from xbench_fast.engines.backends.graph_cut import LARGEST_FEATURES, find_cut, too_large


class Node(NamedTuple):
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def nodes(*lines: str) -> list[Node]:
    """Nodes written as `b c = Operator a`."""
    made = []
    for line in lines:
        left, _, right = line.partition(" = ")
        operator, *inputs = right.split()
        made.append(Node(operator, tuple(inputs), tuple(left.split())))
    return made


HEAD = ("logits = ReduceMean seen", "saliency = Identity seen")
MOVING = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
TOWER = ("grey = Cast pixels", "maps = Conv grey weight")


@pytest.mark.parametrize(
    ("between", "features"),
    [
        (("seen = MatMul maps text",), ["maps"]),
        (("more = Relu maps", "one = ReduceMean maps", "seen = Attention text more one"), ["more", "one"]),
        (("turned = Transpose maps", "seen = Attention text maps turned"), ["maps"]),
        (("turned = Transpose maps", "flat = Reshape maps shape", "seen = Attention text flat turned"), ["maps"]),
        (("turned = Transpose maps", "seen = MatMul turned text"), ["turned"]),
        (("many = Expand maps shape", "seen = MatMul many text"), ["maps"]),
        (("more = Mul maps factor", "seen = MatMul more text"), ["maps"]),
        (("one = ReduceL2 maps", "unit = Div maps one", "seen = MatMul unit text"), ["unit"]),
        (("q = QuantizeLinear maps s", "d = DequantizeLinear q s", "seen = MatMul d text"), ["q"]),
        (("n = Shape pixels", "k = Concat n many", "t = Expand text k", "seen = MatMul maps t"), ["maps"]),
        (("n = Shape maps", "k = Concat n one", "e = Expand maps k", "seen = MatMul e text"), ["maps"]),
        (("n = Shape grey", "k = Concat n one", "e = Expand maps k", "seen = MatMul e text"), ["maps", "k"]),
        (("words = Gemm text w", "seen = MatMul maps words"), ["maps"]),
        (("n = Size maps", "k = Concat n one", "e = Expand maps k", "seen = MatMul e text"), ["maps"]),
        (("turned = Transpose maps", "many = Expand turned one", "seen = Attention text many maps"), ["maps"]),
        (("many = Tile maps shape", "seen = MatMul many text"), ["maps"]),
        (("many = Expand pixels shape", "seen = Attention text maps many"), ["maps", "many"]),
        *(((f"turned = {operator} maps", "seen = Attention text maps turned"), ["maps"]) for operator in MOVING),
        # Another form by a size of the pixels is not only the maps in another form.
        (("size = Shape grey", "flat = Reshape maps size", "seen = Attention text maps flat"), ["maps", "flat"]),
        (
            ("size = Shape grey", "flat = Reshape maps size", "turned = Transpose maps", "seen = A text flat turned"),
            ["flat", "turned"],
        ),
    ],
)
def test_features_are_the_last_tensors_of_the_pixels_alone(between: tuple[str, ...], features: list[str]) -> None:
    graph = nodes(*TOWER, *between, *HEAD)
    cut = find_cut(graph)
    assert cut is not None and sorted(cut.features) == sorted(features)
    names = [line.partition(" = ")[0] for line in (*TOWER, *between, *HEAD)]
    of_text = {"t", "words", "seen", "logits", "saliency"}
    assert {names[place] for place in cut.image} == set(names) - of_text - _behind(graph, features)
    assert {names[place] for place in cut.text} == (set(names) & of_text) | _behind(graph, features)


def _behind(graph: list[Node], features: list[str]) -> set[str]:
    """The results between the features and the text: sizes, and of the last nodes that only change a feature's form."""
    sizes = set() if "k" in features else {"n", "k"}
    late = (sizes | {"turned", "flat", "many", "more", "d", "e"}) & {name for node in graph for name in node.outputs}
    return {name for name in late if name not in features and not (name == "more" and features == ["more", "one"])}


def test_what_depends_on_neither_is_in_both_parts() -> None:
    graph = nodes("w = Transpose stored", "grey = Cast pixels", "maps = Conv grey w", "t = Gemm text w",
                  "seen = MatMul maps t", *HEAD)  # fmt: skip
    cut = find_cut(graph)
    assert cut is not None and 0 in cut.image and 0 in cut.text


def test_outputs_and_inputs_that_are_left_out_are_no_value() -> None:
    graph = nodes(*TOWER, "words = Gemm text w", "seen = MatMul maps words", *HEAD)
    graph[1:1] = [Node("MaxPool", ("grey",), ("small", "")), Node("Clip", ("stored", ""), ("w",))]
    cut = find_cut(graph)
    assert cut is not None and cut.features == ("maps",)


@pytest.mark.parametrize(
    "lines",
    [
        ("grey = Cast pixels", "unit = Div grey s", "seen = Conv unit text", *HEAD),  # the text is in the first layer
        (*TOWER, "seen = Attention pixels maps text", *HEAD),
        (*TOWER, "logits = ReduceMean maps", "saliency = MatMul maps text"),
        ("seen = Gemm text w", *HEAD),
        ("grey = Cast pixels", "w = MatMul a b", "more = Add grey w", "seen = MatMul more text", *HEAD),
    ],
)
def test_graphs_that_do_not_fall_apart(lines: tuple[str, ...]) -> None:
    assert find_cut(nodes(*lines)) is None


def test_features_have_a_bound() -> None:
    assert too_large(LARGEST_FEATURES) == ""
    assert too_large(3 * LARGEST_FEATURES) == "an image has 48 MiB of features, 16 are allowed"
