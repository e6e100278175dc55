"""BioViL and BioViL-T, loaded from files as published, against the authors' own outputs (docs/parity.md §3.8)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from golden_models import Golden, computed, filled, read_golden
from make_images import encode
from small_models import small_adapter
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.prompts.prompt_encoding import TextEncoder, prompt_encoder
from xbench_fast.engines.prompts.prompt_files import FindingPrompts
from xbench_fast.engines.tokenizing import bundle_tokenizer
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.bundle_options import BundleOptions
from xbench_fast.export.models import biovil
from xbench_fast.export.models.biovil import BIOVIL, BIOVIL_T, BioVilConfig
from xbench_fast.export.onnx_graph import ImageGraph
from xbench_fast.export.pipeline import export_adapter
from xbench_fast.export.tokenizing.select_tokenizer import select_tokenizer, tokenizer_beside
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.data.images.resizing import field_of_view, to_model

torch.set_num_threads(2)

MODELS = {"biovil": BIOVIL, "biovil_t": BIOVIL_T}
FACTS = {"biovil": (480, 15), "biovil_t": (448, 14)}
PICTURES = ("portrait", "landscape", "square", "small", "narrow", "deep", "colour")


def write_files(manifest: dict[str, Any], config: BioVilConfig, folder: Path) -> Path:
    """Both files under their published names, with the unused tensors, the tied decoder and the table of positions."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = manifest["tensors"]
    torch.save(filled(tensors["image"], "image."), folder / config.image_file)
    text = filled(tensors["text"], "text.", manifest["alias_of"]["text"])
    torch.save({**text, "bert.embeddings.position_ids": torch.arange(512)[None]}, folder / "pytorch_model.bin")
    return folder


