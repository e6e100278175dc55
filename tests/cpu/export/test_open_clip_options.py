"""Ordinary options of open_clip's training: their files are read as open_clip reads them, or the line is told."""

from __future__ import annotations

import json
import warnings
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.export.models.published_checkpoints import PUBLISHED

torch = pytest.importorskip("torch")
open_clip = pytest.importorskip("open_clip")

TINY: dict[str, Any] = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 12, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1},
}
PIXELS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
IDS = torch.tensor([[62, 5, 6, 63, *[0] * 8], [62, 7, 63, *[0] * 9]])


def trained(config: dict[str, Any], *, custom: bool = False, **more: Any) -> Any:
    """open_clip's own model with random weights of a visible size."""
    from open_clip.model import CLIP, CustomTextCLIP

    torch.manual_seed(1)
    model = (CustomTextCLIP if custom else CLIP)(**deepcopy(config), **more)
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.15)
    return model.eval()


def load(folder: Path, model: Any, config: dict[str, Any] = TINY, **options: Any) -> Any:
    from xbench_fast.export.models.families.open_clip import OpenClipAdapter

    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config}))
    torch.save({"epoch": 3, "state_dict": model.state_dict()}, folder / "epoch_3.pt")
    return OpenClipAdapter.load(folder / "epoch_3.pt", **options)


TRAINED = {
    "plain": ({}, {}),
    "--siglip": ({"init_logit_bias": -10.0, "init_logit_scale": 2.3}, {}),
    "--force-custom-text": ({"custom": True}, {}),
    "--siglip --force-custom-text": ({"custom": True, "init_logit_bias": -10.0, "nonscalar_logit_scale": True}, {}),
    "plain in a SigLIP architecture": ({}, {"init_logit_bias": -10.0}),
    "plain in a custom architecture": ({}, {"custom_text": True}),
}


@pytest.mark.parametrize("name", TRAINED)
def test_the_logits_are_those_of_open_clip(name: str, tmp_path: Path) -> None:
    options, more = TRAINED[name]
    model = trained(TINY, **options)
    adapter = load(tmp_path, model, {**TINY, **more})
    with torch.inference_mode():
        wanted = model.logit_scale.exp() * model.encode_image(PIXELS, normalize=True)
        wanted = wanted @ model.encode_text(IDS, normalize=True).T
        if "init_logit_bias" in options:
            wanted = wanted + model.logit_bias
            assert float(model.logit_bias) == -10.0 and adapter.logit_scale == 1.0
        found = adapter.forward(PIXELS, adapter.encode_text(IDS))[0]
    assert torch.allclose(found, wanted, atol=1e-4)


OTHER: dict[str, tuple[tuple[str, ...], int, str]] = {
    "context": (
        ("text_cfg", "context_length"),
        20,
        r"text_cfg\.context_length = 20, and .* has 12; give --arch the open",
    ),
    "vocabulary": (("text_cfg", "vocab_size"), 65, r"text_cfg\.vocab_size = 65, and .* has 64"),
    "text width": (("text_cfg", "width"), 32, r"text_cfg\.width = 32, and .* has 16"),
    "text layers": (("text_cfg", "layers"), 2, r"text_cfg\.layers = 2, and .* has 1"),
    "image layers": (("vision_cfg", "layers"), 1, r"vision_cfg\.layers = 1, and .* has 2"),
    "image width": (("vision_cfg", "width"), 48, r"vision_cfg\.width = 48, and .* has 32"),
    "patch": (("vision_cfg", "patch_size"), 16, r"vision_cfg\.patch_size = 16, and .* has 8"),
    "embedding": (("embed_dim",), 16, r"embed_dim = 16, and .* has 24"),
    "image size": (
        ("vision_cfg", "image_size"),
        48,
        r"another image size than .* 6 x 6 patches, the architecture has 4 x 4, and .*size = 48\}",
    ),
}


