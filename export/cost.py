"""Measures the cost of a model: parameters in use, and multiply-accumulates.

Counted in PyTorch by `torch.utils.flop_counter` (matrix products, convolutions and attention; two operations are one
multiply-accumulate), on tensors without content, so that nothing is computed. Norms, activations and softmax do not
count. `xbench-fast bench` counts the same in the exported graph (`runtime.benching.cost_estimate`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from .onnx_graph import ImageGraph, TextGraph

if TYPE_CHECKING:
    from .adapter import Adapter

FINDINGS = 10  # the number in docs/scale.md


@dataclass(frozen=True)
class Cost:
    """Parameters each graph uses, and multiply-accumulates (MACs).

    `image_macs` is for one more image of a batch asked about `findings` findings; `once_macs` is the additional work
    per batch, independent of its size (work on the text alone); `text_macs` is for one text of `tokens` tokens, the
    most the model takes.
    """

    image_parameters: int
    text_parameters: int
    findings: int
    image_macs: int
    once_macs: int
    tokens: int
    text_macs: int

    def __str__(self) -> str:
        return (
            f"{self.image_parameters / 1e6:.1f} M parameters for images, {self.text_parameters / 1e6:.1f} M for texts; "
            f"{self.image_macs / 1e9:.2f} G multiply-accumulates per image with {self.findings} findings"
        )

    def to_json(self) -> dict[str, int]:
        """The fields by name."""
        return asdict(self)


def measure_cost(adapter: Adapter, findings: int = FINDINGS) -> Cost:
    """Counts both graphs of `adapter`; no value is computed and no memory is needed."""
    size, tokens = adapter.geometry.size, adapter.context
    image = ImageGraph(adapter).eval()
    pixels, features = torch.zeros(2, 1, size, size, dtype=torch.uint8), torch.zeros(findings, *adapter.text_shape)
    ids = torch.ones(1, tokens, dtype=torch.int64)
    one, used = _count(image, pixels[:1], features)
    two, _ = _count(image, pixels, features)
    per_text, used_by_text = 0, 0
    if adapter.text_inputs:
        per_text, used_by_text = _count(TextGraph(adapter).eval(), *[ids, ids][: len(adapter.text_inputs)])
    return Cost(
        image_parameters=used,
        text_parameters=used_by_text,
        findings=findings,
        image_macs=two - one,
        once_macs=2 * one - two,
        tokens=tokens,
        text_macs=per_text,
    )


def count_macs(run: Callable[[], Any]) -> int:
    """Multiply-accumulates of what `run` does; it is called with tensors that hold no values."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode(), FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops()) // 2


def _count(module: nn.Module, *inputs: Tensor) -> tuple[int, int]:
    """MACs of one call of `module`, and the number of values in the parameters that it uses."""
    with _Uses() as uses:
        macs = count_macs(partial(module, *inputs))
    return macs, sum(tensor.numel() for tensor in module.parameters() if id(tensor) in uses.used)


class _Uses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the tensors that operations are given, by `id`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.used: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.used.update(map(id, tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))
