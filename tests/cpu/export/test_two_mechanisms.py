"""The second mechanism of a model: gradients against autograd, similarities written out, and both in bundles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from small_models import image_bundle, made_up_set, small_adapter
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.export import Adapter
from xbench_fast.export.checkpoints.stand_in import stand_in_module
from xbench_fast.export.models.chexzero import ChexzeroAdapter
from xbench_fast.export.models.clip import PATCHES, build_clip
from xbench_fast.export.models.layers.gradient_attention import gelu_slope, quick_gelu_slope
from xbench_fast.export.models.saliency_maps import MAPS
from xbench_fast.export.models.two_towers import TwoTowers
from xbench_fast.export.onnx_graph import ImageGraph

torch = pytest.importorskip("torch")

GRADIENT = [name for name, maps in MAPS.items() if "gradient-attention" in maps]
SIMILARITY = [name for name, maps in MAPS.items() if "last-layer" in maps]
SECOND = {**dict.fromkeys(GRADIENT, "gradient-attention"), **dict.fromkeys(SIMILARITY, "patch-text")}


def sample(adapter: Any, images: int, texts: int, seed: int = 3) -> tuple[Any, Any]:
    random, size = torch.Generator().manual_seed(seed), adapter.geometry.size
    image = torch.randn(images, 3, size, size, generator=random)
    return image, torch.randn(texts, *adapter.text_shape, generator=random)


def by_autograd(adapter: Any, image: Any, text: Any, blocks: list[Any]) -> Any:
    """The positive part of attention times gradient, mean over heads, of the model's own forward [B, Q, N];
    of several `blocks` the mean, each by the gradient of its own score."""
    kept: list[Any] = []
    hooks = [block.register_forward_hook(lambda module, given, made: kept.append(made)) for block in blocks]
    logits = TwoTowers.forward(adapter, image.requires_grad_(), text)[0]
    for hook in hooks:
        hook.remove()
    weights = [made[1] if isinstance(made, tuple) else made for made in kept]  # the whole attention, or its weights
    assert len(weights) == len(blocks)
    maps = []
    for column in logits.T:
        gradients = torch.autograd.grad(len(blocks) * column.sum(), weights, retain_graph=True)
        parts = [(w * g)[:, :, 0, 1:].clamp(min=0).mean(1) for w, g in zip(weights, gradients, strict=True)]
        maps.append(torch.stack(parts).mean(0))
    return torch.stack(maps, 1).detach()


def close(found: Any, wanted: Any) -> None:
    """Within 1e-4 of the largest value."""
    assert wanted.abs().max() > 0 and wanted.std() > 0
    assert (found - wanted).abs().max() < 1e-4 * wanted.abs().max()


def last_attentions(adapter: Any) -> list[Any]:
    """The modules that return the last attention's weights."""
    module = adapter.module
    if adapter.name == "biomedclip":
        return [module.visual.trunk.blocks[-1].attn.attn_drop]
    members = module.members if adapter.name == "chexzero" else [module]
    return [member.visual.transformer.resblocks[-1].attn for member in members]


def unlike(adapter: Any) -> None:
    """Norms and biases of stand-in weights are ones and zeros, which hide errors."""
    random = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for name, value in adapter.module.named_parameters():
            if value.ndim == 1:
                value += 0.3 * torch.randn(value.shape, generator=random)
            elif "mlp" in name:
                value *= 3


@pytest.mark.parametrize("name", GRADIENT)
def test_the_gradient_of_the_last_attention_is_autograds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter: Any = small_adapter(name, monkeypatch)
    unlike(adapter)
    image, text = sample(adapter, 2, 3)
    logits, official = adapter.forward(image, text)
    wanted = by_autograd(adapter, image.clone(), text, last_attentions(adapter))
    adapter.choose_map("gradient-attention")
    assert adapter.saliency.kind == "gradient" and adapter.variant.endswith("-gradient-attention")
    with torch.inference_mode():
        scores, found = adapter.forward(image, text)
    close(found.flatten(2), wanted)
    torch.testing.assert_close(scores, logits.detach(), rtol=0, atol=1e-5)
    assert found.shape == official.shape and found.min() >= 0


