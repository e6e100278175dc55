"""Small pictures of radiographs, for those whose native ones are not shown: from prepared images, or from the files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....engines.errors import BundleError, ImageError, XBenchError
from ....engines.geometry import Geometry
from ...cache.layout import read_meaning, store_folder
from ...cache.store import PreparedStore
from ...datasets.pixels import direct_source
from ...host.machine import usable_cores
from ...results.load import StoredRun
from ...results.loaded_dataset import LoadedDataset
from ...results.schema import GRID
from .pictures import Originals, Pixels, encoded

if TYPE_CHECKING:
    from ...datasets.base import Case

__all__ = ["small_pictures"]

_WHOLE_FRAME = Geometry("squash", GRID, GRID, "bicubic")
_QUALITY = 80  # about 8 kB for a radiograph


def small_pictures(
    run: StoredRun, originals: Originals, wanted: Mapping[str, Collection[str]]
) -> tuple[dict[tuple[str, str], bytes], list[str]]:
    """(dataset, case_id) -> picture of the cases `wanted`, dataset -> its case ids, and a sentence for each dataset
    that lacks some."""
    config = run.data["config"]
    cache = Path(config["cache"]) if config.get("cache") else None
    pictures: dict[tuple[str, str], bytes] = {}
    notes = []
    for dataset, loaded in originals.loaded.items():
        ids = wanted[dataset]
        found = _read(loaded, ids, cache)
        pictures |= {(dataset, case_id): picture for case_id, picture in found.items()}
        if len(found) < len(ids):
            notes.append(f"{dataset}: {len(ids) - len(found)} of {len(ids)} pictures can no longer be read.")
    return pictures, notes


def _read(loaded: LoadedDataset, wanted: Collection[str], cache: Path | None) -> dict[str, bytes]:
    """Case id -> JPEG, 8-bit grey, 224 x 224, the native frame squashed. A picture that cannot be read is left out."""
    cases = [case for case in loaded.cases if case.case_id in wanted]
    decode = direct_source(_WHOLE_FRAME, loaded.contents)
    try:
        store = _open_store(loaded, cache)
    except XBenchError:
        store = None
    with store or nullcontext(), ThreadPoolExecutor(usable_cores()) as pool:

        def read(case: Case) -> tuple[str, bytes | None]:
            pixels = None if store is None else store.get(store.index(case))
            try:
                return case.case_id, _jpeg(decode(case)[0] if pixels is None else pixels)
            except (FileNotFoundError, ImageError):
                return case.case_id, None

        found = dict(pool.map(read, cases))
    return {case_id: picture for case_id, picture in found.items() if picture is not None}


def _open_store(loaded: LoadedDataset, cache: Path | None) -> PreparedStore | None:
    """The dataset's prepared images that show the whole frame; None if there are none."""
    if cache is None or not cache.is_dir():
        return None
    cases = loaded.dataset.cases()
    for folder in sorted(cache.glob("*-squash-*")):
        meaning = read_meaning(folder) or {}
        geometry = _whole_frame(str(meaning.get("geometry")))
        if geometry is None or meaning.get("dataset") != loaded.name:
            continue
        # The name of the folder holds a hash of the cases: another version of the dataset has another one.
        reader = str(meaning.get("reader"))
        if store_folder(cache, loaded.name, cases, geometry, reader)[0] == folder:
            store = PreparedStore.open(cache, loaded.name, cases, geometry, reader=reader)
            store.contents = loaded.contents
            return store
    return None


def _whole_frame(key: str) -> Geometry | None:
    """The geometry of this key, if it shows the whole radiograph unchanged and is at least as fine as the grid."""
    try:
        geometry = Geometry.from_key(key)
    except BundleError:
        return None
    suits = geometry.mode == "squash" and geometry.size >= GRID and geometry.intensity == "unchanged"
    return geometry if suits else None


def _jpeg(pixels: Pixels) -> bytes:
    from PIL import Image

    image = Image.fromarray(pixels)
    if image.size != (GRID, GRID):
        image = image.resize((GRID, GRID), Image.Resampling.BICUBIC)
    return encoded(np.asarray(image), _QUALITY)
