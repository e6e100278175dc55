"""The evaluation on a GPU gives the rows of the evaluation on the CPU: engines and sweep over a device made of arrays,
the sweep's kernels run from their CUDA source.

About half a minute on an idle machine, most of it in those kernels.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import device_on_cpu
import fake_onnxruntime
import numpy as np
import pyarrow.parquet as pq
import pytest
import synthetic
from evaluation_world import World, same
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.backends import gpu
from xbench_fast.engines.backends.device import SLOTS, DeviceEngine
from xbench_fast.engines.backends.ort_cuda import OrtCudaEngine
from xbench_fast.engines.backends.out_of_memory import OutOfMemory
from xbench_fast.engines.backends.tensorrt import TensorRtEngine
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.errors import RunError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.prompts.prompt_set import PromptSet
from xbench_fast.metrics_gpu import nvrtc
from xbench_fast.metrics_gpu.sweep import gpu as sweep_gpu
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.data.images.resizing import to_model
from xbench_fast.runtime.evaluation.drawn import DrawnPairs
from xbench_fast.runtime.evaluation.gpu import device_cell
from xbench_fast.runtime.evaluation.gpu.device_sweep import pair_maps
from xbench_fast.runtime.evaluation.queries import Queries, prompt_mean
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.storage import CellFiles

SQUASH = Geometry("squash", 32, 32, "bilinear")
COMPILE = nvrtc.compile_source
ENGINES = {"tensorrt": TensorRtEngine, "onnxruntime-cuda": OrtCudaEngine}


@pytest.fixture
def cupy(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "onnxruntime", fake_onnxruntime.make(device.streams))
    return device


class OnGpu(World):
    """A world whose engines leave their scores on the device. `batches` are the sizes that were submitted, the next of
    them fails with what `trouble` gives for its number."""

    def __init__(self, folder: Path, name: str = "tensorrt") -> None:
        super().__init__(folder)
        self.name, self.pad = name, name == "onnxruntime-cuda"
        self.batches: list[int] = []
        self.trouble: dict[int, BaseException] = {}

    def open(self, bundle: Any, name: str, *, threads: int | None = None, **_: Any) -> Any:
        how = EngineOptions(3, pad=self.pad, say=self.lines.append)
        engine = ENGINES[self.name](bundle, threads=threads, options=how)
        enqueue = engine._enqueue
        self.batches.clear()
        attempts = iter(range(1000))

        def counted(pixels: Any, text: Any, scores: Any, slot: int) -> None:
            error = self.trouble.pop(next(attempts), None)
            if error is not None:
                raise error
            enqueue(pixels, text, scores, slot)
            self.batches.append(len(pixels))

        engine._enqueue = counted
        return engine

    def run(self, *arguments: Any, **options: Any) -> Any:
        return super().run(*arguments, sweep=sweep, **options)


def worlds(folder: Path, name: str = "tensorrt") -> tuple[World, OnGpu]:
    (folder / "host").mkdir()
    (folder / "device").mkdir()
    return World(folder / "host"), OnGpu(folder / "device", name)


@pytest.mark.parametrize(
    ("name", "several", "missing", "mode"),
    [
        ("tensorrt", False, (), "squash"),
        ("tensorrt", True, (3, 4, 5, 19), "crop"),
        ("tensorrt", False, tuple(range(8)), "pad_crop"),
        ("onnxruntime-cuda", True, (0,), "crop"),
    ],
)
def test_rows_are_those_of_the_cpu(
    cupy: Any, tmp_path: Path, name: str, several: bool, missing: tuple[int, ...], mode: Any
) -> None:
    geometry = Geometry(mode, 32, 36, "area") if mode == "pad_crop" else Geometry(mode, 32, 32, "bilinear")
    bundle = make_bundle(tmp_path / "blocks-32", several=several, geometry=geometry).path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", missing=missing), "coco")
    (data.root / "images" / "case0007.png").write_bytes(b"no picture")
    host, device = worlds(tmp_path, name)
    assert host.run([bundle], [data]).computed == device.run([bundle], [data]).computed == 1
    assert same(host.table(), device.table())
    sizes = [3] * len(host.calls) if device.pad else host.calls
    assert device.batches == sizes, "also the batches are those of the CPU"
    assert device.entry()["ingredients"]["engine"] == f"{name} fp32" != host.entry()["ingredients"]["engine"]
    assert {call[0] for call in cupy.launches} == {"sweep", "mean_maps"}, "the maps were swept on the device"
    assert device.run([bundle], [data]).reused == 1


@pytest.mark.parametrize("protocol", ["default", "mavl"])
def test_one_copy_brings_the_counts_of_a_sweep(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    copies: Counter[tuple[str, int]] = Counter()
    get = device_on_cpu.ndarray.get

    def counted(array: Any, *given: Any, **how: Any) -> Any:
        copies[str(array.dtype), array.ndim] += 1
        return get(array, *given, **how)

    monkeypatch.setattr(device_on_cpu.ndarray, "get", counted)
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")
    _, device = worlds(tmp_path)
    device.run([bundle], [data], protocol=protocol)
    sweeps = [name for name, *_ in cupy.launches].count("sweep")
    logits, maps, counts = len(device.batches), sweeps // (1 + (protocol == "mavl")), sweeps
    assert maps and copies == {("float32", 2): logits, ("float32", 3): maps, ("uint8", 1): counts}


def test_a_chunk_without_an_image_and_prepared_images(cupy: Any, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", missing=tuple(range(8, 16))), "coco")
    host, device = worlds(tmp_path)
    for cache in (None, tmp_path / "prepared"):
        for world in (host, device):
            world.run([bundle], [data], cache=cache, batch=5, limit=None if cache else 20)
        assert same(host.table(), device.table())


@pytest.mark.parametrize("name", ENGINES)
def test_cases_of_one_image_are_asked_once(cupy: Any, tmp_path: Path, name: str) -> None:
    """The rows of cases with copies of the images; also where only the first of two images in three cases fits."""
    bundle = make_bundle(tmp_path / "blocks-32", several=True).path
    root = make_dataset(tmp_path / "data")
    told = json.loads((root / "annotations.json").read_text())
    files = [f"case{place // 6 * 6 + (0, 1, 0, 3, 3, 3)[place % 6]:04d}.png" for place in range(20)]
    for image, file in zip(told["images"], files, strict=True):
        shutil.copyfile(root / "images" / file, root / "images" / f"copy-{image['file_name']}")
        image["file_name"] = f"copy-{image['file_name']}"
    (root / "annotations.json").write_text(json.dumps(told))
    data = DatasetConfig("coco", root, "coco")
    host, device = worlds(tmp_path, name)
    host.run([bundle], [data])
    copies = host.table()
    for image, file in zip(told["images"], files, strict=True):
        image["file_name"] = file
    (root / "annotations.json").write_text(json.dumps(told))
    host.run([bundle], [data])
    device.run([bundle], [data])
    assert same(host.table(), copies) and same(device.table(), copies)
    assert host.calls == [2, 1, 2, 2, 3, 2, 2, 1], "3, 3 and 2 cases of a chunk"
    assert device.batches == ([3] * 8 if device.pad else host.calls)
    device.trouble = {0: OutOfMemory("Requested size was 123 bytes")}
    device.run([bundle], [data], chunk=9)
    assert same(device.table(), copies) and set(device.batches) == {1}


def test_the_input_of_an_image_that_overflows_is_found(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second image of three cases is that of the third."""
    bundle = make_bundle(tmp_path / "blocks-32").path
    root = make_dataset(tmp_path / "data", 4)
    told = json.loads((root / "annotations.json").read_text())
    told["images"][1]["file_name"] = "case0000.png"
    (root / "annotations.json").write_text(json.dumps(told))
    seen: list[Any] = []
    monkeypatch.setattr(
        DeviceEngine,
        "check_finite",
        lambda self, logits, text, pixels: seen.append([pixels(image) for image in range(len(logits))]),
    )
    _, device = worlds(tmp_path)
    device.run([bundle], [DatasetConfig("coco", root, "coco")], batch=4)
    inputs = [to_model(read_grey(root / f"images/case{place:04d}.png"), SQUASH)[None] for place in (0, 2, 3)]
    np.testing.assert_array_equal(np.concatenate(seen), inputs)


