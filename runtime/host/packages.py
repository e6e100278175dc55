"""The CUDA version of the installed packages, and the versions that the driver supports. Does not start a GPU."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from ...engines.extras import CUDA_EXTRAS

DRIVERS: Final = {12: 525, 13: 580}
"""CUDA -> the oldest driver for it, on Linux."""

_NAMED = re.compile(r"(?:cupy|nvidia-dali|tensorrt)\S*-cu(?:da)?(1[1-9])(?:\d|x)?(?:-|$)")
_FIRST_ORT_OF_13 = (1, 27)  # the first onnxruntime-gpu for CUDA 13, as pyproject.toml has it


def installed_packages() -> dict[str, str]:
    """Every installed distribution, name -> version, the name in lower case with hyphens."""
    versions = {}
    for item in distributions():
        name = item.metadata["Name"]
        if name:
            versions[re.sub(r"[-_.]+", "-", name).lower()] = item.version
    return versions


def cuda_of(name: str, version: str) -> int | None:
    """The CUDA (12, 13) of a package for running models, sweeping or decoding; None for any other package.

    PyTorch is not included: it contains its own CUDA, also where it is the engine `torch`.
    """
    if name == "onnxruntime-gpu":
        numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
        return 13 if numbers >= _FIRST_ORT_OF_13 else 12
    match = _NAMED.match(name)
    return int(match[1]) if match else None


def mixture(packages: Mapping[str, str]) -> tuple[bool, str]:
    """Whether all `packages` are for one CUDA version; and the packages, or what to do."""
    by_cuda: dict[int, list[str]] = {}
    for name, version in sorted(packages.items()):
        cuda = cuda_of(name, version)
        if cuda is not None:
            by_cuda.setdefault(cuda, []).append(f"{name} {version}")
    cudnn = sorted(name for name in packages if re.fullmatch(r"nvidia-cudnn-cu\d+", name))
    if len(cudnn) > 1:
        return False, (
            f"{' and '.join(cudnn)} have files of the same names, and the later one stays; keep one: export in another "
            "environment, or install xbench-fast[gpu-cuda13]"
        )
    words = "; ".join(f"CUDA {cuda}: {', '.join(names)}" for cuda, names in sorted(by_cuda.items()))
    if len(by_cuda) < 2:
        return True, words or "none is installed"
    advice = " or ".join(f"xbench-fast[{CUDA_EXTRAS[cuda]}]" for cuda in sorted(by_cuda) if cuda in CUDA_EXTRAS)
    return False, f"two CUDAs are mixed ({words}), and some will not load; keep the packages of {advice}"


def driver_version() -> str | None:
    """The version of the NVIDIA driver ("580.65.06"); None without a driver."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return match[1] if match else None


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA the driver runs, as (12, 4); None without a driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        number = ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(number)) != 0 or not number.value:
            return None
    except (OSError, AttributeError):
        return None
    return number.value // 1000, number.value % 1000 // 10


def driver_reason(version: str | None, cuda: tuple[int, int] | None, needed: Iterable[int]) -> str | None:
    """None if a driver of that version runs packages for the CUDAs `needed`, else why not."""
    if cuda is None:
        if version is None:
            return "there is no NVIDIA driver; models run on the CPU"
        return f"the driver {version} does not answer; restart the machine, or mount libcuda.so.1 into the container"
    newest = max(needed, default=0)
    if newest <= cuda[0]:
        return None
    oldest = DRIVERS.get(newest)
    advice = f"install driver {oldest} or newer" if oldest else "install a newer driver"
    other = f", or the packages of xbench-fast[{CUDA_EXTRAS[cuda[0]]}]" if cuda[0] in CUDA_EXTRAS else ""
    return f"it runs CUDA up to {cuda[0]}.{cuda[1]}, packages for CUDA {newest} are installed; {advice}{other}"
