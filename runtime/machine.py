"""What a result depends on besides its inputs: the machine and the code. Never a host or user name."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["LIBRARIES", "code_version", "cpu_model", "describe_machine", "library_versions", "usable_cores"]

LIBRARIES = ("numpy", "numba", "pyarrow", "pillow", "pydicom", "scikit-learn", "onnxruntime", "onnxruntime-gpu")


def code_version() -> str:
    """The installed version of this project; "unknown" when it runs from a folder that was never installed."""
    try:
        return version("xbench-fast")
    except PackageNotFoundError:
        return "unknown"


def cpu_model() -> str:
    """The processor's marketing name, the architecture where the system does not tell it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores this process may run on, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def library_versions(names: tuple[str, ...] = LIBRARIES) -> dict[str, str]:
    """Installed versions of `names`; what is not installed is left out."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def describe_machine() -> dict[str, object]:
    """Provenance of a run: processor, cores, system and library versions, all JSON values."""
    return {
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": library_versions(),
    }