def test_several_checkpoints_have_the_gradient_of_their_mean_score(monkeypatch: pytest.MonkeyPatch) -> None:
    small_adapter("chexzero", monkeypatch)
    members = [stand_in_module(lambda: build_clip(PATCHES["vit-b-32"]), seed) for seed in (0, 1)]
    adapter: Any = ChexzeroAdapter._of(members, "stand-in", None)
    image, text = sample(adapter, 2, 2)
    text = torch.nn.functional.normalize(text.unflatten(-1, (2, -1)), dim=-1).flatten(1)  # as `encode_text` gives it
    wanted = by_autograd(adapter, image.clone(), text, last_attentions(adapter))
    adapter.choose_map("gradient-attention")
    with torch.inference_mode():
        close(adapter.forward(image, text)[1].flatten(2), wanted)


@pytest.mark.parametrize(
    ("slope", "function"),
    [(gelu_slope, torch.nn.functional.gelu), (quick_gelu_slope, lambda x: x * torch.sigmoid(1.702 * x))],
)
def test_slopes_of_activations(slope: Any, function: Any) -> None:
    x = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)
    function(x).sum().backward()
    torch.testing.assert_close(slope(x.detach()), x.grad)


def vectors(adapter: Any, image: Any, text: Any) -> tuple[Any, Any]:
    """Patches [B, N, D] and the vectors of each query [Q, texts, D] that are compared, by their definition."""
    module = adapter.module
    if adapter.name in ("kad", "devide"):
        return module.image_encoder(image), text[:, None]
    if adapter.name == "carzero":
        norm = module.fusion_module.decoder.norm
        return norm(module.encode_image(image)[:, 1:]), norm(text[:, :1])
    network = module.model["module"]
    if adapter.name == "medklip":
        return network(image), network.disease_embedding_layer(text)[:, None]
    patches = network.res_l2(network.res_l1(network.backbone(image))).flatten(2).transpose(1, 2)
    return patches, network.disease_embedding_layer(text)[:, [0, 6, 7, 8]]


@pytest.mark.parametrize("name", SIMILARITY)
def test_the_similarity_of_an_attention_model_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter: Any = small_adapter(name, monkeypatch)
    unlike(adapter)
    image, text = sample(adapter, 2, 3)
    with torch.inference_mode():
        logits, official = adapter.forward(image, text)
        patches, queries = vectors(adapter, image, text)
        adapter.choose_map("patch-text")
        scores, found = adapter.forward(image, text)
    assert torch.equal(scores, logits) and adapter.saliency.kind == "similarity"
    pairs = torch.nn.functional.cosine_similarity(patches[:, None, :, None], queries[None, :, None], dim=-1)
    close(found.flatten(2), pairs.mean(-1))
    assert not torch.allclose(found, official, atol=1e-3)


@pytest.fixture(scope="module", params=("kad", "carzero", "clip"))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Bundle]]:
    """A small model and its bundle, with the second mechanism."""
    with pytest.MonkeyPatch.context() as patch:
        adapter: Adapter = small_adapter(request.param, patch)
        adapter.choose_map(SECOND[request.param])
        sets = {name: made_up_set(adapter, name, [("Mass", 1)] * size, seed)
                for name, size, seed in (("one", 1, 1), ("four", 4, 2))}  # fmt: skip
        yield adapter, image_bundle(adapter, tmp_path_factory.mktemp("second") / "bundle", sets)


def test_any_number_of_images_and_prompt_sets_in_one_pass(exported: tuple[Any, Bundle]) -> None:
    """ONNX Runtime against PyTorch; features that are computed once and asked by sets of several sizes."""
    pytest.importorskip("onnxruntime")
    adapter, bundle = exported
    size = adapter.geometry.size
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1, size, size), np.uint8)
    with open_engine(bundle, "onnxruntime-cpu", threads=1) as engine, torch.inference_mode():
        features = engine.encode(pixels)
        assert features.parts is not None, "the graph falls apart"
        for name in ("one", "four"):
            text = bundle.prompt_set(name).features
            wanted = ImageGraph(adapter)(torch.from_numpy(pixels), torch.from_numpy(text))
            for scores in (engine.ask(features, text), engine.run(pixels, text)):
                close(torch.from_numpy(scores.logits), wanted[0])
                close(torch.from_numpy(scores.saliency), wanted[1])
