"""`--saliency`: documented alternatives to the authors' map, never the default, and what they compute."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from authors_outputs import authors_outputs
from xbench_fast.engines.errors import ConfigError
from xbench_fast.export import stand_in_adapter
from xbench_fast.export.checkpoints.stand_in import fill_module
from xbench_fast.export.cli import main
from xbench_fast.export.models.biomedclip import BiomedClip
from xbench_fast.export.models.layers.attention import PackedAttention
from xbench_fast.export.models.layers.bert import BertConfig
from xbench_fast.export.models.layers.query_decoder import DecoderConfig, QueryDecoder, join_layers
from xbench_fast.export.models.layers.vit import ViTConfig
from xbench_fast.export.models.model_registry import MODELS
from xbench_fast.export.models.saliency_maps import ATTENTION_MAPS, MAPS
from xbench_fast.export.models.two_towers import TwoTowers, patch_map

torch = pytest.importorskip("torch")

ATTENTION = {"kad": "layer-mean", "medklip": "last-layer", "mavl": "last-layer", "carzero": "last-layer"}


@pytest.mark.parametrize("name", ATTENTION)
def test_the_layers_are_those_of_the_authors_outputs(name: str) -> None:
    """The alternative map from the layers that the authors' code returns, or, for KAD, from the decoder itself."""
    adapter: Any = stand_in_adapter(name, "demo" if name == "kad" else None, seed=1)
    random = torch.Generator().manual_seed(0)
    image = torch.randn(2, 3, 224, 224, generator=random)
    text = torch.randn(2, *adapter.text_shape, generator=random)
    with torch.inference_mode():
        official, first = adapter.forward(image, text)
        found = authors_outputs(adapter, image, text)
        if name == "kad":
            _, maps = adapter.module.model(adapter.module.image_encoder(image), text)
            wanted = sum(maps) / len(maps)
        elif name == "medklip":
            wanted = found["attention_layers"][-1]
        elif name == "mavl":
            wanted = found["attention_layers"][-1].unflatten(1, (-1, 9))[:, :, [0, 6, 7, 8]].mean(2)
        else:
            wanted = found["i2t_attention"][-1][..., 1:]
        before, variant = adapter.saliency.description, adapter.variant
        adapter.choose_map(ATTENTION[name])
        scores, other = adapter.forward(image, text)
    torch.testing.assert_close(other.flatten(2), wanted, rtol=0, atol=1e-6)
    assert torch.equal(scores, official) and not torch.allclose(other, first, rtol=1e-3, atol=0)
    assert adapter.saliency.description != before and adapter.variant == f"{variant}-{ATTENTION[name]}"


def test_the_official_map_keeps_the_name() -> None:
    adapter = stand_in_adapter("kad", "demo")
    adapter.choose_map("last-layer")
    assert (adapter.variant, adapter.map_name) == ("demo", "")
    with pytest.raises(ConfigError, match=r"no saliency map 'value-value': known are last-layer, .*, layer-mean"):
        adapter.choose_map("value-value")


@pytest.fixture(scope="module")
def decoder() -> Any:
    """Two layers, two heads, four queries, five patches."""
    network = QueryDecoder(DecoderConfig(width=8, layers=2, heads=2, hidden=8))
    fill_module(network, 5)
    return network


def scores_of(layer: Any, queries: Any, memory: Any) -> Any:
    """Scaled query-key products of one layer's heads, [heads][4, 5], written out for one image."""
    attention, x = layer.multihead_attn, layer.norm1(queries)
    queries = layer.norm2(queries + layer.self_attn(x, x).out)[0]
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    q, k = queries @ weight[:8].T + bias[:8], memory[0] @ weight[8:16].T + bias[8:16]
    return [q[:, part] @ k[:, part].T / 2 for part in (slice(0, 4), slice(4, 8))]


@pytest.mark.parametrize("name", ATTENTION_MAPS)
def test_every_reading_of_the_attention_written_out(decoder: Any, name: str) -> None:
    random = torch.Generator().manual_seed(2)
    queries, memory = torch.randn(1, 4, 8, generator=random), torch.randn(1, 5, 8, generator=random)
    with torch.inference_mode():
        states, maps = decoder(queries, memory, ATTENTION_MAPS[name])
        found = join_layers(maps, ATTENTION_MAPS[name])[0]
        same, _ = decoder(queries, memory)
        second, _ = decoder.layers[0](queries, memory)
        layers = [scores_of(decoder.layers[0], queries, memory), scores_of(decoder.layers[1], second, memory)]
    wanted = []
    for scores in layers if name.startswith("layer-mean") else layers[1:]:
        heads = [s if name.endswith("-raw") else s.exp() / s.exp().sum(1, keepdim=True) for s in scores]
        wanted.append(torch.maximum(*heads) if name.endswith("-head-max") else (heads[0] + heads[1]) / 2)
    torch.testing.assert_close(found, sum(wanted) / len(wanted))
    assert torch.equal(states, same)


