"""Where the tensors of a file lie, when it is not where a model's are read: one sentence says it."""

from __future__ import annotations

import runpy
import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from test_checkpoint_forms import ENOUGH, FLAT, Root, prefixed
from test_checkpoints import save
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.export.checkpoints.matching import install
from xbench_fast.export.checkpoints.reading import read_checkpoint
from xbench_fast.export.models.kad_checkpoint import read_parts


class DTensor:
    """Named as torch's own tensor on several devices, without its process group."""


@pytest.mark.parametrize(("one", "two"), [("student", "teacher"), ("aux_net", "semantic_net"), ("net", "schema")])
def test_two_models_in_one_file_are_told(tmp_path: Path, one: str, two: str) -> None:
    """The letters of `ema` inside a word are no word."""
    path = save({"state_dict": prefixed(f"{one}.") | prefixed(f"{two}.")}, tmp_path / "two.pt")
    with pytest.raises(CheckpointError, match=rf"holds several models, with the tensors {one}.* and {two}"):
        read_parts(read_checkpoint(path))


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"student": ENOUGH, "aux": {"a.w": torch.ones(1)}}, r"'student' \(\d+\), 'aux.a' \(1\)"),
        ({"state": {"student": ENOUGH}, "epoch": 3}, r"'state.student' \("),
        ({"state_dict": {"student": ENOUGH}}, r"'state_dict.student' \("),
        ({"student": torch.nn.Linear(1, 1)}, r"'student' \(2\)"),
    ],
)
def test_tensors_under_another_key_are_told(tmp_path: Path, content: Any, place: str) -> None:
    source = read_checkpoint(save(content, tmp_path / "own.pt"))
    with pytest.raises(CheckpointError, match=rf"no tensors at the top, .*: they are under {place}"):
        source.tensors()
    with pytest.raises(CheckpointError, match=rf"it has no 'image_encoder'; its tensors are under {place}"):
        read_parts(source)


def test_the_tensors_that_are_needed_are_told_where_others_were_read(tmp_path: Path) -> None:
    whole = {name: tensor.clone() for name, tensor in Root().image_encoder.state_dict().items()}
    source = read_checkpoint(save({"state_dict": {"best": torch.ones(1)}, "student": whole}, tmp_path / "own.pt"))
    with pytest.raises(CheckpointError, match=r"tensors \d+ missing .* that it needs are under 'student': save"):
        install(Root().image_encoder, source.tensors(), path=source.path, model="It", names=source.names())
    with pytest.raises(CheckpointError, match=r"does not fit .*; it also holds a LoRA adapter: .*shows\)\.$"):
        install(Root(), prefixed("net.lora_A."), path=source.path, model="It")
    empty = {name: torch.zeros(0) for name in FLAT}
    with pytest.raises(CheckpointError, match=r"DeepSpeed ZeRO 3 .* zero_to_fp32"):
        install(Root(), empty, path=source.path, model="It")


def test_parts_of_a_tensor_on_several_devices_are_told(tmp_path: Path) -> None:
    save({"a": torch.ones(2), "b": DTensor()}, tmp_path / "own.pt")
    with pytest.raises(
        CheckpointError, match=r"tensor b .* not stored as plain values \(.*DTensor\); save .* one device"
    ):
        read_checkpoint(tmp_path / "own.pt").tensors()


def test_the_command_for_a_distributed_checkpoint_gives_a_file_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed import checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is one process
        checkpoint.save({"model": ENOUGH, "epoch": 3}, checkpoint_id=tmp_path / "parts")
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(tmp_path / "parts")
    _, flag, module, *arguments = shlex.split(str(caught.value).partition(" by ")[2].partition(" (")[0])
    assert flag == "-m" and arguments[-1] == "OUT.pt"
    monkeypatch.setattr("sys.argv", [module, *arguments])
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_module(module, run_name="__main__")
    found = read_checkpoint(tmp_path / "OUT.pt").tensors()
    assert set(found) == set(ENOUGH) and all(torch.equal(found[name], ENOUGH[name]) for name in ENOUGH)


@pytest.mark.parametrize(("first", "other"), [("state_dict", "model"), ("model", "best_model"), ("model", "teacher")])
def test_other_weights_of_the_same_size_are_told(tmp_path: Path, first: str, other: str) -> None:
    """One of them is read, and which one is said."""
    source = read_checkpoint(save({first: dict(FLAT), other: dict(FLAT)}, tmp_path / "two.pt"))
    source.tensors()
    assert f"two.pt also holds weights under '{other}'; '{first}' is read" in source.record.note


def test_the_scale_of_a_loss_is_no_model(tmp_path: Path) -> None:
    """Lightning keeps losses beside the model."""
    state = {"model.logit_scale": torch.ones(()), "model.weight": torch.ones(2), "loss.logit_scale": torch.zeros(())}
    tensors = read_checkpoint(save({"state_dict": state}, tmp_path / "lit.ckpt")).tensors("logit_scale")
    assert sorted(tensors) == ["logit_scale", "weight"] and tensors["logit_scale"] == 1
