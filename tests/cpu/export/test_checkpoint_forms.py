"""What training scripts save: each form of one small model gives the same scores as the plain file."""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_checkpoint_inert import archive
from test_checkpoints import SMALL, WORDS, save, small
from torch import Tensor
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.export import load_adapter
from xbench_fast.export.checkpoints.reading import read_checkpoint
from xbench_fast.export.models.kad_checkpoint import PARTS, as_checkpoint, joined_parts, read_parts
from xbench_fast.export.models.model_registry import MODELS

OWN = as_checkpoint(small(), SMALL, vocabulary=WORDS)
FLAT = {f"{part}.{name}": tensor for part in PARTS for name, tensor in OWN[part].items()}
ENOUGH = {name: tensor.clone() for name, tensor in FLAT.items()}


def prefixed(prefix: str, tensors: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in (tensors or FLAT).items()}


class Root(torch.nn.Module):
    """The three parts as a user's own module has them."""

    def __init__(self) -> None:
        super().__init__()
        module = small()
        self.image_encoder, self.text_encoder, self.model = module.image_encoder, module.text_encoder, module.model


def beside() -> dict[str, Any]:
    """What stands beside the weights."""
    optimizer = torch.optim.AdamW(small().parameters())
    return {
        "config": OWN["config"],
        "args": argparse.Namespace(out=pathlib.Path("runs"), windows=pathlib.PureWindowsPath("C:/a")),
        "history": collections.defaultdict(list, loss=[np.float32(1), np.float64(2)]),
        "mean": np.zeros(3),
        "optimizer": optimizer.state_dict(),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "size": torch.Size([1, 2]),
        "best": torch.tensor(0.5),
    }