def test_every_model_names_its_maps_and_value_value_is_never_the_default() -> None:
    official = {"biomedclip": "patch-text", "carzero": "layer-mean", "clip": "patch-text", "devide": "last-layer"}
    official |= {"kad": "last-layer", "mavl": "layer-mean", "medklip": "layer-mean", "chexzero": "patch-text"}
    official["afloc"] = "patch-text-smoothed"
    official |= {"biovil": "patch-text-smoothed", "biovil_t": "patch-text-smoothed", "xrv": "class-activation"}
    assert (
        {name: next(iter(maps)) for name, maps in MAPS.items()} == official == {name: official[name] for name in MAPS}
    )
    for name, maps in MAPS.items():
        others = {"clip": {"value-value", "patch-text-softmax"}, "chexzero": {"value-value"}, "afloc": {"patch-text"}}
        others |= {"biovil": {"patch-text"}, "biovil_t": {"patch-text"}, "xrv": {"class-activation"}}
        assert set(maps) >= others.get("clip" if name == "biomedclip" else name, set(ATTENTION_MAPS))
        assert len(set(maps.values())) == len(maps) and MODELS.load(name).maps == maps


def test_the_list_describes_every_map(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    for maps in MAPS.values():
        assert all(
            f"{name}: {text}" in printed or f"{name} (default): {text}" in printed for name, text in maps.items()
        )


def test_the_softmax_over_the_patches() -> None:
    cosines = torch.tensor([[[0.5, -0.5, 0.1]]])
    powers = [math.exp(4 * value) for value in (0.5, -0.5, 0.1)]
    wanted = torch.tensor([[[power / sum(powers) for power in powers]]])
    torch.testing.assert_close(patch_map(cosines, torch.tensor(4.0), "patch-text-softmax"), wanted)
    assert patch_map(cosines, torch.tensor(4.0), "value-value") is patch_map(cosines, torch.tensor(4.0), "") is cosines


def test_value_value_attention_written_out() -> None:
    """Each head's values attend to the values: softmax(v v^T / sqrt d) v, projected."""
    attention = PackedAttention(8, 2)
    fill_module(attention, 4)
    x = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(1))
    v = x[0] @ attention.in_proj_weight[16:].T + attention.in_proj_bias[16:]
    heads = []
    for part in (v[:, :4], v[:, 4:]):
        weights = torch.exp(part @ part.T / 2)
        heads.append(weights / weights.sum(1, keepdim=True) @ part)
    wanted = torch.cat(heads, 1) @ attention.out_proj.weight.T + attention.out_proj.bias
    torch.testing.assert_close(attention.values(x)[0], wanted)


def test_value_value_in_a_vit_changes_the_patches_and_not_the_image() -> None:
    bert = BertConfig(vocabulary=50, width=16, layers=1, heads=2, hidden=32, positions=16, pooler=False)
    module = BiomedClip(ViTConfig(image_size=32, patch=8, width=24, layers=2, heads=2, hidden=32), bert)
    fill_module(module, 2)
    image = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        (pooled, patches), (same, values) = module.encode_image(image), module.encode_values(image)
        last = module.visual.trunk.blocks[-1]
        rows = last.attn.qkv.weight[48:].repeat(3, 1), last.attn.qkv.bias[48:].repeat(3)
        last.attn.qkv.weight.copy_(rows[0])  # queries and keys become the values
        last.attn.qkv.bias.copy_(rows[1])
        wanted = module.encode_image(image)[1]
    assert torch.equal(pooled, same) and values.shape == patches.shape
    torch.testing.assert_close(values, wanted)
    assert not torch.allclose(values, patches, rtol=1e-2)


def test_a_map_that_an_adapter_names_and_does_not_compute_is_one_sentence() -> None:
    adapter: Any = SimpleNamespace(name="half", map_name="value-value")
    adapter.encode_values = partial(TwoTowers.encode_values, adapter)
    with pytest.raises(ConfigError, match=r"half has 'value-value' in `maps` and no `encode_values`; define it"):
        TwoTowers.forward(adapter, torch.zeros(1), torch.zeros(1))


def test_value_value_in_clip_is_that_of_its_blocks() -> None:
    pytest.importorskip("open_clip")
    adapter: Any = stand_in_adapter("clip", "vit-b-32")
    random = torch.Generator().manual_seed(0)
    image, text = torch.randn(1, 3, 224, 224, generator=random), torch.randn(2, 512, generator=random)
    with torch.inference_mode():
        logits, official = adapter.forward(image, text)
        adapter.choose_map("value-value")
        same, values = adapter.forward(image, text)
        packed = adapter.module.visual.transformer.resblocks[-1].attn
        for tensor in (packed.in_proj_weight, packed.in_proj_bias):
            tensor.copy_(torch.cat([tensor[1536:]] * 3))
        adapter.map_name = ""
        wanted = adapter.forward(image, text)[1]
    torch.testing.assert_close(same, logits)
    torch.testing.assert_close(values, wanted, rtol=0, atol=1e-5)
    assert not torch.allclose(values, official, atol=1e-3)


def test_the_choice_is_in_the_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from xbench_fast.engines.bundle import Bundle

    pytest.importorskip("onnxruntime")
    arguments = ["--model", "kad", "--weights", "stand-in", "--variant", "demo", "--saliency", "layer-mean"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    manifest = Bundle.load(tmp_path / "kad-demo-layer-mean").manifest
    assert manifest.saliency["choice"] == "layer-mean" and re.search("mean over all", manifest.saliency["description"])
    assert main(["--model", "all", "--weights", "stand-in", "--saliency", "layer-mean", "--out", "x"]) == 2
