"""Multiply-accumulates per image of a bundle's graph, counted from the shapes of a real run on the CPU."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.backends.ort_session import CPU_PROVIDER, load_onnxruntime
from ...engines.bundle import Bundle
from ...engines.errors import EngineError


def image_macs(bundle: Bundle, text: NDArray[np.float32]) -> int | None:
    """The cost of one more image of a batch with text features `text`; None if the graph's profile does not give it.

    As `export.cost.Cost.image_macs`: convolutions and matrix products; work on the text alone, done once per batch, is
    not in it. A bf16 graph, which ONNX Runtime cannot run on a CPU, is not counted. Raises EngineError,
    MissingExtraError.
    """
    if bundle.manifest.precision == "bf16":
        return None
    one, two = (_macs(_profile(bundle, batch, text)) for batch in (1, 2))
    return None if one is None or two is None or two <= one else two - one


def _profile(bundle: Bundle, batch: int, text: NDArray[np.float32]) -> list[dict[str, Any]]:
    ort = load_onnxruntime()
    side = bundle.manifest.geometry.size
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = ort.InferenceSession(str(bundle.file("image")), options, providers=[CPU_PROVIDER])
            session.run(None, {"pixels": np.zeros((batch, 1, side, side), np.uint8), "text": text})
        except Exception as error:  # the library raises its own classes, which share no base but Exception
            raise EngineError(f"The cost of {bundle.name} cannot be counted: {error}") from error
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return [event["args"] for event in events if event.get("cat") == "Node" and "output_type_shape" in event["args"]]


def _macs(nodes: list[dict[str, Any]]) -> int | None:
    """A profile omits packed weights: the shape of a product's follows from the others, a convolution's does not."""
    total = 0
    for node in nodes:
        operator = node.get("op_name")
        inputs = [shape for entry in node.get("input_type_shape", ()) for shape in entry.values()]
        outputs = [shape for entry in node.get("output_type_shape", ()) for shape in entry.values()]
        if not outputs or not inputs:
            continue
        size = math.prod(outputs[0])
        if operator == "Conv" and len(inputs) < 2:
            return None
        if operator == "Conv":
            total += size * math.prod(inputs[1][1:])
        elif operator == "MatMul":
            total += size * inputs[0][-1]
        elif operator == "Gemm":
            total += size * math.prod(inputs[0]) // max(outputs[0][0], 1)
    return total
