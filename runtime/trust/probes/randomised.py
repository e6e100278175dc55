"""A bundle whose weights are randomised, in a temporary folder (docs/trust.md §2.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....engines.bundle import Bundle, write_bundle
from ....engines.errors import BundleError
from .layers import GraphLayer, graph_layers, load_onnx

if TYPE_CHECKING:
    from .probe import Rule

_SHIFT, _UNIT = np.uint64(11), 2.0**-53


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
