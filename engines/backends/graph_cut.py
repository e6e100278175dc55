"""Where a graph falls apart: the tensors that depend on the pixels alone and that the text-dependent part reads.

They are computed once for an image, whatever it is asked. What depends on neither, such as weights, can be in both
parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

PIXELS: Final = "pixels"
TEXT: Final = "text"
OUTPUTS: Final = ("logits", "saliency")

LARGEST_FEATURES: Final = 16 << 20
"""Bytes of features per image, at most: a batch of 16 then keeps 256 MiB. A graph that mixes the text in at its first
layers would keep whole layers of the image."""

WHOLE: Final = "its graph does not fall apart"
"""Why a graph is not taken apart: no cut was found."""

_ENLARGING: Final = frozenset({"Expand", "Tile"})
"""Operators whose input is smaller than their result."""

_JOINED: Final = frozenset({"DequantizeLinear", "Div", "Mul"})
"""Operators that runtimes compute together with the product behind them, if their other inputs are constants: products
of bytes, and a factor of the product. Left beside it, they give the bits that the whole graph gives."""

_MOVING: Final = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

_PREPARING: Final = _ENLARGING | _JOINED | _MOVING | {
    "Add", "Clip", "Concat", "Constant", "ConstantOfShape", "Gather", "Pad", "Pow", "QuantizeLinear",
    "Range", "Shape", "Size", "Slice", "Sqrt", "Sub",
}  # fmt: skip
"""What a graph does to pixels before its first layer. A part of these alone is not worth keeping its results."""


class CutNode(Protocol):
    """A node: its operator, and the names that it reads, also in its subgraphs, and makes."""

    @property
    def operator(self) -> str: ...
    @property
    def inputs(self) -> Sequence[str]: ...
    @property
    def outputs(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class Cut:
    """features: names of the tensors between the parts. image, text: places of the nodes of each part; nodes that
    depend on neither input can be in both."""

    features: tuple[str, ...]
    image: frozenset[int]
    text: frozenset[int]


def find_cut(nodes: Sequence[CutNode]) -> Cut | None:
    """The cut of a graph of `nodes`, in the order in which they are computed; None if it does not fall apart.

    The features are the last tensors before the text, so that as much as possible is computed once. Two with the same
    content in another form count as one. The sizes of pixels and features are not among them: the part of the text asks
    for them itself, so that it can be given the features of more images than the other part.
    """
    of_pixels, of_text = _reached(nodes, PIXELS), _reached(nodes, TEXT)
    if not of_text.issuperset(OUTPUTS):
        return None
    alone = of_pixels - of_text
    maker = {name: place for place, node in enumerate(nodes) for name in node.outputs}
    features = dict.fromkeys(
        name for node in nodes if not of_text.isdisjoint(node.outputs) for name in node.inputs if name in alone
    )
    before: list[str] = []
    while before != list(features):
        before = list(features)
        sources_of = {name: _sources(nodes[maker[name]], alone) for name in before if name in maker}
        moved = [sources[0] for name, sources in sources_of.items()
                 if nodes[maker[name]].operator in _MOVING and len(sources) == 1]  # fmt: skip
        for name, sources in sources_of.items():
            operator = nodes[maker[name]].operator
            twice = len(sources) == 1 and (sources[0] in features or moved.count(sources[0]) > 1)
            earlier = (
                operator in _ENLARGING or (operator in _JOINED and len(sources) == 1) or (operator in _MOVING and twice)
            )
            if earlier and PIXELS not in sources:
                del features[name]
                features.update(dict.fromkeys(sources))
        for name in _sizes(nodes, alone, {PIXELS, *features}) & features.keys():
            del features[name]
    image, text = (_needed(nodes, maker, wanted, stop) for wanted, stop in ((features, ()), (OUTPUTS, features)))
    layers = any(nodes[place].operator not in _PREPARING and not alone.isdisjoint(nodes[place].outputs)
                 for place in image)  # fmt: skip
    return Cut(tuple(features), image, text) if layers and PIXELS not in features else None


def too_large(size: int) -> str:
    """Why features of `size` bytes per image are not kept, in words; empty if they are."""
    if size <= LARGEST_FEATURES:
        return ""
    return f"an image has {size / 2**20:.0f} MiB of features, {LARGEST_FEATURES >> 20} are allowed"


def _sizes(nodes: Sequence[CutNode], alone: set[str], given: set[str]) -> set[str]:
    """The names that follow from the shapes of the `given` tensors, of those in `alone`, and from constants."""
    sizes = set[str]()
    for node in nodes:
        sources = _sources(node, alone)
        asks = node.operator in ("Shape", "Size") and given.issuperset(sources)
        if asks or sizes.issuperset(sources):
            sizes.update(node.outputs)
    return sizes


def _sources(node: CutNode, alone: set[str]) -> list[str]:
    return [name for name in node.inputs if name in alone]


def _reached(nodes: Iterable[CutNode], start: str) -> set[str]:
    """The names that depend on `start`, with itself."""
    reached = {start}
    for node in nodes:
        if not reached.isdisjoint(node.inputs):
            reached.update(name for name in node.outputs if name)
    return reached


def _needed(
    nodes: Sequence[CutNode], maker: dict[str, int], wanted: Iterable[str], stop: Iterable[str]
) -> frozenset[int]:
    """The places of the nodes that `wanted` is computed with, where the values of `stop` are given."""
    given, open_names, places = set(stop), list(wanted), set[int]()
    while open_names:
        name = open_names.pop()
        if name in maker and name not in given and maker[name] not in places:
            places.add(maker[name])
            open_names.extend(nodes[maker[name]].inputs)
    return frozenset(places)
