"""The folder of prepared images as a whole: what it holds, and what goes when it is to become smaller.

Nothing here touches results, and nothing deletes a store that a process has open. A folder that is not exactly a store
is never touched either, so a wrong path costs nothing.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..engines.errors import RunError
from .images.decode import reader_version
from .prepared_files import RECORD, read_meaning
from .prepared_locks import GRAVE, STORE_FILES, in_use, remove_store

__all__ = ["StoreInfo", "clear", "list_stores", "make_room"]


@dataclass(frozen=True)
class StoreInfo:
    """One store: `images` of its `cases` are prepared, `bytes` on the disk, `used`: when it was last opened (seconds
    since 1970). `outdated`: made by another version of the reader, so nobody will read it again."""

    path: Path
    dataset: str
    geometry: str
    cases: int
    images: int
    bytes: int
    used: float
    in_use: bool
    outdated: bool


def list_stores(root: Path) -> list[StoreInfo]:
    """All stores under `root`, by name. Raises RunError when the folder cannot be read."""
    return [_describe(folder) for folder in _folders(root)]


def make_room(root: Path, limit: int, need: int = 0, keep: Collection[Path] = ()) -> tuple[list[StoreInfo], bool]:
    """Deletes stores until those that stay, and `need` more bytes, fit `limit`: what went, and whether they fit.

    Outdated stores go first, then those that were not opened for the longest time; stores in use and those in `keep`
    stay, the latter count as part of `need`. Raises RunError when a store cannot be deleted.
    """
    _finish_deleting(root)
    stores = [store for store in list_stores(root) if store.path not in keep]
    total = need + sum(store.bytes for store in stores)
    removed: list[StoreInfo] = []
    for store in sorted(stores, key=lambda store: (not store.outdated, store.used)):
        if total <= limit:
            break
        if _remove(store):
            removed.append(store)
            total -= store.bytes
    return removed, total <= limit


def clear(root: Path, *, outdated_only: bool = False) -> tuple[list[StoreInfo], list[StoreInfo]]:
    """Deletes all stores, or the outdated ones: those that went, and those that stayed because they are in use.

    Raises RunError when a store cannot be deleted.
    """
    _finish_deleting(root)
    removed: list[StoreInfo] = []
    stayed: list[StoreInfo] = []
    for store in list_stores(root):
        if store.outdated or not outdated_only:
            (removed if _remove(store) else stayed).append(store)
    return removed, stayed


def _folders(root: Path) -> Iterator[Path]:
    try:
        found = sorted(root.iterdir()) if root.is_dir() else []
    except OSError as error:
        raise RunError(f"The cache {root} cannot be read: {error.strerror}.") from error
    for folder in found:
        with contextlib.suppress(OSError):
            names = {item.name for item in folder.iterdir()} if folder.is_dir() else set()
            if not folder.name.startswith(GRAVE) and names & {"lock", "use"} and names <= STORE_FILES:
                yield folder


def _describe(folder: Path) -> StoreInfo:
    meaning = read_meaning(folder) or {}
    cases = meaning.get("cases")
    size, used, images = 0, 0.0, 0
    for name in STORE_FILES:
        with contextlib.suppress(OSError):
            found = (folder / name).stat()
            size += found.st_blocks * 512  # not st_size: the files are sparse
            if name in ("index.json", "use"):
                used = max(used, found.st_mtime)
    with contextlib.suppress(OSError, ValueError):
        images = int((np.fromfile(folder / "records.bin", RECORD)["state"] == 1).sum())
    return StoreInfo(
        path=folder,
        dataset=str(meaning.get("dataset", folder.name)),
        geometry=str(meaning.get("geometry", "unknown")),
        cases=cases if isinstance(cases, int) else 0,
        images=images,
        bytes=size,
        used=used,
        in_use=in_use(folder),
        outdated=reader_version() not in str(meaning.get("reader", "")),
    )


def _remove(store: StoreInfo) -> bool:
    try:
        return remove_store(store.path)
    except OSError as error:
        raise RunError(f"{store.path} cannot be deleted: {error.strerror}.") from error


def _finish_deleting(root: Path) -> None:
    """Deletes what a killed process left half deleted."""
    if root.is_dir():
        for grave in root.glob(f"{GRAVE}*"):
            shutil.rmtree(grave, ignore_errors=True)
