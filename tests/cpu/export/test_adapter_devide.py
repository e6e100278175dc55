"""DeViDe's assumed architecture against the goldens of that assumption (docs/parity.md §3.7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from golden_models import Golden, check_image_graph, check_text_graph, computed, filled, read_golden
from small_models import small_adapter
from xbench_fast.engines.errors import CheckpointError, ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.checkpoints.stand_in import image
from xbench_fast.export.models.saliency_maps import ATTENTION_MAPS

torch.set_num_threads(2)

PARTS = ("image_encoder", "text_encoder", "model")


@pytest.fixture(scope="module")
def golden(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    manifest, _ = read_golden(shared, "devide")
    path = tmp_path_factory.mktemp("devide") / "devide.pt"
    parts = manifest["tensors"]
    content = {part: filled(parts[part], f"{part}.", manifest["alias_of"].get(part)) for part in parts}
    torch.save(content, path)
    adapter = load_adapter("devide", path)
    path.unlink()
    with computed(
        shared, adapter, lambda tokens: adapter.encode_text(tokens["input_ids"], tokens["attention_mask"])
    ) as it:
        yield it


def test_facts(golden: Golden) -> None:
    """Every result carries the mark: the variant names the bundle, and the map says it."""
    adapter = golden.adapter
    assert (adapter.name, adapter.variant) == ("devide", "assumed-architecture")
    assert "assumed architecture" in adapter.saliency.description
    assert adapter.geometry == Geometry("squash", 224, 224, "bicubic") and adapter.grid == (14, 14)
    assert adapter.text_shape == (768,) and adapter.context == 256 and adapter.vocabulary_size == 30522
    assert len(adapter.cautions()) == 1 and "the architecture is assumed" in adapter.cautions()[0]


@pytest.mark.parametrize(
    "name",
    ["image_cls", "image_patches", "text_features", "logits", "probability", "attention", "attention_map"],
)
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_exported_outputs(golden: Golden) -> None:
    with torch.inference_mode():
        logits, saliency = golden.adapter.forward(golden.image, golden.text)
    golden.check("probability", logits.sigmoid())
    golden.check("attention_map", saliency)


# On a model of a few thousand values.


def test_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = small_adapter("devide", monkeypatch)
    check_image_graph(adapter, tmp_path, [(1, 1), (2, 5), (3, 1), (2, 75)])
    check_text_graph(adapter, tmp_path)


def test_every_map_differs_and_says_that_the_architecture_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = small_adapter("devide", monkeypatch)
    pixels, text = torch.from_numpy(image("x", (1, 3, 224, 224))), torch.from_numpy(image("t", (2, 32)))
    found = []
    for name in ATTENTION_MAPS:
        adapter.variant, adapter.map_name = "assumed-architecture", ""
        adapter.choose_map(name)
        assert adapter.variant.startswith("assumed-architecture") and "assumed" in adapter.saliency.description
        with torch.inference_mode():
            found.append(adapter.forward(pixels, text)[1])
    assert {tuple(values.shape) for values in found} == {(1, 2, 4, 4)}
    assert not any(torch.allclose(a, b) for n, a in enumerate(found) for b in found[:n])


def test_refusals(tmp_path: Path) -> None:
    """A file that is not in the assumed structure, or holds other tensors, and any other variant."""
    path = tmp_path / "model.pt"
    with pytest.raises(CheckpointError, match="does not exist"):
        load_adapter("devide", path)
    for content in ({"state_dict": {"visual.cls_token": torch.zeros(2)}}, {"image_encoder": {}, "text_encoder": {}}):
        torch.save(content, path)
        with pytest.raises(CheckpointError, match=r"not public, so its architecture and tensor names are assumed"):
            load_adapter("devide", path)
    torch.save({part: {f"{part}.weight": torch.zeros(2)} for part in PARTS}, path)
    with pytest.raises(
        CheckpointError, match=r"does not fit the model DeViDe \(assumed architecture\): tensors .* missing"
    ):
        load_adapter("devide", path)
    with pytest.raises(ConfigError, match="has no variant '224': known are assumed-architecture"):
        stand_in_adapter("devide", "224")
    with pytest.raises(ConfigError, match="has no option 'config'"):
        load_adapter("devide", path, config="devide.yaml")
