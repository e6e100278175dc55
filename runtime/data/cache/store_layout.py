"""The folder of a store of prepared images or masks, and its index: what the store holds, and whether it was closed.

A store is one directory per (dataset, geometry, decoder), or for the masks of a dataset (`masks`), with

    pixels.bin    uint8 [N, S, S], sparse: only prepared slots take space; of masks uint8 [P, 6280]
    records.bin   one 64-byte record per case: state, native size, checksum, and the state and hash of the image file
    reasons.jsonl why an image could not be read
    index.json    the meaning of pixels.bin and records.bin
    lock, use     which process may write, which processes have it open (`locks`)

After a power loss a record can be on disk without its pixels. A store that was not closed before a restart of the
machine is therefore emptied. The checksum of a record covers the record and its pixels, or its reason; an entry that
does not match it is never used.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....engines.errors import RunError
from ....engines.file_names import plain_stem
from ....engines.geometry import Geometry
from ....engines.strict_json import CHECKSUM, checksum_of
from ...host.former_code import renewed
from ...host.paths import has_folder
from ..datasets.dataset import Case
from ..images.decode import reader_version

FORMAT = 5


def store_folder(
    cache_root: Path, dataset_name: str, cases: Sequence[Case], geometry: Geometry, reader: str | None = None
) -> tuple[Path, dict[str, object]]:
    """The folder of the store of these cases, and the content of its index: key, dataset, geometry and reader.

    `reader` names the decoder of the images; default: the exact one on the CPU. Where an earlier version prepared the
    same images with equal pixels, its store is meant.
    """
    reader = reader or reader_version()
    stem = f"{plain_stem(dataset_name)}-{geometry.key}-"
    key = _key(cases, geometry, reader)
    folder = Path(cache_root) / (stem + key[:16])
    if not has_folder(folder):
        for other in sorted(folder.parent.glob(f"{glob.escape(stem)}*")):
            written = str((read_meaning(other) or {}).get("reader"))
            if written == reader or renewed(written) != reader:
                continue
            former = _key(cases, geometry, written)
            if other.name == stem + former[:16]:
                folder, key, reader = other, former, written
                break
    about: dict[str, object] = {"key": key, "dataset": dataset_name, "geometry": geometry.key, "reader": reader}
    return folder, about


def _key(cases: Sequence[Case], geometry: Geometry, reader: str) -> str:
    digest = hashlib.sha256()
    for part in (reader, geometry.key, *(f"{case.case_id}\0{case.image.absolute()}" for case in cases)):
        digest.update(part.encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()


def read_meaning(folder: Path) -> dict[str, object] | None:
    """The content of a store's index; None when it is missing or damaged."""
    meaning = (_index(folder) or {}).get("meaning")
    return meaning if isinstance(meaning, dict) else None


def _index(folder: Path) -> dict[str, object] | None:
    """What index.json says; None when it is missing or damaged. One of older versions has no checksum."""
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        intact = isinstance(index, dict) and index.get(CHECKSUM, checksum_of(index)) == checksum_of(index)
    except (OSError, ValueError, RecursionError):
        return None
    return index if intact else None


def boot_id() -> str:
    """Names the current start of the machine, so that a store left open before a power loss is recognised."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def last_opened(folder: Path, meaning: Mapping[str, object], sizes: Mapping[str, int]) -> str | None:
    """The machine's start at which the store was opened; "": it was closed; None: it is damaged or is another store."""
    index = _index(folder) or {}
    try:
        # The key covers all that the content depends on, so another dataset with this folder has the same images.
        stored = index["meaning"]
        same = isinstance(stored, dict) and {**stored, "dataset": meaning.get("dataset")} == meaning
        if not same or any((folder / name).stat().st_size != sizes[name] for name in sizes):
            return None
        return "" if index["open_since_boot"] is None else str(index["open_since_boot"])
    except (OSError, KeyError):
        return None


def begin_files(folder: Path, sizes: Mapping[str, int]) -> None:
    """Makes empty files of these sizes in place of the files of a store. Raises OSError."""
    for name in ("index.json", "reasons.jsonl", *sizes):
        (folder / name).unlink(missing_ok=True)
    for name, size in sizes.items():
        with (folder / name).open("wb") as stream:
            stream.truncate(size)


def write_index(folder: Path, meaning: Mapping[str, object], boot: str | None) -> None:
    """Writes the index of a store; boot: as `last_opened` returns it, None: it is closed. Raises OSError."""
    temporary = folder / "index.json.new"
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            index = {"meaning": meaning, "open_since_boot": boot}
            json.dump({**index, CHECKSUM: checksum_of(index)}, stream)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(folder / "index.json")


def disk_error(folder: Path, error: OSError) -> RunError:
    """The error for a failure of the disk that holds `folder`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"The disk is full: {folder} cannot take more prepared images; free space or choose another cache."
        )
    return RunError(f"Prepared images cannot be kept in {folder}: {error.strerror or error}; choose another cache.")
