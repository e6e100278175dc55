"""Runs a model in PyTorch, eager or compiled: the baseline of `xbench-fast bench --against`."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engines.errors import EngineError
from ..engines.precisions import PRECISIONS
from .adapter import Adapter, adapter_class, stand_in_adapter
from .libraries import short_reason
from .resolution import native_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from torch import Tensor


class TorchRunner:
    """An adapter with stand-in weights on `device` ("cpu", "cuda:0") in `precision` (fp32, tf32, fp16, bf16).

    Pixels uint8 become the model's input on the device, as in the exported graph. What a careful user sets is set:
    cuDNN tries its algorithms, channels come last where the model is faster so, and a compiled graph is made for the
    one batch that is measured. Raises ConfigError, EngineError and MissingExtraError.
    """

    def __init__(self, model: str, variant: str, precision: str, device: str, *, compiled: bool) -> None:
        adapter = _adapter(model, variant)
        import torch

        if device != "cpu" and not torch.cuda.is_available():
            raise EngineError(f"PyTorch {torch.__version__} finds no GPU; install one that was built for this driver.")
        self._torch = torch
        self._device = torch.device(device)
        self._dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
        self._products = "high" if precision == "tf32" else "highest"
        self._module = adapter.module.to(device=self._device, dtype=self._dtype)
        self._layout = torch.contiguous_format
        mean, std = (
            torch.tensor(values, dtype=self._dtype, device=self._device).reshape(1, 3, 1, 1)
            for values in (adapter.mean, adapter.std)
        )

        def run_model(pixels: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
            image = (pixels.to(self._dtype) / 255 - mean) / std
            return adapter.forward(image.contiguous(memory_format=self._layout), text)

        self._plain = self._model = run_model
        if compiled:
            # Without this the second batch size makes a graph of any size, and a ninth graph of one process is not
            # compiled at all (recompile_limit); both are slower than what is compared.
            torch.compiler.reset()
            self._model = torch.compile(run_model, dynamic=False)
        self._precision = precision

    @property
    def detail(self) -> str:
        """Version, precision and the layout of the images, which `prepare` chooses."""
        last = self._layout == self._torch.channels_last
        return f"torch {self._torch.__version__}, {self._precision}, channels {'last' if last else 'first'}"

    def prepare(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> None:
        """Copies the inputs to the device, chooses the layout and runs them once, which includes compilation."""
        torch = self._torch
        self._inputs = (
            torch.from_numpy(np.ascontiguousarray(pixels)).to(self._device),
            torch.from_numpy(np.array(text)).to(self._device, self._dtype),
        )
        taken = {layout: self._seconds(layout) for layout in (torch.contiguous_format, torch.channels_last)}
        self._lay_out(min(taken, key=lambda layout: taken[layout]))
        logits, saliency = self._guarded(self._model, 1)
        for name, values in (("logits", logits), ("saliency", saliency)):
            if values.shape[:2] != (len(pixels), len(text)) or not bool(torch.isfinite(values).all()):
                raise EngineError(f"PyTorch's {name} of the stand-in model are not finite or of another shape.")

    def run(self, calls: int) -> None:
        """Runs the batch `calls` times and waits."""
        self._guarded(self._model, calls)

    def _lay_out(self, layout: Any) -> None:
        self._layout = layout
        self._module.to(memory_format=layout)

    def _seconds(self, layout: Any) -> float:
        """Of three batches, not compiled, after one."""
        self._lay_out(layout)
        self._guarded(self._plain, 1)
        begun = time.perf_counter()
        self._guarded(self._plain, 3)
        return time.perf_counter() - begun

    def _guarded(self, run: Callable[[Tensor, Tensor], Any], calls: int) -> Any:
        torch = self._torch
        # The first two must say the same: PyTorch's convolutions use TF32 by default, its products do not.
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
        torch.set_float32_matmul_precision(self._products)
        torch.backends.cudnn.allow_tf32 = self._products == "high"
        torch.backends.cudnn.benchmark = True
        try:
            with torch.inference_mode():
                for _ in range(calls):
                    scores = run(*self._inputs)
                if self._device.type == "cuda":
                    torch.cuda.synchronize(self._device)
            return scores
        except Exception as error:  # a compiler's failures share no base
            reason = f"{type(error).__name__}: {short_reason(error, 300)}"
            raise EngineError(f"PyTorch could not run the model: {reason}.") from error
        finally:
            torch.set_float32_matmul_precision(before[0])
            torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = before[1:]


eager_runner = partial(TorchRunner, compiled=False)
"""The model as PyTorch runs it without compilation."""
compiled_runner = partial(TorchRunner, compiled=True)
"""The model through torch.compile with its defaults, for one size of batch."""


def _adapter(model: str, variant: str) -> Adapter:
    """The adapter of a bundle's model: its own variant, then a saliency map and a precision, as the exporter names."""
    model_class = adapter_class(model)
    base, name, side = _split(variant, model_class.variants, model_class.maps)
    adapter = stand_in_adapter(model, base, **({} if side is None else {"resolution": side}))
    if name:
        adapter.choose_map(name)
    return adapter


def _split(variant: str, variants: Collection[str], maps: Collection[str]) -> tuple[str, str, int | None]:
    """The model's variant, its map and its size, if that is another; maps and variants have hyphens in their names, so
    each pair is tried."""
    for precision in ("", *PRECISIONS):
        for name in ("", *maps):
            ending = "".join(f"-{part}" for part in (name, precision) if part)
            if not variant.endswith(ending):
                continue
            base, side = native_variant(variant.removesuffix(ending))
            if base in variants:
                return base, name, side
    return variant, "", None