other = {name: torch.zeros_like(tensor) for name, tensor in FLAT.items()}
FORMS: dict[str, Callable[[], Any]] = {
    "parts and objects": lambda: {**{part: OWN[part] for part in PARTS}, **beside()},
    "flat under state_dict": lambda: {"state_dict": FLAT, **beside()},
    "flat under model": lambda: {"model": FLAT, **beside()},
    "Lightning": lambda: {
        "state_dict": prefixed("net.") | {"loss.temperature": torch.ones(())},
        "hyper_parameters": argparse.Namespace(a=1),
        "callbacks": {"ModelCheckpoint": {"dirpath": pathlib.Path("x")}},
        "pytorch-lightning_version": "2",
        **beside(),
    },
    "DataParallel": lambda: {"state_dict": prefixed("module."), **beside()},
    "compiled": lambda: {"state_dict": prefixed("_orig_mod.module."), **beside()},
    "compiled part": lambda: {
        "model": {name.replace("encoder.", "encoder._orig_mod.", 1): x for name, x in FLAT.items()},
        **beside(),
    },
    "activation checkpointing and FSDP": lambda: {
        "state_dict": {
            "_fsdp_wrapped_module." + name.replace(".0.", ".0._fsdp_wrapped_module._checkpoint_wrapped_module."): x
            for name, x in FLAT.items()
        },
        **beside(),
    },
    "Fabric and DataParallel": lambda: {"model": prefixed("_forward_module.module._orig_mod.module."), **beside()},
    "parts in DataParallel": lambda: {"state_dict": {n.replace(".", ".module.", 1): x for n, x in FLAT.items()}},
    "a layer in DataParallel": lambda: {n.replace(".0.", ".0.module.", 1): x for n, x in FLAT.items()},
    "parts under state_dict": lambda: {"state_dict": {part: OWN[part] for part in PARTS}, **beside()},
    "parts under model": lambda: {"model": {part: OWN[part] for part in PARTS}, **beside()},
    "averaged beside": lambda: {"model": FLAT, "model_ema": other, **beside()},
    "averaged alone": lambda: {"model_ema": prefixed("module.") | {"n_averaged": torch.tensor(3)}, **beside()},
    "averaged in Lightning": lambda: {"state_dict": prefixed("net.") | prefixed("ema_net.", other), **beside()},
    "whole module": lambda: {"model": Root(), **beside()},
    "whole parallel module": lambda: {"model": torch.nn.DataParallel(Root()), **beside()},
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_tensors(tmp_path: Path, form: str, legacy: bool) -> None:
    path = save(FORMS[form](), tmp_path / "own.pt", _use_new_zipfile_serialization=not legacy)
    source = read_checkpoint(path)
    same(read_parts(source).tensors.by_name)
    averaged = {"averaged beside": "under 'model_ema'; 'model' is read", "averaged in Lightning": "under 'net' is read"}
    assert averaged.get(form, "") in source.record.note and bool(source.record.note) == (form in averaged)


def same(found: Any) -> None:
    wanted = joined_parts({part: OWN[part] for part in PARTS}, Path())
    assert set(found) == set(wanted)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def shards(folder: Path) -> Path:
    folder.mkdir()
    names = sorted(FLAT)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, chosen in parts.items():
        save_file({name: ENOUGH[name].contiguous() for name in chosen}, folder / file)
    table = {name: file for file, chosen in parts.items() for name in chosen}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return folder


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    """By their folder and by their index; the digest changes with any of the files."""
    folder = shards(tmp_path / "model")
    one, two = read_checkpoint(folder), read_checkpoint(folder / "model.safetensors.index.json")
    assert one.record == two.record and one.record.name == "model.safetensors.index.json"
    assert all(torch.equal(one.tensors()[name], FLAT[name]) for name in FLAT) and set(one.tensors()) == set(FLAT)
    last = folder / "model-00002-of-00002.safetensors"
    last.write_bytes(last.read_bytes()[:-1] + b"\x01")
    assert read_checkpoint(folder).record.sha256 != one.record.sha256
    save_file({"a": torch.zeros(1)}, last)
    with pytest.raises(CheckpointError, match=r"lacks the tensor .*, which model.safetensors.index.json names"):
        read_checkpoint(folder)


def test_safetensors_under_another_name_and_the_note_of_a_folder(tmp_path: Path) -> None:
    save_file(ENOUGH, tmp_path / "pytorch_model.bin")
    assert set(read_checkpoint(tmp_path).tensors()) == set(FLAT)
    save_file(ENOUGH, tmp_path / "model.safetensors")
    record = read_checkpoint(tmp_path).record
    assert record.name == "model.safetensors" and "pytorch_model.bin; model.safetensors is read" in record.note


class Packed:
    """Weights of another library."""


class Owned(torch.nn.Module):
    """A module with shared parts, and a buffer that its state dict leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(2, 2)
        self.second = self.first
        self.register_buffer("kept", torch.ones(1))
        self.register_buffer("left", torch.ones(1), persistent=False)


def test_a_module_that_was_saved_whole(tmp_path: Path) -> None:
    module = Owned()
    for form in (module, {"model": module}, {"state_dict": torch.nn.Sequential(module)}):
        found = read_checkpoint(save(form, tmp_path / "whole.pt")).tensors("first.weight")
        assert {name: x.tolist() for name, x in found.items()} == {
            n: x.tolist() for n, x in module.state_dict().items()
        }


def test_weights_that_are_objects_name_their_class(tmp_path: Path) -> None:
    """The content itself, what stands in the place of the state dict, and each value of it."""
    for content, words in (
        (Packed(), rf"holds an object of the class {__name__}.Packed, .*model.state_dict"),
        ({"model": Packed(), "args": argparse.Namespace()}, rf"'model' is an object of the class {__name__}.Packed"),
        ({"state_dict": {"a": np.zeros(2)}}, r"'a' is an object of the class numpy\.ndarray"),
        ({"a": torch.ones(2).to_sparse()}, r"tensor a .*_rebuild_sparse_tensor"),
    ):
        with pytest.raises(CheckpointError, match=words) as caught:
            read_checkpoint(save(content, tmp_path / "own.pt")).tensors()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.uint16, torch.bfloat16, torch.complex64])
def test_other_types_of_numbers(tmp_path: Path, kind: torch.dtype) -> None:
    value = torch.arange(4).to(kind)
    found = read_checkpoint(save({"a": value, "b": torch.nn.Buffer(torch.ones(2))}, tmp_path / "own.pt")).tensors()
    assert found["a"].dtype == kind and torch.equal(found["a"].view(torch.uint8), value.view(torch.uint8))
    assert torch.equal(found["b"], torch.ones(2))


# Every model, by what it says of a file that holds one tensor of its own under a Lightning module's attribute.
FOUND = {
    "clip": ("visual.conv1.weight", (768, 3, 14, 14), "is a CLIP with patches of 14 pixels"),
    "clip of transformers": (
        "vision_model.embeddings.patch_embedding.weight",
        (768, 3, 14, 14),
        "is a CLIP with patches of 14 pixels",
    ),
    "chexzero": ("visual.conv1.weight", (768, 3, 16, 16), "published files are ViT-B/32"),
    "biomedclip": ("text.transformer.embeddings.word_embeddings.weight", (9, 768), "missing"),
    "biovil": ("encoder.encoder.conv1.weight", (64, 3, 7, 7), "missing"),
    "biovil_t": ("encoder.encoder.conv1.weight", (64, 3, 7, 7), "missing"),
    "carzero": ("CARZero.text_encoder.model.embeddings.word_embeddings.weight", (9, 768), "missing"),
    "afloc": ("afloc.text_encoder.model.embeddings.word_embeddings.weight", (9, 768), "missing"),
    "medklip": ("disease_embedding_layer.weight", (256, 768), "missing"),
    "mavl": ("disease_embedding_layer.weight", (256, 768), "missing"),
    "kad": ("image_encoder.res_l1.weight", (768, 1024), "word_embeddings.weight has the shape [2]"),
    "devide": ("image_encoder.cls_token", (1, 1, 768), "missing"),
    "xrv": ("features.conv0.weight", (64, 1, 7, 7), "has none of the published names"),
}
REST = ("text_encoder.bert_model.embeddings.word_embeddings.weight", "model.mlp_head.0.weight")


@pytest.mark.parametrize("model", FOUND)
def test_every_model_finds_its_tensors_behind_a_prefix(tmp_path: Path, model: str) -> None:
    name, shape, words = FOUND[model]
    tensors = {name: torch.zeros(1).expand(shape)} | {
        other: torch.zeros(2) for other in REST if model in ("kad", "devide")
    }
    content = {"state_dict": prefixed("net.", tensors) | {"loss.weight": torch.ones(2)}, **beside()}
    del content["config"]
    with pytest.raises(CheckpointError) as caught:
        load_adapter(model.split()[0], save(content, tmp_path / "own.ckpt"))
    assert words in str(caught.value) and "net." not in str(caught.value) and "loss" not in str(caught.value)


def test_the_table_has_every_model() -> None:
    assert {name.split()[0] for name in FOUND} == set(MODELS.names())


def test_a_few_averaged_numbers_do_not_hide_the_tensors_at_the_top(tmp_path: Path) -> None:
    """A dictionary called `ema` beside a flat state dict, with fewer tensors; a counter is no weight."""
    content = {**FLAT, "ema": {"decay": torch.tensor(0.9)}, "n_averaged": torch.tensor(2)}
    assert set(read_checkpoint(save(content, tmp_path / "own.pt")).tensors()) == set(FLAT)


def test_a_storage_is_what_the_file_states(tmp_path: Path) -> None:
    """Old files: a count beside the values that is not the pickle's; new ones: one storage of two lengths."""
    path = save({"a": torch.arange(4.0)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    count = (4).to_bytes(8, "little") + torch.arange(4.0).numpy().tobytes()
    assert data.endswith(count)
    path.write_bytes(data[: -len(count)] + (5).to_bytes(8, "little") + count[8:] + bytes(4))
    with pytest.raises(CheckpointError, match="holds 5 values, not 4"):
        read_checkpoint(path)
    path = save({"a": torch.arange(4.0), "b": torch.arange(4.0)}, tmp_path / "new.pt")
    with zipfile.ZipFile(path) as source:
        pickled = source.read("new/data.pkl")
    changed = pickled.replace(b"1q\x0f", b"0q\x0f").replace(b"K\x04tq\x10", b"K\x03tq\x10")
    assert len(changed) == len(pickled) and changed != pickled
    with pytest.raises(CheckpointError, match="the storage 0 is of two kinds"):
        read_checkpoint(archive(tmp_path / "hand.pt", changed, {"0": bytes(16)}))
