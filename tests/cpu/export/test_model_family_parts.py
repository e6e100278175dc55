"""The parts of a family: image towers of every kind against what defines them, and what is refused, in one sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import CheckpointError, ConfigError, MissingExtraError
from xbench_fast.export.cli import main

torch = pytest.importorskip("torch")
open_clip = pytest.importorskip("open_clip")
transformers = pytest.importorskip("transformers")

VIT = {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
POOL = {"attentional_pool": True, "attn_pooler_heads": 2, "attn_pooler_queries": 3, "output_tokens": True}
TOWERS: dict[str, dict[str, Any]] = {
    "mean of the patches": {**VIT, "pool_type": "avg", "final_ln_after_pool": True},
    "attentional pool": {**VIT, **POOL},
    "resnet": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16},
    "timm tokens": {"image_size": 224, "timm_model_name": "test_vit", "timm_pool": "token", "timm_proj": "linear"},
    "timm mean of tokens": {
        "image_size": 224,
        "timm_model_name": "test_vit",
        "timm_pool": "avg",
        "timm_proj": "linear",
    },
    "timm map": {"image_size": 64, "timm_model_name": "test_convnext", "timm_pool": "", "timm_proj": "linear"},
}


def tower_of(vision: dict[str, Any]) -> tuple[Any, Any]:
    """An untrained tower with values worth comparing, and how it is read."""
    from xbench_fast.export.models.families.image_towers import image_tower

    torch.manual_seed(3)
    tower = open_clip.model._build_vision_tower(24, open_clip.CLIPVisionCfg(**vision)).eval()
    with torch.no_grad():
        for value in tower.parameters():
            value.add_(0.05 * torch.randn(value.shape))
    return tower, image_tower(tower, "it")


@pytest.mark.parametrize("name", TOWERS)
def test_the_image_vector_is_the_towers_own(name: str) -> None:
    tower, read = tower_of(TOWERS[name])
    image = torch.randn(2, 3, *[TOWERS[name]["image_size"]] * 2)
    with torch.inference_mode():
        pooled, patches = read(image)
        own = tower(image)
    torch.testing.assert_close(pooled, own[0] if isinstance(own, tuple) else own, atol=1e-4, rtol=1e-4)
    assert patches.shape[::2] == (2, 24) and not torch.allclose(patches[:, 0], patches[:, 1])


def test_patches_of_a_mean_are_normed_and_projected_alone() -> None:
    tower, read = tower_of(TOWERS["mean of the patches"])
    image = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        tokens = tower.transformer(tower._embeds(image))[:, 1:]
        torch.testing.assert_close(read(image)[1], tower.ln_post(tokens) @ tower.proj, atol=1e-4, rtol=1e-4)


def test_cells_of_a_resnet_make_up_its_vector() -> None:
    """The image vector is their mean, and that of the mean cell, weighted by the attention of the pool."""
    tower, read = tower_of({**TOWERS["resnet"], "head_width": 256})  # one head: one weight for each cell
    image = torch.randn(1, 3, 64, 64)
    pool = tower.attnpool
    assert pool.num_heads == 1
    with torch.inference_mode():
        pooled, cells = read(image)
        x = tower.layer4(tower.layer3(tower.layer2(tower.layer1(tower.stem(image))))).flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + pool.positional_embedding
        scores = (pool.q_proj(x[:, :1]) * x.shape[-1] ** -0.5) @ pool.k_proj(x).transpose(1, 2)
        weights = scores.softmax(-1)
        first = pool.c_proj(pool.v_proj(x[:, :1]))
        torch.testing.assert_close((weights @ torch.cat([first, cells], 1))[:, 0], pooled, atol=1e-4, rtol=1e-4)


def test_patches_of_timm_are_normed_and_projected_alone() -> None:
    for name in ("timm tokens", "timm mean of tokens", "timm map"):
        tower, read = tower_of(TOWERS[name])
        image = torch.randn(1, 3, *[TOWERS[name]["image_size"]] * 2)
        with torch.inference_mode():
            x = tower.trunk.forward_features(image)
            if x.ndim == 3:
                wanted = tower.head(tower.trunk.fc_norm(x[:, 1:]))
            else:
                single = [tower.head(tower.trunk.forward_head(x[:, :, r : r + 1, :1])) for r in range(x.shape[2])]
                wanted = torch.stack(single, 1)
            found = read(image)[1]
        found = found if x.ndim == 3 else found[:, :: x.shape[3]]
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_a_tower_whose_patches_cannot_be_read() -> None:
    from xbench_fast.export.models.families.family import patch_grid
    from xbench_fast.export.models.families.image_towers import image_tower

    with pytest.raises(ConfigError, match=r"No patches can be read from it: its image tower is a Linear\."):
        image_tower(torch.nn.Linear(2, 2), "it")
    ones, few = torch.ones(1, 8), torch.ones(1, 5, 8)
    with pytest.raises(ConfigError, match="No square map can be read from it: 5 patches"):
        patch_grid(lambda image: (ones, few), lambda image: ones, 8, "it")
    with pytest.raises(ConfigError, match="do not lead to its own image vector"):
        patch_grid(lambda image: (ones, few[:, :4]), lambda image: torch.arange(8.0)[None], 8, "it")


def processor(**more: Any) -> Any:
    plain = {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}
    return transformers.CLIPImageProcessor(**{**plain, **more})


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, "floor_crop-32-40-bicubic"),
        ({"size": {"shortest_edge": 32}, "resample": 2}, "floor_crop-32-32-bilinear"),
        ({"size": {"shortest_edge": 31}}, "resized to 31 pixels (shortest_edge), less than the 32 that are cut"),
        ({"do_pad": True}, "pictures that are padded (do_pad)"),
        ({"size": {"height": 32, "width": 32}}, "squash-32-32-bicubic"),
        ({"size": {"height": 32, "width": 32}, "do_center_crop": False}, "squash-32-32-bicubic"),
        ({"size": {"height": 40, "width": 40}}, "do not become the 32 x 32 pixels"),
        ({"do_center_crop": False}, "do not become the 32 x 32 pixels"),
        ({"crop_size": {"height": 40, "width": 40}}, "do not become the 32 x 32 pixels"),
        ({"size": {"height": 32, "width": 40}}, "only square pictures can"),
        ({"resample": 0}, "the interpolation 0 cannot be exported"),
        ({"do_rescale": False}, "not resized and divided by 255"),
        ({"image_mean": [0.5]}, "'image_mean' must be three numbers"),
    ],
)
def test_geometry_of_an_image_processor(more: dict[str, Any], wanted: str) -> None:
    from xbench_fast.export.models.families.preprocessing import from_processor

    try:
        found = from_processor(processor(**more), 32, "here").geometry.key
    except ConfigError as error:
        assert str(error).startswith("here: ")
        found = str(error)
    assert wanted in found


def test_a_picture_of_open_clip_that_is_not_square() -> None:
    from xbench_fast.export.models.families.preprocessing import from_open_clip

    config = {
        "size": (32, 40),
        "mean": (0, 0, 0),
        "std": (1, 1, 1),
        "interpolation": "bicubic",
        "resize_mode": "squash",
    }
    with pytest.raises(ConfigError, match=r"it takes pictures of \[32, 40\] pixels; only square ones"):
        from_open_clip(config, "it")
    assert from_open_clip({**config, "size": [40, 40]}, "it").geometry.key == "squash-40-40-bicubic"


def test_pixels_that_are_not_normalised() -> None:
    from xbench_fast.export.models.families.preprocessing import from_processor

    found = from_processor(processor(do_normalize=False), 32, "here")
    assert (found.mean, found.std) == ((0, 0, 0), (1, 1, 1))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an architecture, weights that fit it, and weights of which one tensor does not."""
    folder = tmp_path_factory.mktemp("weights")
    config = {"embed_dim": 24, "vision_cfg": VIT, "text_cfg": TEXT}
    (folder / "tiny.json").write_text(json.dumps(config))
    state = open_clip.CLIP(24, open_clip.CLIPVisionCfg(**VIT), open_clip.CLIPTextCfg(**TEXT)).state_dict()
    torch.save(state, folder / "fits.pt")
    torch.save({**state, "visual.ln_post.bias": torch.zeros(25)}, folder / "other.pt")
    return folder


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arch": "ViT-B16"}, "open_clip has no architecture 'ViT-B16': did you mean 'ViT-B-16' or "),
        ({"arch": "hf-hub:timm/x"}, "open_clip has no architecture 'hf-hub:timm/x'"),
        ({}, "No architecture for "),
        ({"arch": "absent.json"}, "The architecture absent.json cannot be read"),
        ({"prompt_style": "clop"}, "no built-in prompts in the style 'clop': did you mean 'clip'"),
        ({"preprocess": {"meen": [1, 1, 1]}}, "'preprocess' has no key 'meen': did you mean 'mean'"),
        ({"preprocess": {"mean": 1}}, "'mean' must be three numbers"),
        ({"preprocess": {"resize_mode": "longest"}}, "resize_mode 'longest' cannot be exported"),
        ({"tokeniser": "x"}, "The model 'OpenClipAdapter' has no option 'tokeniser': did you mean 'tokenizer'"),
        ({"arch": "roberta-ViT-B-32"}, "uses roberta-base, which is not in the Hugging Face cache"),
    ],
)
def test_options_of_open_clip_that_are_wrong(
    weights: Path, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from xbench_fast.export import load_adapter
    from xbench_fast.export.models.families import FAMILIES

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    if "preprocess" in options or "tokeniser" in options:
        options = {"arch": str(weights / "tiny.json"), **options}
    with pytest.raises(ConfigError) as raised:
        load_adapter(FAMILIES.target("open_clip"), weights / "fits.pt", **options)
    assert words in str(raised.value)


def test_a_checkpoint_that_does_not_fit(weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tensor is named, and nothing is written."""
    line = ["--family", "open_clip", "--arch", str(weights / "tiny.json"), "--out", str(tmp_path / "out")]
    assert main([*line, "--checkpoint", str(weights / "other.pt")]) == 1
    assert "visual.ln_post.bias [25] instead of [32]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_folders_that_are_no_model_of_transformers(tmp_path: Path) -> None:
    from xbench_fast.export.models.families.transformers import TransformersAdapter

    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        TransformersAdapter.load(tmp_path)
    for text, words in (
        ("{", "cannot be read"),
        ('{"model_type": "blip"}', "is a 'blip' model; the family 'transformers' reads CLIP and SigLIP"),
        ('{"model_type": "siglip2"}', "NaFlex"),
        ('{"model_type": "clip", "vision_config": {"hidden_size": 10, "num_attention_heads": 3}}', "cannot build"),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises((CheckpointError, ConfigError), match=words):
            TransformersAdapter.load(tmp_path)


@pytest.mark.parametrize(("family", "package"), [("open_clip", "open_clip_torch"), ("transformers", "transformers")])
def test_a_package_that_is_missing(family: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xbench_fast.export import load_adapter
    from xbench_fast.export.models.families import FAMILIES

    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    options = {"arch": "ViT-B-16"} if family == "open_clip" else {}
    monkeypatch.setitem(sys.modules, family, None)
    with pytest.raises(MissingExtraError, match=f"This family needs {package}, which is not installed; install"):
        load_adapter(FAMILIES.target(family), tmp_path, **options)


WORDS = ("<s>", "<pad>", "</s>", "<unk>", "lung", "mass", "no", "finding", "x", "ray", "big")
PLAIN = {**TEXT, "vocab_size": len(WORDS), "no_causal_mask": True, "pool_type": "last", "hf_tokenizer_name": "x"}
TEXT_TOWERS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "a tower of transformers": (
        {"hf_model_name": "x", "hf_tokenizer_name": "x", "hf_proj_type": "mlp", "hf_pooler_type": "mean_pooler"},
        "<pad>",
        {},
    ),
    "lower case, no punctuation, padded by the end": (
        {**PLAIN, "tokenizer_kwargs": {"clean": "canonicalize"}},
        "</s>",
        {"clean": "canonicalize"},
    ),
    "no separator": ({**PLAIN, "tokenizer_kwargs": {"strip_sep_token": True}}, "<pad>", {"strip_sep_token": True}),
}


@pytest.mark.parametrize("name", TEXT_TOWERS)
def test_texts_of_an_architecture_with_its_own_tokenizer(name: str, tmp_path: Path) -> None:
    """The features are those of open_clip's tokenizer and text tower, for short texts, long ones and empty ones."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from xbench_fast.export.models.families import open_clip as family
    from xbench_fast.export.tokenizing.select_tokenizer import select_tokenizer

    text, padding, options = TEXT_TOWERS[name]
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    special = {"pad_token": padding, "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(tmp_path / "text")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
    settings = transformers.RobertaConfig(vocab_size=len(WORDS), max_position_embeddings=20, pad_token_id=1, **sizes)
    settings.save_pretrained(tmp_path / "text")

    config = {"embed_dim": 24, "custom_text": True, "vision_cfg": VIT, "text_cfg": {**text, "context_length": 12}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config}))
    folder = tmp_path / "text"
    torch.manual_seed(4)
    model = family._build(family._architecture(str(tmp_path), tmp_path), folder)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    adapter = family.OpenClipAdapter.load(tmp_path / "weights.pt", tokenizer=folder, text_encoder=folder)
    texts = ["Lung Mass!", "no   finding x-ray " + "big lung " * 9, "x_ray", ""]
    ids = open_clip.tokenizer.HFTokenizer(str(folder), context_length=12, **options)(texts)
    given = select_tokenizer(adapter)(texts)
    with torch.inference_mode():
        found = adapter.encode_text(torch.from_numpy(given.ids), torch.from_numpy(given.mask))
        torch.testing.assert_close(found, model.encode_text(ids))


def test_pictures_enter_as_the_published_weights_of_an_architecture_say() -> None:
    """SigLIP's are squashed and halved; where open_clip knows no weights, or unlike ones, CLIP's way is a caution."""
    from xbench_fast.export.models.families.open_clip import _architecture

    siglip, plain, none = (
        _architecture(name, Path("w.pt")) for name in ("ViT-B-16-SigLIP", "ViT-B-32", "ViT-S-16-alt")
    )
    assert siglip.preprocessing["resize_mode"] == "squash" and tuple(siglip.preprocessing["mean"]) == (0.5, 0.5, 0.5)
    assert siglip.cautions == ()
    clip = {"mean": open_clip.OPENAI_DATASET_MEAN, "std": open_clip.OPENAI_DATASET_STD}
    clip |= {"interpolation": "bicubic", "resize_mode": "shortest"}
    assert _architecture("ViT-B/32", Path("w.pt")) == plain
    assert plain.preprocessing == none.preprocessing == clip
    assert plain.cautions == () and (siglip.twin, plain.twin) == (False, True)
    assert ["does not say how pictures enter 'ViT-S-16-alt'" in caution for caution in none.cautions] == [True]


def test_a_twin_with_quick_gelu_is_a_caution_where_the_weights_do_not_say_it(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xbench_fast.export.models.families.open_clip import OpenClipAdapter

    config = json.loads((weights / "tiny.json").read_text())
    named = {"tiny-one": config, "tiny-two": config, "tiny-two-quickgelu": config}
    monkeypatch.setattr(open_clip.factory, "_MODEL_CONFIGS", named)
    alone, twin = (OpenClipAdapter.load(weights / "fits.pt", arch=name) for name in ("tiny-one", "tiny-two"))
    assert not any("quickgelu" in caution for caution in alone.warnings)
    assert [caution for caution in twin.warnings if "need 'tiny-two-quickgelu', and no checkpoint says" in caution]
    for made in (alone, twin):
        assert made.checkpoint is not None and "because the weights do not state it" in made.checkpoint.activation


def test_a_configuration_beside_the_checkpoint(tmp_path: Path) -> None:
    """It gives the architecture and how pictures enter; text towers may have CLIP's names, the scale the shape [1]."""
    from xbench_fast.export.models.families.open_clip import OpenClipAdapter

    ways = {"mean": [0.1, 0.2, 0.3], "interpolation": "bilinear", "resize_mode": "squash", "fill_color": 0}
    config = {"embed_dim": 24, "custom_text": True, "vision_cfg": VIT, "text_cfg": TEXT}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": ways}))
    state = open_clip.CLIP(24, open_clip.CLIPVisionCfg(**VIT), open_clip.CLIPTextCfg(**TEXT)).state_dict()
    torch.save({**state, "logit_scale": state["logit_scale"].reshape(1)}, tmp_path / "weights.pt")
    found = OpenClipAdapter.load(tmp_path / "weights.pt", preprocess={"std": [0.5, 0.5, 0.6]})
    assert found.geometry.key == "squash-32-32-bilinear"
    assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.6))
    assert found.logit_scale == pytest.approx(float(state["logit_scale"].exp()))
    torch.testing.assert_close(found.module.text.positional_embedding.data, state["positional_embedding"])