@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize("name", OTHER)
def test_a_size_that_differs_names_its_line(name: str, custom: bool, tmp_path: Path) -> None:
    keys, value, words = OTHER[name]
    config = deepcopy(TINY)
    inner = config if len(keys) == 1 else config[keys[0]]
    inner[keys[-1]] = value
    with pytest.raises(CheckpointError, match=words) as caught:
        load(tmp_path, trained(config, custom=custom))
    assert "\n" not in str(caught.value)


def test_the_size_that_is_told_exports_the_file(tmp_path: Path) -> None:
    config = deepcopy(TINY)
    config["vision_cfg"]["image_size"] = 48
    assert load(tmp_path, trained(config), preprocess={"size": 48}).grid == (6, 6)


def test_another_image_size_is_named_for_every_model() -> None:
    from xbench_fast.export.checkpoints.matching import match_tensors, patches_per_side

    def refusal(name: str, found: tuple[int, ...], own: tuple[int, ...]) -> str:
        with pytest.raises(CheckpointError) as caught:
            match_tensors({name: own}, {name: torch.zeros(found)}, path=Path("x"), model="It")
        return str(caught.value)

    words = "of another image size, because it has the positions of 4 x 4 patches and the model has 14 x 14"
    for name in (
        "visual.trunk.pos_embed",
        "vision_model.embeddings.position_embedding.weight",
        "x.positional_embedding",
    ):
        assert words in refusal(name, (17, 8), (197, 8))
    for name in ("positional_embedding", "text_model.embeddings.position_embedding.weight", "a.proj", "composed.w"):
        assert words not in refusal(name, (17, 8), (197, 8))
    assert patches_per_side((1, 16, 8), (1, 36, 8)) == (4, 6)  # no class token
    assert patches_per_side((1, 21, 8), (1, 41, 8)) == (4, 6)  # four registers and a class token
    assert patches_per_side((18, 8), (37, 8)) is None  # no square
    assert patches_per_side((17, 9), (37, 8)) is None  # another width
    assert patches_per_side((62, 8), (77, 8)) is None  # 13 more than a square: words, no patches
    assert patches_per_side((37, 8), (37, 8)) is None
    assert patches_per_side((), ()) is None


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TorchScript archives of one architecture with each GELU."""
    folder = tmp_path_factory.mktemp("archives")
    for name, quick in (("gelu", False), ("quick", True)):
        model = trained(TINY, quick_gelu=quick)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.trace(model, (PIXELS, IDS), check_trace=False).save(str(folder / f"{name}.pt"))
    return folder


def with_gelu(folder: Path, checkpoint: Path, **more: Any) -> Any:
    from xbench_fast.export.models.families.open_clip import OpenClipAdapter

    (folder / "tiny.json").write_text(json.dumps({"model_cfg": {**TINY, **more}}))
    return OpenClipAdapter.load(checkpoint, arch=str(folder / "tiny.json"))


@pytest.mark.parametrize(("name", "quick"), [("gelu", False), ("quick", True)])
def test_the_gelu_of_an_archive_is_read_and_must_fit(archives: Path, tmp_path: Path, name: str, quick: bool) -> None:
    adapter = with_gelu(tmp_path, archives / f"{name}.pt", quick_gelu=quick)
    kind, other = ("QuickGELU", "GELU") if quick else ("GELU", "QuickGELU")
    assert adapter.checkpoint.activation == f"{kind}, read from TorchScript code"
    assert adapter.checkpoint.stored()["activation"] == adapter.checkpoint.activation
    words = rf"was trained with {kind} \(read from TorchScript code\), and the architecture tiny computes {other}; give"
    with pytest.raises(CheckpointError, match=words):
        with_gelu(tmp_path, archives / f"{name}.pt", quick_gelu=not quick)


def test_a_gelu_that_weights_do_not_state_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = load(tmp_path, trained(TINY))
    title = tmp_path.name
    stated = f"GELU, as the architecture {title} states, because the weights do not state it"
    assert adapter.checkpoint.activation == stated
    # The file is now one of OpenAI's, whose weights were trained with QuickGELU.
    published = replace(PUBLISHED["clip"], sha256={"ViT.pt": adapter.checkpoint.sha256})
    monkeypatch.setitem(PUBLISHED, "clip", published)
    with pytest.raises(CheckpointError, match=r"QuickGELU \(read from OpenAI's sha256\), and the architecture .* GELU"):
        with_gelu(tmp_path, tmp_path / "epoch_3.pt")
    found = with_gelu(tmp_path, tmp_path / "epoch_3.pt", quick_gelu=True).checkpoint.activation
    assert found == "QuickGELU, read from OpenAI's sha256"
    acts = {"text_cfg": {**TINY["text_cfg"], "act_kwargs": {"approximate": "tanh"}}}
    assert with_gelu(tmp_path, tmp_path / "epoch_3.pt", **acts).checkpoint.activation == ""  # the configuration says it


def test_clip_says_where_quick_gelu_is_known_from(archives: Path, tmp_path: Path) -> None:
    from xbench_fast.export.adapter import CheckpointRecord
    from xbench_fast.export.models.clip import quick_activation

    record = CheckpointRecord("x.pt", "0" * 64)
    assert quick_activation(archives / "quick.pt", record, []).activation == "QuickGELU, read from TorchScript code"
    with pytest.raises(CheckpointError, match=r"with GELU \(read from TorchScript code\), and this model .* --family"):
        quick_activation(archives / "gelu.pt", record, [])
    (tmp_path / "x.pt").write_bytes(b"x")
    assumed = "QuickGELU, assumed, because no CLIP file states it"
    (tmp_path / "config.json").write_text('{"model_type": "clip", "vision_config": {}, "text_config": {}}')
    names = ["vision_model.post_layernorm.bias"]
    assert quick_activation(tmp_path / "x.pt", record, []).activation == assumed  # not the file's own configuration
    assert quick_activation(tmp_path / "x.pt", record, names).activation == "QuickGELU, read from config.json"
    towers = {"vision_config": {"hidden_act": "gelu"}, "text_config": {"hidden_act": "gelu"}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "clip", **towers}))
    with pytest.raises(CheckpointError, match=r"with GELU \(read from config\.json\), .* --family transformers"):
        quick_activation(tmp_path / "x.pt", record, names)
    digest = next(iter(PUBLISHED["clip"].sha256.values()))
    known = CheckpointRecord("x.pt", digest)
    assert quick_activation(tmp_path / "x.pt", known, names) == known


@pytest.mark.parametrize("pooler", ["cls_pooler", "cls_last_hidden_state_pooler"])
def test_the_configuration_decides_about_the_pooling_layer_of_bert(pooler: str, tmp_path: Path) -> None:
    """Under the names of both copies of open_clip; it is left out where the model has none, and only then there is a
    remark."""
    from clip_stand_ins import BIOMEDCLIP_CXR, biomedbert, trained
    from xbench_fast.export.models.families.open_clip_options import as_named, pooling_caution

    bert = biomedbert(tmp_path / "bert")
    text = BIOMEDCLIP_CXR["text_cfg"] | {"hf_pooler_type": pooler}
    model, tensors = trained({**TINY, "text_cfg": text}, bert)
    layer = {
        f"text.transformer.pooler.dense.{name}": torch.ones(size) for name, size in (("weight", (32, 32)), ("bias", 32))
    }
    assert (layer.keys() <= tensors.keys()) is (pooler == "cls_pooler")
    for tower in ("text.", "text_encoder."):
        file = {name.replace("text.", tower, 1): tensor for name, tensor in (layer | tensors).items()}
        assert as_named(file, model).keys() == tensors.keys()
        assert [pooler in remark for remark in pooling_caution(file, model, text)] == [True] * (pooler != "cls_pooler")
        assert not pooling_caution(tensors, model, text)
