"""What a model costs: parameters that take part, and multiply-accumulates.

Counted in PyTorch by `torch.utils.flop_counter` (matrix products, convolutions and attention; two operations are one
multiply-accumulate), on tensors without content, so that nothing is computed. Norms, activations and softmax do not
count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from .graph import ImageGraph, TextGraph

if TYPE_CHECKING:
    from .adapter import Adapter

__all__ = ["Cost", "count_macs", "measure_cost"]

FINDINGS = 10


@dataclass(frozen=True)
class Cost:
    """Parameters each graph uses, and multiply-accumulates (MACs).

    `image_macs` is for one more image of a batch asked about `findings` findings; `once_macs` is what a batch needs
    besides, however large it is (work on the text alone); `text_macs` is for one text of `tokens` tokens, the most the
    model takes.
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
    image, text = ImageGraph(adapter).eval(), TextGraph(adapter).eval()

    def ask(batch: int) -> tuple[int, set[int]]:
        pixels = torch.zeros(batch, 1, size, size, dtype=torch.uint8)
        return _count(image, lambda: image(pixels, torch.zeros(findings, *adapter.text_shape)))

    def encode() -> Tensor:
        ids = torch.ones(1, tokens, dtype=torch.int64)
        features: Tensor = text(*[ids, torch.ones_like(ids)][: len(adapter.text_inputs)])
        return features

    (one, used), (two, _), (per_text, used_by_text) = ask(1), ask(2), _count(text, encode)
    sizes = {id(parameter): parameter.numel() for parameter in adapter.module.parameters()}
    return Cost(
        image_parameters=sum(sizes[number] for number in used),
        text_parameters=sum(sizes[number] for number in used_by_text),
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


def _count(module: nn.Module, run: Callable[[], Any]) -> tuple[int, set[int]]:
    """MACs of `run`, and which parameters of `module` it uses, by `id`."""
    with _Uses(module) as uses:
        macs = count_macs(run)
    return macs, uses.found


class _Uses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the parameters that operations are given."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = {id(parameter) for parameter in module.parameters()}
        self.found: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.update(self._known.intersection(map(id, tree_leaves((args, kwargs)))))
        return func(*args, **(kwargs or {}))
