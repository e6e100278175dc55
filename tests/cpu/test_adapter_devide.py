"""DeViDe's assumed architecture against the goldens of that assumption (DeViDe specification)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from golden_models import Golden, check_image_graph, check_text_graph, computed, filled, read_golden
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter
from xbench_fast.export.checkpoints.stand_in import image
from xbench_fast.export.models.devide import DevideAdapter, DevideConfig, read_config

torch.set_num_threads(2)

PARTS = {part: part for part in ("image_encoder", "text_encoder", "model")}
SMALL: dict[str, Any] = {
    "image": {"size": 32, "patch": 8, "width": 24, "layers": 2, "heads": 3, "hidden": 40},
    "text": {"vocabulary": 30, "width": 12, "layers": 1, "heads": 3, "hidden": 16, "positions": 20, "max_length": 20},
    "decoder": {"width": 24, "layers": 3, "heads": 2, "ffn": 20},
    "preprocess": {"resize": [32, 32]},
}


@pytest.fixture(scope="module")
def golden(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    manifest, _ = read_golden(shared, "devide")
    path = tmp_path_factory.mktemp("devide") / "devide.pt"
    parts = manifest["tensors"]
    content = {part: filled(parts[part], f"{part}.", manifest["alias_of"].get(part)) for part in parts}
    torch.save(content, path)
    config = path.parent / "devide.yaml"
    config.write_text(f"model: devide\ncheckpoint: {{parts: {json.dumps(PARTS)}}}\n")
    adapter = load_adapter("devide", path, config=config)
    path.unlink()
    with computed(
        shared, adapter, lambda tokens: adapter.encode_text(tokens["input_ids"], tokens["attention_mask"])
    ) as it:
        yield it


def test_facts(golden: Golden) -> None:
    """Every result carries the mark: the variant names the bundle, and the map says it."""
    adapter = golden.adapter
    assert (adapter.name, adapter.variant) == ("devide", "assumed-architecture")
    assert "assumed architecture" in adapter.saliency.description
    assert adapter.geometry == Geometry("squash", 224, 224, "bicubic") and adapter.grid == (14, 14)
    assert adapter.text_shape == (768,) and adapter.context == 256 and adapter.vocabulary_size == 30522


@pytest.mark.parametrize(
    "name",
    ["image_cls", "image_patches", "text_features", "logits", "probability", "attention", "attention_map"],
)
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_exported_outputs(golden: Golden) -> None:
    with torch.inference_mode():
        logits, saliency = golden.adapter.forward(golden.image, golden.text)
    golden.check("probability", logits.sigmoid())
    golden.check("attention_map", saliency)


# Choices and mappings, on a model of a few thousand values.


def small(**changes: dict[str, Any]) -> dict[str, Any]:
    """The small config with `changes` merged into its sections."""
    return {key: {**SMALL.get(key, {}), **changes.get(key, {})} for key in (*SMALL, *changes)}


def stand_in(**changes: dict[str, Any]) -> DevideAdapter:
    return DevideAdapter.stand_in("assumed-architecture", 2, read_config(small(**changes)))


def as_file(adapter: DevideAdapter) -> dict[str, dict[str, torch.Tensor]]:
    return {part: dict(adapter.module.get_submodule(part).state_dict()) for part in PARTS}


def scores(adapter: DevideAdapter) -> tuple[torch.Tensor, torch.Tensor]:
    size = adapter.geometry.size
    shape = (5, *adapter.text_shape)
    with torch.inference_mode():
        return adapter.forward(torch.from_numpy(image("x", (2, 3, size, size))), torch.from_numpy(image("text", shape)))


CHOICES: dict[str, dict[str, Any]] = {
    "default": {},
    "no final norm": {"image": {"final_norm": False, "eps": 1e-12}},
    "class token": {"image": {"memory": "class_and_patches"}},
    "projected": {"image": {"width": 48, "projection": "linear"}},
    "cls": {"text": {"pool": "cls", "head": "none", "width": 24}},
    "mean": {"text": {"pool": "mean"}},
    "averaged": {"text": {"descriptions": 3}},
    "asked apart": {"text": {"descriptions": 3, "combine": "queries"}},
    "alone": {"decoder": {"self_attention": False, "input_norm": "none"}},
    "two norms": {"decoder": {"input_norm": "separate", "map": [0, 2]}},
    "one output": {"head": {"kind": "mlp", "outputs": 1, "probability": "sigmoid"}, "decoder": {"map": "mean"}},
    "resnet": {
        "image": {"arch": "resnet50", "stages": 3, "size": 64},
        "preprocess": {"resize": 72, "crop": 64, "interpolation": "bilinear", "mean": [0, 0, 0], "std": [1, 1, 1]},
    },
}


@pytest.mark.parametrize("choice", CHOICES)
def test_choices(choice: str, tmp_path: Path) -> None:
    """Each alternative comes back from a file; its map sums to 1; padding is inert."""
    adapter = stand_in(**CHOICES[choice])
    torch.save(as_file(adapter), tmp_path / "model.pt")
    config = small(**CHOICES[choice]) | {"checkpoint": {"parts": PARTS}}
    loaded = load_adapter("devide", tmp_path / "model.pt", config=config)
    assert isinstance(loaded, DevideAdapter)
    logits, maps = scores(loaded)
    assert torch.equal(logits, scores(adapter)[0])
    assert logits.shape == (2, 5) and maps.shape == (2, 5, *adapter.grid)
    total = maps.sum(dim=(2, 3))
    assert (total < 0.999).all() if choice == "class token" else torch.allclose(total, torch.ones(2, 5))
    ids = torch.tensor([[1, 5, 9]])
    with torch.inference_mode():
        wide = adapter.encode_text(F.pad(ids, (0, 4)), F.pad(torch.ones_like(ids), (0, 4)))
        torch.testing.assert_close(wide, adapter.encode_text(ids), rtol=0, atol=1e-5)


def test_what_the_choices_mean() -> None:
    """Averaging equals asking for the mean; without self-attention a prompt is as if alone; maps are averaged."""
    text = torch.from_numpy(image("t", (4, 3, 24)))
    pixels = torch.from_numpy(image("x", (2, 3, 32, 32)))
    with torch.inference_mode():
        averaged, _ = stand_in(text={"descriptions": 3}).forward(pixels, text)
        torch.testing.assert_close(averaged, stand_in().forward(pixels, text.mean(dim=1))[0])
        alone = stand_in(decoder={"self_attention": False})
        torch.testing.assert_close(alone.forward(pixels, text[:1, 0])[0], alone.forward(pixels, text[:, 0])[0][:, :1])
        every = [stand_in(decoder={"map": [layer]}).forward(pixels, text[:, 0])[1] for layer in range(3)]
        mean = stand_in(decoder={"map": "mean"}).forward(pixels, text[:, 0])[1]
        torch.testing.assert_close(mean, torch.stack(every).mean(dim=0))
        torch.testing.assert_close(stand_in().forward(pixels, text[:, 0])[1], every[2])


@pytest.mark.parametrize("choice", ["default", "class token", "asked apart"])
def test_graphs(choice: str, tmp_path: Path) -> None:
    adapter = stand_in(**CHOICES[choice])
    check_image_graph(adapter, tmp_path, [(1, 1), (2, 5), (3, 1), (2, 75)])
    if choice == "default":
        check_text_graph(adapter, tmp_path)


def test_a_file_with_other_names(tmp_path: Path) -> None:
    """KAD's ViT names (Hugging Face), everything flat under one key with a wrapper's prefix, q, k, v apart."""
    adapter = stand_in(image={"eps": 1e-12})
    state: dict[str, torch.Tensor] = {}
    for part, prefix in (("image_encoder", "visual.vit"), ("text_encoder", "text"), ("model", "fusion")):
        for name, tensor in as_file(adapter)[part].items():
            state[f"{prefix}.{_hugging_face(name) if part == 'image_encoder' else name}"] = tensor
    for name in [name for name in state if ".qkv." in name]:
        root, kind = name.split("qkv.")
        for letter, rows in zip(("query", "key", "value"), state[name].chunk(3), strict=True):
            state[f"{root}{letter}.{kind}"] = rows.clone()
        del state[name]
    state["fusion.decoder_norm.weight"] = state["fusion.decoder.norm.weight"]
    state |= {
        "visual.vit.pooler.dense.weight": torch.zeros(3),
        "text.bert_model.embeddings.position_ids": torch.ones(2),
    }
    state |= {"text.logit_scale": torch.zeros(())}
    content = {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}}
    torch.save(content | {"optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}}, "epoch": 3}, tmp_path / "own.pt")
    prefixes = {"image_encoder": "visual", "text_encoder": "text", "model": "fusion"}
    mapping = {
        "parts": {part: f"state_dict.module.{prefix}" for part, prefix in prefixes.items()},
        "rename": [
            [r"^vit\.embeddings\.cls_token$", "cls_token"],
            [r"^vit\.embeddings\.position_embeddings$", "pos_embed"],
            [r"^vit\.embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."],
            [r"^vit\.encoder\.layer\.(\d+)\.", r"blocks.\1."],
            [r"^(blocks\.\d+)\.layernorm_before\.", r"\1.norm1."],
            [r"^(blocks\.\d+)\.layernorm_after\.", r"\1.norm2."],
            [r"^(blocks\.\d+)\.attention\.attention\.(query|key|value)\.", r"\1.attn.\2."],
            [r"^(blocks\.\d+)\.attention\.output\.dense\.", r"\1.attn.proj."],
            [r"^(blocks\.\d+)\.intermediate\.dense\.", r"\1.mlp.fc1."],
            [r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."],
            [r"^vit\.layernorm\.", "norm."],
        ],
        "stack_qkv": True,
        "drop": [r"\.position_ids$", r"^vit\.pooler\."],
    }
    config = small(image={"eps": 1e-12}) | {"checkpoint": mapping}
    (tmp_path / "devide.json").write_text(json.dumps(config))
    loaded = load_adapter("devide", tmp_path / "own.pt", config=tmp_path / "devide.json")
    wanted = adapter.module.state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in loaded.module.state_dict().items())


def _hugging_face(name: str) -> str:
    pairs = (
        ("cls_token", "embeddings.cls_token"),
        ("pos_embed", "embeddings.position_embeddings"),
        ("patch_embed.proj", "embeddings.patch_embeddings.projection"),
        (".norm1", ".layernorm_before"),
        (".norm2", ".layernorm_after"),
        ("attn.qkv", "attention.attention.qkv"),
        ("attn.proj", "attention.output.dense"),
        ("mlp.fc1", "intermediate.dense"),
        ("mlp.fc2", "output.dense"),
        ("blocks.", "encoder.layer."),
    )
    for timm, other in pairs:
        name = name.replace(timm, other)
    return name.replace("norm.", "layernorm.") if name.startswith("norm.") else name


def test_another_image_size(tmp_path: Path) -> None:
    """The position table is resampled like timm's; the class token's row stays."""
    torch.save(as_file(stand_in()), tmp_path / "model.pt")
    config = small(image={"size": 48}, preprocess={"resize": [48, 48]}) | {"checkpoint": {"parts": PARTS}}
    adapter = load_adapter("devide", tmp_path / "model.pt", config=config)
    assert adapter.grid == (6, 6)
    from timm.layers import resample_abs_pos_embed

    table = stand_in().module.image_encoder.pos_embed
    wanted = resample_abs_pos_embed(table, [6, 6], num_prefix_tokens=1)
    torch.testing.assert_close(adapter.module.image_encoder.pos_embed, wanted)


def test_refusals(tmp_path: Path) -> None:
    """Without a mapping, with an incomplete one, and with one that contradicts the file."""
    path = tmp_path / "model.pt"
    content = as_file(stand_in())
    torch.save(content, path)
    for config in (None, small()):
        with pytest.raises(ConfigError, match=r"the architecture is assumed.*give a config with a section checkpoint"):
            load_adapter("devide", path, config=config)
    with pytest.raises(CheckpointError, match="does not exist"):
        load_adapter("devide", tmp_path / "none.pt", config=small() | {"checkpoint": {"parts": PARTS}})
    renamed = {**content, "model": {f"x.{name}": tensor for name, tensor in content["model"].items()}}
    renamed["head"] = {"weight": torch.zeros(2), "bias": torch.zeros(2)}
    torch.save(renamed, path)
    with pytest.raises(CheckpointError) as refusal:
        load_adapter("devide", path, config=small() | {"checkpoint": {"parts": PARTS}})
    listed = str(refusal.value).replace("(", " ").replace(")", ",")
    for name in content["model"]:
        assert f" model.{name}," in listed and f" model.x.{name} " in listed
    assert "head.weight, head.bias" in str(refusal.value)
    content["model"]["decoder_norm.weight"] = content["model"]["decoder.norm.weight"] + 1
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"are two norms; set decoder.input_norm to separate"):
        load_adapter("devide", path, config=small() | {"checkpoint": {"parts": PARTS}})
    both = {"parts": PARTS, "rename": [["weight$", "bias"]]}
    with pytest.raises(CheckpointError, match=r"the mapping gives .* and .* the same name"):
        load_adapter("devide", path, config=small() | {"checkpoint": both})


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model": "kad"}, "is for the model 'kad'"),
        ({"images": {}}, "unknown key 'images'"),
        ({"image": {"sise": 3}}, "image has an unknown key 'sise'"),
        ({"image": {"arch": "vit_l16"}}, "arch is 'vit_l16'; choose vit_b16 or resnet50"),
        ({"image": {"size": 0}}, "size is 0; give int"),
        ({"decoder": {"self_attention": 1}}, "self_attention is 1; give bool"),
        ({"decoder": {"map": [4]}}, "has no layer"),
        ({"image": {"size": 384}}, "is not the encoder's of 384"),
        ({"head": {"outputs": 1}}, "softmax1 does not belong to 1 outputs"),
        ({"preprocess": {"resize": 256}}, "cannot resize to 256 and crop None"),
        ({"image": {"width": 1024}}, "need image.projection: linear"),
        ({"prompts": {"Mass": ["a", "b"]}}, "as many prompts"),
        ({"checkpoint": {"parts": {"model": "model"}}}, "parts must say where"),
        ({"checkpoint": {"parts": PARTS, "rename": [["(", ""]]}}, "is not a regular expression"),
        ({"checkpoint": {"parts": PARTS, "rename": [["a", r"\2"]]}}, "cannot replace"),
    ],
)
def test_configs_that_are_refused(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_config(config)
    assert sentence in str(refusal.value)


def test_config_files(tmp_path: Path) -> None:
    (tmp_path / "prompts.json").write_text('{"Mass": "a mass", "Nodule": ["a nodule"]}')
    (tmp_path / "devide.yaml").write_text("image: {eps: 1.0e-6}\nprompts: prompts.json\n")
    assert read_config(tmp_path / "devide.yaml").prompts == {"Mass": ("a mass",), "Nodule": ("a nodule",)}
    assert read_config({}) == DevideConfig()
    (tmp_path / "bad.yaml").write_text("image: [")
    for name in ("bad.yaml", "none.yaml"):
        with pytest.raises(ConfigError, match=name):
            read_config(tmp_path / name)
    assert "assumed architecture" in stand_in().saliency.description
