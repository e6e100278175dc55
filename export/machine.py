"""What an export takes of the machine: threads, memory, time, and disk space for unfinished files."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..engines.errors import ExportError, disk_reason
from ..engines.replacing import sibling

_ROOM = 2.2  # the graphs are written once (lowered ones next to them) and once copied into the bundle


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
    """A hidden folder next to the target for unfinished files, removed when the work is done, as is an unused `out`.

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
