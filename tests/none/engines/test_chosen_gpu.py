"""`--gpu N`: the GPU that a user asks for, and that every backend gets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import device_on_cpu
import fake_onnxruntime
import fake_tensorrt
import numpy as np
import pytest
import synthetic
from xbench_fast.engines import select
from xbench_fast.engines.backends import gpu
from xbench_fast.engines.backends.gpu import check_gpu, current_gpu, gpu_names, gpu_reason
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.errors import ConfigError, EngineError
from xbench_fast.engines.select import PREFERENCE, choose, open_engine

TEXT = np.array([[1, 0], [-1, 3], [2, 1]], np.float32)


class Driver:
    """As much of libcuda.so.1 as is asked. error: of `cuInit`."""

    def __init__(self, *names: str, error: int = 0) -> None:
        self._names, self._error = names, error

    def cuInit(self, flags: int) -> int:
        return self._error

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self._names)
        return 0

    def cuDeviceGetName(self, name: Any, length: int, number: int) -> int:
        assert length == len(name)
        name.value = self._names[number].encode()
        return 0


@pytest.mark.parametrize(
    ("driver", "names", "words"),
    [
        (Driver("NVIDIA A", "NVIDIA B"), ("NVIDIA A", "NVIDIA B"), "0 (NVIDIA A), 1 (NVIDIA B)"),
        (Driver("NVIDIA A"), ("NVIDIA A",), "0 (NVIDIA A)"),
        (Driver("NVIDIA A", error=100), (), "none"),
        (Driver(), (), "none"),
        (object(), (), "none"),
        (OSError("no such file"), (), "none"),
    ],
)
def test_a_number_is_one_that_the_driver_shows(
    driver: object, names: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> object:
        assert name == "libcuda.so.1"
        if isinstance(driver, OSError):
            raise driver
        return driver

    monkeypatch.setattr(gpu.ctypes, "CDLL", load)
    assert gpu_names() == names
    for number in range(len(names)):
        check_gpu(number)
    for variable, among in ((None, ""), ("1", ", of those in CUDA_VISIBLE_DEVICES")):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if variable is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        with pytest.raises(ConfigError) as told:
            check_gpu(len(names))
        assert str(told.value) == (
            f"There is no GPU {len(names)}: CUDA finds {words}{among}; xbench-fast doctor says more."
        )


class Complaining(synthetic.BlockEngine):
    def complaint(self) -> str:
        return "it has an operator that is not supported"


def test_every_engine_is_asked_about_this_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "gpu_seen", lambda: True)
    monkeypatch.setattr(gpu, "gpu_names", lambda: ("NVIDIA A", "NVIDIA B"))
    asked: list[tuple[str, int]] = []
    works: set[tuple[str, int]] = {("onnxruntime-cpu", 0), ("onnxruntime-cpu", 1), ("onnxruntime-cuda", 1)}

    def probe(registry: Any, name: str, device: int = 0) -> str | None:
        asked.append((name, device))
        return None if (name, device) in works else "it does not work"

    monkeypatch.setattr(select, "_asked", probe)
    assert choose("auto", 1)[0] == "onnxruntime-cuda"
    assert asked == [(name, 1) for name in PREFERENCE[:4]]
    assert choose("auto")[0] == "onnxruntime-cpu"
    for name, chosen in (("auto", "onnxruntime-cpu"), ("onnxruntime-cpu", "onnxruntime-cpu"), ("torch", "torch")):
        with pytest.raises(ConfigError, match=f"--gpu is for engines on a GPU, and this one is {chosen}; leave it out"):
            choose(name, 0)
    assert choose("mine.py:Engine", 1)[0] == "mine.py:Engine", "nothing is known of it"
    asked.clear()
    bundle = synthetic.make_bundle(tmp_path / "blocks")
    monkeypatch.setattr(select.ENGINES, "load", lambda name: Complaining if name == "torch" else synthetic.BlockEngine)
    assert type(open_engine(bundle, "torch", options=EngineOptions(device=1), auto=True)) is synthetic.BlockEngine
    assert asked == [("onnxruntime-cuda", 1)], "the engine after the one that complains"
    asked.clear()
    with pytest.raises(ConfigError, match="There is no GPU 2"):
        choose("auto", 2)
    assert not asked, "before any engine is tried"


@pytest.mark.parametrize("name", ["onnxruntime-cuda", "tensorrt", "tensorrt-rtx"])
def test_an_engine_works_on_its_gpu_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = synthetic.make_bundle(tmp_path / "blocks")
    cupy = device_on_cpu.fake_device(count=2)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    ort = fake_onnxruntime.make(cupy.streams)
    versions = {"tensorrt": "11.4.0.106", "tensorrt-rtx": "1.7.1.116"}
    for module in versions:
        made = fake_tensorrt.make(versions[module], cupy.streams) if module == name else None
        monkeypatch.setitem(sys.modules, module.replace("-", "_"), made)
    monkeypatch.setitem(sys.modules, "onnxruntime", ort)
    with open_engine(bundle, name, options=EngineOptions(4, device=1)) as engine:
        pixels = np.random.default_rng(0).integers(0, 256, (6, 1, 32, 32), dtype=np.uint8)
        np.testing.assert_array_equal(engine.run(pixels, TEXT).saliency, synthetic.model(pixels, TEXT)[1])
        assert engine.info.device == "cuda:1"
    assert cupy.used == {1}
    if name == "onnxruntime-cuda":
        assert [session.settings["device_id"] for session in ort.log["sessions"]] == ["1", "1"], "also the trial"
    else:
        (plan,) = (bundle.path / "plans").glob("*.plan")
        assert plan.name.startswith("nvidia_h200_1-"), "the plan is for that GPU"
    with pytest.raises(EngineError, match=r"There is no GPU 2: this machine has 2, numbers 0 to 1\."):
        open_engine(bundle, name, options=EngineOptions(4, device=2)).__enter__()


def test_another_gpu_may_be_usable_where_the_first_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = device_on_cpu.fake_device(count=2)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    cupy.cuda.Device(0).compute_capability = "30"
    compile_program = cupy.cuda.nvrtc.compileProgram

    def compiled(program: Any, options: Any) -> None:
        cupy.cuda.nvrtc.refusal = "invalid value for --gpu-architecture" if "sm_30" in options[0] else ""
        compile_program(program, options)

    monkeypatch.setattr(cupy.cuda.nvrtc, "compileProgram", compiled)
    assert "does not know compute capability 3.0" in str(gpu_reason(0))
    assert gpu_reason(1) is None
    assert current_gpu(1).name == "NVIDIA H200 1"
    with pytest.raises(EngineError, match="compute capability 3"):
        current_gpu(0)
