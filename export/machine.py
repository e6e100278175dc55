"""What an export records about the machine and the packages it ran on."""

from __future__ import annotations

import errno
import importlib.util
import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version

from ..engines.errors import MissingExtraError

__all__ = ["disk_reason", "peak_memory_mib", "require_packages", "threads_to_use", "versions"]

_PACKAGES = ("xbench-fast", "torch", "onnx", "onnxscript", "onnxruntime", "tokenizers", "open_clip_torch", "numpy")


def require_packages() -> None:
    """Raises MissingExtraError now, rather than after minutes of work, if a package of the export is not installed."""
    for name in ("torch", "onnx", "onnxscript", "onnxruntime"):
        try:
            missing = importlib.util.find_spec(name) is None
        except ValueError:  # the name is blocked in this process
            missing = True
        if missing:
            extras = "export,cpu" if name == "onnxruntime" else "export"
            raise MissingExtraError(f'An export needs {name}, which is missing: pip install "xbench-fast[{extras}]".')


def versions() -> dict[str, str]:
    """Package -> version, of what takes part in an export and is installed; and Python's."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def threads_to_use() -> int:
    """Threads for ONNX Runtime: the processors this process may use, at most 8."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, 8)


def peak_memory_mib() -> float:
    """The greatest resident memory this process has had so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def disk_reason(error: OSError) -> str:
    """Why the disk refused, as the end of a sentence."""
    if error.errno == errno.ENOSPC:
        return "the disk is full; free some space and run the same command again"
    return error.strerror or str(error)
