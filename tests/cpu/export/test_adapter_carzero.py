"""CARZero, loaded from a Lightning file, against the authors' own outputs (docs/parity.md §3.6)."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden_models import Golden, computed
from torch import Tensor
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export import load_adapter, stand_in_adapter
from xbench_fast.export.checkpoints.stand_in import fill
from xbench_fast.export.models.carzero import CarzeroAdapter

torch.set_num_threads(2)

CONFIG = {
    "model": {
        "norm": False,
        "text": {"last_n_layers": 4, "aggregate_method": "sum", "agg_tokens": True, "norm": False},
        "fusion": {"d_model": 768, "H": 4, "decoder_number_layer": 4},
    },
    "data": {"text": {"word_num": 97}, "image": {"imsize": 256}},
}


def write_checkpoint(shared: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`CARZero_best_model.ckpt`: prefixed tensors beside objects of programs that are not installed."""
    manifest = json.loads((shared / "parity" / "carzero.json").read_text())
    shapes, aliases = manifest["tensors"]["state_dict"], manifest["alias_of"]["state_dict"]
    state: dict[str, Tensor] = {}
    for name in sorted(shapes, key=aliases.__contains__):
        made = fill(f"state_dict.{name}", tuple(shapes[name][0])) if name not in aliases else None
        state[name] = state[aliases[name]] if made is None else torch.from_numpy(np.asarray(made))
    state["CARZero.text_encoder.model.embeddings.position_ids"] = torch.arange(512)[None]
    state["CARZero.training_only.weight"] = torch.zeros(3)
    modules = {name: types.ModuleType(name) for name in ("omegaconf", "lightning_callbacks")}
    for name, kind in (("omegaconf", "DictConfig"), ("omegaconf", "AnyNode"), ("lightning_callbacks", "Saver")):
        setattr(modules[name], kind, type(kind, (), {"__module__": name}))
    with monkeypatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        config = omegaconf(CONFIG, modules["omegaconf"])
        content = {
            "epoch": 14,
            "pytorch-lightning_version": "1.1.4",
            "callbacks": {modules["lightning_callbacks"].Saver: {"best_model_score": torch.tensor(0.1)}},
            "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(4)}}}],
            "state_dict": state,
            "hparams_name": "cfg",
            "hyper_parameters": config,
            "hparams_type": type(config),
        }
        torch.save(content, path)
    assert "omegaconf" not in sys.modules


def omegaconf(value: Any, program: types.ModuleType) -> Any:
    """Containers and leaves with the attributes OmegaConf 2 pickles."""
    node = program.DictConfig() if isinstance(value, dict) else program.AnyNode()
    if isinstance(value, dict):
        node._content = {key: omegaconf(item, program) for key, item in value.items()}
    else:
        node._val = value
    node._parent = None
    return node


@pytest.fixture(scope="module")
def golden(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    path = tmp_path_factory.mktemp("carzero") / "CARZero_best_model.ckpt"
    with pytest.MonkeyPatch.context() as patch:
        write_checkpoint(shared, path, patch)
    adapter = load_adapter("carzero", path)
    path.unlink()  # the adapter must not depend on the file any more
    assert isinstance(adapter, CarzeroAdapter)
    towers = (adapter.module.img_encoder["model"], adapter.module.text_encoder["model"])
    with computed(
        shared, adapter, lambda arrays: adapter.encode_text(arrays["caption_ids"], mask(arrays)), towers
    ) as g:
        yield g


def mask(arrays: Mapping[str, Tensor]) -> Tensor:
    """1 on the beginning of a word, 2 on the pieces that continue it, 0 on padding."""
    return arrays["attention_mask"] + arrays["is_continuation"]


def test_facts(golden: Golden) -> None:
    adapter = golden.adapter
    assert (adapter.name, adapter.variant, adapter.weights) == ("carzero", "vit-b-16", "published")
    assert adapter.geometry == Geometry("pad_crop", 224, 256, "area")
    assert adapter.mean == (0.4978,) * 3 and adapter.std == (0.2449,) * 3
    assert adapter.grid == (14, 14) and adapter.text_shape == (98, 768) and adapter.logit_scale == 1.0
    assert adapter.context == 97 and adapter.vocabulary_size == 28996
    assert adapter.checkpoint is not None and adapter.checkpoint.name == "CARZero_best_model.ckpt"
    assert not any(parameter.requires_grad for parameter in adapter.module.parameters())


ENCODED = ("image_global", "image_local", "text_global", "text_local")
FUSED = ("i2t_logits", "t2i_logits", "score", "i2t_attention", "t2i_attention", "grounding_map")


@pytest.mark.parametrize("name", [*ENCODED, *FUSED])
def test_outputs(golden: Golden, name: str) -> None:
    golden.check(name, golden.outputs[name])


def test_every_layer(golden: Golden) -> None:
    golden.check_layers()


def test_exported_outputs(golden: Golden) -> None:
    """The logit is the official score, the map the official one; one image and other prompts give the same values."""
    logits, saliency = golden.adapter.forward(golden.image, golden.text)
    golden.check("score", logits)
    golden.check("grounding_map", saliency)
    logits, saliency = golden.adapter.forward(golden.image[1:], golden.text[[3, 1, 0]])
    golden.check("score", logits, part=([[1]], [[3, 1, 0]]))
    golden.check("grounding_map", saliency, part=([[1]], [[3, 1, 0]]))


def test_word_counts_and_zeros(golden: Golden) -> None:
    """After a prompt's words come zero vectors up to 97."""
    filled = (golden.text[:, 1:] != 0).any(dim=-1)
    assert filled.sum(dim=1).tolist() == golden.arrays["aggregated_words"].tolist()
    assert torch.equal(filled.long().cumsum(1).amax(1) - 1, filled.long().cumsum(1).argmax(1))  # all words come first


def test_a_shorter_row_of_ids_is_the_same(golden: Golden) -> None:
    """The divisor of the sentence vector stays 97, whatever stands in the padding and however wide it is."""
    marks = (golden.tensor("attention_mask") + golden.tensor("is_continuation"))[:3, :17]
    cut = golden.tensor("caption_ids")[:3, :17].clone()
    cut[marks == 0] = 999
    short = golden.adapter.encode_text(cut, marks)
    golden.check("text_global", short[:, 0], part=slice(3))
    golden.check("text_local", short[:, 1:].transpose(1, 2), part=slice(3))


def test_stand_in_equals_the_filled_checkpoint(golden: Golden) -> None:
    adapter = stand_in_adapter("carzero")
    assert adapter.weights == "stand-in" and adapter.checkpoint is None
    state, loaded = adapter.module.state_dict(), golden.adapter.module.state_dict()
    assert list(state) == list(loaded)
    assert all(torch.equal(state[name], loaded[name]) for name in state)
