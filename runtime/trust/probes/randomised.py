"""The learnt layers of an ONNX graph, and a bundle whose weights are randomised (docs/trust-probes.md §2.1, §2.2).

Layers are found by the structure of the graph. Names do not tell them: exporters transpose and rename the weights of
matrix products, and fold norms into biases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.bundle import Bundle, write_bundle
from ....engines.errors import BundleError, MissingExtraError
from ....engines.extras import missing_package

if TYPE_CHECKING:
    import onnx

    from .probe import Rule

_OPENING: Final = frozenset({"Conv", "MatMul", "Gemm", "Split", "Transpose"})
_SIZES: Final = frozenset({"Shape", "Size"})  # their outputs do not depend on the values of their inputs
_SHIFT, _UNIT = np.uint64(11), 2.0**-53


@dataclass(frozen=True)
class GraphLayer:
    """The tensors of a layer, in the order of their use, and which outputs of the graph they reach."""

    tensors: tuple[str, ...]
    feeds_saliency: bool
    feeds_logits: bool


def load_onnx() -> Any:
    """The module onnx. Raises MissingExtraError when it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(missing_package("onnx", "export", user="A change of weights")) from error
    return onnx


def graph_layers(model: onnx.ModelProto, not_learnt: Collection[str] = ()) -> list[GraphLayer]:
    """The layers of a graph, in the order of its nodes.

    Parameters are float initializers of at least 2 elements, all finite. One of rank 2 or more that is first used by a
    convolution, a matrix product, a Split or a Transpose opens a layer; the layer takes every parameter that is first
    used after it, until the next one opens. What is used before the first layer, such as the mean of the pixels, is not
    learnt, nor is what `not_learnt` names. Raises BundleError for such a name that the graph does not have.
    """
    parameters = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer if _is_parameter(tensor)}
    have = {tensor.name for tensor in model.graph.initializer}
    for name in not_learnt:
        if name not in have:
            raise BundleError(f"The graph has no tensor '{name}', which bundle.json names as not learnt; export again.")
        parameters.pop(name, None)
    groups: list[list[str]] = []
    for node in model.graph.node:
        for name in _used(node):
            rank = parameters.pop(name, None)  # it counts where it is used first
            if rank is None:
                continue
            if rank >= 2 and node.op_type in _OPENING:
                groups.append([])
            if groups:
                groups[-1].append(name)
    saliency, logits = (_ancestors(model, output) for output in ("saliency", "logits"))
    return [GraphLayer(tuple(group), not saliency.isdisjoint(group), not logits.isdisjoint(group)) for group in groups]


def _is_parameter(tensor: onnx.TensorProto) -> bool:
    onnx = load_onnx()
    kinds = onnx.TensorProto
    if tensor.data_type not in (kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16, kinds.DOUBLE):
        return False
    values = onnx.numpy_helper.to_array(tensor)
    return values.size >= 2 and bool(np.isfinite(values.astype(np.float32)).all())


def _ancestors(model: onnx.ModelProto, output: str) -> set[str]:
    """The names of all values that an output of the graph depends on."""
    maker = {name: node for node in model.graph.node for name in node.output}
    ancestors, waiting = {output}, [output]
    while waiting:
        node = maker.get(waiting.pop())
        new = set(_used(node)) - ancestors if node is not None and node.op_type not in _SIZES else set()
        ancestors |= new
        waiting += new
    return ancestors


def _used(node: onnx.NodeProto) -> Iterator[str]:
    """What a node uses, also inside its branches and loops."""
    yield from node.input
    for attribute in node.attribute:
        for graph in _graphs(attribute):
            for inner in graph.node:
                yield from _used(inner)


def _graphs(attribute: onnx.AttributeProto) -> Iterable[onnx.GraphProto]:
    yield from attribute.graphs
    if attribute.HasField("g"):
        yield attribute.g


def randomised_values(values: NDArray[Any], seed: int, number: int, rule: Rule) -> NDArray[Any]:
    """The values of the learnt tensor with this number in its graph, randomised.

    permute: the same values in another order, which keeps mean, spread and range. redraw: normal with their mean and
    standard deviation, by Box and Muller. The raw stream of Philox, keyed by seed and number, is the same in every
    version of NumPy.
    """
    stream = np.random.Philox(key=np.array([seed, number], np.uint64))
    flat = values.reshape(-1)
    if rule == "permute":
        return np.asarray(flat[np.argsort(stream.random_raw(flat.size), kind="stable")].reshape(values.shape))
    bits = stream.random_raw(2 * flat.size) >> _SHIFT
    radius = np.sqrt(-2.0 * np.log((bits[: flat.size] + 1.0) * _UNIT))
    normal = radius * np.cos(2.0 * np.pi * (bits[flat.size :] * _UNIT))
    wide = flat.astype(np.float64)
    return np.asarray((wide.mean() + wide.std() * normal).astype(values.dtype).reshape(values.shape))


class RandomisedGraph:
    """The image graph of a bundle, of which some learnt tensors can be randomised.

    Raises BundleError for a bundle in INT8, whose weights are no floats, and for one without a learnt layer.
    """

    def __init__(self, bundle: Bundle) -> None:
        if bundle.manifest.precision == "int8":
            raise BundleError(
                f"{bundle.name} is computed in INT8, and its weights cannot be randomised; use the bundle in fp32 that "
                "it was made from."
            )
        self._onnx = load_onnx()
        self._bundle = bundle
        self._model = self._onnx.load(str(bundle.file("image")))
        self.layers: list[GraphLayer] = graph_layers(self._model, bundle.manifest.not_learnt)
        if not self.layers:
            raise BundleError(f"{bundle.name} has no learnt layer: no convolution or product with float weights.")
        names = [name for layer in self.layers for name in layer.tensors]
        self._number = {name: number for number, name in enumerate(names)}
        self._tensors = {each.name: each for each in self._model.graph.initializer if each.name in self._number}
        self._learnt = {name: each.SerializeToString() for name, each in self._tensors.items()}
        self._random: set[str] = set()

    @contextmanager
    def bundle(self, layers: Collection[GraphLayer], seed: int, rule: Rule) -> Iterator[Bundle]:
        """A bundle with these layers randomised, for as long as the with statement lasts. Its weights are called
        "randomised", and it has no text graph."""
        self._set({name for layer in layers for name in layer.tensors}, seed, rule)
        manifest = self._bundle.manifest
        with TemporaryDirectory(prefix="xbench-randomised-") as folder:
            graph = Path(folder) / "image.onnx"
            graph.write_bytes(self._model.SerializeToString())
            image = manifest.graphs["image"]
            files = {record.file: self._bundle.path / record.file for record in manifest.prompt_sets.values()}
            changed = replace(
                manifest, weights="randomised", weights_source="", graphs={"image": image}, parity={}, checkpoint=None
            )
            yield write_bundle(Path(folder) / self._bundle.name, changed, {**files, image.file: graph})

    def _set(self, names: set[str], seed: int, rule: Rule) -> None:
        for name in self._random - names:
            self._tensors[name].ParseFromString(self._learnt[name])
        helper = self._onnx.numpy_helper
        for name in names:
            tensor = self._tensors[name]
            tensor.ParseFromString(self._learnt[name])
            values = randomised_values(helper.to_array(tensor), seed, self._number[name], rule)
            tensor.CopyFrom(helper.from_array(values, name))
        self._random = names
