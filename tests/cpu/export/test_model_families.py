"""Models described by their own configuration, exported by the command line, compared with the library's own code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import xbench_fast as xb
from PIL import Image
from synthetic import make_dataset
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.export.cli import main
from xbench_fast.runtime.cli.models_command import _describe

torch = pytest.importorskip("torch")
open_clip = pytest.importorskip("open_clip")
transformers = pytest.importorskip("transformers")
for package in ("onnx", "onnxscript", "onnxruntime", "tokenizers"):
    pytest.importorskip(package)
pytestmark = pytest.mark.usefixtures("one_thread_of_torch")

TEXTS = ["lung mass", "pleural effusion in the left lung", "no finding"]
WORDS = ("<pad>", "<s>", "</s>", "<unk>", "lung", "mass", "pleural", "effusion", "in", "the", "left", "no", "finding")
TINY = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def pictures(size: int) -> Any:
    """uint8 [3, 1, size, size]"""
    return torch.randint(0, 256, (3, 1, size, size), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)


def normalised(pixels: Any, mean: Any, std: Any) -> Any:
    mean, std = (torch.tensor(value).reshape(1, 3, 1, 1) for value in (mean, std))
    return (pixels.float().expand(-1, 3, -1, -1) / 255 - mean) / std


def answers(bundle: Bundle, pixels: Any, name: str = "own") -> tuple[Any, Any]:
    """What image.onnx gives for the bundle's features of TEXTS: logits [B, Q], saliency [B, Q, h, w]."""
    import onnxruntime

    prompts = bundle.prompt_set(name)
    assert list(prompts.texts) == TEXTS
    session = onnxruntime.InferenceSession(str(bundle.path / "image.onnx"))
    logits, saliency = session.run(["logits", "saliency"], {"pixels": pixels.numpy(), "text": prompts.features})
    with open_engine(bundle, "torch", threads=1) as engine:
        scores = engine.run(pixels.numpy(), prompts.features)
    for have, want in ((scores.logits, logits), (scores.saliency, saliency)):
        assert np.abs(have - want).max() <= 1e-5 * np.abs(want).max(), "the engine torch gives the same"
    with open_engine(bundle, "onnxruntime-cpu", threads=1) as engine:
        whole, features = engine.run(pixels.numpy(), prompts.features), engine.encode(pixels.numpy())
        parts = engine.ask(features, prompts.features)
    assert features.parts is not None and np.array_equal(parts.logits, whole.logits), "so do the parts of the graph"
    assert np.array_equal(parts.saliency, whole.saliency)
    return logits, saliency


def unit(x: Any) -> Any:
    return x / x.norm(dim=-1, keepdim=True)


def own_prompts(folder: Path) -> Path:
    path = folder / "prompts.json"
    path.write_text(json.dumps({"own": {f"finding {n}": [text] for n, text in enumerate(TEXTS)}}))
    return path


