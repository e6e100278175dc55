"""AFLoc, loaded from a Lightning file, against the authors' own outputs and pixels (docs/parity.md §3.11)."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from golden_models import Golden, computed, filled, read_golden
from test_adapter_carzero import omegaconf
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.models.afloc import AflocAdapter
from xbench_fast.export.onnx_graph import ImageGraph
from xbench_fast.export.prompts.builtin import builtin_sets
from xbench_fast.export.tokenizing.select_tokenizer import select_tokenizer
from xbench_fast.runtime.data.images.resizing import to_model

torch.set_num_threads(2)

CONFIG = {
    "model": {"norm": False, "vision": {"model_name": "resnet_50"}, "text": {"last_n_layers": 4, "norm": False}},
    "data": {"text": {"word_num": 97}, "image": {"imsize": 256}},  # the inference takes 224 whatever is stated
}
MAP_TOLERANCE = 5e-5


def lightning(state: dict[str, torch.Tensor], config: dict[str, object], path: Path) -> Path:
    """A Lightning file: tensors beside a configuration of a program that is not installed."""
    program = types.ModuleType("omegaconf")
    for kind in ("DictConfig", "AnyNode"):
        setattr(program, kind, type(kind, (), {"__module__": "omegaconf"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "omegaconf", program)
        torch.save({"state_dict": state, "hyper_parameters": omegaconf(config, program)}, path)
    return path


@pytest.fixture(scope="module")
def golden(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    state = filled(read_golden(shared, "afloc")[0]["tensors"]["state_dict"], "state_dict.")
    state["afloc.text_encoder.model.embeddings.position_ids"] = torch.arange(512)[None]
    state["afloc.img_encoder.local_f_embedder.weight"] = torch.zeros(768, 2048, 1, 1)
    path = lightning(state, CONFIG, tmp_path_factory.mktemp("afloc") / "afloc.ckpt")
    adapter = load_adapter("afloc", path)
    path.unlink()  # the adapter must not depend on the file any more
    assert isinstance(adapter, AflocAdapter)
    with computed(
        shared, adapter, lambda arrays: adapter.encode_text(arrays["caption_ids"], arrays["attention_mask"])
    ) as found:
        yield found


def test_facts(golden: Golden) -> None:
    adapter = golden.adapter
    assert (adapter.name, adapter.variant, adapter.weights) == ("afloc", "resnet-50", "published")
    assert adapter.geometry == Geometry("pad_crop", 224, 224, "area")
    assert adapter.mean == adapter.std == (0.5,) * 3 and adapter.logit_scale == 1.0
    assert adapter.grid == (19, 19) and adapter.text_shape == (768,)
    assert adapter.context == 97 and adapter.vocabulary_size == 28996
    assert list(adapter.maps) == ["patch-text-smoothed", "patch-text"] and adapter.saliency.smoothing == 1.5


@pytest.mark.parametrize("name", ["image_global", "text_global", "score", "similarity_raw", "similarity_map"])
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name], MAP_TOLERANCE if "similarity" in name else 2e-5)


def test_cells_and_stages(golden: Golden) -> None:
    golden.check("image_local", golden.outputs["image_local"][:, ::16])
    encoder = golden.adapter.module.img_encoder.model
    seen = []
    hooks = [
        encoder.get_submodule(f"layer{n}").register_forward_hook(lambda *given: seen.append(given[2])) for n in (3, 4)
    ]
    golden.adapter.module.encode_image(golden.image)
    for hook in hooks:
        hook.remove()
    for number, cells in zip((3, 4), seen, strict=True):
        golden.check(f"probe_layer{number}", cells[:, :8, ::3, ::3])


def test_every_text_layer_and_a_shorter_row(golden: Golden) -> None:
    """The divisor stays 97, whatever stands in the padding and however wide it is."""
    mask = golden.tensor("attention_mask")
    states = golden.adapter.module.text_encoder["model"](golden.tensor("caption_ids"), mask)
    golden.check("probe_text_layers", torch.stack([x[:, [0, 1, 4], :8] for x in states]))
    short = [row for row, length in enumerate(mask.sum(1).tolist()) if length < 97]
    width = int(mask[short].sum(1).max())
    cut = golden.tensor("caption_ids")[short, :width].clone()
    cut[mask[short, :width] == 0] = 999
    assert width < 97
    golden.check("text_global", golden.adapter.encode_text(cut, mask[short, :width]), part=short)


@pytest.mark.parametrize("name", ["portrait", "landscape"])
def test_from_the_picture_to_score_and_map(golden: Golden, name: str) -> None:
    """Pixels of the product, and the graph's module; the authors enlarge the map to the square."""
    pixels = to_model(golden.arrays[f"preprocess_in_{name}"], golden.adapter.geometry)
    with torch.inference_mode():
        logits, saliency = ImageGraph(golden.adapter).eval()(torch.from_numpy(pixels[None, None]), golden.text[1:2])
    golden.check(f"file_score_{name}", logits)
    square = torch.nn.functional.interpolate(saliency, (224, 224), mode="bilinear")[0, 0, ::3, ::3]
    golden.check(f"file_map_{name}", square, MAP_TOLERANCE)


def test_the_other_map_is_not_smoothed(golden: Golden) -> None:
    adapter = stand_in_adapter("afloc")
    state, loaded = adapter.module.state_dict(), golden.adapter.module.state_dict()
    assert list(state) == list(loaded) and all(torch.equal(state[name], loaded[name]) for name in state)
    adapter.choose_map("patch-text")
    with torch.inference_mode():
        _, saliency = adapter.forward(golden.image, golden.text)
    golden.check("similarity_raw", saliency, MAP_TOLERANCE)
    assert adapter.variant == "resnet-50-patch-text" and adapter.saliency.smoothing == 0


def test_prompts_are_cleaned_as_the_authors_do(golden: Golden, shared: Path) -> None:
    words = select_tokenizer(golden.adapter, shared / "data/tokenizers/bio_clinicalbert")
    plain = {text: words([text]).ids.tolist() for text in ("pneumonia", "", "findings suggesting pneumonia")}
    assert plain["pneumonia"] == plain[""] == [[101, 102]]
    entries = [entry for found in builtin_sets("afloc").values() for entry in found]
    (pneumonia,) = {entry.positive for entry in entries if entry.finding == "Pneumonia"}
    assert pneumonia == ("Findings suggesting Pneumonia.",)
    assert words(list(pneumonia)).ids.tolist() == plain["findings suggesting pneumonia"]
    assert all(len(words(list(entry.positive)).ids[0]) > 4 and not entry.negative for entry in entries)
    assert {entry.finding for entry in entries if entry.status == "official"} >= {"Edema", "Effusion", "Pneumothorax"}


def test_other_files_are_refused(tmp_path: Path) -> None:
    table = {"afloc.text_encoder.model.embeddings.word_embeddings.weight": torch.zeros(9, 768)}
    path = lightning(table, {"model": {"text": {"last_n_layers": 1}}}, tmp_path / "other.ckpt")
    with pytest.raises(CheckpointError, match=r"model\.text\.last_n_layers = 1; only AFLoc with 4"):
        load_adapter("afloc", path)
    path = lightning({**table, "afloc.img_encoder.extra.weight": torch.zeros(2)}, CONFIG, tmp_path / "more.ckpt")
    with pytest.raises(CheckpointError, match=r"1 unexpected \(img_encoder.extra.weight\)"):
        load_adapter("afloc", path)
