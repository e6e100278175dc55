"""BiomedCLIP, loaded from its published forms, against open_clip's outputs (docs/parity.md §3.2)."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_models import Golden, computed, filled, read_golden
from torch import Tensor
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.tokenizing import HashTokenizer
from xbench_fast.engines.tokenizing.tokenizers import CleanedTokenizer, clean_web
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.checkpoints.stand_in import fill_module, image
from xbench_fast.export.models.biomedclip import BiomedClip, BiomedClipAdapter
from xbench_fast.export.models.layers.bert import BertConfig
from xbench_fast.export.models.layers.vit import ViTConfig
from xbench_fast.export.onnx_graph import ImageGraph, TextGraph, export_image, export_text

torch.set_num_threads(2)

SURPLUS = {"text.transformer.embeddings.position_ids": torch.arange(512)[None]}  # as the published file carries it


@pytest.fixture(scope="module")
def golden(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    path = tmp_path_factory.mktemp("biomedclip") / "open_clip_pytorch_model.bin"
    manifest, _ = read_golden(shared, "biomedclip")
    torch.save(OrderedDict(filled(manifest["tensors"], "") | SURPLUS), path)
    adapter = load_adapter("biomedclip", path)
    path.unlink()  # the adapter must not depend on the file any more
    assert isinstance(adapter, BiomedClipAdapter)
    towers = (adapter.module.visual.trunk, adapter.module.text["transformer"])
    with computed(shared, adapter, lambda arrays: adapter.encode_text(arrays["tokens"]), towers) as found:
        yield found


def test_facts(golden: Golden) -> None:
    adapter = golden.adapter
    assert (adapter.name, adapter.variant, adapter.weights) == ("biomedclip", "vit-b-16", "published")
    assert adapter.geometry == Geometry("crop", 224, 224, "bicubic")
    assert adapter.mean == (0.48145466, 0.4578275, 0.40821073) and adapter.std == (0.26862954, 0.26130258, 0.27577711)
    assert adapter.grid == (14, 14) and adapter.text_shape == (512,) and adapter.text_inputs == ("input_ids",)
    assert adapter.logit_scale == pytest.approx(1 / 0.07) and adapter.context == 256
    assert adapter.vocabulary_size == 30522
    assert sum(parameter.numel() for parameter in adapter.module.parameters()) == 195_902_721
    assert adapter.checkpoint is not None and adapter.checkpoint.name == "open_clip_pytorch_model.bin"


FEATURES = ("image_features", "patch_features", "text_features")
SCORES = ("logits_per_image", "logits_per_text", "probabilities", "similarity_map")


@pytest.mark.parametrize("name", [*FEATURES, *SCORES])
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_every_layer(golden: Golden) -> None:
    golden.check_layers()


def test_exported_outputs(golden: Golden) -> None:
    """Also for one image and other prompts."""
    logits, saliency = golden.adapter.forward(golden.image[1:], golden.text[[3, 1, 0]])
    golden.check("logits_per_image", logits, part=([[1]], [[3, 1, 0]]))
    golden.check("similarity_map", saliency, part=([[1]], [[3, 1, 0]]))


def test_a_shorter_row_of_ids_is_the_same(golden: Golden) -> None:
    """Padding is masked by its id, so a row may be cut to its text; a mask that is given changes nothing."""
    short = golden.adapter.encode_text(golden.tensor("tokens")[:3, :25], torch.ones(3, 25, dtype=torch.int64))
    golden.check("text_features", short, part=slice(3))


def test_stand_in_and_safetensors_hold_the_same_values(golden: Golden, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    loaded = golden.adapter.module.state_dict()
    adapter = stand_in_adapter("biomedclip")
    assert adapter.weights == "stand-in" and adapter.checkpoint is None
    assert list(adapter.module.state_dict()) == list(loaded)
    path = tmp_path / "open_clip_model.safetensors"
    save_file(adapter.module.state_dict(), path)
    del adapter
    state = load_adapter("biomedclip", path).module.state_dict()
    path.unlink()
    assert all(torch.equal(state[name], loaded[name]) for name in loaded)


# The structure of a file, without the weight of one: tensors of one stored value.


def hollow() -> dict[str, Tensor]:
    with torch.device("meta"):
        state = BiomedClip(ViTConfig(), BertConfig(pooler=False)).state_dict()
    return {name: torch.zeros(()).expand(tensor.shape) for name, tensor in state.items()}


def test_names_are_the_goldens(shared: Path) -> None:
    shapes = json.loads((shared / "parity" / "biomedclip.json").read_text())["tensors"]
    assert {name: list(x.shape) for name, x in hollow().items()} == {name: shape for name, (shape, _) in shapes.items()}


def test_refusals(tmp_path: Path) -> None:
    tensors = hollow()
    del tensors["visual.head.proj.weight"]
    tensors["text.transformer.pooler.dense.weight"] = torch.zeros(2)  # written by some versions, not used
    torch.save({"state_dict": {f"module.{name}": x for name, x in tensors.items()}}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=r"BiomedCLIP: tensors 1 missing \(visual.head.proj.weight\)\."):
        load_adapter("biomedclip", tmp_path / "a.pt")
    torch.save({"visual.transformer.resblocks.0.ln_1.weight": torch.zeros(2)}, tmp_path / "b.pt")
    with pytest.raises(CheckpointError, match=r"looks like a checkpoint of CLIP\."):
        load_adapter("biomedclip", tmp_path / "b.pt")
    with pytest.raises(ConfigError, match="no variant '224'"):
        stand_in_adapter("biomedclip", "224")


def test_cleaning_of_prompts() -> None:
    assert clean_web("this is a photo of  chest X-ray\n") == "this is a photo of chest X-ray"
    assert clean_web("caf&amp;eacute;-au-lait Ã©dÃ¨me") == "café-au-lait édème"
    words = CleanedTokenizer(HashTokenizer(100, 256), "open_clip")
    assert words.record == {**HashTokenizer(100, 256).record, "cleaning": "open_clip"}
    assert (
        words(["pleural  &amp; effusion"]).ids.tolist() == HashTokenizer(100, 256)(["pleural & effusion"]).ids.tolist()
    )


# The graphs, of a model small enough to be exported in seconds


def test_graphs_keep_their_axes_free(tmp_path: Path) -> None:
    """Batches of 1, 2, 3, findings 1 and 5, texts of any width, against the model; the axes are dynamic."""
    onnxruntime = pytest.importorskip("onnxruntime")
    vit = ViTConfig(image_size=32, patch=8, width=24, layers=2, heads=2, hidden=32)
    bert = BertConfig(vocabulary=50, width=16, layers=2, heads=2, hidden=32, positions=16, pooler=False)
    module = BiomedClip(vit, bert)
    fill_module(module, seed=3)
    small = BiomedClipAdapter._describe(module, "stand-in", None)
    assert small.grid == (4, 4) and small.geometry.size == 32
    export_text(small, tmp_path)
    export_image(small, tmp_path)
    sessions = {
        name: onnxruntime.InferenceSession(tmp_path / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("image", "text")
    }
    random = np.random.default_rng(1)
    for texts, width in ((1, 2), (5, 9), (3, 4)):
        ids = random.integers(1, 50, (texts, width))
        ids[1:, width - 1 :] = 0
        (features,) = sessions["text"].run(None, {"input_ids": ids})
        with torch.inference_mode():
            expected = TextGraph(small)(torch.from_numpy(ids))
        np.testing.assert_allclose(features, expected, atol=1e-5 * float(expected.abs().max()))
    for batch in (1, 2, 3):
        for findings in (1, 5):
            pixels = random.integers(0, 256, (batch, 1, 32, 32), dtype=np.uint8)
            text = image("text", (findings, 512), seed=findings)
            got = sessions["image"].run(["logits", "saliency"], {"pixels": pixels, "text": text})
            with torch.inference_mode():
                wanted = ImageGraph(small)(torch.from_numpy(pixels), torch.from_numpy(text))
            for mine, theirs in zip(got, wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, atol=1e-4 * float(theirs.abs().max()))
