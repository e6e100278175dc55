"""The engine torch on a real GPU: what only CUDA has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import SIZE, make_bundle, model, save_graph
from xbench_fast.engines.backends.gpu import gpu_reason, load_cupy
from xbench_fast.engines.backends.torch_reasons import torch_cuda_reason
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TYPES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(scope="module")
def cupy() -> Any:
    reason = gpu_reason() or torch_cuda_reason()
    if reason is not None:
        pytest.skip(f"no GPU can be used here: {reason}")
    return load_cupy()


@pytest.fixture
def blocks(tmp_path: Path) -> Bundle:
    """The exact model of `synthetic`, as a graph."""
    pytest.importorskip("onnx")
    return make_bundle(tmp_path / "blocks-32", several=True, graph=save_graph(tmp_path / "graph.onnx"))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("with_addend", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_fused_convolutions_are_those_of_single_calls(cupy: Any, dtype: Any, with_addend: bool, groups: int) -> None:
    from xbench_fast.engines.backends.torch_graph.cuda import CudnnKernels, exact_products
    from xbench_fast.engines.backends.torch_graph.kernels import Convolution, PlainKernels
    from xbench_fast.engines.backends.torch_graph.windows import Window

    made = torch.Generator("cuda").manual_seed(3)
    sizes = {"image": (2, 8, 15, 12), "weight": (16, 8 // groups, 3, 3), "bias": (16,), "addend": (2, 16, 8, 6)}
    parts = {n: torch.randn(size, generator=made, device="cuda").to(dtype) for n, size in sizes.items()}
    addend = parts.pop("addend") if with_addend else None
    window = Window((3, 3), (2, 2), (1, 1), (1, 1), (1, 1))
    said: list[str] = []
    for channels_last in (False, True):
        layout = torch.channels_last if channels_last else torch.contiguous_format
        parts["weight"] = parts["weight"].contiguous(memory_format=layout)
        asked = Convolution(**parts, addend=addend, relu=True, window=window, groups=groups)
        with torch.inference_mode(), exact_products(tf32=False):
            wanted = PlainKernels(channels_last).convolve(asked).float()
            fused = CudnnKernels(channels_last, said.append).convolve(asked).float()
        assert float((fused - wanted).abs().max()) <= TYPES[dtype] * float(wanted.abs().max())
    assert not said or "because cuDNN refuses one" in said[0]


def test_float32_products_are_not_rounded_to_tf32(cupy: Any) -> None:
    from xbench_fast.engines.backends.torch_graph.cuda import exact_products

    a = torch.randn((256, 512), generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    exact = a.double() @ a.double().t()
    with exact_products(tf32=False):
        assert float((a @ a.t() - exact).abs().max() / exact.abs().max()) < 2e-6


def test_launches_are_captured_and_replayed(blocks: Bundle, cupy: Any) -> None:
    said: list[str] = []
    features = blocks.prompt_set("coco").features
    pictures = [np.random.default_rng(n).integers(0, 256, (8, 1, SIZE, SIZE), dtype=np.uint8) for n in range(4)]
    with open_engine(blocks, "torch", options=EngineOptions(max_batch=8, say=said.append)) as engine:
        for pixels in pictures * 2:
            scores, (logits, saliency) = engine.run(pixels, features), model(pixels, features)
            np.testing.assert_array_equal(scores.saliency, saliency)
            np.testing.assert_array_equal(scores.logits, logits)
        captured = len(engine._replays)  # type: ignore[attr-defined]
    assert captured == 1 or any("without CUDA graphs" in line for line in said)
