"""The committed demo model: a small KAD in the published structure, readable without running code, and seeing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from xbench_fast.demo.phantoms import FINDINGS, phantoms
from xbench_fast.demo.training import batches, train, words
from xbench_fast.demo.training.evaluate import judge
from xbench_fast.export import load_adapter
from xbench_fast.export.tokenizing.select_tokenizer import find_wordpiece

PARTS = ("image_encoder", "text_encoder", "model")
Content = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def demo(root: Path) -> Path:
    return root / "demo"


@pytest.fixture(scope="module")
def content(demo: Path) -> Content:
    loaded: Content = torch.load(demo / "kad-demo.pt", weights_only=True)
    return loaded


def test_checkpoint_is_small_and_names_itself_a_demo(demo: Path, content: Content) -> None:
    assert 1e6 < (demo / "kad-demo.pt").stat().st_size < 3e6
    assert content.keys() == {"image_encoder", "text_encoder", "model", "config", "epoch"}
    assert content["config"]["xbench"]["weights"] == "demo"
    tensors = [value for part in PARTS for value in content[part].values()]
    unique = {value.data_ptr(): value for value in tensors}
    assert 250_000 < sum(value.numel() for value in unique.values()) < 700_000


def test_every_tensor_name_is_a_published_one(content: Content, shared: Path) -> None:
    """A demo file has fewer blocks and layers than the published KAD-224, but no name of its own."""
    published = json.loads((shared / "parity" / "kad_224.json").read_text())["tensors"]
    for part in PARTS:
        assert not set(content[part]) - set(published[part])


def test_aliases_are_the_tensors_they_stand_for(content: Content, shared: Path) -> None:
    aliases = json.loads((shared / "parity" / "kad_224.json").read_text())["alias_of"]
    checked = 0
    for part, names in aliases.items():
        for alias, canonical in names.items():
            if canonical in content[part]:
                torch.testing.assert_close(content[part][alias], content[part][canonical], rtol=0, atol=0)
                checked += 1
    assert checked > 100


def test_vocabulary_file_is_the_models_and_spells_every_prompt(demo: Path, content: Content) -> None:
    lines = (demo / "tokenizer" / "vocab.txt").read_text().split()
    assert tuple(lines) == words.vocabulary() == tuple(content["config"]["xbench"]["vocabulary"])
    tokens = find_wordpiece(demo / "tokenizer", (), 64)
    assert tokens is not None
    sets = yaml.safe_load((demo / "prompts.yaml").read_text())
    texts = [text for findings in sets.values() for prompts in findings.values() for text in prompts]
    for text in [*texts, *words.OTHERS, "quadricepsectomy"]:
        batch = tokens([text])
        assert lines.index("[UNK]") not in batch.ids, text
    pieces = [len(re.findall(r"[a-z0-9]+", text)) for text in texts]
    assert [int((tokens([text]).ids >= 0).sum()) - 2 for text in texts] == pieces  # whole words, not letters


def test_model_sees_held_out_phantoms(demo: Path) -> None:
    """Well under the figures of the data card, far above a model that does not look."""
    adapter = load_adapter("kad", demo / "kad-demo.pt")
    assert (adapter.variant, adapter.weights, adapter.grid) == ("demo", "demo", (14, 14))
    tokens = find_wordpiece(demo / "tokenizer", (), adapter.context)
    assert tokens is not None
    batch = tokens([name.lower() for name in FINDINGS])
    items = list(phantoms("test", 96))
    pixels = torch.from_numpy(np.stack([item.image for item in items])).float()[:, None] / 255
    image = (pixels - torch.tensor(adapter.mean)[:, None, None]) / torch.tensor(adapter.std)[:, None, None]
    with torch.inference_mode():
        text = adapter.encode_text(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask))
        logits, maps = adapter.forward(image, text)
    results = judge(FINDINGS, logits.numpy(), maps.numpy(), [item.masks for item in items])
    assert np.mean([r.auc for r in results]) > 0.9
    assert np.mean([r.pointing for r in results]) > 0.7
    assert np.mean([r.dice for r in results]) > 3 * np.mean([r.floor for r in results])


def test_training_repeats_itself() -> None:
    material = batches.draw_material("train", 40, 1)
    states = []
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            module = train.build(3)
            train.train(module, material, 2, 3)
            states.append(module.state_dict())
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
    fresh = train.build(3).state_dict()
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
    assert not torch.equal(states[0]["model.mlp_head.0.weight"], fresh["model.mlp_head.0.weight"])


def test_a_trained_model_is_judged_and_laid_out_as_the_committed_one(
    content: Content, capsys: pytest.CaptureFixture[str]
) -> None:
    module = train.build(3).eval()
    train.evaluate(module, 24)
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.strip().startswith(name) for line in lines) for name in FINDINGS), lines
    layout = train.published_layout(module, 1)
    assert layout.keys() == content.keys()
    for part in PARTS:
        tensors = layout[part]
        assert isinstance(tensors, dict) and tensors.keys() == content[part].keys()
        assert all(tensors[name].shape == content[part][name].shape for name in tensors)


def test_radiographs_are_small_grey_and_listed(demo: Path) -> None:
    folder = demo / "chestxdet10"
    entries = json.loads((folder / "test.json").read_text())
    assert len(entries) == 40
    assert sum(bool(entry["boxes"]) for entry in entries) == 30
    assert {entry["file_name"] for entry in entries} == {path.name for path in (folder / "test_data").iterdir()}
    for entry in entries:
        with Image.open(folder / "test_data" / entry["file_name"]) as picture:
            assert (picture.size, picture.mode) == ((512, 512), "L")


def test_radiographs_are_their_originals_reduced(demo: Path, shared: Path) -> None:
    folder = demo / "chestxdet10"
    entries = json.loads((folder / "test.json").read_text())
    source = shared / "data" / "annotations" / "chestxdet10" / "all_subset.json"
    for entry, full in zip(entries, json.loads(source.read_text()), strict=True):
        assert (entry["file_name"], entry["syms"]) == (full["file_name"], full["syms"])
        outward = [[*np.floor(np.divide(b[:2], 2)), *np.ceil(np.divide(b[2:], 2))] for b in full["boxes"]]
        assert entry["boxes"] == outward
    for entry in entries[::8]:
        with (
            Image.open(folder / "test_data" / entry["file_name"]) as picture,
            Image.open(shared / "data" / "images" / "chestxdet10" / entry["file_name"]) as full,
        ):
            grey = np.asarray(full.convert("RGB").convert("L"), dtype=np.float64)
            mean = grey.reshape(512, 2, 512, 2).mean(axis=(1, 3))
            assert np.abs(np.asarray(picture) - mean).max() <= 1