@pytest.fixture(scope="module", params=MODELS)
def golden(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    name: str = request.param
    manifest, _ = read_golden(shared, name)
    folder = write_files(manifest, MODELS[name], tmp_path_factory.mktemp(name))
    adapter = load_adapter(name, folder)
    shutil.rmtree(folder)  # the adapter must not depend on the files any more
    stages = [getattr(adapter.module.image.encoder.encoder, f"layer{number}") for number in (1, 2, 3, 4)]
    with computed(
        shared,
        adapter,
        lambda arrays: adapter.encode_text(arrays["input_ids"], arrays["attention_mask"]),
        (stages, adapter.module.text["bert"]),
        size=adapter.geometry.size,
    ) as found:
        yield found


def test_facts(golden: Golden) -> None:
    adapter, (size, cells) = golden.adapter, FACTS[golden.name]
    assert (adapter.name, adapter.variant, adapter.weights) == (golden.name, str(size), "published")
    assert adapter.geometry == Geometry("crop", size, 512, "bilinear", "stretched")
    assert (adapter.mean, adapter.std) == ((0.0,) * 3, (1.0,) * 3)
    assert adapter.grid == (cells, cells) and adapter.text_shape == (128,) and adapter.logit_scale == 1.0
    assert adapter.context == 512 and adapter.vocabulary_size == 30522 and adapter.averages_prompts
    assert adapter.checkpoint.name == MODELS[golden.name].image_file
    assert adapter.text_checkpoint.name == "pytorch_model.bin"


@pytest.mark.parametrize(
    "name",
    ["image_embedding", "projected_patches", "image_global", "text_features", "similarity_raw", "similarity_map",
     "score", "score_all_prompts"],
)  # fmt: skip
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_every_layer(golden: Golden) -> None:
    golden.check("patch_embeddings", golden.outputs["patch_embeddings"][:, ::8])
    for number, stage in enumerate(golden.blocks, 1):
        golden.check(f"probe_layer{number}", stage[:, :8, ::7, ::7])
    golden.check("probe_text_layers", torch.stack([out[:, [0, 1, 4], :8] for out in golden.layers]))


def test_exported_outputs(golden: Golden) -> None:
    """The logit is the cosine; the map is the smoothed one, or the other if that is chosen."""
    adapter = golden.adapter
    with torch.inference_mode():
        logits, saliency = adapter.forward(golden.image, golden.text)
        other = replace(adapter)
        other.choose_map("patch-text")
        plain = other.forward(golden.image, golden.text)[1]
    golden.check("score", logits)
    golden.check("similarity_map", saliency)
    golden.check("similarity_raw", plain)
    assert (adapter.saliency.smoothing, other.saliency.smoothing) == (1.5, 0)


def test_padding_does_not_matter(golden: Golden) -> None:
    ids, mask = (golden.tensor(name)[:2] for name in ("input_ids", "attention_mask"))
    width = int(mask.sum(dim=1).max())
    with torch.inference_mode():
        narrow = golden.adapter.encode_text(ids[:, :width], mask[:, :width])
    torch.testing.assert_close(narrow, golden.text[:2], rtol=0, atol=2e-5)


def test_from_the_file_on(golden: Golden) -> None:
    """Decoded, prepared and scored as the image graph does it; the map is put back where the image was seen."""
    adapter, text = golden.adapter, golden.text
    question = torch.stack([text[0], text[:2].mean(0)])
    for name in PICTURES:
        given = golden.arrays[f"preprocess_in_{name}"]
        grey = decode_grey(encode(given, "PNG"), name, stretched=True)
        pixels = torch.from_numpy(to_model(grey, adapter.geometry))[None, None]
        with torch.inference_mode():
            logits, _ = ImageGraph(adapter)(pixels, question)
            _, saliency = ImageGraph(adapter)(pixels, text[1:2])
        golden.check(f"file_scores_{name}", logits[0])
        if f"file_map_{name}" in golden.arrays:
            height, width = grey.shape
            y0, x0, y1, x1 = field_of_view(adapter.geometry, height, width)
            side = int(adapter.geometry.size * min(height, width) / 512)
            top, left = (height - side) // 2, (width - side) // 2
            seen = np.array([y0 * height - top, x0 * width - left, y1 * height - top - side, x1 * width - left - side])
            assert np.abs(seen).max() < 1.5  # the authors' square has whole pixels
            square = F.interpolate(saliency, size=(side, side), mode="bilinear")[0, 0]
            whole = np.full((height, width), np.nan, np.float32)
            whole[top : top + side, left : left + side] = square
            wanted = golden.arrays[f"file_map_{name}"]
            assert (np.isnan(whole[::3, ::3]) == np.isnan(wanted)).all()
            assert np.nanmax(np.abs(whole[::3, ::3] - wanted)) <= 2e-5 * np.nanmax(np.abs(wanted))


def test_stand_in_equals_the_filled_files(golden: Golden) -> None:
    adapter = stand_in_adapter(golden.name)
    assert adapter.weights == "stand-in" and adapter.checkpoint is None
    loaded, state = golden.adapter.module.state_dict(), adapter.module.state_dict()
    assert list(state) == list(loaded)
    assert all(torch.equal(state[name], loaded[name]) for name in state)


# The rest with few and narrow layers.

Change = Callable[[dict[str, torch.Tensor]], None]


def small_folder(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, image: Change | None = None, text: Change | None = None
) -> Path:
    """Both files of the small model; `image` and `text` change their tensors."""
    state = small_adapter(name, monkeypatch).module.state_dict()
    folder.mkdir(exist_ok=True)
    for part, file, change in (("image.", MODELS[name].image_file, image), ("text.", "pytorch_model.bin", text)):
        tensors = {key.removeprefix(part): value for key, value in state.items() if key.startswith(part)}
        if part == "image.":
            tensors["encoder.encoder.fc.weight"] = torch.zeros(1000, 32)
        if change is not None:
            change(tensors)
        torch.save(tensors, folder / file)
    monkeypatch.setattr(biovil, "cached_file", lambda *names: None)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_or_the_image_file_or_two_paths(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_folder(name, tmp_path / "both", monkeypatch)
    one = load_adapter(name, folder)
    other = load_adapter(name, folder / MODELS[name].image_file)
    (tmp_path / "text").mkdir()
    text = (folder / "pytorch_model.bin").rename(tmp_path / "text" / "pytorch_model.bin")
    apart = load_adapter(name, folder, text_encoder=text)
    for adapter in (one, other, apart):
        assert adapter.checkpoint.name == MODELS[name].image_file
        assert adapter.text_checkpoint.name == "pytorch_model.bin" and adapter.text_checkpoint.sha256
        state = adapter.module.state_dict()
        assert all(torch.equal(value, state[key]) for key, value in one.module.state_dict().items())
    with pytest.raises(ConfigError, match=r"has no pytorch_model\.bin.*huggingface-cli download.*--text-encoder"):
        load_adapter(name, folder)


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_folder("biovil", tmp_path / "both", monkeypatch)
    with pytest.raises(CheckpointError, match="it holds weights of BioViL: use --model biovil"):
        load_adapter("biovil_t", folder)
    with pytest.raises(CheckpointError, match="the image weights of BioViL, not of BioViL-T; use --model biovil"):
        load_adapter("biovil_t", folder / BIOVIL.image_file)
    with pytest.raises(CheckpointError, match=r"no biovil_image_resnet50_proj_size_128\.pt.*give the folder with it"):
        load_adapter("biovil", tmp_path)
    with pytest.raises(CheckpointError, match=r"looks like a checkpoint of BioViL or BioViL-T \(text weights\)"):
        load_adapter("biovil", folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"text weights.*looks like a checkpoint of BioViL"):
        load_adapter("biovil", folder, text_encoder=folder / BIOVIL.image_file)


def test_only_the_documented_tensors_may_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_pooler(tensors: dict[str, torch.Tensor]) -> None:
        tensors["encoder.vit_pooler.type_embed"] = torch.zeros(2, 1, 256)

    def with_head(tensors: dict[str, torch.Tensor]) -> None:
        tensors |= {"cls.predictions.bias": torch.zeros(64), "cls.predictions.decoder.bias": torch.zeros(64)}
        tensors["bert.embeddings.position_ids"] = torch.arange(64)[None]

    load_adapter("biovil_t", small_folder("biovil_t", tmp_path / "a", monkeypatch, with_pooler, with_head))
    with pytest.raises(CheckpointError, match=r"unexpected \(encoder\.vit_pooler"):
        load_adapter("biovil", small_folder("biovil", tmp_path / "b", monkeypatch, with_pooler))
    for part, name in (("image", "encoder.missing_previous_emb"), ("text", "cls_projection_head.LayerNorm.bias")):
        changes: dict[str, Change] = {part: lambda tensors, name=name: tensors.__delitem__(name)}
        with pytest.raises(CheckpointError, match=rf"1 missing \({name}\)"):
            load_adapter("biovil_t", small_folder("biovil_t", tmp_path / part, monkeypatch, **changes))
    for name in ("bert.pooler.dense.bias", "cls.seq_relationship.bias"):
        surplus: Change = lambda tensors, name=name: tensors.update({name: torch.zeros(32)})  # noqa: E731
        with pytest.raises(CheckpointError, match=rf"unexpected \({name}"):
            load_adapter("biovil_t", small_folder("biovil_t", tmp_path / name, monkeypatch, text=surplus))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    """The small BioViL-T with stand-in weights, exported: all slots of all batches were compared."""
    own = FindingPrompts("Mass", ("a mass.", "a large mass!?", "lung mass"), ("no mass", "clear lungs"))
    options = BundleOptions(prompts={"mine": (own, FindingPrompts("Effusion", ("fluid",)))})
    with pytest.MonkeyPatch.context() as patch:
        adapter = small_adapter("biovil_t", patch)
        yield export_adapter(adapter, tmp_path_factory.mktemp("bundles"), options).bundle


def test_prompts_of_a_finding_are_one_question(bundle: Bundle) -> None:
    """The mean of features that were not normalised; the marks at the end of a prompt do not count."""
    found = bundle.prompt_set("mine")
    assert found.texts == ("a mass.\na large mass!?\nlung mass", "no mass\nclear lungs", "fluid")
    assert found.polarity.tolist() == [1, -1, 1] and found.finding_of.tolist() == [0, 0, 1]
    words, encoder = bundle_tokenizer(bundle), TextEncoder.of(bundle, threads=1)

    def alone(text: str) -> Any:
        batch = words([text])
        return encoder.run(batch.ids, batch.mask)[0]

    texts = [["a mass", "a large mass", "lung mass"], ["no mass", "clear lungs"], ["fluid"]]
    for features, prompts in zip(found.features, texts, strict=True):
        np.testing.assert_allclose(features, np.mean([alone(text) for text in prompts], axis=0), rtol=0, atol=1e-5)
    assert np.ptp(np.linalg.norm([alone(text) for text in texts[0]], axis=1)) > 1e-3  # so that it matters
    own = FindingPrompts("Mass", ("a mass.", "a large mass!?", "lung mass"))
    again = prompt_encoder(bundle)({"mine": (own,)})[0]
    np.testing.assert_allclose(again.features, found.features[:1], rtol=0, atol=1e-5)
    rsna = bundle.prompt_set("rsna")
    assert rsna.status == ("official",) and [len(text.split("\n")) for text in rsna.texts] == [4, 4]
    assert all(len(text.split("\n")) == 3 for text in bundle.prompt_set("siim").texts)


def test_what_the_bundle_says(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert bundle.path.name == "biovil_t-448" and manifest.averages_prompts
    assert manifest.geometry == Geometry("crop", 448, 512, "bilinear", "stretched")
    assert manifest.not_learnt == ("network.smooth.matrix",) and manifest.saliency["choice"] == "official"
    assert manifest.saliency["smoothing"] == manifest.smoothing == 1.5
    assert manifest.parity["passed"] is True and manifest.parity["compared"] > 200
    assert manifest.text["tokenizer"]["cleaning"] == "biovil"


def test_a_prompt_that_the_authors_refuse(bundle: Bundle) -> None:
    words = bundle_tokenizer(bundle)
    assert np.array_equal(words(["no [MASK]?"]).ids, words(["no [MASK]"]).ids)
    for token in ("[CLS]", "[SEP]", "[PAD]", "[UNK]"):
        with pytest.raises(ConfigError, match=rf"holds the special token \{token}"):
            words([f"a mass {token}"])


def test_the_tokenizer_is_the_folders_and_cuts_no_text(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its casing and special tokens are those of its files; its size must be that of the table."""
    folder = small_folder("biovil_t", tmp_path / "both", monkeypatch)
    for path in (shared / "data" / "tokenizers" / "bert_base_uncased").iterdir():
        shutil.copy(path, folder / path.name)
    adapter = load_adapter("biovil_t", folder)
    assert tokenizer_beside(adapter, folder) == tokenizer_beside(adapter, folder / BIOVIL_T.image_file) == folder
    with pytest.raises(ConfigError, match="has 30522 pieces"):
        select_tokenizer(adapter, folder)
    adapter.vocabulary_size = 30522
    words = select_tokenizer(adapter, folder)
    batch = words(["Left basilar consolidation seen.", "No effusion"])
    assert batch.ids[0, 0] == 101 and batch.mask.tolist()[1][-1] == 0
    assert np.array_equal(words(["PNEUMONIA!"]).ids, words(["pneumonia"]).ids)
    assert words(["lung " * 62]).ids.shape == (1, 64)
    with pytest.raises(ConfigError, match="has 65 tokens; this model takes 64 at most"):
        words(["lung " * 63])
