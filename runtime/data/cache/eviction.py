"""Lists and deletes the stores of a cache folder, and keeps the folder below a size limit: prepared images, drawn
masks, and the text features of phrases, which are one database.

Results are never changed, and a store that a process has open is never deleted. A folder that does not have exactly
the form of a store is never deleted either, so a wrong path does no harm. Of a symbolic link to a store, the link alone
is deleted, when the cache is cleared; what it points to stays.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....engines.errors import RunError
from ....engines.prompts.phrase_features import PHRASE_FEATURES, forget_phrases, stored_phrases
from ...host.former_code import renewed
from ...host.paths import has_file, has_folder
from ..images.dali import dali_reader
from ..images.decode import reader_version
from .locks import GRAVE, STORE_FILES, in_use, remove_store
from .mask_store import MASK_ROW, mask_rules
from .store_files import READY, RECORD
from .store_layout import read_meaning

# As `store_folder` and `mask_folder` make them.
_NAME = re.compile(r".+-(?:[a-z_]+-(?P<side>[0-9]{1,6})-[0-9]{1,6}-[a-z]+|masks)-(?P<key>[0-9a-f]{16})")


@dataclass(frozen=True)
class StoreInfo:
    """One store: `images` of its `cases` are prepared; `bytes`: size on disk; `used`: when it was last opened (seconds
    since 1970). Of the database of phrases, both are the phrases, and it was last written then. `in_use`: also True for
    a store of another user, where this is unknown. `outdated`: made by another version of the reader or of DALI than
    the installed one, or damaged, so this installation does not read it. `link`: a symbolic link to a store, or to
    nothing."""

    path: Path
    dataset: str
    geometry: str
    cases: int
    images: int
    bytes: int
    used: float
    in_use: bool
    outdated: bool
    link: bool = False


def list_stores(root: Path) -> list[StoreInfo]:
    """All stores under `root`, by name. Raises RunError when the folder cannot be read."""
    return [*map(_describe, _folders(root)), *_phrases(root)]


def make_room(root: Path, limit: int, need: int = 0, keep: Collection[Path] = ()) -> tuple[list[StoreInfo], bool]:
    """Deletes stores until the others and `need` more bytes fit `limit`. Returns the deleted ones, and whether it fits.

    Outdated stores are deleted first, then the least recently opened ones. Stores in use and those in `keep` are not
    deleted; those in `keep` count as part of `need`. A link takes no room here, so it neither counts nor is deleted.
    Raises RunError when a store cannot be deleted.
    """
    _finish_deleting(root)
    stores = [store for store in list_stores(root) if store.path not in keep and not store.link]
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
    """Deletes all stores, or the outdated ones. Returns the deleted stores, and those kept because in use.

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
        entries = sorted(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RunError(f"The cache {root} cannot be read: {error.strerror}.") from error
    for folder in entries:
        with contextlib.suppress(OSError):
            if _is_store(folder) or (_leads_nowhere(folder) and _NAME.fullmatch(folder.name)):
                yield folder


def _leads_nowhere(path: Path) -> bool:
    """Whether it is a symbolic link whose target is gone."""
    return path.is_symlink() and not (has_file(path) or has_folder(path))


def _is_store(folder: Path) -> bool:
    """Whether a folder has the name of a store, holds only the files of a store, and was created as a store.

    The index shows this; if it is missing or damaged, the sizes of pixels and records must match the folder's name.
    Raises OSError when the folder cannot be read.
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
    if named["side"] is None:
        return rest == 0 and pixels % MASK_ROW == 0
    return rest == 0 and pixels == cases * int(named["side"]) ** 2


def _describe(folder: Path) -> StoreInfo:
    meaning = read_meaning(folder) or {}
    cases = meaning.get("cases")
    size, used, images = 0, 0.0, 0
    for name in STORE_FILES:
        with contextlib.suppress(OSError):
            status = (folder / name).stat()
            size += status.st_blocks * 512  # not st_size: the files are sparse
            if name in ("index.json", "use"):
                used = max(used, status.st_mtime)
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
        in_use=not _leads_nowhere(folder) and in_use(folder),
        outdated=renewed(str(meaning.get("reader"))) not in (reader_version(), dali_reader(), mask_rules()),
        link=folder.is_symlink(),
    )


def _phrases(root: Path) -> Iterator[StoreInfo]:
    path = root / PHRASE_FEATURES
    count = stored_phrases(path)
    if count or count is None or _leads_nowhere(path):
        status = path.lstat() if _leads_nowhere(path) else path.stat()
        size, held = status.st_blocks * 512, count or 0
        damaged, link = count is None, path.is_symlink()
        yield StoreInfo(path, "phrases", "text features", held, held, size, status.st_mtime, False, damaged, link)


def _remove(store: StoreInfo) -> bool:
    try:
        if store.link:
            if not store.in_use:
                store.path.unlink(missing_ok=True)
            return not store.in_use
        if store.path.name == PHRASE_FEATURES:
            return forget_phrases(store.path)
        return remove_store(store.path)
    except OSError as error:
        raise RunError(f"{store.path} cannot be deleted: {error.strerror}.") from error


def _finish_deleting(root: Path) -> None:
    """Deletes stores that a killed process deleted only in part. Of a link, the link alone."""
    if not has_folder(root):
        return
    for grave in root.glob(f"{GRAVE}[0-9]*-*"):
        with contextlib.suppress(OSError):
            if grave.is_symlink():
                if _NAME.fullmatch(grave.name.removeprefix(GRAVE).partition("-")[2]):
                    grave.unlink()
            elif {item.name for item in grave.iterdir()} <= STORE_FILES:
                shutil.rmtree(grave, ignore_errors=True)
