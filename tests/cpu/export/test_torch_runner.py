"""The PyTorch runner that stands beside an engine: what it feeds the model, and how its failures are reported."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from xbench_fast.engines.errors import ConfigError, EngineError  # noqa: E402
from xbench_fast.export import torch_runner  # noqa: E402
from xbench_fast.export.adapter import Adapter, Saliency  # noqa: E402
from xbench_fast.export.models.saliency_maps import MAPS  # noqa: E402
from xbench_fast.export.torch_runner import compiled_runner, eager_runner  # noqa: E402

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8)).astype(np.uint8)
TEXT = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A model that answers with zeros and remembers what it was given."""
    found: dict[str, Any] = {"calls": 0, "value": 0.0, "maps": []}

    def forward(image: Any, text: Any) -> Any:
        found.update(image=image, text=text, calls=found["calls"] + 1)
        found["rounds"] = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        found["searches"] = torch.backends.cudnn.benchmark
        scores = torch.full((len(image), len(text)), found["value"])
        return scores, scores[..., None, None]

    def stand_in(name: str, variant: str, resolution: int | None = None) -> Any:
        if variant != "224":
            raise ConfigError(f"no variant {variant}")
        found["resolution"] = resolution
        module = torch.nn.Linear(2, 2)
        found["module"] = module
        return SimpleNamespace(
            module=module, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 1.0), forward=forward, choose_map=found["maps"].append
        )

    kind = SimpleNamespace(variants=("224",), maps=MAPS["kad"])
    monkeypatch.setattr(torch_runner, "adapter_class", lambda name: kind)
    monkeypatch.setattr(torch_runner, "stand_in_adapter", stand_in)
    return found


def test_the_model_gets_normalised_pixels_of_three_channels(seen: dict[str, Any]) -> None:
    runner = eager_runner("any", "224", "fp32", "cpu")
    runner.prepare(PIXELS, TEXT)
    mean, std = (np.array(v, np.float32).reshape(1, 3, 1, 1) for v in ((0.1, 0.2, 0.3), (0.5, 0.25, 1.0)))
    np.testing.assert_allclose(seen["image"].numpy(), (PIXELS / np.float32(255) - mean) / std, rtol=1e-6)
    assert np.array_equal(seen["text"].numpy(), TEXT)
    before = seen["calls"]
    runner.run(4)
    assert seen["calls"] == before + 4 and "fp32" in runner.detail and torch.__version__ in runner.detail


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16"), ("tf32", "float32")])
def test_precision_is_the_models_own(seen: dict[str, Any], precision: str, dtype: str) -> None:
    eager_runner("any", "224", precision, "cpu").prepare(PIXELS, TEXT)
    assert seen["image"].dtype == seen["text"].dtype == seen["module"].weight.dtype == getattr(torch, dtype)
    assert seen["rounds"] == (("high", True) if precision == "tf32" else ("highest", False))
    assert torch.get_float32_matmul_precision() == "highest"
    assert seen["searches"]
    assert torch.backends.cudnn.allow_tf32 and not torch.backends.cudnn.benchmark  # as PyTorch had them


def convolution(monkeypatch: pytest.MonkeyPatch, slow: Any = None) -> Any:
    """A model that convolves, and waits where the layout of its image is the one named."""
    module = torch.nn.Conv2d(3, 2, 3, padding=1)
    monkeypatch.setattr(torch_runner, "adapter_class", lambda name: SimpleNamespace(variants=("224",), maps=("raw",)))

    def forward(image: Any, text: Any) -> Any:
        if slow is not None and image.is_contiguous(memory_format=slow):
            time.sleep(0.1)
        saliency = module(image)[:, : len(text)]
        return saliency.mean((2, 3)), saliency

    made = SimpleNamespace(module=module, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 1.0), forward=forward)
    monkeypatch.setattr(torch_runner, "stand_in_adapter", lambda name, variant: made)
    return module


