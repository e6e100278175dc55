"""What doctor says about CUDA: mixed packages, an old driver, none at all."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import device_on_cpu
import pytest
from xbench_fast.engines.backends import cuda_libraries
from xbench_fast.metrics_gpu.nvrtc import KernelError
from xbench_fast.runtime.host import installation_checks as doctor
from xbench_fast.runtime.host import packages as gpu_packages
from xbench_fast.runtime.host.packages import cuda_of, driver_reason, installed_packages, mixture


@pytest.mark.parametrize(
    ("name", "version", "cuda"),
    [
        ("cupy-cuda12x", "14.2.0", 12),
        ("cupy-cuda13x", "14.2.0", 13),
        ("nvidia-dali-cuda120", "2.4.0", 12),
        ("nvidia-dali-cuda130", "2.4.0", 13),
        ("tensorrt-cu12", "10.16.1.11", 12),
        ("tensorrt-cu13-bindings", "11.4.0.106", 13),
        ("tensorrt-rtx-cu13-libs", "1.7.1.116", 13),
        ("onnxruntime-gpu", "1.26.0", 12),
        ("onnxruntime-gpu", "1.27.0", 13),
        ("onnxruntime-gpu", "1.31.1", 13),
        ("onnxruntime", "1.31.1", None),
        ("tensorrt", "11.4.0.106", None),
        ("nvidia-cublas", "13.4", None),
        ("torch", "2.15.0", None),
        ("cupy", "14.2.0", None),
    ],
)
def test_the_cuda_of_a_package(name: str, version: str, cuda: int | None) -> None:
    assert cuda_of(name, version) == cuda


def test_a_mixture_is_named_with_what_to_keep() -> None:
    twelve = {"cupy-cuda12x": "14.2.0", "nvidia-dali-cuda120": "2.4.0", "numpy": "2.4.6"}
    assert mixture(twelve) == (True, "CUDA 12: cupy-cuda12x 14.2.0, nvidia-dali-cuda120 2.4.0")
    assert mixture({"numpy": "2.4.6"}) == (True, "none is installed")
    same, words = mixture({**twelve, "nvidia-cudnn-cu12": "9.28.0.42", "nvidia-cudnn-cu13": "9.26.0.51"})
    assert not same and words.startswith("nvidia-cudnn-cu12 and nvidia-cudnn-cu13 have files of the same names")
    same, words = mixture({**twelve, "onnxruntime-gpu": "1.31.1"})
    assert not same and "CUDA 13: onnxruntime-gpu 1.31.1" in words
    assert words.endswith("keep the packages of xbench-fast[gpu] or xbench-fast[gpu-cuda13]")


@pytest.mark.parametrize(
    ("version", "cuda", "needed", "words"),
    [
        (None, None, {12}, "there is no NVIDIA driver; models run on the CPU"),
        ("580.65.06", None, {12}, "the driver 580.65.06 does not answer"),
        (
            "550.54.14",
            (12, 4),
            {12, 13},
            "it runs CUDA up to 12.4, packages for CUDA 13 are installed; install driver ",
        ),
        ("550.54.14", (12, 4), {13}, "580 or newer, or the packages of xbench-fast[gpu]"),
        ("550.54.14", (12, 4), {12}, None),
        ("580.65.06", (13, 0), {12}, None),
        ("580.65.06", (13, 0), set(), None),
    ],
)
def test_a_driver_that_is_too_old_is_named(
    version: str | None, cuda: tuple[int, int] | None, needed: set[int], words: str | None
) -> None:
    found = driver_reason(version, cuda, needed)
    assert found is None if words is None else words in str(found)


def test_doctor_lists_what_the_gpu_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "numpy" in installed_packages()
    monkeypatch.setattr(
        gpu_packages, "installed_packages", lambda: {"cupy-cuda12x": "14.2.0", "onnxruntime-gpu": "1.31.1"}
    )
    monkeypatch.setattr(gpu_packages, "driver_version", lambda: "550.54.14")
    monkeypatch.setattr(gpu_packages, "driver_cuda", lambda: (12, 4))
    monkeypatch.setitem(sys.modules, "cupy", device_on_cpu.fake_device())
    swept: list[bool] = []
    monkeypatch.setattr(doctor, "_counts_rightly", lambda array: swept.append(True) or True)
    found = {check.name: check for check in doctor.examine()}
    assert found["sweep (GPU)"].usable and len(swept) == 2

    def absent() -> None:
        raise KernelError("The compiler for GPU kernels, libnvrtc.so.99, is not found; install it.")

    monkeypatch.setattr(doctor, "_sweep_on_gpu", absent)
    assert {"tensorrt", "tensorrt-rtx", "onnxruntime-cuda", "onnxruntime-cpu"} <= set(found)
    driver, cupy, packages = found["NVIDIA driver"], found["CuPy"], found["CUDA packages"]
    assert not driver.usable and driver.version == "550.54.14" and "CUDA 13" in driver.reason
    assert cupy.usable and cupy.version == "14.2.0" and {driver.group, cupy.group, packages.group} == {"gpu"}
    assert not packages.usable and "two CUDAs are mixed" in packages.reason
    found = {check.name: check for check in doctor.examine()}
    assert "libnvrtc.so.99, is not found; install" in found["sweep (GPU)"].reason
    monkeypatch.setitem(sys.modules, "cupy", None)
    found = {check.name: check for check in doctor.examine()}
    assert not found["CuPy"].usable and "CuPy is not installed" in found["CuPy"].reason
    assert "sweep (GPU)" not in found


@pytest.mark.parametrize(("found", "words"), [(True, ""), (False, "libcurand.so.10 is not found; install xbench-fast")])
def test_doctor_names_the_library_that_is_lacking(monkeypatch: pytest.MonkeyPatch, found: bool, words: str) -> None:
    monkeypatch.setattr(gpu_packages, "installed_packages", lambda: {"cupy-cuda13x": "14.2.0", "torch": "2.11.0"})
    monkeypatch.setattr(gpu_packages, "driver_version", lambda: "580.65.06")
    monkeypatch.setattr(gpu_packages, "driver_cuda", lambda: (13, 0))
    cupy = device_on_cpu.fake_device()
    cupy.cuda.nvrtc = device_on_cpu.Nvrtc("" if found else "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(doctor, "_counts_rightly", lambda array: True)
    asked: list[str] = []
    monkeypatch.setattr(
        cuda_libraries, "load_library", lambda name: asked.append(name) or found or name != "libcurand.so.10"
    )
    checks = {check.name: check for check in doctor.examine()}
    libraries, compiler = checks["CUDA libraries"], checks["CuPy"]
    assert libraries.usable == compiler.usable == found
    assert libraries.reason.startswith(words) and {"libcublas.so.13", "libcurand.so.10"} <= set(asked)
    assert found or "libnvrtc-builtins.so.13.0; reinstall nvidia-cuda-nvrtc" in compiler.reason


def test_without_a_driver_one_line_says_so_and_nothing_is_said_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_packages, "driver_version", lambda: None)
    monkeypatch.setattr(gpu_packages, "driver_cuda", lambda: None)

    def decoders() -> Iterator[doctor.MachineCheck]:
        raise AssertionError("decoded on a GPU that is not there")
        yield

    checks = doctor.examine((), decoders())
    (line,) = [check for check in checks if check.group == "gpu"]
    assert (line.name, line.reason) == ("NVIDIA driver", "there is no NVIDIA driver; models run on the CPU")
    assert len({check.name for check in checks}) == len(checks)
    assert not {"onnxruntime", "cupy-cuda12x", "tensorrt"} & {check.name for check in checks if check.group == "extra"}


@pytest.mark.parametrize(("extra", "bound"), [("gpu", ">=1.23,<1.27"), ("gpu-cuda13", ">=1.27")])
def test_an_extra_brings_the_libraries_of_its_cuda(root: Path, extra: str, bound: str) -> None:
    """ONNX Runtime's own extras name them; CuPy finds them there too. 1.27 is the first version for CUDA 13."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"onnxruntime-gpu[cuda,cudnn]{bound}" in project[extra]
    assert any(name.startswith(f"cupy-cuda{13 if extra.endswith('13') else 12}x") for name in project[extra])
