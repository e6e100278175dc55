"""Where an export keeps unfinished files, and how long its steps take."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..engines.errors import ExportError
from .machine import disk_reason

__all__ = ["store", "timed", "workspace"]

_ROOM = 2.2  # the graphs are written once (lowered ones beside them) and once copied into the bundle


@contextmanager
def workspace(target: Path, size: int) -> Iterator[Path]:
    """A hidden folder beside the target for unfinished files, removed when the work is over, as is an unused `out`.

    `size` is about the bytes of the float32 graphs. Raises ExportError when the disk has no room or refuses.
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
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", suffix=".part", dir=target.parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise ExportError(f"The bundle {target} cannot be written: {disk_reason(error)}.") from error
    finally:
        for empty in made:
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Puts the seconds of wall time that the block takes into `seconds`."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def store(contents: Mapping[str, bytes], folder: Path) -> dict[str, Path]:
    """Writes `contents` (path in the bundle -> bytes) into `folder`; returns where each stands."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}