def run(folder: Path, program: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"xbench_fast.{program}", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def tiny_clip(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with an architecture of open_clip, `tiny-xb`, its weights as training scripts save them, and prompts."""
    folder = tmp_path_factory.mktemp("open-clip")
    (folder / "tiny-xb.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(folder / "tiny-xb.json")
    torch.manual_seed(0)
    model = open_clip.create_model("tiny-xb", load_weights=False).eval()
    state = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"epoch": 3, "name": "run", "state_dict": state}, folder / "epoch_3.pt")
    own_prompts(folder)
    return folder, model


@pytest.fixture(scope="module")
def evaluated(tiny_clip: tuple[Path, Any]) -> Path:
    """From a folder with weights, a configuration and a dataset to a run, by two commands."""
    folder, _ = tiny_clip
    (folder / "xbench.toml").write_text(
        'bundles = ["bundles"]\n[models.mine]\nfamily = "open_clip"\narch = "tiny-xb.json"\ncheckpoint = "epoch_3.pt"\n'
        'prompts = "prompts.json"\n[datasets.phantoms]\nreader = "coco"\nroot = "phantoms"\nprompts = "two"\n'
        '[eval]\nout = "run"\n'
    )
    sets = json.loads((folder / "prompts.json").read_text())
    sets["two"] = {"Mass": ["a mass"], "Effusion": ["fluid"]}
    (folder / "prompts.json").write_text(json.dumps(sets))
    make_dataset(folder / "phantoms", 6)
    run(folder, "export.cli", "--model", "mine")
    run(folder, "runtime.cli", "eval", "--all")
    return folder


def test_open_clip_from_configuration_alone(tiny_clip: tuple[Path, Any], evaluated: Path) -> None:
    folder, model = tiny_clip
    bundle = Bundle.load(folder / "bundles" / "mine-tiny-xb")
    manifest = bundle.manifest
    assert manifest.parity["passed"] is True and manifest.weights == "own" and manifest.grid == (4, 4)
    assert manifest.geometry.key == "crop-32-32-bicubic" and manifest.checkpoint["name"] == "epoch_3.pt"
    assert manifest.checkpoint["activation"].startswith("GELU, as the architecture tiny-xb states")
    assert bundle.prompt_set("rsna").texts[0] == "a chest x-ray showing pneumonia"
    compared = manifest.text["compared"]
    assert compared["library"] == "open_clip_torch" and compared["version"] == open_clip.__version__
    assert compared["texts"] > 60, "the built-in prompts as well"
    pixels = pictures(32)
    logits, saliency = answers(bundle, pixels)
    image = normalised(pixels, open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD)
    model.visual.output_tokens = True
    with torch.inference_mode():
        pooled, tokens = model.visual(image)
        text = unit(model.encode_text(open_clip.get_tokenizer("tiny-xb")(TEXTS)))
        wanted = model.logit_scale.exp() * unit(pooled) @ text.T
        cells = (unit(tokens @ model.visual.proj) @ text.T).transpose(1, 2).reshape(3, 3, 4, 4)
    np.testing.assert_allclose(logits, wanted, atol=2e-4)
    np.testing.assert_allclose(saliency, cells, atol=2e-5)


def test_open_clip_at_another_size(tiny_clip: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Against open_clip's own model of that size, which its own code fills with resampled positions."""
    folder, model = tiny_clip
    own = ["--family", "open_clip", "--arch", str(folder / "tiny-xb.json"), "--checkpoint", str(folder / "epoch_3.pt")]
    own += ["--name", "larger", "--variant", "tiny-xb", "--prompts", str(folder / "prompts.json"), "--out", str(folder)]
    assert main([*own, "--resolution", "50"]) == 2
    assert "because its patches have 8: give a resolution that is a multiple, such as 48." in capsys.readouterr().err
    assert main([*own, "--resolution", "48"]) == 0
    assert "pictures of 48 x 48 pixels: positions resampled from 32" in capsys.readouterr().err
    bundle = Bundle.load(folder / "larger-tiny-xb-at-48")
    assert bundle.manifest.parity["passed"] is True and bundle.manifest.geometry.key == "crop-48-48-bicubic"
    other = open_clip.create_model("tiny-xb", load_weights=False, force_image_size=48).eval()
    state = dict(model.state_dict())
    open_clip.model.resize_pos_embed(state, other)
    other.load_state_dict(state)
    pixels = pictures(48)
    logits, saliency = answers(bundle, pixels)
    image = normalised(pixels, open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD)
    with torch.inference_mode():
        text = other.encode_text(open_clip.get_tokenizer("tiny-xb")(TEXTS), normalize=True)
        wanted = other.logit_scale.exp() * other.encode_image(image, normalize=True) @ text.T
    np.testing.assert_allclose(logits, wanted, atol=2e-4)
    assert saliency.shape == (3, 3, 6, 6)
    row = _describe(bundle.path)
    assert row["resized"] == "positions resampled from 32" and row["grid"] == [6, 6]


def test_it_is_evaluated_with_the_geometry_of_open_clip(tiny_clip: tuple[Path, Any], evaluated: Path) -> None:
    """The logits of the run, from the pictures by open_clip's own preprocessing of the plain RGB image."""
    folder, model = tiny_clip
    (cell,) = json.loads((folder / "run" / "run.json").read_text())["cells"].values()
    rows = pq.read_table(folder / "run" / cell["file"]).to_pylist()
    assert len(rows) == 12
    transform = open_clip.transform.image_transform_v2(open_clip.transform.PreprocessCfg(size=32), is_train=False)
    words = open_clip.get_tokenizer("tiny-xb")({"Mass": "a mass", "Effusion": "fluid"}[rows[0]["finding"]])
    (picture,) = (folder / "phantoms").rglob(f"{rows[0]['case_id']}*.png")
    model.visual.output_tokens = False
    with torch.inference_mode():
        image = model.encode_image(transform(Image.open(picture).convert("RGB"))[None], normalize=True)
        wanted = model.logit_scale.exp() * image @ model.encode_text(words, normalize=True).T
    assert rows[0]["logit"] == pytest.approx(float(wanted), abs=5e-3)


def test_the_model_in_memory_gives_what_its_bundle_gives(tiny_clip: tuple[Path, Any], evaluated: Path) -> None:
    """While it is trained: logits and maps of all built-in prompts that mean present, and the rows of an evaluation."""
    folder, model = tiny_clip
    bundle = Bundle.load(folder / "bundles" / "mine-tiny-xb")
    own = {"Mass": "a mass", "Effusion": ["fluid"]}
    model.visual.output_tokens = False
    live = xb.open_clip_model(model.train(), open_clip.get_tokenizer("tiny-xb"))
    assert live.geometry == bundle.manifest.geometry
    pixels = pictures(32)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(bundle.path / "image.onnx"))
    for name in ("chestxdet10", "chexlocalize", "vindr", "rsna"):
        prompts = bundle.prompt_set(name)
        wanted = session.run(["logits", "saliency"], {"pixels": pixels.numpy(), "text": prompts.features})
        present = np.flatnonzero(prompts.polarity > 0)
        for found, whole in zip(live(pixels.numpy(), prompts.findings), wanted, strict=True):
            np.testing.assert_allclose(found, whole[:, present], atol=1e-4)
    radiographs = xb.load_dataset("phantoms", folder / "phantoms", reader="coco")
    asked = xb.open_clip_model(model, open_clip.get_tokenizer("tiny-xb"), prompts=own)
    run = xb.evaluate(asked, radiographs, geometry=asked.geometry, name="live", out=folder / "live", progress=False)
    assert model.training and run.path == folder / "live"
    of_bundle, of_model = (
        pq.read_table(path / cell["file"]).to_pylist()
        for path in (folder / "run", folder / "live")
        for cell in json.loads((path / "run.json").read_text())["cells"].values()
    )
    assert len(of_bundle) == len(of_model) == 12
    for one, other in zip(of_bundle, of_model, strict=True):
        assert [one[key] for key in ("case_id", "finding", "label")] == [
            other[key] for key in ("case_id", "finding", "label")
        ]
        assert one["logit"] == pytest.approx(other["logit"], abs=1e-4) and one["hit"] == other["hit"]


def model_folder(folder: Path, model: Any, processor: Any) -> Path:
    """What `save_pretrained` leaves of a model, its processor and its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=12, **special)
    for part in (model, processor, fast):
        part.save_pretrained(folder)
    return folder


def text_config(**more: int) -> dict[str, Any]:
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": len(WORDS) - 1}
    return {**TOWER, "vocab_size": len(WORDS), "max_position_embeddings": 12, **ids, **more}


def in_memory_as(bundle: Bundle, model: Any, source: Path, image_processor: Any) -> None:
    """The callable of a model in memory, in training mode, gives what its bundle gives."""
    words = transformers.AutoTokenizer.from_pretrained(source)
    processor = SimpleNamespace(tokenizer=words, image_processor=image_processor)
    prompts = bundle.prompt_set("own")
    live = xb.transformers_model(model.train(), processor, prompts=dict(zip(prompts.findings, TEXTS, strict=True)))
    assert live.geometry == bundle.manifest.geometry
    pixels = pictures(32)
    logits, saliency = live(pixels.numpy(), prompts.findings)
    wanted = answers(bundle, pixels)
    assert model.training
    np.testing.assert_allclose(logits, wanted[0], atol=1e-4 * np.abs(wanted[0]).max())
    np.testing.assert_allclose(saliency, wanted[1], atol=1e-4)
    with torch.no_grad():
        model.vision_model.post_layernorm.weight.add_(torch.linspace(0, 3, 32))
    assert np.abs(live(pixels.numpy(), prompts.findings)[0] - logits).max() > 1e-3, "the weights as they are"
    model.eval()
    named = xb.transformers_model(model, processor)(pixels.numpy(), ["Effusion", "effusion"])[0]
    np.testing.assert_array_equal(named[:, 0], named[:, 1])


def exported(folder: Path, out: Path, *more: str) -> Bundle:
    line = ["--family", "transformers", "--checkpoint", str(folder), "--prompts", str(own_prompts(out)), *more]
    assert main([*line, "--name", "mine", "--out", str(out)]) == 0
    (path,) = (one for one in out.iterdir() if one.is_dir())
    return Bundle.load(path)


def test_clip_of_transformers(tmp_path: Path) -> None:
    """The shorter side to 40 pixels, the centre of 32; the end token has its own id, which is not the largest."""
    torch.manual_seed(1)
    vision = {**TOWER, "image_size": 32, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text_config(eos_token_id=2), vision_config=vision, projection_dim=24)
    config.text_config.eos_token_id = 7  # a word in the middle of a text: what follows must not count
    model = transformers.CLIPModel(config).eval()
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32})
    source = model_folder(tmp_path / "clip", model, processor)
    (tmp_path / "out").mkdir()
    bundle = exported(source, tmp_path / "out")
    assert (bundle.name, bundle.manifest.geometry.key) == ("mine-32", "floor_crop-32-40-bicubic")
    pixels = pictures(32)
    logits, saliency = answers(bundle, pixels)
    image = normalised(pixels, processor.image_mean, processor.image_std)
    words = transformers.AutoTokenizer.from_pretrained(source)(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        found = model(pixel_values=image, input_ids=words.input_ids, attention_mask=words.attention_mask)
        tokens = model.vision_model.post_layernorm(found.vision_model_output.last_hidden_state[:, 1:])
        cells = unit(model.visual_projection(tokens)) @ found.text_embeds.T
    np.testing.assert_allclose(logits, found.logits_per_image, atol=2e-4)
    np.testing.assert_allclose(saliency, cells.transpose(1, 2).reshape(3, 3, 4, 4), atol=2e-5)
    (tmp_path / "larger").mkdir()
    larger = exported(source, tmp_path / "larger", "--resolution", "48")
    assert (larger.name, larger.manifest.geometry.key) == ("mine-32-at-48", "floor_crop-48-60-bicubic")
    assert (larger.manifest.resized, larger.manifest.grid) == ("positions resampled from 32", (6, 6))
    in_memory_as(bundle, model, source, processor)


def test_a_clip_whose_texts_are_filled_on_the_left_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vision = {**TOWER, "image_size": 32, "patch_size": 8}
    model = transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text_config(), vision_config=vision, projection_dim=24)
    )
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32})
    source = model_folder(tmp_path / "clip", model, processor)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**settings, "padding_side": "left"}))
    assert main(["--family", "transformers", "--checkpoint", str(source), "--out", str(tmp_path / "out")]) != 0
    assert 'fills texts on the left ("padding_side")' in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_siglip_of_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scale and bias, texts filled to the context on the left, and the pool on each patch alone; with a mask of the
    texts where the tokenizer gives one, as transformers does. test_published_clips.py has tokenizers that give none."""
    names = ["input_ids", "attention_mask"]
    torch.manual_seed(2)
    vision = {**TOWER, "image_size": 32, "patch_size": 8}
    config = transformers.SiglipConfig(text_config=text_config(projection_size=32), vision_config=vision)
    model = transformers.SiglipModel(config).eval()
    with torch.no_grad():
        model.logit_scale.fill_(1.7), model.logit_bias.fill_(-2.5)
    processor = transformers.SiglipImageProcessor(size={"height": 32, "width": 32}, resample=2)
    source = model_folder(tmp_path / "siglip", model, processor)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings |= {"padding_side": "left", "model_input_names": names}
    (source / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "out").mkdir()
    bundle = exported(source, tmp_path / "out")
    assert "caution: the tokenizer of " in (said := "".join(capsys.readouterr())) and "keeps capital letters" in said
    assert bundle.manifest.text["compared"]["library"] == "transformers"
    assert (bundle.manifest.geometry.key, bundle.manifest.logit_scale) == ("squash-32-32-bilinear", 1.0)
    pixels = pictures(32)
    logits, saliency = answers(bundle, pixels)
    words = transformers.AutoTokenizer.from_pretrained(source)
    assert words.padding_side == "left"
    texts = words(TEXTS, padding="max_length", return_tensors="pt")
    assert list(texts) == names
    with torch.inference_mode():
        found = model(pixel_values=normalised(pixels, (0.5,) * 3, (0.5,) * 3), **texts)
        hidden = found.vision_model_output.last_hidden_state
        alone = torch.stack([unit(model.vision_model.head(hidden[:, n : n + 1])) for n in range(16)], 1)
        cells = alone @ found.text_embeds.T
    np.testing.assert_allclose(logits, found.logits_per_image, atol=2e-5)
    np.testing.assert_allclose(saliency, cells.transpose(1, 2).reshape(3, 3, 4, 4), atol=2e-5)
    in_memory_as(bundle, model, source, processor)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ((9,), [[5, 6, 9, 9], [7, 9, 9, 9]]),
        ((9, True), [[9, 9, 5, 6], [9, 9, 9, 7]]),
        ((9, False, 6), [[5, 0, 9, 9], [7, 9, 9, 9]]),
    ],
)
def test_texts_are_filled_to_the_context(how: tuple[Any, ...], wanted: list[list[int]]) -> None:
    """Whatever stands where the mask is 0, and also where the batch is as wide as the context."""
    from xbench_fast.export.models.families.family import TextPadding

    padding = TextPadding(*how)
    ids, mask = torch.tensor([[5, 6], [7, 3]]), torch.tensor([[1, 1], [1, 0]])
    assert padding.fill(ids, mask, 4).tolist() == wanted
    full, ones = torch.tensor([[1, 2, 3, 4]]), torch.ones(1, 4, dtype=torch.int64)
    assert padding.fill(full, ones, 4).tolist() == [[1, 2, 3, 4]]
