"""CheXzero, loaded from files as published, against the authors' own outputs and pixels (docs/parity.md §3.10)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from authors_outputs import authors_outputs
from golden_models import Golden, computed, filled, read_golden
from small_models import small_adapter
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.adapter import CheckpointRecord
from xbench_fast.export.models.chexzero import ChexzeroAdapter
from xbench_fast.export.models.layers.resampling import Resampled, bicubic_matrix, corner_matrix
from xbench_fast.export.models.published_checkpoints import PUBLISHED
from xbench_fast.export.onnx_graph import ImageGraph
from xbench_fast.export.parity.compare_graphs import longest_text
from xbench_fast.export.tokenizing.select_tokenizer import select_tokenizer
from xbench_fast.runtime.data.images.resizing import to_model

torch.set_num_threads(2)

FILE = "best_64_5e-05_original_22000_0.864.pt"
PICTURES = ("portrait", "landscape", "square", "small", "narrow")  # grey, 8 bits, in the goldens' order


@pytest.fixture(scope="module")
def golden(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    """From a folder that holds one file: a flat state dict."""
    folder = tmp_path_factory.mktemp("chexzero")
    torch.save(filled(read_golden(shared, "chexzero")[0]["tensors"], ""), folder / FILE)
    adapter = load_adapter("chexzero", folder)
    (folder / FILE).unlink()  # the adapter must not depend on the file any more
    assert isinstance(adapter, ChexzeroAdapter)
    blocks: list[torch.Tensor] = []
    for block in adapter.module.members[0].visual.transformer.resblocks:
        block.register_forward_hook(lambda _, __, out: blocks.append(out))
    with computed(shared, adapter, lambda arrays: adapter.encode_text(arrays["tokens"])) as found:
        found.blocks = blocks[:12]
        yield found


def test_facts(golden: Golden) -> None:
    adapter = golden.adapter
    assert (adapter.name, adapter.variant, adapter.weights) == ("chexzero", "vit-b-32", "published")
    assert adapter.geometry == Geometry("pad_crop", 320, 320, "lanczos")
    assert adapter.grid == (7, 7) and adapter.text_shape == (512,) and adapter.logit_scale == 1.0
    assert adapter.checkpoint.name == FILE and list(adapter.maps) == ["patch-text", "value-value", "gradient-attention"]
    (caution,) = adapter.cautions()
    assert FILE in caution and "mean of the probabilities" in caution


OUTPUTS = ("image_features", "patch_features", "text_features", "cosine", "probabilities", "similarity_map")


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_every_block(golden: Golden) -> None:
    golden.check("probe_image_blocks", torch.stack([out[:, [0, 1, 49], :8] for out in golden.blocks]))


def test_from_the_picture_to_the_probability(golden: Golden) -> None:
    """Pixels of the product, then the graph's module: resize, normalisation, and a scale of 1."""
    squares = [to_model(golden.arrays[f"preprocess_in_{name}"], golden.adapter.geometry) for name in PICTURES]
    graph = ImageGraph(golden.adapter).eval()
    seen: list[torch.Tensor] = []
    hook = golden.adapter.module.members[0].visual.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    logits, saliency = graph(torch.from_numpy(np.stack(squares)[:, None]), golden.text)
    hook.remove()
    for place, name in enumerate(PICTURES):
        golden.check(f"preprocess_out_{name}", seen[0][place, 0, ::3, ::3])
        assert torch.equal(seen[0][place, 0], seen[0][place, 2])
    golden.check("file_probabilities", (logits[:, :5] - logits[:, 5:]).sigmoid(), part=slice(5))
    assert saliency.shape == (5, 10, 7, 7)


@pytest.mark.parametrize(("target", "source"), [(224, 320), (7, 3), (5, 5)])
def test_the_resize_is_pytorchs(target: int, source: int) -> None:
    pixels = torch.randn(2, 3, source, source, generator=torch.Generator().manual_seed(0))
    wanted = torch.nn.functional.interpolate(pixels, (target, target), mode="bicubic")
    torch.testing.assert_close(Resampled(bicubic_matrix(target, source))(pixels), wanted, rtol=0, atol=1e-5)
    wanted = torch.nn.functional.interpolate(pixels, (target, target), mode="bilinear", align_corners=True)
    torch.testing.assert_close(Resampled(corner_matrix(target, source))(pixels), wanted, rtol=0, atol=1e-5)


def test_a_stand_in_has_clips_values(golden: Golden) -> None:
    made, loaded = (each.module.members[0].state_dict() for each in (stand_in_adapter("chexzero"), golden.adapter))
    assert list(made) == list(loaded) and all(torch.equal(made[name], loaded[name]) for name in made)


