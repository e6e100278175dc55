"""Describes the machine and the installed code for the provenance of a result. Never a host or user name."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from ...engines.processor import cpu_model

LIBRARIES = ("numpy", "numba", "pyarrow", "pillow", "pydicom", "imagecodecs", "scikit-learn", "onnxruntime",
             "onnxruntime-gpu", "tensorrt", "tensorrt-rtx", "cupy-cuda12x", "cupy-cuda13x", "nvidia-dali-cuda120",
             "nvidia-dali-cuda130", "torch")  # fmt: skip


@cache
def installed_version(name: str) -> str | None:
    """The version of an installed package, None if not installed; read once, since imported modules do not change."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def code_version() -> str:
    """The installed version of this project; "unknown" when it runs from a folder without installation."""
    return installed_version("xbench-fast") or "unknown"


def usable_cores() -> int:
    """Cores this process may run on, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def library_versions(names: tuple[str, ...] = LIBRARIES) -> dict[str, str]:
    """Installed versions of `names`, without packages that are not installed."""
    return {name: release for name in names if (release := installed_version(name)) is not None}


def gpus() -> list[dict[str, str]]:
    """Name, memory, compute capability and driver of every NVIDIA GPU; empty without one, or without nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    fields = ("name", "memory.total", "compute_cap", "driver_version")
    command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else []
    return [dict(zip(fields, (cell.strip() for cell in line.split(",")), strict=False)) for line in lines]


def describe_machine() -> dict[str, object]:
    """Provenance of a run: processor, cores, GPUs if there are any, system and library versions, all JSON values."""
    graphics = gpus()
    return {
        **({"gpus": graphics} if graphics else {}),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": library_versions(),
    }
