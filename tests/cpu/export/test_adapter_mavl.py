"""MAVL, loaded from files as published, against the authors' own outputs (docs/parity.md §3.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
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
from numpy.typing import NDArray
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.checkpoints.stand_in import image
from xbench_fast.export.models import clinical_bert
from xbench_fast.metrics_gpu.sweep.maps import axis
from xbench_fast.runtime.data.images.resizing import to_model

torch.set_num_threads(2)


@pytest.fixture(scope="module")
def golden(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    manifest, _ = read_golden(shared, "mavl")
    folder = tmp_path_factory.mktemp("mavl")
    path = folder / "checkpoint_full_40.pth"
    write_authors_file(manifest, path)
    write_text_encoder(manifest, folder)
    adapter = load_adapter("mavl", path, text_encoder=folder / "pytorch_model.bin")
    (folder / "pytorch_model.bin").unlink()
    path.unlink()  # the adapter must not depend on the files any more

    def encode(arrays: dict[str, torch.Tensor]) -> torch.Tensor:
        """The golden's rows are the descriptions, then eight aspects of each class."""
        rows = adapter.encode_text(arrays["input_ids"], arrays["attention_mask"])
        return torch.cat([rows[:4, None], rows[4:].unflatten(0, (4, 8))], dim=1)

    with computed(shared, adapter, encode) as found:
        yield found


def test_facts(golden: Golden) -> None:
    adapter = golden.adapter
    assert (adapter.name, adapter.variant, adapter.weights) == ("mavl", "224", "published")
    assert adapter.geometry == Geometry("squash", 224, 224, "bilinear")
    assert adapter.grid == (14, 14) and adapter.text_shape == (9, 768)
    assert adapter.context == 64 and adapter.vocabulary_size == 28996 and not adapter.tokenizer.separator
    assert adapter.checkpoint.name == "checkpoint_full_40.pth"
    assert "model.module.temp" not in adapter.module.state_dict()


@pytest.mark.parametrize(
    "name",
    [
        "text_features",
        "queries",
        "image_global",
        "logits",
        "probs",
        "similarity",
        "cosine",
        "attention_layers",
        "attention_aspects",
        "attention",
        "heat_first_class",
    ],
)
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_patches(golden: Golden) -> None:
    golden.check("patches", golden.outputs["patches"][:, ::3])


def test_classification_sample(golden: Golden) -> None:
    """Its "text" mode, with classes 0 and 1 as the normal ones, and its location head asked about four sentences."""
    cosine, adapter, net = golden.outputs["cosine"], golden.adapter, golden.adapter.net
    against = [(cosine - cosine[..., normal : normal + 1]).sigmoid() for normal in (0, 1)]
    golden.check("probs_text_mode", torch.stack(against).mean(dim=(0, 2)))
    with torch.inference_mode():
        states, _ = net.ask(net.patches(net.backbone(golden.image)), adapter._queries(golden.text))
        places = net.location_emb(states.transpose(1, 2)).transpose(1, 2)
        golden.check("location", places @ golden.text[:, 0].T)


def test_the_whole_book_and_one_alone(golden: Golden) -> None:
    """675 queries in the order of the official book, and the first class of four asked alone."""
    with torch.inference_mode():
        wide = authors_outputs(golden.adapter, golden.image, torch.from_numpy(image("concept_book", (675, 768))))
        alone = authors_outputs(golden.adapter, golden.image, golden.text[:1])
    for name in ("logits", "probs", "similarity", "attention"):
        golden.check(f"wide_{name}", wide[name])
    golden.check("alone_logits", alone["logits"])


def test_exported_outputs(golden: Golden) -> None:
    """sigmoid(logit) is the official probability; the map is the official mean of four aspects, row by row."""
    with torch.inference_mode():
        logits, saliency = golden.adapter.forward(golden.image, golden.text)
    golden.check("probs", logits.sigmoid())
    assert saliency.shape == (2, 4, 14, 14)
    golden.check("attention", saliency.flatten(2))
    aspects = golden.arrays["attention_aspects"]
    np.testing.assert_allclose(saliency.flatten(2), aspects[:, :, [0, 6, 7, 8]].mean(2), rtol=0, atol=3e-7)


