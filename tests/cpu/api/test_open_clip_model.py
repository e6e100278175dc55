"""A model of open_clip as the callable of `evaluate`: every tower, while it is trained, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xbench_fast as xb

torch = pytest.importorskip("torch")
open_clip = pytest.importorskip("open_clip")
pytest.importorskip("onnx")
pytest.importorskip("timm")
from xbench_fast.engines.errors import ConfigError, RunError  # noqa: E402
from xbench_fast.export.models.families.open_clip import OpenClipAdapter  # noqa: E402
from xbench_fast.export.onnx_graph import ImageGraph  # noqa: E402
from xbench_fast.export.prompts.builtin import builtin_sets  # noqa: E402

FINDINGS = ["Effusion", "Mass", "Cardiomegaly"]
TEXT = {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
VIT = {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}
TOWERS: dict[str, dict[str, Any]] = {
    "class token": {"vision_cfg": VIT},
    "mean of patches": {"vision_cfg": {**VIT, "pool_type": "avg", "final_ln_after_pool": True}},
    "scale and bias": {"vision_cfg": VIT, "init_logit_bias": -3.0, "init_logit_scale": 1.0, "custom_text": True},
    "patches left out in training": {"vision_cfg": {**VIT, "patch_dropout": 0.5}},
    "ResNet": {"vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}},
    "timm": {"vision_cfg": {"image_size": 64, "timm_model_name": "resnet10t", "timm_proj": "linear"}},
}  # fmt: skip


def built(**tower: Any) -> tuple[Any, dict[str, Any]]:
    config = {"embed_dim": 24, "text_cfg": TEXT, **tower}
    open_clip.factory._MODEL_CONFIGS["tiny-live"] = config
    torch.manual_seed(4)
    model = open_clip.create_model("tiny-live", load_weights=False)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 2.0)
    return model, config


@pytest.fixture(autouse=True)
def configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_clip.factory, "_MODEL_CONFIGS", dict(open_clip.factory._MODEL_CONFIGS))


def words() -> Any:
    return open_clip.get_tokenizer("ViT-B-32", context_length=20)


def drawn(size: int, count: int = 2) -> Any:
    return np.random.default_rng(5).integers(0, 256, (count, 1, size, size)).astype(np.uint8)


@pytest.mark.parametrize("name", TOWERS)
def test_every_tower_gives_what_its_export_has_from_the_file(name: str, tmp_path: Path) -> None:
    model, config = built(**TOWERS[name])
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    adapter = OpenClipAdapter.load(tmp_path / "weights.pt", arch=str(tmp_path / "tiny.json"))
    model.train()
    live = xb.open_clip_model(model, words())
    assert live.geometry == adapter.geometry
    pixels = drawn(adapter.geometry.size)
    known = {entry.finding: entry.positive for entries in builtin_sets("clip").values() for entry in entries}
    with torch.inference_mode():
        ids = words()([known[each][0] for each in FINDINGS])
        wanted = ImageGraph(adapter)(torch.from_numpy(pixels), adapter.encode_text(ids))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for found, each in zip(live(pixels, FINDINGS), wanted, strict=True):
        assert found.dtype == np.float32 and np.ptp(found) > 0
        np.testing.assert_allclose(found, each, atol=1e-4)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


def test_each_call_asks_the_weights_as_they_are() -> None:
    model, _ = built(vision_cfg=VIT)
    model.train()
    model.visual.ln_post.eval()  # as of a layer that is frozen
    live, pixels = xb.open_clip_model(model, words()), drawn(32)
    first, again = live(pixels, FINDINGS), live(pixels, FINDINGS)
    assert np.array_equal(first[0], again[0]) and np.array_equal(first[1], again[1])
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    loss = (model.encode_image(torch.rand(2, 3, 32, 32)) * model.encode_text(words()(["a", "b"]))).sum()
    loss.backward()
    optimiser.step()
    later = live(pixels, FINDINGS)
    assert not np.allclose(later[0], first[0], atol=1e-4) and not np.allclose(later[1], first[1], atol=1e-4)
    assert model.training and not model.visual.ln_post.training
    with torch.no_grad():
        model.text_projection.data = -model.text_projection.data  # as an average of weights is put in
    turned = live(pixels, FINDINGS)
    np.testing.assert_allclose(turned[0], -later[0], atol=1e-4)
    np.testing.assert_allclose(turned[1], -later[1], atol=1e-4)


def test_several_prompts_are_the_mean_of_their_answers_and_names_differ_in_case() -> None:
    model, _ = built(vision_cfg=VIT)
    pixels, texts = drawn(32), ["a mass", "a round opacity"]
    live = xb.open_clip_model(model, words(), prompts={"Mass": texts, "Scoliosis": "a bent spine"})
    one, other = (xb.open_clip_model(model, words(), prompts={"Mass": text})(pixels, ["Mass"]) for text in texts)
    found = live(pixels, ["Scoliosis", "mass"])
    for place in range(2):
        np.testing.assert_allclose(found[place][:, 1:], (one[place] + other[place]) / 2, atol=1e-5)
    assert found[0].shape == (2, 2) and found[1].shape == (2, 2, 4, 4)
    lower = xb.open_clip_model(model, words(), prompts={"mass": texts})
    np.testing.assert_array_equal(lower(pixels, ["Mass"])[0], found[0][:, 1:], "in the place of the built-in prompt")
    both = live(pixels, ["pleural effusion", "Pleural Effusion", "Pleural effusion"])[0]
    assert np.array_equal(both[:, 0], both[:, 1]) and np.array_equal(both[:, 0], both[:, 2])


def test_what_cannot_be_asked_is_refused_in_a_sentence() -> None:
    model, _ = built(vision_cfg=VIT)
    live = xb.open_clip_model(model, words())
    with pytest.raises(
        ConfigError, match=r"^CLIP has no built-in prompt for 'Masss': did you mean 'Mass'\? .*; give your own"
    ):
        live(drawn(32), ["Masss"])
    with pytest.raises(ConfigError, match=r"takes pixels \[B, 1, 32, 32\], not \[2, 1, 48, 48\]; give evaluate the"):
        live(drawn(48), FINDINGS)
    with pytest.raises(
        ConfigError, match=r"gives ids \[3, 77\] up to 49407, and the model takes \[3, 20\] below 49408"
    ):
        xb.open_clip_model(model, open_clip.get_tokenizer("ViT-B-32"))(drawn(32), FINDINGS)
    with pytest.raises(ConfigError, match=r"is called with texts, and str cannot be; give open_clip.get_tokenizer"):
        xb.open_clip_model(model, "ViT-B-32")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^this Linear is no model of open_clip, because it has no 'visual'; give"):
        xb.open_clip_model(torch.nn.Linear(2, 2), words())
    with pytest.raises(ConfigError, match=r"no model of open_clip, because it has no 'visual'.*`module` of a Distrib"):
        xb.open_clip_model(torch.nn.DataParallel(model), words())
    for prompts in ({"Mass": []}, {"Mass": ""}, {"Mass": [3]}):
        with pytest.raises(ConfigError, match=r"^The prompts of 'Mass' are no texts; give a text or several\.$"):
            xb.open_clip_model(model, words(), prompts=prompts)  # type: ignore[arg-type]
    model.visual.__class__ = type("OtherTower", (type(model.visual),), {})
    with pytest.raises(ConfigError, match=r"^No patches can be read from this CLIP: its image tower is a OtherTower"):
        xb.open_clip_model(model, words())
    with pytest.raises(ConfigError, match=r"^this CLIP has weights of torch.float16; give it in float32"):
        xb.open_clip_model(built(vision_cfg=VIT)[0].half(), words())


def test_a_refusal_ends_an_evaluation_with_its_sentence(root: Path, tmp_path: Path) -> None:
    model, _ = built(vision_cfg=VIT)
    live = xb.open_clip_model(model, words())
    radiographs = xb.load_dataset("chestxdet10", root / "demo" / "chestxdet10", frame=512)
    other = xb.Geometry("squash", 48, 48, "bilinear")
    with pytest.raises(RunError, match="give evaluate the callable's own geometry"):
        xb.evaluate(live, radiographs, geometry=other, name="m", out=tmp_path / "out", limit=2, progress=False)


def test_without_the_extra_export_the_sentence_names_it() -> None:
    program = (
        "import sys\nfor name in ('torch', 'open_clip', 'onnx'): sys.modules[name] = None\n"
        "import xbench_fast as xb\nopened = xb.open_clip_model\n"
        "try: opened(object(), len)\nexcept xb.XBenchError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtraError A model of open_clip needs torch, which is not installed; install")


def test_a_text_tower_of_transformers_takes_texts_of_the_tokenizers_width(tmp_path: Path) -> None:
    """RoBERTa's table of positions is longer than any text, and is what open_clip calls its context length."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.RobertaConfig(vocab_size=60, max_position_embeddings=34, **sizes).save_pretrained(tmp_path)
    named = {"hf_model_name": str(tmp_path), "hf_model_pretrained": False, "context_length": 12}
    text = {**named, "hf_pooler_type": "mean_pooler", "hf_proj_type": "linear"}
    open_clip.factory._MODEL_CONFIGS["tiny-live"] = {"embed_dim": 24, "vision_cfg": VIT, "text_cfg": text}
    model = open_clip.create_model("tiny-live", load_weights=False, pretrained_hf=False).eval()

    def tokenizer(texts: list[str]) -> Any:
        rows = [[0, *(5 + len(word) for word in text.split()), 2][:12] for text in texts]
        return torch.tensor([row + [1] * (12 - len(row)) for row in rows])

    pixels = drawn(32)
    logits, _ = xb.open_clip_model(model, tokenizer)(pixels, FINDINGS)
    known = {entry.finding: entry.positive for entries in builtin_sets("clip").values() for entry in entries}
    with torch.inference_mode():
        mean, std = (torch.tensor(getattr(model.visual, name))[:, None, None] for name in ("image_mean", "image_std"))
        image = ((torch.from_numpy(pixels) / 255).expand(-1, 3, -1, -1) - mean) / std
        found = model(image, tokenizer([known[each][0] for each in FINDINGS]))
    np.testing.assert_allclose(logits, found[2] * found[0] @ found[1].T, atol=1e-4)
