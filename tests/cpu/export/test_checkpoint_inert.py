"""Archives that hold objects of other programs: tensors come back, nothing else is run or imported."""

from __future__ import annotations

import collections
import io
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
from xbench_fast.export import load_adapter
from xbench_fast.export.checkpoints.inert_pickle import Record
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
    found = read_checkpoint(path)
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


@pytest.mark.parametrize("protocol", [2, 4])
def test_code_is_not_run(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "code-ran"
    tricks: dict[str, Any] = {"hook": Code(marker), "state_dict": {"weight": WEIGHT}}
    path = save(tricks, tmp_path / "run.ckpt", pickle_protocol=protocol)
    found = read_checkpoint(path)
    assert torch.equal(found.tensors()["weight"], WEIGHT) and isinstance(found.content["hook"], Record)
    assert not marker.exists()
    pickle.loads(pickle.dumps(Code(marker)))
    assert marker.exists()  # the trap itself works


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
    [(0, (2, 4), (4, 1)), (1, (4,), (1,)), (0, (2,), (4,)), (-1, (4,), (1,)), (0, (4,), (-1,)), (1, (2**40,), (1,))],
)
def test_a_tensor_does_not_reach_past_its_storage(
    tmp_path: Path, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    honest = save({"x": _Lie(torch.arange(4.0), 1, (3,), (1,))}, tmp_path / "honest.ckpt")
    assert read_checkpoint(honest).tensors()["x"].tolist() == [1, 2, 3]
    path = save({"x": _Lie(torch.arange(4.0), offset, shape, stride)}, tmp_path / "lie.ckpt")
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path)


def test_repeated_values_are_not_written_out(tmp_path: Path) -> None:
    """One stored value that claims to be a trillion, beside the weights and in their place."""
    path = save({"x": WEIGHT, "state": {"y": _Lie(torch.arange(4.0), 0, (2**40,), (0,))}}, tmp_path / "run.ckpt")
    assert list(read_checkpoint(path).tensors()) == ["x"]
    path = save({"x": WEIGHT, "y": _Lie(torch.arange(4.0), 0, (2**40,), (0,))}, tmp_path / "run.ckpt")
    with pytest.raises(CheckpointError, match=r"would take 4,398 GB, far more than the file holds"):
        read_checkpoint(path).tensors()


def overlapping(tmp_path: Path, count: int) -> Path:
    """An archive whose `count` storages are one entry, at an odd place, so that each would have to be copied."""
    tensors = {str(number): torch.zeros(1000) for number in range(count)}
    whole = save(tensors, tmp_path / "whole.ckpt")
    path = tmp_path / "overlap.ckpt"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        root = source.namelist()[0].split("/")[0]
        target.writestr(f"{root}/data.pkl", source.read(f"{root}/data.pkl"))
        target.comment = b""
        while True:  # until the values begin where no float32 is aligned
            target.writestr(f"{root}/data/0", bytes(4000))
            entry = target.getinfo(f"{root}/data/0")
            if (entry.header_offset + 30 + len(entry.filename)) % 4:
                break
            target.writestr(f"{root}/pad", b"x")
        for number in range(1, count):
            other = zipfile.ZipInfo(f"{root}/data/{number}")
            other.header_offset, other.file_size, other.compress_size = entry.header_offset, 4000, 4000
            other.CRC = entry.CRC
            target.filelist.append(other)
            target.NameToInfo[other.filename] = other
        target._didModify = True  # type: ignore[attr-defined]
    return path


def test_storages_that_overlap_are_not_copied_without_end(tmp_path: Path) -> None:
    assert len(read_checkpoint(overlapping(tmp_path, 1)).tensors()) == 1
    with pytest.raises(CheckpointError, match="its storages overlap"):
        read_checkpoint(overlapping(tmp_path, 50))


