"""Multiply-accumulates per image of a bundle's graph, counted from the shapes of a real run on the CPU."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.backends.graph_parts import GraphParts
from ...engines.backends.ort_session import CPU_PROVIDER, load_onnxruntime, open_session
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
    return graph_macs(bundle.file("image"), bundle.manifest.geometry.size, text)


def graph_macs(graph: Path, side: int, text: NDArray[np.float32]) -> int | None:
    """As `image_macs`, of an image graph in a file that takes images of `side` pixels."""
    macs = _for_one_more(graph, lambda batch: {"pixels": _black(batch, side), "text": text})
    return macs if macs is not None and macs > 0 else None


def text_macs(graph: Path, side: int, text: NDArray[np.float32]) -> int | None:
    """The part of `graph_macs` behind the text, which each further prompt set costs: text features `text`, images of
    `side` pixels. None if the graph does not fall apart (engines/README.md) or its profile does not give it.

    Raises EngineError, MissingExtraError.
    """
    parts = GraphParts.of(graph)
    if parts is None:
        return None
    image = open_session(parts.image(), [CPU_PROVIDER], None)

    def inputs(batch: int) -> dict[str, Any]:
        pixels = _black(batch, side)
        features = image.run(list(parts.cut.features), {"pixels": pixels})
        return {**dict(zip(parts.cut.features, features, strict=True)), "pixels": pixels, "text": text}

    return _for_one_more(parts.text(image.get_outputs()), inputs)


def _black(batch: int, side: int) -> NDArray[np.uint8]:
    return np.zeros((batch, 1, side, side), np.uint8)


def _for_one_more(graph: Path | bytes, inputs: Callable[[int], dict[str, Any]]) -> int | None:
    """Multiply-accumulates of two images less those of one."""
    one, two = (_macs(_profile(graph, inputs(batch))) for batch in (1, 2))
    return None if one is None or two is None else two - one


def _profile(graph: Path | bytes, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    ort = load_onnxruntime()
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            source = graph if isinstance(graph, bytes) else str(graph)
            session = ort.InferenceSession(source, options, providers=[CPU_PROVIDER])
            names = {item.name for item in session.get_inputs()}
            session.run(None, {name: value for name, value in inputs.items() if name in names})
        except Exception as error:  # the library raises its own classes, which share no base but Exception
            name = graph if isinstance(graph, Path) else "a part of a graph"
            raise EngineError(f"The cost of {name} cannot be counted: {error}") from error
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
