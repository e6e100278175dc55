"""Makes a bundle's image graph for one prompt set: the text features become a constant, queries become findings.

Triton forms batches by joining requests along the first axis of every input, and text features have no batch axis.
With one set inside, the graph has one input, pixels, and its outputs are what `xbench-fast serve` answers for that set.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...engines.errors import ExportError
from ...engines.prompts.prompt_set import PromptSet
from ..libraries import required, short_reason

_LEAST: Final = 13  # the operators that are added here have this form from this opset on

_PREFIX: Final = "xbench_"
_OUTPUTS: Final = ("logits", "saliency")


def load_graph(path: Path) -> Any:
    """The ONNX model in a file. Raises MissingExtraError without the package onnx, ExportError for an invalid file."""
    onnx = required("onnx", "A Triton model")
    try:
        return onnx.load(str(path))
    except Exception as error:  # protobuf's and ONNX's own classes
        raise ExportError(f"{path} cannot be read as ONNX: {short_reason(error, 300)}.") from error


def bake_set(model: Any, prompts: PromptSet, *, exact: bool) -> None:
    """Changes the image graph in `model`, pixels and text -> logits and saliency, into one for a single prompt set.

    The new outputs have one entry per finding: logits float32 [batch, F] and saliency float32 [batch, F, h, w], means
    over its positive prompts; and, when the set has negative prompts, logits_negative float32 [batch, F], NaN for a
    finding without negative prompts.

    exact: one or two images get the results of the engine onnxruntime-cpu and of an evaluation, to the bit, where ONNX
    Runtime runs the graph on a CPU; more images too, unless the library adds in another order for their number, as it
    does with more than 32 queries or many threads. The features are then an input with a default value, since the
    library computes constant expressions in advance and rounds them differently; a single image is run as two, as in
    that engine; means are computed in float64. Otherwise the features are a constant and all is float32: faster, and
    readable by TensorRT.

    Raises ExportError for a graph with another interface or an old opset, and when the result is not a valid graph.
    """
    graph = model.graph
    if [item.name for item in graph.input] != ["pixels", "text"] or [i.name for i in graph.output] != list(_OUTPUTS):
        raise ExportError("The image graph does not take pixels and text and return logits and saliency; export again.")
    pixels, text = copy.deepcopy(graph.input[0]), copy.deepcopy(graph.input[1])
    seen = f"{_PREFIX}seen" if exact else "pixels"
    answers = {name: f"{_PREFIX}all_{name}" for name in _OUTPUTS}
    renamed = {**answers, "pixels": seen}
    _rename(graph, renamed)
    values = [_renamed_value(value, renamed[value.name]) for value in (pixels, *graph.output)] if exact else []
    grid = [axis.dim_value for axis in graph.output[1].type.tensor_type.shape.dim][2:]
    writer = _Writer(_opset(model))
    writer.constant("text", prompts.features.astype(np.float32))
    nodes = [*(_pair_up(writer, seen) if exact else []), *graph.node]
    if exact:
        answers, kept = _unpair(writer, answers)
        nodes += kept
    outputs: dict[str, list[int]] = {"logits": [], "saliency": grid}
    for name in _OUTPUTS:
        nodes += writer.by_finding(answers[name], name, _places(prompts, 1), exact)
    if (prompts.polarity < 0).any():
        outputs["logits_negative"] = []
        nodes += writer.by_finding(answers["logits"], "logits_negative", _places(prompts, -1), exact)
    inferred = [*graph.value_info, *values] if exact else []  # they name the axis of queries, which no longer exists
    for part in (graph.node, graph.value_info, graph.input, graph.output):
        del part[:]
    graph.node.extend(nodes)
    graph.value_info.extend(inferred)
    graph.initializer.extend(writer.constants.values())
    size = pixels.type.tensor_type.shape.dim[2].dim_value
    make = writer.onnx.helper.make_tensor_value_info
    graph.input.extend([make("pixels", 2, ["images", 1, size, size]), *([text] if exact else [])])
    for name, tail in outputs.items():
        graph.output.append(make(name, 1, ["images", len(prompts.findings), *tail]))
    _check(model, prompts)


def _opset(model: Any) -> int:
    opset = max((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < _LEAST:
        raise ExportError(
            f"The image graph has opset {opset}, a Triton model needs {_LEAST} or later; make the graph again with one."
        )
    return opset


def _check(model: Any, prompts: PromptSet) -> None:
    import onnx

    try:
        onnx.checker.check_model(model)
    except Exception as error:  # the checker's and protobuf's own classes
        reason = short_reason(error, 300)
        raise ExportError(
            f"The image graph with the prompt set '{prompts.name}' inside is no valid ONNX graph ({reason}); make the "
            "graph again with a later opset."
        ) from error


def _places(prompts: PromptSet, polarity: int) -> list[list[int]]:
    """For each finding, its queries with this polarity."""
    asked = zip(prompts.finding_of.tolist(), prompts.polarity.tolist(), strict=True)
    pairs = list(enumerate(asked))
    return [[q for q, (f, p) in pairs if f == finding and p == polarity] for finding in range(len(prompts.findings))]


class _Writer:
    """Makes nodes with unique names, and the constants they need."""

    def __init__(self, opset: int) -> None:
        import onnx

        self.onnx, self._opset = onnx, opset
        self.constants: dict[str, Any] = {}
        self._count = 0

    def constant(self, name: str, array: Any) -> str:
        self.constants.setdefault(name, self.onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(f"{_PREFIX}integers_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def node(self, operator: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> Any:
        self._count += 1
        made = output or f"{_PREFIX}value_{self._count}"
        return self.onnx.helper.make_node(
            operator, list(inputs), [made], name=f"{_PREFIX}{operator}_{self._count}", **attributes
        )

    def by_finding(self, source: str, output: str, places: list[list[int]], exact: bool) -> list[Any]:
        """Axis 1 of `source`, queries, becomes findings: selected where each has one query, else means."""
        if all(len(queries) == 1 for queries in places):
            return [self.node("Gather", [source, self.integers(*(q for (q,) in places))], output, axis=1)]
        nodes: list[Any] = []
        parts = [self._finding(source, queries, exact, nodes) for queries in places]
        return [*nodes, self.node("Concat", parts, output, axis=1)]

    def _finding(self, source: str, queries: list[int], exact: bool, nodes: list[Any]) -> str:
        def add(operator: str, *inputs: str, **attributes: Any) -> str:
            nodes.append(self.node(operator, inputs, **attributes))
            made: str = nodes[-1].output[0]
            return made

        chosen = add("Gather", source, self.integers(*(queries or [0])), axis=1)
        if not queries:
            return add("Mul", chosen, self.constant(f"{_PREFIX}nan", np.float32(np.nan)))
        if len(queries) == 1:
            return chosen
        wide = add("Cast", chosen, to=11) if exact else chosen
        if self._opset < 18:  # the axes of a mean became an input
            mean = add("ReduceMean", wide, axes=[1], keepdims=1)
        else:
            mean = add("ReduceMean", wide, self.integers(1), keepdims=1)
        return add("Cast", mean, to=1) if exact else mean


def _pair_up(writer: _Writer, seen: str) -> list[Any]:
    """pixels -> repeated once if they are one image."""
    shape, count, spare, times, repeats = (
        f"{_PREFIX}{name}" for name in ("shape", "count", "spare", "times", "repeats")
    )
    return [
        writer.node("Shape", ["pixels"], shape),
        writer.node("Gather", [shape, writer.integers(0)], count, axis=0),
        writer.node("Sub", [writer.integers(3), count], spare),
        writer.node("Max", [spare, writer.integers(1)], times),
        writer.node("Concat", [times, writer.integers(1, 1, 1)], repeats, axis=0),
        writer.node("Tile", ["pixels", repeats], seen),
    ]


def _unpair(writer: _Writer, answers: Mapping[str, str]) -> tuple[dict[str, str], list[Any]]:
    names = {name: f"{source}_kept" for name, source in answers.items()}
    ends = (writer.integers(0), f"{_PREFIX}count", writer.integers(0))
    return names, [writer.node("Slice", [answers[name], *ends], names[name]) for name in answers]


def _renamed_value(value: Any, name: str) -> Any:
    renamed = copy.deepcopy(value)
    renamed.name = name
    return renamed


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Renames tensors wherever nodes read or write them, in nested graphs too."""
    for node in graph.node:
        for tensors in (node.input, node.output):
            for position, name in enumerate(tensors):
                if name in names:
                    tensors[position] = names[name]
        for attribute in node.attribute:
            for nested in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _rename(nested, names)
