"""Archives that hold objects of other programs: tensors come back, nothing else is run or imported."""

from __future__ import annotations

import collections
import os
import pickle
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from xbench_fast.engines.errors import CheckpointError
from xbench_fast.export.checkpoints.foreign_objects import Record
from xbench_fast.export.checkpoints.reading import read_checkpoint

WEIGHT = torch.arange(12.0).reshape(3, 4)


class Code:
    """Makes a folder when unpickled carelessly."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return os.mkdir, (str(self.marker),)


@contextmanager
def another_program() -> Iterator[types.ModuleType]:
    """A module that is importable while the file is written and gone when it is read."""
    module = types.ModuleType("another_program")

    def make(name: str, base: type) -> None:
        setattr(module, name, type(name, (base,), {"__module__": "another_program"}))

    make("Config", object)
    make("Settings", dict)
    make("Callback", list)
    sys.modules["another_program"] = module
    try:
        yield module
    finally:
        del sys.modules["another_program"]


def content(program: types.ModuleType) -> dict[str, Any]:
    config = program.Config()
    config.rate, config.parent = 0.5, config  # a state with a cycle, as OmegaConf's nodes have
    callback = program.Callback([1, 2])
    callback.best = torch.tensor(0.25)
    return {
        "state_dict": collections.OrderedDict(
            weight=WEIGHT, part=WEIGHT[1:, ::2], whole=torch.tensor([3], dtype=torch.int64)
        ),
        "parameter": torch.nn.Parameter(WEIGHT.half()),
        "hyper_parameters": config,
        "settings": program.Settings(size=7),
        "hparams_type": program.Config,
        "callbacks": {program.Callback: callback},
        "kinds": {1, 2},
        "path": Path("somewhere"),
        "kind": torch.float16,
        "epoch": 3,
    }


def save(value: Any, path: Path, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_tensors_and_state_come_back(tmp_path: Path, protocol: int) -> None:
    with another_program() as program:
        path = save(content(program), tmp_path / "run.ckpt", pickle_protocol=protocol)
    found = read_checkpoint(path, inert=True)
    state = found.tensors()
    assert torch.equal(state["weight"], WEIGHT) and torch.equal(state["part"], WEIGHT[1:, ::2])
    assert state["whole"].tolist() == [3]
    assert state["part"].untyped_storage().data_ptr() == state["weight"].untyped_storage().data_ptr()
    assert torch.equal(found.content["parameter"], WEIGHT.half())
    config = found.content["hyper_parameters"]
    assert isinstance(config, Record) and config.attributes["rate"] == 0.5 and config.attributes["parent"] is config
    assert found.content["settings"].attributes == {"size": 7}
    assert found.content["epoch"] == 3
    assert "another_program" not in sys.modules
    assert set(found.names()) >= {"state_dict.weight", "state_dict.part", "parameter"}


def test_without_inert_the_file_is_refused(tmp_path: Path) -> None:
    with another_program() as program:
        path = save(content(program), tmp_path / "run.ckpt")
    with pytest.raises(CheckpointError, match="holds pickled code or objects"):
        read_checkpoint(path)


@pytest.mark.parametrize("protocol", [2, 4])
def test_code_is_not_run(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "code-ran"
    tricks: dict[str, Any] = {"hook": Code(marker), "state_dict": {"weight": WEIGHT}}
    path = save(tricks, tmp_path / "run.ckpt", pickle_protocol=protocol)
    found = read_checkpoint(path, inert=True)
    assert torch.equal(found.tensors()["weight"], WEIGHT) and isinstance(found.content["hook"], Record)
    assert not marker.exists()
    pickle.loads(pickle.dumps(Code(marker)))
    assert marker.exists()  # the trap itself works


# Pickles written by hand: getattr chains, a class to be imported, methods of a dictionary covered by attributes.
HAND_WRITTEN = {
    "eval": b"\x80\x02}U\x01xcbuiltins\neval\nU\x14__import__('os').abc\x85Rs.",
    "getattr": b"\x80\x02}U\x01xcbuiltins\ngetattr\ncos\npath\nU\x06system\x86RU\x04true\x85Rs.",
    "inst": b"\x80\x02}U\x01x(U\x04trueios\nsystem\ns.",
    "extension": b"\x80\x02}U\x01x\x82\x01s.",
    "covered": b"\x80\x02ccollections\nOrderedDict\n)R}U\x05itemscos\nsystem\nsb.",
    "deep": b"\x80\x02" + b"}U\x01x" * 20000 + b"N" + b"s" * 20000 + b".",
}


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_hand_written_pickles(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(os, "system", ran.append)
    path = archive(tmp_path / "run.ckpt", HAND_WRITTEN[name])
    if name == "extension":
        with pytest.raises(CheckpointError, match="damaged"):
            read_checkpoint(path, inert=True)
    else:
        found = read_checkpoint(path, inert=True)
        assert found.tensors() == {} and found.names() == []
        assert name in ("covered", "deep") or isinstance(found.content["x"], Record)
    assert ran == []


def archive(path: Path, data: bytes, storages: dict[str, bytes] | None = None, method: int = 0) -> Path:
    """A `torch.save` archive by hand."""
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("archive/data.pkl", data)
        for key, value in (storages or {}).items():
            file.writestr(f"archive/data/{key}", value)
    return path


class _Lie:
    """A tensor with a shape, stride and offset of one's choosing over a storage of four values."""

    def __init__(self, storage: Tensor, *arguments: Any) -> None:
        self.storage, self.arguments = storage, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        storage = torch.storage.TypedStorage(
            wrap_storage=self.storage.untyped_storage(), dtype=torch.float32, _internal=True
        )
        return torch._utils._rebuild_tensor_v2, (storage, *self.arguments, False, collections.OrderedDict())