def test_pixels_of_the_rsna_script(golden: Golden) -> None:
    pixels = to_model(golden.arrays["pre_pixels"], replace(golden.adapter.geometry, intensity="equalised"))
    golden.check("pre_image", normalised(golden.adapter, pixels)[:, ::8, ::8], 1e-6)


def test_scores_of_the_grounding_script(golden: Golden) -> None:
    """Raw attention above four thresholds, and a hit when any largest pixel lies in a box."""
    arrays = golden.arrays
    for number, small in enumerate(arrays["score_maps"]):
        truth = boxes_mask(arrays["score_boxes"][number][: 1 + number % 2])
        cells = torch.from_numpy(small)[None, None]
        heat = F.interpolate(cells, (224, 224), mode="bilinear", align_corners=True)[0, 0].numpy()
        assert truth[heat == heat.max()].any() == arrays["score_hits"][number]
        for row, threshold in enumerate(arrays["score_thresholds"]):
            found = heat > threshold
            both, either = (found & truth).sum(), (found | truth).sum()
            scores = {
                "iou": both / max(either, 1),
                "dice": 2 * both / (found.sum() + truth.sum()),
                "recall": both / truth.sum(),
                "precision": both / found.sum() if found.any() else np.nan,
                "accuracy": (found == truth).mean(),
            }
            for name, score in scores.items():
                wanted = float(arrays[f"score_{name}"][row, number])
                assert score == pytest.approx(wanted, abs=1e-6, nan_ok=True), f"{name}, map {number}, {threshold}"


def enlarged(small: NDArray[np.float32]) -> NDArray[np.float32]:
    """14 x 14 -> 224 x 224, corners on corners."""
    table = axis(14, 224, mode="align_corners")
    across = small[:, table.lo] * (1 - table.weight) + small[:, table.hi] * table.weight
    down = table.weight[:, None]
    result: NDArray[np.float32] = across[table.lo] * (1 - down) + across[table.hi] * down
    return result


def test_the_enlarged_map(golden: Golden) -> None:
    """The sampling table of the metrics enlarges as the script does, but for the last bits."""
    heat = np.stack([enlarged(small) for small in golden.outputs["attention"][:, 0].numpy().reshape(-1, 14, 14)])
    golden.check("heat_first_class", heat)


# The rest with a text encoder of one small layer.


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clinical_bert, "BERT", TINY_BERT)


def test_forms_of_the_names(shared: Path, tmp_path: Path, tiny: None) -> None:
    """`module.` in front, absent, or inside (a wrapped part); the temperatures are dropped under any name."""
    manifest, _ = read_golden(shared, "mavl")
    tensors = filled(manifest["tensors"]["model"], "model.")
    text = stand_in_adapter("mavl").module.state_dict()
    encoder = {name.removeprefix("text_encoder."): x for name, x in text.items() if name.startswith("text_encoder.")}
    forms = {
        "plain": {name.removeprefix("module."): x for name, x in tensors.items()},
        "inside": {name.replace("module.decoder.", "decoder.module."): x for name, x in tensors.items()},
    }
    forms["plain"]["head.temperature"] = torch.zeros(2)
    for name, model in forms.items():
        torch.save({"model": model, "text_encoder": encoder}, tmp_path / f"{name}.pth")
        state = load_adapter("mavl", tmp_path / f"{name}.pth").module.state_dict()
        assert all(torch.equal(state[f"model.{key}"], tensors[key]) for key in tensors if key != "module.temp")
        assert state.keys() == text.keys()
    del forms["plain"]["pool.c_proj.bias"]
    torch.save({"model": forms["plain"], "text_encoder": encoder}, tmp_path / "short.pth")
    with pytest.raises(CheckpointError, match=r"1 missing \(pool.c_proj.bias\)"):
        load_adapter("mavl", tmp_path / "short.pth")


def test_graphs(tmp_path: Path, tiny: None) -> None:
    """Text features come one a text; nine make a prompt."""
    adapter = stand_in_adapter("mavl", seed=1)
    check_image_graph(adapter, tmp_path, [(1, 1), (2, 5), (3, 1), (1, 75)])
    check_text_graph(adapter, tmp_path)
