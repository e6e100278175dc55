"""MedKLIP, loaded from files as published, against the authors' own outputs (docs/parity.md §3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from authors_outputs import authors_outputs
from golden_models import (
    TINY_BERT,
    Golden,
    boxes_mask,
    check_image_graph,
    check_text_graph,
    computed,
    filled,
    normalised,
    read_golden,
    write_authors_file,
    write_text_encoder,
)
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.checkpoints.stand_in import image
from xbench_fast.export.models import clinical_bert
from xbench_fast.metrics_gpu.sweep.maps import axis
from xbench_fast.runtime.data.images.resizing import to_model

torch.set_num_threads(2)


@pytest.fixture(scope="module")
def golden(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    manifest, _ = read_golden(shared, "medklip")
    folder = tmp_path_factory.mktemp("medklip")
    path, text_folder = folder / "checkpoint_final.pth", folder / "Bio_ClinicalBERT"
    write_authors_file(manifest, path)
    write_text_encoder(manifest, text_folder)
    adapter = load_adapter("medklip", path, text_encoder=text_folder)
    (text_folder / "pytorch_model.bin").unlink()
    path.unlink()  # the adapter must not depend on the files any more
    with computed(
        shared, adapter, lambda arrays: adapter.encode_text(arrays["input_ids"], arrays["attention_mask"])
    ) as g:
        yield g


def test_facts(golden: Golden) -> None:
    adapter = golden.adapter
    assert (adapter.name, adapter.variant, adapter.weights) == ("medklip", "224", "published")
    assert adapter.geometry == Geometry("squash", 224, 224, "bilinear")
    assert adapter.grid == (14, 14) and adapter.text_shape == (768,) and adapter.logit_scale == 1.0
    assert adapter.context == 64 and adapter.vocabulary_size == 28996
    assert adapter.tokenizer.lower_case and not adapter.tokenizer.separator
    assert adapter.checkpoint.name == "checkpoint_final.pth"
    assert adapter.text_checkpoint.name == "pytorch_model.bin"


@pytest.mark.parametrize("name", ["text_features", "queries", "logits", "probs", "attention_layers", "attention"])
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_patches(golden: Golden) -> None:
    golden.check("patches", golden.outputs["patches"][:, ::3])


def test_the_whole_book_and_one_alone(golden: Golden) -> None:
    """75 descriptions at once, and the first of four asked alone, which changes its logits."""
    with torch.inference_mode():
        wide = authors_outputs(golden.adapter, golden.image, torch.from_numpy(image("disease_book", (75, 768))))
        alone = authors_outputs(golden.adapter, golden.image, golden.text[:1])
    for name in ("logits", "probs", "attention"):
        golden.check(f"wide_{name}", wide[name])
    golden.check("alone_logits", alone["logits"])
    assert (alone["logits"][:, 0] - golden.outputs["logits"][:, 0]).abs().max() > 0.05


def test_exported_outputs(golden: Golden) -> None:
    """sigmoid(logit) is the official probability; the map is the official attention, row by row."""
    with torch.inference_mode():
        logits, saliency = golden.adapter.forward(golden.image, golden.text)
    golden.check("probs", logits.sigmoid())
    assert saliency.shape == (2, 4, 14, 14)
    golden.check("attention", saliency.flatten(2))


def test_padding_does_not_matter(golden: Golden) -> None:
    ids, mask = (torch.from_numpy(golden.arrays[key])[:2] for key in ("input_ids", "attention_mask"))
    width = int(mask.sum(dim=1).max())
    with torch.inference_mode():
        narrow = golden.adapter.encode_text(ids[:, :width], mask[:, :width])
    torch.testing.assert_close(narrow, golden.text[:2], rtol=0, atol=2e-5)


def test_pixels_of_the_rsna_script(golden: Golden) -> None:
    """Equalised as that script does, then through the adapter's geometry and normalisation."""
    pixels = to_model(golden.arrays["pre_pixels"], replace(golden.adapter.geometry, intensity="equalised"))
    golden.check("pre_image", normalised(golden.adapter, pixels)[:, ::8, ::8], 1e-6)


def test_scores_of_the_rsna_script(golden: Golden) -> None:
    """Cells repeated, raw attention > 0.008, a hit when any largest pixel lies in a box."""
    table = axis(14, 224, mode="nearest")
    for number, small in enumerate(golden.arrays["score_maps"]):
        boxes = golden.arrays["score_boxes"][number][: 1 + number % 2]
        heat, truth = small[table.lo][:, table.lo], boxes_mask(boxes)
        found = heat > 0.008
        both = (found & truth).sum()
        assert both / max((found | truth).sum(), 1) == pytest.approx(golden.arrays["score_iou"][number], abs=1e-6)
        assert 2 * both / (found.sum() + truth.sum()) == pytest.approx(golden.arrays["score_dice"][number], abs=1e-6)
        assert truth[heat == heat.max()].any() == golden.arrays["score_hits"][number]


def test_stand_in_equals_the_filled_files(golden: Golden) -> None:
    adapter = stand_in_adapter("medklip")
    assert adapter.weights == "stand-in" and adapter.checkpoint is None
    loaded, state = golden.adapter.module.state_dict(), adapter.module.state_dict()
    assert list(state) == list(loaded)
    assert all(torch.equal(state[name], loaded[name]) for name in state)


# The rest with a text encoder of one small layer.


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """Makes Bio_ClinicalBERT small; returns its tensors under BertModel's names. No cache is looked into."""
    monkeypatch.setattr(clinical_bert, "BERT", TINY_BERT)
    monkeypatch.setattr(clinical_bert, "cached_file", lambda *names: None)
    state = stand_in_adapter("medklip", seed=3).module.state_dict()
    return {n.removeprefix("text_encoder."): x for n, x in state.items() if n.startswith("text_encoder.")}


