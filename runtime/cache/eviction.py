"""The folder of prepared images as a whole: what it holds, and what goes when it is to become smaller.

Nothing here touches results, and nothing deletes a store that a process has open. A folder that is not exactly a store
is never touched either, so a wrong path costs nothing.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...engines.errors import RunError
from ..host.paths import has_folder
from ..images.dali import dali_reader
from ..images.decode import reader_version
from .layout import READY, RECORD, read_meaning
from .locks import GRAVE, STORE_FILES, in_use, remove_store

__all__ = ["StoreInfo", "clear", "list_stores", "make_room"]

_NAME = re.compile(r".+-[a-z_]+-(?P<side>[0-9]{1,6})-[0-9]{1,6}-[a-z]+-(?P<key>[0-9a-f]{16})")  # as `store_folder`


@dataclass(frozen=True)
class StoreInfo:
    """One store: `images` of its `cases` are prepared, `bytes` on the disk, `used`: when it was last opened (seconds
    since 1970). `in_use`: or of another user, so that this is not known. `outdated`: made by another version of the
    reader or of DALI than is installed, so nothing here will read it again."""

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
        found = sorted(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RunError(f"The cache {root} cannot be read: {error.strerror}.") from error
    for folder in found:
        with contextlib.suppress(OSError):
            if _is_store(folder):
                yield folder


def _is_store(folder: Path) -> bool:
    """Whether a folder has the name of a store, holds nothing but its files, and was certainly made as one.

    That is told by its index; where that is missing or damaged, by pixels and records of the sizes that belong to its
    name. Raises OSError where it cannot be looked at.
    """
    named = _NAME.fullmatch(folder.name)
    if named is None or not has_folder(folder):
        return False
    names = {item.name for item in folder.iterdir()}
    if not names & {"lock", "use"} or not names <= STORE_FILES:
        return False
    meaning = read_meaning(folder)
    if meaning is not None:
        return str(meaning.get("key")).startswith(named["key"])
    pixels, records = ((folder / name).stat().st_size for name in ("pixels.bin", "records.bin"))
    cases, rest = divmod(records, RECORD.itemsize)
    return rest == 0 and pixels == cases * int(named["side"]) ** 2


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
        images = int((np.fromfile(folder / "records.bin", RECORD)["state"] == READY).sum())
    return StoreInfo(
        path=folder,
        dataset=str(meaning.get("dataset", folder.name)),
        geometry=str(meaning.get("geometry", "unknown")),
        cases=cases if isinstance(cases, int) else 0,
        images=images,
        bytes=size,
        used=used,
        in_use=in_use(folder),
        outdated=meaning.get("reader") not in (reader_version(), dali_reader()),
    )


def _remove(store: StoreInfo) -> bool:
    try:
        return remove_store(store.path)
    except OSError as error:
        raise RunError(f"{store.path} cannot be deleted: {error.strerror}.") from error


def _finish_deleting(root: Path) -> None:
    """Deletes what a killed process left half deleted."""
    if not has_folder(root):
        return
    for grave in root.glob(f"{GRAVE}[0-9]*-*"):
        with contextlib.suppress(OSError):
            if {item.name for item in grave.iterdir()} <= STORE_FILES:
                shutil.rmtree(grave, ignore_errors=True)