@pytest.mark.parametrize(
    ("offset", "shape", "stride"),
    [(0, (2, 4), (4, 1)), (1, (4,), (1,)), (0, (2,), (4,)), (-1, (4,), (1,)), (0, (4,), (-1,)), (0, (2**40,), (0,))],
)
def test_a_tensor_does_not_reach_past_its_storage(
    tmp_path: Path, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    honest = save({"x": _Lie(torch.arange(4.0), 1, (3,), (1,))}, tmp_path / "honest.ckpt")
    assert read_checkpoint(honest, inert=True).tensors()["x"].tolist() == [1, 2, 3]
    path = save({"x": _Lie(torch.arange(4.0), offset, shape, stride)}, tmp_path / "lie.ckpt")
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path, inert=True)


def test_cut_rewritten_and_legacy_files(tmp_path: Path) -> None:
    """Every cut is refused; an archive packed again is read when stored, refused when compressed or big-endian."""
    with another_program() as program:
        whole = save(content(program), tmp_path / "whole.ckpt")
        legacy = save(content(program), tmp_path / "legacy.ckpt", _use_new_zipfile_serialization=False)
    data = whole.read_bytes()
    for kept in (0.05, 0.5, 0.95, 0.999):
        (tmp_path / "cut.ckpt").write_bytes(data[: int(len(data) * kept)])
        with pytest.raises(CheckpointError, match="truncated"):
            read_checkpoint(tmp_path / "cut.ckpt", inert=True)
    with pytest.raises(CheckpointError, match="save it again"):
        read_checkpoint(legacy, inert=True)
    for method, order in (
        (zipfile.ZIP_STORED, b"little"),
        (zipfile.ZIP_STORED, b"big"),
        (zipfile.ZIP_DEFLATED, b"little"),
    ):
        path = tmp_path / "packed.ckpt"
        with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w", method) as target:
            for name in source.namelist():
                target.writestr(name, order if name.endswith("byteorder") else source.read(name))
        if (method, order) == (zipfile.ZIP_STORED, b"little"):  # its storages are no longer aligned
            assert torch.equal(read_checkpoint(path, inert=True).tensors()["weight"], WEIGHT)
        else:
            with pytest.raises(CheckpointError, match="big-endian" if order == b"big" else "compressed"):
                read_checkpoint(path, inert=True)