@pytest.mark.parametrize("protocol", ["paper", "chexlocalize", "medklip", "mavl"])
def test_other_protocols(cupy: Any, tmp_path: Path, protocol: str) -> None:
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 9), "coco")
    host, device = worlds(tmp_path)
    device.run([bundle], [data], protocol=protocol)
    World.run(host, [bundle], [data], protocol=protocol, sweep=sweep)
    assert same(host.table(), device.table())


@pytest.mark.parametrize("name", ENGINES)
def test_too_little_memory_in_the_middle_halves_the_batch(cupy: Any, tmp_path: Path, name: str) -> None:
    bundle = make_bundle(tmp_path / "blocks-32", several=True).path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")
    host, device = worlds(tmp_path, name)
    host.run([bundle], [data])
    device.trouble = {2: OutOfMemory("Requested size was 123 bytes")}
    device.run([bundle], [data])
    assert same(host.table(), device.table())
    assert device.batches[:4] == [3, 3, 1, 1] and set(device.batches[2:]) == {1}
    assert [line for line in device.lines if "out of GPU memory" in line] == [
        "blocks-32: out of GPU memory, going on with batches of 1"
    ]


def test_memory_that_the_sweep_lacks_halves_the_batch_too(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")
    host, device = worlds(tmp_path)
    host.run([bundle], [data])
    empty, failed = cupy.empty, []

    def full(shape: Any, dtype: Any) -> Any:
        if isinstance(shape, int) and dtype == np.uint8 and not failed:  # the engine has no such buffer
            failed.append(shape)
            raise device_on_cpu.OutOfMemoryError("out of memory")
        return empty(shape, dtype)

    monkeypatch.setattr(cupy, "empty", full)
    device.run([bundle], [data])
    assert failed and same(host.table(), device.table())
    assert any("out of GPU memory" in line for line in device.lines)


@pytest.mark.parametrize("after", [2, 7])
def test_an_interrupted_run_resumes_to_the_same_rows(cupy: Any, tmp_path: Path, after: int) -> None:
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")
    host, device = worlds(tmp_path)
    host.run([bundle], [data])
    device.trouble = {after: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        device.run([bundle], [data])
    assert device.entry()["state"] == "interrupted"
    assert device.run([bundle], [data]).computed == 1
    # What was on its way when the run stopped is computed again, what was written is not.
    assert device.batches in ([3, 3, 2, 3, 3, 2, 3, 1][3 * chunk :] for chunk in range(after // 3 + 1))
    assert same(host.table(), device.table())
    assert not list((device.out / "cells").glob("*.parts"))


def test_chunks_are_written_side_by_side_and_not_gathered(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chunk is written only once a later one is; slow writing holds the loop up."""
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 36), "coco")
    host, device = worlds(tmp_path)
    write, later, ahead, done = CellFiles.write_part, threading.Event(), list[int](), list[int]()

    def slow(files: CellFiles, index: int, table: Any) -> None:
        if index:
            later.set()
        else:
            assert later.wait(60), "one chunk is written after the other"
        time.sleep(0.1)
        ahead.append(len(device.batches) - len(done))
        write(files, index, table)
        done.append(index)

    host.run([bundle], [data], chunk=2)
    with monkeypatch.context() as patch:
        patch.setattr(CellFiles, "write_part", slow)
        device.run([bundle], [data], chunk=2, threads=8)
    assert sorted(done) == list(range(18)) and same(host.table(), device.table())
    assert max(ahead) <= 2 * 3 + SLOTS + 1, "memory is bounded"


@pytest.mark.parametrize(("threads", "wanted"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 3), (64, 3)])
def test_a_few_cores_have_few_threads_of_rows(threads: int, wanted: int) -> None:
    assert device_cell.writers(threads) == wanted


def test_a_chunk_that_cannot_be_written_ends_the_run(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the last one, for which nothing is computed any more; the others stay."""
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 9), "coco")
    _, device = worlds(tmp_path)
    write = CellFiles.write_part

    def full(files: CellFiles, index: int, table: Any) -> None:
        if index == 2:
            raise RunError("The disk is full.")
        write(files, index, table)

    with monkeypatch.context() as patch, pytest.raises(RunError, match="disk is full"):
        patch.setattr(CellFiles, "write_part", full)
        device.run([bundle], [data], chunk=3)
    assert device.run([bundle], [data], chunk=3).computed == 1 and device.batches == [3]


def test_a_failing_gpu_and_a_logit_that_is_not_finite_are_one_sentence(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")
    _, device = worlds(tmp_path)
    device.trouble = {4: device_on_cpu.CUDARuntimeError("cudaErrorIllegalAddress: an illegal\nmemory access")}
    [(_, _, reason)] = device.run([bundle], [data]).failed
    assert reason.startswith("The GPU failed while blocks-32 ran (cudaErrorIllegalAddress: an illegal memory access)")
    device.trouble = {}

    def absent(*_: Any) -> int:
        raise RuntimeError("Failure finding libnvrtc.so.13")

    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "compile_source", COMPILE)
        patch.setattr(cupy.cuda.nvrtc, "createProgram", absent)
        sweep_gpu._kernels.cache_clear()
        [(_, _, reason)] = device.run([bundle], [data]).failed
    assert reason == (
        "The compiler for GPU kernels, libnvrtc.so.13, is not found; install nvidia-cuda-nvrtc, which "
        "xbench-fast[gpu-cuda13] includes."
    )
    model = synthetic.model

    def bad(pixels: Any, text: Any) -> Any:
        logits, saliency = model(pixels, text)
        logits[-1, 1] = np.inf
        return logits, saliency

    monkeypatch.setattr(synthetic, "model", bad)
    [(_, _, reason)] = device.run([bundle], [data]).failed
    assert "blocks-32 on tensorrt returned a logit that is not finite (image " in reason


def test_launches_are_captured(cupy: Any, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 40), "coco")
    _, device = worlds(tmp_path)
    device.run([bundle], [data], chunk=40)
    assert device.batches == [3] * 13 + [1]
    graphs = [graph.launches for stream in cupy.streams for graph in stream.graphs]
    assert sorted(graphs) == [5, 6], "one graph per slot for batches of three; the last batch comes only once"


def test_copies_are_waited_for(cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device of this test would tell: without the one wait the engine reads pixels that are not there yet."""
    bundle = make_bundle(tmp_path / "blocks-32").path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")
    host, device = worlds(tmp_path)
    host.run([bundle], [data])
    with monkeypatch.context() as patch:
        patch.setattr(device_on_cpu.Stream, "wait_event", lambda self, event: None)
        device.run([bundle], [data])
    assert not same(host.table(), device.table())


def test_means_over_prompts_round_once(cupy: Any) -> None:
    """On the host and on the device, whose CuPy takes subnormals for zero: the same bits."""
    rng = np.random.default_rng(3)
    saliency = (rng.standard_normal((4, 9, 5, 3)) * 10.0 ** rng.integers(-44, 9, (4, 9, 1, 1))).astype(np.float32)
    saliency[3] = np.float32(1e-45) * rng.integers(0, 9, (9, 5, 3)).astype(np.float32)
    prompts = PromptSet(
        name="mixed",
        findings=("A", "B", "C"),
        texts=tuple("abcdefghi"),
        finding_of=np.array([0, 1, 1, 1, 1, 1, 2, 2, 2], np.int32),
        polarity=np.array([1, 1, 1, -1, 1, 1, 1, 1, -1], np.int8),
        features=np.zeros((9, 2), np.float32),
        status=("own",) * 3,
    )
    queries = Queries.of(prompts, {"a": "A", "b": "B", "c": "C"})
    wanted = [(0, 1), (0, 0), (2, 2), (3, 1), (3, 2), (1, 1)]
    cases, findings = np.array(wanted, np.intp).T
    nothing = np.zeros(0, np.uint8), np.zeros((0, 4)), np.zeros(0, np.bool_), (), np.zeros((0, 2), np.int32)
    pairs = DrawnPairs(queries.findings, cases, findings, *nothing)
    expected = np.stack([prompt_mean(saliency[case, queries.positive[at]]) for case, at in wanted])
    assert pair_maps(cupy.asarray(saliency), pairs, queries).get().tobytes() == expected.tobytes()
    assert queries.maps(saliency, cases, findings).tobytes() == expected.tobytes()


def test_the_command_line(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from xbench_fast.runtime.cli import main

    monkeypatch.chdir(tmp_path)
    make_bundle(tmp_path / "bundles" / "blocks-32")
    make_dataset(tmp_path / "data", 6)
    (tmp_path / "xbench.toml").write_text(
        'bundles = ["bundles"]\n[datasets.coco]\nroot = "data"\n[eval]\nengine = "tensorrt"\nbatch = 4\nbuild = false\n'
    )

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["eval", "--all", *arguments])
        out, err = capsys.readouterr()
        return f"{caught.value.code} {out}{err}"

    assert run().startswith("1 ") and "has no fp32 plan" in run() and "leave --no-build out" in run()
    assert "building its fp32 plan for NVIDIA H200" in run("--build")
    profile = sys.modules["tensorrt"].log["profiles"][-1]
    assert profile["pixels"][2][0] == 4, "the plan is for batches as asked for"
    assert "(1 of them before)" in run()
    entry = json.loads((tmp_path / "run" / "run.json").read_text())["cells"]["blocks-32--coco"]
    assert entry["engine"] | {"detail": ""} == {
        "backend": "tensorrt",
        "device": "cuda:0",
        "precision": "fp32",
        "detail": "",
    }
    assert "because this changed: engine" in run("--tf32", "--build")
    assert "because this changed: engine" in run("--engine", "onnxruntime-cuda")
    shapes = [shape["pixels"][0] for shape in sys.modules["onnxruntime"].log["shapes"]]
    assert len(shapes) > 1 and set(shapes) == {4}, "the last batch of two is filled up: one shape for all"
    toml = tmp_path / "xbench.toml"
    toml.write_text(toml.read_text().replace("batch = 4\n", ""))
    run("--engine", "onnxruntime-cuda")
    shapes = [shape["pixels"][0] for shape in sys.modules["onnxruntime"].log["shapes"]]
    assert set(shapes[-1:]) == {256}, "the default of an engine on a GPU"
    run_json = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (run_json["config"]["batch"], run_json["config"]["chunk"]) == (256, 512)
    assert run_json["cells"]["blocks-32--coco"]["ingredients"]["batch"] == 256
    assert run("--engine", "onnxruntime-cpu", "--tf32").startswith("2 Error: --tf32 is for engines on a GPU")
    for engine in ("onnxruntime-cpu", "tensorrt"):
        assert "dali decodes into the cache" in run("--engine", engine, "--decoder", "dali", "--no-cache")


def test_gpus_share_a_run_as_shards(
    cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One process a GPU; no row and no key depends on the number."""
    from xbench_fast.runtime.cli import main

    monkeypatch.setattr(gpu, "gpu_names", lambda: ("NVIDIA A", "NVIDIA B"))
    monkeypatch.chdir(tmp_path)
    make_bundle(tmp_path / "bundles" / "blocks-32")
    make_dataset(tmp_path / "data", 20)
    (tmp_path / "xbench.toml").write_text(
        'bundles = ["bundles"]\n[datasets.coco]\nroot = "data"\n[eval]\nengine = "tensorrt"\nbatch = 4\ngpu = 1\n'
    )

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main([*arguments])
        out, err = capsys.readouterr()
        return f"{caught.value.code} {out}{err}"

    def record(folder: str) -> tuple[Any, Any]:
        told = json.loads((tmp_path / folder / "run.json").read_text())
        return told["config"]["gpu"], told["cells"]["blocks-32--coco"]

    told = run("eval", "--all", "--gpu", "2", "--out", "none")
    assert (
        told.startswith("2 Error: There is no GPU 2: CUDA finds 0 (NVIDIA A), 1 (NVIDIA B)") and told.count("\n") == 1
    )
    assert not (tmp_path / "none").exists() and not cupy.used
    for number, name in enumerate("AB"):
        assert run("eval", "--all", "--gpu", str(number), "--shard", f"{number + 1}/2", "--chunk", "4").startswith("0 ")
        assert cupy.used == {number}
        cupy.used.clear()
        gpu_of_run, entry = record(f"run/shard-{number + 1}-of-2")
        assert gpu_of_run == {"number": number, "name": f"NVIDIA {name}"}
        assert entry["engine"]["device"] == f"cuda:{number}"
    assert run("merge", "run/shard-1-of-2", "run/shard-2-of-2", "--out", "run").startswith("0 ")
    assert run("eval", "--all", "--chunk", "4", "--out", "whole").startswith("0 ") and cupy.used == {1}, "xbench.toml"
    files = [tmp_path / folder / record(folder)[1]["file"] for folder in ("whole", "run")]
    assert same(*map(pq.read_table, files)) and files[0].name == files[1].name
    assert "finished before, reused" in run("eval", "--all", "--chunk", "4", "--out", "whole", "--gpu", "0")
    assert record("whole")[0] == {"number": 0, "name": "NVIDIA A"}
    assert "leave --gpu out" in run("eval", "--all", "--cluster", "local", "--gpu", "0")


def test_every_engine_on_a_gpu_is_run_by_this_loop() -> None:
    assert all(issubclass(engine, DeviceEngine) for engine in ENGINES.values())
