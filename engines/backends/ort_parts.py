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
        """The features of several batches as those of one; None where a feature's first axis is not the images."""
        (batch, *_), outputs = self.image.get_inputs()[0].shape, self.image.get_outputs()
        if not isinstance(batch, str) or any(item.shape[:1] != [batch] for item in outputs):
            return None
        arrays = zip(*([value.numpy() for value in part.values] for part in parts), strict=True)
        values = [self._value(np.concatenate(several)) for several in arrays]
        return PartFeatures(np.concatenate([part.pixels for part in parts]), values)

    def part(self, features: PartFeatures, start: int, stop: int) -> PartFeatures:
        """The features of some images of a batch, of those that `joined` gives."""
        values = [self._value(np.ascontiguousarray(value.numpy()[start:stop])) for value in features.values]
        return PartFeatures(features.pixels[start:stop], values)

    def ask(self, features: PartFeatures, text: NDArray[np.float32]) -> Scores:
        """The scores of the images of `features`."""
        inputs = {**dict(zip(self.names, features.values, strict=True)), "text": self._value(text)}
        if PIXELS in self.read:
            inputs[PIXELS] = self._value(features.pixels)
        used = {name: inputs[name] for name in self.read}
        return Scores(*(value.numpy() for value in self.text.run_with_ort_values(list(OUTPUTS), used)))
