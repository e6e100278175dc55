"""Checks what an export needs of the machine: packages, threads, memory, and disk space for unfinished files."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..engines.errors import ExportError, MissingExtraError, disk_reason
from ..engines.replacing import sibling

_ROOM = 2.2  # the graphs are written once (lowered ones beside them) and once copied into the bundle
_PACKAGES = ("xbench-fast", "torch", "onnx", "onnxscript", "onnxruntime", "tokenizers", "open_clip_torch", "numpy")


def require_packages() -> None:
    """Raises MissingExtraError before any work starts, if a package of the export is not installed."""
    for name in ("torch", "onnx", "onnxscript", "onnxruntime"):
        try:
            missing = importlib.util.find_spec(name) is None
        except ValueError:  # the name is blocked in this process
            missing = True
        if missing:
            extras = "export,cpu" if name == "onnxruntime" else "export"
            raise MissingExtraError(f"An export needs {name}, which is not installed; install xbench-fast[{extras}].")


def versions() -> dict[str, str]:
    """Package -> version, of Python and of the installed packages that an export uses."""
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
    """The peak resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@contextmanager
def workspace(target: Path, size: int) -> Iterator[Path]:
    """A hidden folder beside the target for unfinished files, removed when the work is done, as is an unused `out`.

    `size` is about the bytes of the float32 graphs. Raises ExportError when the disk is full or writing fails.
    """
    made = [folder for folder in (target.parent, *target.parent.parents) if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        needed, free = _ROOM * size / 2**20, shutil.disk_usage(target.parent).free / 2**20
        if free < needed:
            raise ExportError(
                f"The export needs about {needed:.0f} MiB in {target.parent}, where {free:.0f} MiB are free; free some "
                "space or choose another --out."
            )
        with sibling(target) as folder:
            yield folder
    except OSError as error:
        raise ExportError(f"The bundle {target} cannot be written: {disk_reason(error)}.") from error
    finally:
        for empty in made:
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Stores the seconds of wall time that the block takes in `seconds`."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start