def test_each_size_of_batch_is_compiled_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are: no graph of any size, and none that is run without compilation."""
    convolution(monkeypatch)
    graphs: list[list[Any]] = []

    def backend(module: Any, inputs: list[Any]) -> Any:
        graphs.append([tuple(value.shape) if hasattr(value, "shape") else value for value in inputs])
        return module.forward

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **how: real(function, backend=backend, **how))
    for batch in range(2, 14):
        pixels = np.repeat(PIXELS[:1], batch, 0)
        compiled_runner("any", "224", "fp32", "cpu").prepare(pixels, TEXT)
        assert len(graphs) == batch - 1, "one more"
        assert all(type(n) is int for shape in graphs[-1] for n in shape) and (batch, 1, 8, 8) in graphs[-1]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("slow", "words"), [("channels_last", "first"), ("contiguous_format", "last")])
def test_the_faster_layout_is_taken(monkeypatch: pytest.MonkeyPatch, slow: str, words: str, compiled: bool) -> None:
    module = convolution(monkeypatch, getattr(torch, slow))
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    runner = (compiled_runner if compiled else eager_runner)("any", "224", "fp32", "cpu")
    runner.prepare(PIXELS, TEXT)
    assert runner.detail.endswith(f"channels {words}")
    assert module.weight.is_contiguous(memory_format=torch.channels_last) == (words == "last")


def test_a_variant_may_end_in_a_saliency_map_and_a_precision(seen: dict[str, Any]) -> None:
    for name in list(MAPS["kad"])[1:]:
        for ending in ("", "-fp16", "-bf16", "-int8"):
            eager_runner("any", f"224-{name}{ending}", "fp32", "cpu")
            assert seen["maps"].pop() == name and not seen["maps"]
    eager_runner("any", "224-bf16", "fp32", "cpu")
    assert not seen["maps"] and seen["resolution"] is None
    eager_runner("any", "224-at-448-layer-mean-fp16", "fp32", "cpu")
    assert seen["maps"].pop() == "layer-mean" and seen["resolution"] == 448
    for unknown in ("512", "512-layer-mean", "224-raw", "224-layer-mean-int4", "224-at-", "224-at-x"):
        with pytest.raises(ConfigError, match=f"no variant {unknown}"):
            eager_runner("any", unknown, "fp32", "cpu")


@pytest.mark.parametrize("model", MAPS)
def test_every_name_the_exporter_gives_is_understood(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variant and map as `choose_map` joins them, precision as the export does."""
    kind = torch_runner.adapter_class(model)
    made: list[str] = []
    monkeypatch.setattr(kind, "stand_in", lambda variant, seed: made.append(variant) or _Named(kind, variant))
    for variant in kind.variants:
        for name in kind.maps:
            adapter = _Named(kind, variant)
            adapter.choose_map(name)
            for ending in ("", "-fp16", "-bf16"):
                found = torch_runner._adapter(model, adapter.variant + ending)
                assert made.pop() == variant
                assert (found.variant, found.map_name) == (adapter.variant, adapter.map_name)


class _Named:
    """Of an adapter what names it; the network itself is left out."""

    def __init__(self, kind: Any, variant: str) -> None:
        self.name, self.variant, self.map_name, self.maps = "any", variant, "", kind.maps
        self.saliency = Saliency("attention", "any")

    choose_map = Adapter.choose_map


def test_failures_are_one_sentence(seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen["value"] = float("nan")
    with pytest.raises(EngineError, match="not finite"):
        eager_runner("any", "224", "fp32", "cpu").prepare(PIXELS, TEXT)
    seen["value"] = "no number"
    with pytest.raises(EngineError, match="PyTorch could not run the model: TypeError"):
        eager_runner("any", "224", "fp32", "cpu").prepare(PIXELS, TEXT)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineError, match="finds no GPU"):
        eager_runner("any", "224", "fp16", "cuda:0")
