"""The two parts of an image graph as sessions of ONNX Runtime: pixels -> features, and features with text -> scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..base import Scores
from ..errors import EngineError
from .graph_cut import OUTPUTS, WHOLE
from .graph_parts import GraphParts
from .ort_session import load_onnxruntime

EXTERNAL_DATA: Final = "session.model_external_initializers_file_folder_path"
"""The session entry with the folder of weights outside the file, for a graph that is given as bytes."""

_BYTES: Final = {"tensor(double)": 8, "tensor(int64)": 8, "tensor(uint64)": 8, "tensor(float)": 4, "tensor(int32)": 4}


class OrtParts:
    """Both sessions of a graph that falls apart. The features are the library's own values, in the host's memory."""

    def __init__(self, parts: GraphParts, open_part: Callable[[bytes], Any]) -> None:
        self.names = parts.cut.features
        self._image = open_part(parts.image())
        self._text = open_part(parts.text(self._image.get_outputs()))
        self._value = load_onnxruntime().OrtValue.ortvalue_from_numpy

    @staticmethod
    def of(graph: Path | bytes, open_part: Callable[[bytes], Any]) -> OrtParts | str:
        """The parts of a graph, or why it is not taken apart, in words."""
        try:
            parts = GraphParts.of(graph)
            return WHOLE if parts is None else OrtParts(parts, open_part)
        except (EngineError, KeyError, ValueError, OSError) as error:  # an own operator whose types nobody infers
            return f"the parts of its graph cannot be opened ({' '.join(str(error).split())[:200]})"

    def encode(self, pixels: NDArray[np.uint8]) -> Any:
        """The features, in the order of `names`."""
        return self._image.run_with_ort_values(list(self.names), {"pixels": self._value(pixels)})

    def ask(self, features: Sequence[Any], text: NDArray[np.float32]) -> Scores:
        """The scores of the images of `features`."""
        inputs = {**dict(zip(self.names, features, strict=True)), "text": self._value(text)}
        used = {name: inputs[name] for name in (item.name for item in self._text.get_inputs())}
        return Scores(*(value.numpy() for value in self._text.run_with_ort_values(list(OUTPUTS), used)))


def size_of(features: Sequence[Any]) -> int:
    """Bytes of these features."""
    return sum(math.prod(value.shape()) * _BYTES.get(value.data_type(), 2) for value in features)
