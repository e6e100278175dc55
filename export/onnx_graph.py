"""Exports an adapter as the two ONNX graphs of a bundle, with uint8 grey pixels as input and fixed outputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import torch
from torch import Tensor, nn

from ..engines.errors import ExportError
from ..engines.manifest import GraphSpec, TensorSpec
from .libraries import quiet, short_reason

if TYPE_CHECKING:
    from .adapter import Adapter

OPSET = 20  # see `opset_for`
_LIMIT = 2**31 - 2**20  # protobuf cannot hold 2 GiB; a margin is left for the graph itself


def opset_for(precision: str) -> int:
    """The opset of a graph: ONNX defines convolution for bfloat16 from opset 22 on.

    ONNX Runtime's CUDA provider supports MaxPool up to opset 21 (microsoft/onnxruntime issue 26393), so its CPU
    provider does the pooling in this graph until a release supports it; TensorRT pools on the GPU.
    """
    return max(OPSET, 22) if precision == "bf16" else OPSET


class ImageGraph(nn.Module):
    """pixels uint8 [B, 1, S, S] and text float32 [Q, D...] -> logits [B, Q] and saliency [B, Q, h, w], float32.

    The grey channel is scaled to 0..1 and normalised with the mean and deviation of three channels, in the arithmetic
    and order of the official pipelines (x / 255, then minus mean, then divided by the standard deviation), so resized
    8-bit pixels lose nothing here.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter
        self.network = adapter.module  # makes the weights part of the graph, under their published names
        self.register_buffer("mean", torch.tensor(adapter.mean, dtype=torch.float32).reshape(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(adapter.std, dtype=torch.float32).reshape(1, 3, 1, 1))

    def forward(self, pixels: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        grey = pixels.to(torch.float32) / 255.0
        image = (grey - self.mean) / self.std
        logits, saliency = self.adapter.forward(image, text)
        return logits, saliency


class TextGraph(nn.Module):
    """Token ids int64 [T, L] (and the mask, where the model has one) -> features float32 [T, D...]."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter
        self.network = adapter.module

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        features: Tensor = self.adapter.encode_text(input_ids, attention_mask)
        return features


def image_spec(adapter: Adapter) -> GraphSpec:
    """The interface of image.onnx, as bundle.json states it."""
    size, (rows, columns) = adapter.geometry.size, adapter.grid
    return GraphSpec(
        "image.onnx",
        (
            TensorSpec("pixels", "uint8", ("batch", 1, size, size)),
            TensorSpec("text", "float32", ("findings", *adapter.text_shape)),
        ),
        (
            TensorSpec("logits", "float32", ("batch", "findings")),
            TensorSpec("saliency", "float32", ("batch", "findings", rows, columns)),
        ),
    )


def text_spec(adapter: Adapter) -> GraphSpec:
    """The interface of text.onnx, as bundle.json states it."""
    return GraphSpec(
        "text.onnx",
        tuple(TensorSpec(name, "int64", ("texts", "tokens")) for name in adapter.text_inputs),
        (TensorSpec("features", "float32", ("texts", *adapter.one_text_shape)),),
    )


def export_image(adapter: Adapter, folder: Path, opset: int = OPSET) -> GraphSpec:
    """Writes image.onnx into `folder`. Raises ExportError when the model cannot be turned into a graph."""
    spec = image_spec(adapter)
    size = adapter.geometry.size
    # Example sizes of 2 and 3: a size of 1 would be baked into the graph, equal sizes could be tied together.
    example = (
        torch.arange(2 * size * size, dtype=torch.int64).remainder(256).to(torch.uint8).reshape(2, 1, size, size),
        torch.linspace(-1, 1, 3 * math.prod(adapter.text_shape)).reshape(3, *adapter.text_shape),
    )
    _export(ImageGraph(adapter), example, spec, folder / spec.file, opset)
    return spec


def not_learnt(adapter: Adapter, image: Path) -> tuple[str, ...]:
    """The float constants of the graph `image` that look like weights and are in no checkpoint, such as a smoothing
    filter: buffers of the module with `persistent=False`, by their names in the graph."""
    graph = ImageGraph(adapter)
    constants = {name for name, tensor in graph.named_buffers() if tensor.is_floating_point()} - set(graph.state_dict())
    if not constants:
        return ()
    names = (tensor.name for tensor in onnx.load(str(image)).graph.initializer)
    return tuple(name for name in names if name in constants)


def export_text(adapter: Adapter, folder: Path, opset: int = OPSET) -> GraphSpec:
    """Writes text.onnx into `folder`. Raises ExportError when the text tower cannot be turned into a graph."""
    spec = text_spec(adapter)
    ids = torch.arange(2 * 7, dtype=torch.int64).reshape(2, 7) % 5 + 1
    example = (ids, torch.ones_like(ids))[: len(spec.inputs)]
    _export(TextGraph(adapter), example, spec, folder / spec.file, opset)
    return spec


def _export(module: nn.Module, example: tuple[Tensor, ...], spec: GraphSpec, path: Path, opset: int) -> None:
    names = [tensor.name for tensor in spec.inputs]
    axes = {name: torch.export.Dim(name) for tensor in spec.inputs for name in tensor.shape if isinstance(name, str)}
    shapes = tuple(
        {position: axes[size] for position, size in enumerate(tensor.shape) if isinstance(size, str)}
        for tensor in spec.inputs
    )
    module.eval()
    try:
        with torch.no_grad(), quiet():
            program = torch.onnx.export(
                module,
                example,
                dynamo=True,
                input_names=names,
                output_names=[tensor.name for tensor in spec.outputs],
                dynamic_shapes=shapes,
                opset_version=opset,
                verbose=False,
            )
            assert program is not None
            model = program.model_proto
    except Exception as error:  # the exporter raises many classes
        raise ExportError(f"The {spec.file} graph cannot be exported: {short_reason(error, 600)}.") from error
    del program
    if model.ByteSize() > _LIMIT:
        raise ExportError(f"{spec.file} would have {model.ByteSize()} bytes; a single ONNX file holds less than 2 GiB.")
    _clean(model)
    _check_axes(model, spec)
    path.write_bytes(model.SerializeToString())
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"The exported {spec.file} is not valid ONNX: {error}") from error


def _clean(model: Any) -> None:
    """Removes the exporter's metadata: source lines and stack traces contain paths of this machine."""
    model.doc_string = ""
    model.graph.doc_string = ""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    for item in (*nodes, *model.functions, *model.graph.value_info, *model.graph.input, *model.graph.output):
        item.doc_string = ""
        del item.metadata_props[:]
    for tensor in model.graph.initializer:
        tensor.doc_string = ""
        del tensor.metadata_props[:]


def _check_axes(model: Any, spec: GraphSpec) -> None:
    """Raises ExportError if the exporter fixed an axis that must stay dynamic; otherwise it would fail at run time."""
    for promised, value in zip((*spec.inputs, *spec.outputs), (*model.graph.input, *model.graph.output), strict=True):
        axes = value.type.tensor_type.shape.dim
        shape = tuple(axis.dim_param if axis.HasField("dim_param") else axis.dim_value for axis in axes)
        if value.name != promised.name or shape != promised.shape:
            raise ExportError(
                f"{spec.file}: the tensor '{promised.name}' came out as '{value.name}' {list(shape)} instead of "
                f"{list(promised.shape)}; the model does not keep the axes free."
            )