def test_cut_rewritten_and_legacy_files(tmp_path: Path) -> None:
    """Every cut is refused; an archive packed again is read when stored, refused when compressed or big-endian."""
    with another_program() as program:
        whole = save(content(program), tmp_path / "whole.ckpt")
        legacy = save(content(program), tmp_path / "legacy.ckpt", _use_new_zipfile_serialization=False)
    data = whole.read_bytes()
    for kept in (0.05, 0.5, 0.95, 0.999):
        (tmp_path / "cut.ckpt").write_bytes(data[: int(len(data) * kept)])
        with pytest.raises(CheckpointError, match="truncated"):
            read_checkpoint(tmp_path / "cut.ckpt")
    found = read_checkpoint(legacy)
    assert torch.equal(found.tensors()["weight"], WEIGHT) and torch.equal(found.content["parameter"], WEIGHT.half())
    old = legacy.read_bytes()
    for kept in (0.05, 0.5, 0.95, 0.999):
        (tmp_path / "cut.ckpt").write_bytes(old[: int(len(old) * kept)])
        with pytest.raises(CheckpointError, match="truncated"):
            read_checkpoint(tmp_path / "cut.ckpt")
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
            assert torch.equal(read_checkpoint(path).tensors()["weight"], WEIGHT)
        else:
            with pytest.raises(CheckpointError, match="big-endian" if order == b"big" else "compressed"):
                read_checkpoint(path)


def chained(first: Any, level: Any, count: int = 60) -> Any:
    for _ in range(count):
        first = level(first)
    return first


CASE = Path(__file__).parents[2] / "cases" / "checkpoint-key-of-frozensets" / "bomb60.pt"
LISTS = chained([1], lambda inner: [inner, inner])
MODULES = chained(torch.nn.Linear(1, 1), lambda inner: torch.nn.Sequential(inner, inner), 40)
TREE = chained({}, lambda inner: dict.fromkeys(map(str, range(30)), inner), 12)
SIZES = {"CARZero.text_encoder.model.embeddings.word_embeddings.weight": torch.zeros(9, 768)}

# Values that share parts, which would take 2 to the 60 steps to write out, compare or walk: model, content, answer.
SHARED: dict[str, tuple[str, Any, str]] = {
    "a setting that is written out": ("carzero", {"hyper_parameters": {"model": {"norm": LISTS}}}, "model.norm = [["),
    "settings that are walked": ("carzero", {"hyper_parameters": TREE, "state_dict": SIZES}, "does not fit"),
    "a module under a known key": ("kad", {"model": MODULES}, "has no end"),
    "a module under another key": ("clip", {"student": MODULES}, "has no end"),
    "a module": ("clip", MODULES, "has no end"),
    "keys that are no text": ("clip", {1: torch.ones(2)}, "a key of the type int; keys of weights are text"),
    "a long key": ("clip", {"a" * 2000: torch.ones(2)}, "a key of 2,000 characters"),
}


def test_the_case_of_nested_sets_is_refused_at_once() -> None:
    with pytest.raises(CheckpointError, match="a frozenset as a key, and keys of weights are text"):
        load_adapter("kad", CASE)


@pytest.mark.parametrize("name", SHARED)
def test_values_that_share_parts_do_not_hang_the_reader(name: str, tmp_path: Path) -> None:
    model, content, words = SHARED[name]
    with pytest.raises(CheckpointError) as caught:
        load_adapter(model, save(content, tmp_path / "own.pt"))
    assert words in str(caught.value) and len(str(caught.value)) < 3000 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "pid",
    [
        ("storage", torch.FloatStorage, LISTS, "cpu", 1),
        ("storage", torch.FloatStorage, chained((1,), lambda inner: (inner, inner)), "cpu", 1),
        ("storage", torch.FloatStorage, "0", "cpu", LISTS),
        ("storage", LISTS, "0", "cpu", 1),
    ],
)
def test_a_storage_whose_key_is_no_text(pid: Any, tmp_path: Path) -> None:
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 2)
    pickler.persistent_id = lambda value: pid if value == "here" else None  # type: ignore[method-assign]
    pickler.dump({"a": "here"})
    with pytest.raises(CheckpointError, match="without type, key or count"):
        read_checkpoint(archive(tmp_path / "hand.pt", stream.getvalue()))
