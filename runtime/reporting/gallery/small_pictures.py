"""Small pictures of radiographs, for those whose native ones are not shown: from prepared images, or from the files."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np

from ....engines.errors import BundleError, ImageError, XBenchError
from ....engines.file_names import plain_stem
from ....engines.geometry import Geometry
from ...data.cache.image_store import PreparedStore
from ...data.cache.store_layout import read_meaning, store_folder
from ...data.datasets.dataset import Case
from ...data.datasets.pixels import direct_source
from ...host.config import DatasetConfig
from ...host.machine_record import usable_cores
from ...results.load_rows import StoredRun
from ...results.loaded_dataset import LoadedDataset, current_dataset, load_dataset
from ...results.schema import GRID
from .pictures import Originals, Pixels, encoded

_WHOLE_FRAME = Geometry("squash", GRID, GRID, "bicubic")
_QUALITY = 80  # about 8 kB for a radiograph


def small_pictures(
    run: StoredRun, originals: Originals, datasets: Mapping[str, DatasetConfig]
) -> tuple[dict[tuple[str, str], bytes], list[str]]:
    """(dataset, case_id) -> picture of the cases of `originals`, and a sentence for each dataset that lacks some.

    datasets: current folders of datasets, used instead of the run's configuration.
    """
    config = run.data["config"]
    cache = Path(config["cache"]) if config.get("cache") else None
    pictures: dict[tuple[str, str], bytes] = {}
    notes = []
    for dataset in dict.fromkeys(dataset for dataset, _ in originals.files):
        files = {case_id: path for (name, case_id), path in originals.files.items() if name == dataset}
        store = None
        with suppress(XBenchError):
            if cache is not None and cache.is_dir():
                loaded = originals.loaded.get(dataset) or load_dataset(current_dataset(run, dataset, datasets))
                store = _open_store(loaded, cache)
        pictures_of = _read(files, store)
        pictures |= {(dataset, case_id): picture for case_id, picture in pictures_of.items()}
        if len(pictures_of) < len(files):
            notes.append(f"{dataset}: {len(files) - len(pictures_of)} of {len(files)} pictures can no longer be read.")
    return pictures, notes


def _read(files: Mapping[str, Path], store: PreparedStore | None) -> dict[str, bytes]:
    """Case id -> JPEG, 8-bit grey, 224 x 224, the native frame squashed. A picture that cannot be read is left out."""
    decode = direct_source(_WHOLE_FRAME)
    with store or nullcontext(), ThreadPoolExecutor(usable_cores()) as pool:

        def read(case: Case) -> tuple[str, bytes | None]:
            pixels = None if store is None else store.get(store.index(case))
            try:
                return case.case_id, _jpeg(decode(case)[0] if pixels is None else pixels)
            except (FileNotFoundError, ImageError):
                return case.case_id, None

        pictures = dict(pool.map(read, (Case(case_id, path, {}, {}, "") for case_id, path in files.items())))
    return {case_id: picture for case_id, picture in pictures.items() if picture is not None}


def _open_store(loaded: LoadedDataset, cache: Path) -> PreparedStore | None:
    """The dataset's prepared images that show the whole frame; None if there are none."""
    cases = loaded.dataset.cases()
    for folder in sorted(cache.glob(f"{plain_stem(loaded.name)}-squash-*")):
        meaning = read_meaning(folder) or {}
        geometry = _whole_frame(str(meaning.get("geometry")))
        if geometry is None:
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
