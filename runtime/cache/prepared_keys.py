"""What a store of prepared images is called, how large it gets, and what goes wrong with its files."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Sequence
from pathlib import Path

from ...engines.errors import ImageAccessError, RunError
from ...engines.geometry import Geometry
from ..datasets.base import Case
from ..images.decode import reader_version
from .prepared_files import RECORD

__all__ = ["Identity", "disk_error", "file_identity", "store_bytes", "store_folder"]

Identity = tuple[int, int]


def store_folder(
    cache_root: Path, dataset_name: str, cases: Sequence[Case], geometry: Geometry, reader: str | None = None
) -> tuple[Path, dict[str, object]]:
    """Where the store of these cases is, and what its index says: its key, dataset, geometry and reader.

    `reader` names what decodes the images, by default the exact one on the CPU.
    """
    reader = reader or reader_version()
    digest = hashlib.sha256()
    for part in (reader, geometry.key, *(f"{case.case_id}\0{case.image.absolute()}" for case in cases)):
        digest.update(part.encode(errors="surrogatepass") + b"\n")
    key = digest.hexdigest()
    about: dict[str, object] = {"key": key, "dataset": dataset_name, "geometry": geometry.key, "reader": reader}
    return Path(cache_root) / f"{_safe(dataset_name)}-{geometry.key}-{key[:16]}", about


def store_bytes(count: int, geometry: Geometry) -> int:
    """What a store of `count` images takes when all of them are prepared."""
    return count * (geometry.size**2 + RECORD.itemsize)


def file_identity(path: Path) -> Identity:
    """Size in bytes and modification time in nanoseconds. Raises FileNotFoundError, ImageAccessError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ImageAccessError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    return found.st_size, found.st_mtime_ns


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".") or "dataset"


def disk_error(folder: Path, error: OSError) -> RunError:
    """The sentence for a failure of the disk that holds `folder`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"The disk is full: {folder} cannot take more prepared images; free space or choose another cache."
        )
    return RunError(f"Prepared images cannot be kept in {folder}: {error.strerror or error}; choose another cache.")
