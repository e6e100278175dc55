"""The two parts of an image graph as sessions of ONNX Runtime: pixels -> features, and features with text -> scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..base import Scores
from ..errors import EngineError
from .graph_cut import OUTPUTS, PIXELS, WHOLE
from .graph_parts import GraphParts
from .ort_session import load_onnxruntime

EXTERNAL_DATA: Final = "session.model_external_initializers_file_folder_path"
"""The session entry with the folder of weights outside the file, for a graph that is given as bytes."""

_BYTES: Final = {"tensor(double)": 8, "tensor(int64)": 8, "tensor(uint64)": 8, "tensor(float)": 4, "tensor(int32)": 4}


@dataclass(frozen=True, eq=False)
class PartFeatures:
    """pixels: uint8 [B, 1, S, S], of whose shape the graph may ask; values: the features, in the order of `names`."""

    pixels: NDArray[np.uint8]
    values: Sequence[Any]

    @property
    def size(self) -> int:
        """Bytes of the features of an image."""
        held = sum(math.prod(value.shape()) * _BYTES.get(value.data_type(), 2) for value in self.values)
        return int(held // len(self.pixels))


class OrtParts:
    """Both sessions of a graph that falls apart. Its methods keep features as the library's own values, in the host's
    memory.

    names: of the features. read: of the inputs of the part of the text.
    """

    def __init__(self, parts: GraphParts, open_part: Callable[[bytes], Any]) -> None:
        self.names = parts.cut.features
        self.image = open_part(parts.image())
        self.text = open_part(parts.text(self.image.get_outputs()))
        self.read = frozenset(item.name for item in self.text.get_inputs())
        self._axes = _image_axes(self.image)
        self._value = load_onnxruntime().OrtValue.ortvalue_from_numpy

    @staticmethod
    def of(graph: Path | bytes, open_part: Callable[[bytes], Any]) -> OrtParts | str:
        """The parts of a graph, or why it is not taken apart, in words."""
        try:
            parts = GraphParts.of(graph)
            return WHOLE if parts is None else OrtParts(parts, open_part)
        except (EngineError, KeyError, ValueError, OSError) as error:  # an own operator whose types nobody infers
            return f"the parts of its graph cannot be opened ({' '.join(str(error).split())[:200]})"

    def encode(self, pixels: NDArray[np.uint8]) -> PartFeatures:
        """The features of a batch."""
        return PartFeatures(pixels, self.image.run_with_ort_values(list(self.names), {PIXELS: self._value(pixels)}))

    def joined(self, parts: Sequence[PartFeatures]) -> PartFeatures | None:
        """The features of several batches as those of one; None where a feature has no axis of the images."""
        if self._axes is None or any(
            value.shape()[axis] != len(part.pixels)
            for part in parts
            for value, axis in zip(part.values, self._axes, strict=True)
        ):
            return None
        arrays = [[value.numpy() for value in part.values] for part in parts]
        return self.collected(np.concatenate([part.pixels for part in parts]), arrays)

    def collected(self, pixels: NDArray[np.uint8], parts: Sequence[Sequence[NDArray[Any]]]) -> PartFeatures:
        """The features of `pixels`, from arrays of one or several images each."""
        assert self._axes is not None
        arrays = map(np.concatenate, zip(*parts, strict=True), self._axes)
        return PartFeatures(pixels, [self._value(array) for array in arrays])

    def of_image(self, features: PartFeatures, place: int) -> tuple[NDArray[Any], ...]:
        """Copies of the features of one image, of those that `joined` gives."""
        return self._taken(features, place, place + 1)

    def part(self, features: PartFeatures, start: int, stop: int) -> PartFeatures:
        """The features of some images of a batch, of those that `joined` gives."""
        return self.collected(features.pixels[start:stop], [self._taken(features, start, stop)])

    def _taken(self, features: PartFeatures, start: int, stop: int) -> tuple[NDArray[Any], ...]:
        assert self._axes is not None
        places = range(start, stop)
        return tuple(value.numpy().take(places, axis) for value, axis in zip(features.values, self._axes, strict=True))

    def ask(self, features: PartFeatures, text: NDArray[np.float32]) -> Scores:
        """The scores of the images of `features`."""
        inputs = {**dict(zip(self.names, features.values, strict=True)), "text": self._value(text)}
        if PIXELS in self.read:
            inputs[PIXELS] = self._value(features.pixels)
        used = {name: inputs[name] for name in self.read}
        return Scores(*(value.numpy() for value in self.text.run_with_ort_values(list(OUTPUTS), used)))


def _image_axes(session: Any) -> list[int] | None:
    """The axis of the images in each output, the only one without a fixed length; None unless every output has one.

    The library names it as in the inputs, but not behind products of bytes, whose shapes it does not infer.
    """
    axes = [
        [axis for axis, size in enumerate(item.shape) if not isinstance(size, int)] for item in session.get_outputs()
    ]
    return [axis for (axis,) in axes] if all(len(free) == 1 for free in axes) else None