def test_the_files_of_a_folder_are_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The score is the mean difference of cosines, its sigmoid the authors' mean of probabilities but for a term of
    second order; the map is the mean of the cosines. A file in half precision is one of the files."""
    small_adapter("chexzero", monkeypatch)  # the sizes of a small network, from here on
    for seed, name in enumerate(("best_a.pt", "best_b.pt")):
        state = ChexzeroAdapter.stand_in("vit-b-32", seed).module.members[0].state_dict()
        torch.save({key: x.half() if seed and x.ndim > 1 else x for key, x in state.items()}, tmp_path / name)
    torch.save({}, tmp_path / "optimizer.pt")  # what a training leaves is no member
    both = load_adapter("chexzero", tmp_path)
    each = [load_adapter("chexzero", tmp_path / name) for name in ("best_a.pt", "best_b.pt")]
    assert both.variant == "vit-b-32-mean-of-2" and both.cautions() == () and both.text_shape == (1024,)
    assert both.notes == (f"the 2 checkpoints of {tmp_path.name} are averaged: best_a.pt, best_b.pt",)
    lines = "".join(f"{one.checkpoint.sha256}  {one.checkpoint.name}\n" for one in each)  # as sha256sum prints them
    assert (both.checkpoint.name, both.checkpoint.sha256) == (tmp_path.name, sha256(lines.encode()).hexdigest())
    pixels = torch.randn(2, 3, 320, 320, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[1, 40, 9], [1, 8, 40], [1, 9, 40], [1, 40, 3]])
    with torch.inference_mode():
        alone = [authors_outputs(adapter, pixels, adapter.encode_text(tokens)) for adapter in each]
        together = authors_outputs(both, pixels, both.encode_text(tokens))
        logits, saliency = both.forward(pixels, both.encode_text(tokens))
    for name in ("cosine", "probabilities", "similarity_map"):
        wanted = (alone[0][name] + alone[1][name]) / 2
        torch.testing.assert_close(together[name], wanted, rtol=0, atol=1e-6)
        assert float((alone[0][name] - alone[1][name]).abs().max()) > 1e-3
    assert torch.equal(logits, together["cosine"]) and torch.equal(saliency, together["similarity_map"])
    differences = torch.stack([found["cosine"][:, :2] - found["cosine"][:, 2:] for found in alone])
    bound = 0.0482 * differences.var(0, correction=0) + 1e-6
    assert bool((((logits[:, :2] - logits[:, 2:]).sigmoid() - together["probabilities"]).abs() <= bound).all())
    each[0].checkpoint = CheckpointRecord("ViT-B-32.pt", PUBLISHED["clip"].sha256["ViT-B-32.pt"])
    assert each[0].cautions()[0].startswith("ViT-B-32.pt is OpenAI's CLIP (sha256)")
    (tmp_path / "copy.pt").write_bytes((tmp_path / "best_a.pt").read_bytes())
    with pytest.raises(CheckpointError, match=r"best_a.pt and copy.pt in .* are the same file"):
        load_adapter("chexzero", tmp_path)


def test_a_prompt_that_is_too_long_is_an_error(golden: Golden) -> None:
    """CLIP cuts it; the authors' inference does not."""
    words = select_tokenizer(golden.adapter)
    assert words(["lung " * 75]).ids.shape == (1, 77) and words.record["limit"] == 77
    with pytest.raises(ConfigError, match="A text has 78 tokens; this model takes 77 at most"):
        words(["pneumonia", "lung " * 76])
    assert 70 < words([longest_text(words)]).ids.shape[1] <= 77, (
        "what every comparison of graphs asks, in any precision"
    )
    assert select_tokenizer(stand_in_adapter("clip"))(["lung " * 90]).ids.shape == (1, 77)


def test_the_published_tokens_are_the_tokenizers(golden: Golden, shared: Path) -> None:
    prompts = read_golden(shared, "chexzero")[0]["prompts"]
    ids = select_tokenizer(golden.adapter)(prompts).ids
    np.testing.assert_array_equal(ids, golden.arrays["tokens"][:, : ids.shape[1]])
    assert not golden.arrays["tokens"][:, ids.shape[1] :].any()


def test_a_file_of_the_other_network_is_refused(tmp_path: Path) -> None:
    torch.save({"visual.conv1.weight": torch.zeros(768, 3, 16, 16)}, tmp_path / "large.pt")
    with pytest.raises(CheckpointError, match="published files are ViT-B/32"):
        load_adapter("chexzero", tmp_path / "large.pt")