def small_file(shared: Path, path: Path, **changes: Any) -> Path:
    manifest, _ = read_golden(shared, "medklip")
    torch.save({"model": filled(manifest["tensors"]["model"], "model."), **changes}, path)
    return path


def test_no_text_encoder(shared: Path, tmp_path: Path, tiny: dict[str, torch.Tensor]) -> None:
    path = small_file(shared, tmp_path / "checkpoint_final.pth")
    with pytest.raises(ConfigError, match=r"holds no text encoder.*fetch its weights.*Bio_ClinicalBERT"):
        load_adapter("medklip", path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="has no weights that can be read"):
        load_adapter("medklip", path, text_encoder=tmp_path / "empty")
    with pytest.raises(CheckpointError, match="is not a text encoder"):
        load_adapter("medklip", path, text_encoder=path)


def test_forms_of_the_text_encoder(shared: Path, tmp_path: Path, tiny: dict[str, torch.Tensor]) -> None:
    """BertModel's own names, a safetensors file, TensorFlow's names of LayerNorm, and weights inside the checkpoint."""
    from safetensors.torch import save_file

    path = small_file(shared, tmp_path / "checkpoint_final.pth")
    folder = tmp_path / "plain"
    folder.mkdir()
    save_file(tiny | {"pooler.dense.weight": torch.zeros(2, 2)}, folder / "model.safetensors")
    old = {f"bert.{name}": tensor for name, tensor in tiny.items()}
    for new, former in (("weight", "gamma"), ("bias", "beta")):
        old = {name.replace(f"LayerNorm.{new}", f"LayerNorm.{former}"): tensor for name, tensor in old.items()}
    torch.save(old, tmp_path / "old.bin")
    inside = small_file(shared, tmp_path / "inside.pth", text_encoder=tiny)
    adapters = [load_adapter("medklip", path, text_encoder=given) for given in (folder, tmp_path / "old.bin")]
    adapters.append(load_adapter("medklip", inside))
    ids = torch.tensor([[1, 7, 9], [1, 8, 0]])
    first, *others = [adapter.encode_text(ids, (ids != 0).long()) for adapter in adapters]
    assert all(torch.equal(first, other) for other in others)
    assert [a.text_checkpoint.name for a in adapters] == ["model.safetensors", "old.bin", "inside.pth"]


def test_files_that_do_not_fit(shared: Path, tmp_path: Path, tiny: dict[str, torch.Tensor]) -> None:
    torch.save(tiny | {"embeddings.word_embeddings.weight": torch.zeros(31, 768)}, tmp_path / "other.bin")
    path = small_file(shared, tmp_path / "checkpoint_final.pth")
    with pytest.raises(CheckpointError, match=r"word_embeddings.weight \[31, 768\] instead of \[30, 768\]"):
        load_adapter("medklip", path, text_encoder=tmp_path / "other.bin")
    mavl = {"model": {"backbone.0.weight": torch.zeros(2), "disease_embedding_layer.bias": torch.zeros(2)}}
    torch.save(mavl, tmp_path / "mavl.pth")
    with pytest.raises(CheckpointError, match=r"does not fit the model MedKLIP.*looks like a checkpoint of MAVL"):
        load_adapter("medklip", tmp_path / "mavl.pth", text_encoder=tmp_path / "other.bin")


def test_a_text_encoder_with_a_tensor_under_two_names(
    shared: Path, tmp_path: Path, tiny: dict[str, torch.Tensor]
) -> None:
    name = "embeddings.LayerNorm.weight"
    torch.save(tiny | {"bert.embeddings.LayerNorm.gamma": torch.zeros(768)}, tmp_path / "twice.bin")
    path = small_file(shared, tmp_path / "checkpoint_final.pth")
    with pytest.raises(CheckpointError, match=rf"tensors {name} and bert.embeddings.LayerNorm.gamma, which are both"):
        load_adapter("medklip", path, text_encoder=tmp_path / "twice.bin")


def test_names_without_the_wrappers_prefix(shared: Path, tmp_path: Path, tiny: dict[str, torch.Tensor]) -> None:
    manifest, _ = read_golden(shared, "medklip")
    tensors = filled(manifest["tensors"]["model"], "model.")
    plain = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    torch.save({"model": plain, "text_encoder": tiny}, tmp_path / "plain.pth")
    state = load_adapter("medklip", tmp_path / "plain.pth").module.state_dict()
    assert torch.equal(state["model.module.classifier.weight"], tensors["module.classifier.weight"])


def test_graphs(tmp_path: Path, tiny: dict[str, torch.Tensor]) -> None:
    adapter = stand_in_adapter("medklip", seed=1)
    check_image_graph(adapter, tmp_path, [(1, 1), (2, 5), (3, 1), (1, 75)])
    check_text_graph(adapter, tmp_path)


def test_grounding_of_another_seed(tiny: dict[str, torch.Tensor]) -> None:
    """A prompt's logit and map are those of its place in the set, whatever the order of the others."""
    adapter = stand_in_adapter("medklip", seed=9)
    pixels, book = torch.from_numpy(image("x", (1, 3, 224, 224), 9)), torch.from_numpy(image("b", (6, 768), 9))
    with torch.inference_mode():
        logits, maps = adapter.forward(pixels, book)
        turned, turned_maps = adapter.forward(pixels, book.flip(0))
    torch.testing.assert_close(turned.flip(1), logits, rtol=0, atol=2e-5)
    torch.testing.assert_close(turned_maps.flip(1), maps, rtol=0, atol=1e-6)
    torch.testing.assert_close(F.relu(maps).sum(dim=(2, 3)), torch.ones(1, 6))
