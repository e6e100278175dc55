"""Several prompt sets in one pass on a GPU, over a device made of arrays: the rows of the CPU, one image pass."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_onnxruntime
import numpy as np
import pytest
import synthetic
import torch_on_cpu
from evaluation_world import World, same
from xbench_fast.engines.backends.device import DeviceEngine
from xbench_fast.engines.backends.out_of_memory import OutOfMemory
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.select import open_engine
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.evaluation.decoded_blocks import CaseReader
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.storage import CellFiles

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SETS = ("coco", "other", "third")
CELLS = [f"blocks@{name}--coco" for name in SETS]
ENGINES = ("onnxruntime-cuda", "torch", "tensorrt")


class OnGpu(World):
    """`encoded`, `asked`: images of each call; the calls of `trouble`, by number, run out of memory."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.name = name
        self.encoded, self.asked = list[int](), list[int]()
        self.trouble = set[int]()

    def open(self, bundle: Any, name: str, *, threads: int | None = None, **_: Any) -> Any:
        how = EngineOptions(3, pad=True, say=self.lines.append)
        engine: Any = open_engine(bundle, self.name, threads=threads, options=how)
        assert isinstance(engine, DeviceEngine)
        pixels, text = engine.submit_pixels, engine.submit_text
        self.encoded.clear()
        self.asked.clear()

        def submit_pixels(given: Any, slot: int) -> Any:
            self.encoded.append(len(given))
            return pixels(given, slot)

        def submit_text(features: Any, asked: Any, slot: int) -> Any:
            self.asked.append(features.images)
            if len(self.asked) - 1 in self.trouble:
                raise OutOfMemory("Requested size was 123 bytes")
            return text(features, asked, slot)

        engine.submit_pixels, engine.submit_text = submit_pixels, submit_text
        return engine

    def run(self, *arguments: Any, **options: Any) -> Any:
        return super().run(*arguments, sweep=sweep, **options)


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three prompt sets: one with several prompts of a finding, and one that lacks a finding of the dataset."""
    usual = synthetic.prompt_set

    def prompt_set(name: str, **how: Any) -> Any:
        more = {"third": {"findings": ("Fracture", "Effusion")}, "coco": {}, "other": {"several": True}}[name]
        made = usual(name, **{**how, **more})
        return replace(made, features=made.features + np.float32(SETS.index(name)))

    monkeypatch.setattr(synthetic, "prompt_set", prompt_set)
    graph = synthetic.save_graph(tmp_path / "graph.onnx")
    return synthetic.make_bundle(tmp_path / "blocks", sets=SETS, graph=graph).path


@pytest.fixture
def worlds(device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "onnxruntime", fake_onnxruntime.make(device.streams))
    torch_on_cpu.install(monkeypatch)
    for name in ("host", "device"):
        (tmp_path / name).mkdir()
    return lambda name: (World(tmp_path / "host"), OnGpu(tmp_path / "device", name))


def data(folder: Path, *prompts: str) -> DatasetConfig:
    if not folder.exists():
        synthetic.make_dataset(folder, 10, missing=(4,))
    return DatasetConfig("coco", folder, "coco", prompts or SETS)


@pytest.mark.parametrize("name", ENGINES)
def test_one_image_pass_for_all_sets(
    worlds: Any, device: Any, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    host, gpu = worlds(name)
    dataset = data(tmp_path / "data")
    host.run([bundle], [dataset])
    read, uploads = list[int](), Counter[str]()
    begin, asarray = CaseReader.begin, device.asarray
    monkeypatch.setattr(
        CaseReader, "begin", lambda self, cases, *more: (read.append(len(cases)), begin(self, cases, *more))[1]
    )
    monkeypatch.setattr(
        device, "asarray", lambda values, *more: (uploads.update([str(values.dtype)]), asarray(values, *more))[1]
    )
    outcome = gpu.run([bundle], [dataset])
    assert outcome.computed == 3 and not outcome.failed
    assert all(same(host.table(cell), gpu.table(cell)) for cell in CELLS)
    assert sum(read) == 10 and sum(gpu.encoded) == 9 and gpu.asked == [images for images in gpu.encoded for _ in SETS]
    assert uploads["uint8"] == 2 * len(gpu.encoded), "masks of both findings, for two sets, and of one"
    said = [line for line in gpu.lines if "again" in line]
    assert len(said) == (name == "tensorrt") and all("tensorrt runs graphs whole" in line for line in said)
    assert gpu.run([bundle], [dataset]).reused == 3 and not gpu.encoded


@pytest.mark.parametrize("name", ENGINES)
def test_views_are_those_of_the_cpu(worlds: Any, bundle: Path, tmp_path: Path, name: str) -> None:
    """A flipped map is mirrored on the host, and all others stay on the device."""
    host, gpu = worlds(name)
    dataset = replace(data(tmp_path / "data", "coco"), prompts="coco", augment=("flip", "shift:8"))
    for world in (host, gpu):
        assert not world.run([bundle], [dataset]).failed
    cells = ["blocks--coco", "blocks+flip--coco", "blocks+shift-8--coco"]
    assert all(same(host.table(cell), gpu.table(cell)) for cell in cells)
    assert not same(gpu.table(cells[0]), gpu.table(cells[1]))


@pytest.mark.parametrize("name", ENGINES)
def test_sets_that_are_finished_or_begun(
    worlds: Any, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What is there is not asked again, and what is added is the row of a pass of all."""
    host, gpu = worlds(name)
    host.run([bundle], [data(tmp_path / "data")], chunk=4)
    write, left = CellFiles.write_part, [4]

    def until(files: CellFiles, index: int, table: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        write(files, index, table)

    with monkeypatch.context() as patch:
        patch.setattr(CellFiles, "write_part", until)
        with pytest.raises(KeyboardInterrupt):
            gpu.run([bundle], [data(tmp_path / "data", *SETS[:2])], chunk=4, threads=1)
    gpu.run([bundle], [data(tmp_path / "data", *SETS[:2])], chunk=4)
    assert gpu.asked == [2] * 2, "the last chunk, of each set"
    gpu.run([bundle], [data(tmp_path / "data")], chunk=4)
    assert sum(gpu.asked) == sum(gpu.encoded) == 9
    assert all(same(host.table(cell), gpu.table(cell)) for cell in CELLS)


@pytest.mark.parametrize("name", ENGINES)
def test_too_little_memory_for_the_second_set_repeats_the_batch(
    worlds: Any, bundle: Path, tmp_path: Path, name: str
) -> None:
    host, gpu = worlds(name)
    host.run([bundle], [data(tmp_path / "data")])
    gpu.trouble = {4}
    gpu.run([bundle], [data(tmp_path / "data")])
    assert gpu.asked[:8] == [3, 3, 3, 2, 2, 1, 1, 1] and set(gpu.encoded[2:]) == {1}
    assert all(same(host.table(cell), gpu.table(cell)) for cell in CELLS)


def test_one_set_that_fails_leaves_the_others(
    worlds: Any, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, gpu = worlds("onnxruntime-cuda")
    host.run([bundle], [data(tmp_path / "data")])
    check = DeviceEngine.check_finite

    def checked(self: Any, logits: Any, text: Any, pixels: Any) -> None:
        check(self, logits * np.float32(np.nan) if len(text) == 6 else logits, text, pixels)

    monkeypatch.setattr(DeviceEngine, "check_finite", checked)
    outcome = gpu.run([bundle], [data(tmp_path / "data")])
    assert [(model, "is not finite" in why) for model, _, why in outcome.failed] == [("blocks@other", True)]
    assert all(same(host.table(cell), gpu.table(cell)) for cell in (CELLS[0], CELLS[2]))
