"""The image graph of a bundle for the engine torch, or why it does not run. Torch is imported inside functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import Engine
from ..errors import EngineError
from .torch_reasons import one_line, torch_reason

if TYPE_CHECKING:
    from .torch_graph.graph import Graph


class GraphReader(Engine):
    """What both engines of torch share: the graph of the bundle, and why it is refused."""

    backend = "torch"
    _graph: Graph | None = None

    def complaint(self) -> str | None:
        return super().complaint() or torch_reason() or self._refusal()

    def _refusal(self) -> str | None:
        """Why the graph does not run, by its operators and shapes; reads the file. None if it does."""
        from .torch_graph.graph import read_graph
        from .torch_graph.program import prepared
        from .torch_graph.refusal import UnsupportedNodeError

        path = self.bundle.file("image")
        try:
            if self._graph is None:
                graph = prepared(read_graph(path))
                self._check_results(graph)
                self._graph = graph
        except UnsupportedNodeError as error:
            return (
                f"{self.bundle.name} does not run on the engine torch: {error}; use --engine onnxruntime-cuda or "
                "onnxruntime-cpu."
            )
        except EngineError as error:
            return str(error)
        except Exception as error:  # protobuf's and ONNX's own classes
            return f"torch cannot load {path}: {one_line(error)}."
        return None

    def _check_results(self, graph: Graph) -> None:
        """Raises EngineError unless the graph takes and gives what bundle.json promises; UnsupportedNodeError."""
        import torch

        from .torch_graph.program import INPUTS, OUTPUTS, ResultShapes, results_of

        spec = self.bundle.graph("image")
        pixels, text = (tuple(3 if isinstance(n, str) else n for n in tensor.shape) for tensor in spec.inputs)
        logits = (pixels[0], text[0])
        wanted = ResultShapes((logits, (*logits, *self.bundle.manifest.grid)), (torch.float32, torch.float32))
        names = {"inputs": (graph.inputs, INPUTS), "outputs": (graph.outputs, OUTPUTS)}
        for side, (have, want) in names.items():
            if set(have) != set(want):
                raise EngineError(
                    f"{self.bundle.path / spec.file} has the {side} {', '.join(have)}, bundle.json promises "
                    f"{', '.join(want)}; export it again."
                )
        results = results_of(graph, pixels, text)
        if results != wanted:
            raise EngineError(
                f"{self.bundle.path / spec.file} gives {results}, bundle.json promises {wanted}; export it again."
            )

    def _read(self) -> Graph:
        complaint = self._refusal()
        if self._graph is None:
            raise EngineError(complaint or "")
        return self._graph
