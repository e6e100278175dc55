"""Radiographs of galleries and figures: small ones from the prepared images or the files, native ones from files."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import BundleError, DataError, ImageError, XBenchError
from ....engines.geometry import Geometry
from ...cache.layout import read_meaning, store_folder
from ...cache.store import PreparedStore
from ...datasets.registry import DATASETS
from ...host.config import DatasetConfig
from ...host.machine import usable_cores
from ...images.decode import decode_ahead, decode_grey
from ...results.cell_key import reader_code
from ...results.load import StoredRun
from ...results.loaded_dataset import LoadedDataset, load_dataset
from ...results.read_images import other_image, rests_on_images
from ...results.schema import GRID

if TYPE_CHECKING:
    from ...datasets.base import Case

__all__ = ["Originals", "collect_pictures", "read_pictures", "stored_dataset"]

Pixels = NDArray[np.uint8]
_WHOLE_FRAME = Geometry("squash", GRID, GRID, "bicubic")
_QUALITY = 80  # about 8 kB for a radiograph
_NATIVE_QUALITY, _LONGEST = 75, 2048


@dataclass(frozen=True)
class Originals:
    """The image files of some datasets, by their names, to be read in their native size."""

    loaded: dict[str, LoadedDataset] = field(default_factory=dict)

    def pixels(self, dataset: str, case_id: str) -> Pixels | None:
        """uint8 [H, W], reduced to 2,048 pixels on its longer side if that is more; None if it cannot be read."""
        from PIL import Image

        loaded = self.loaded[dataset]
        try:
            path = next(case.image for case in loaded.cases if case.case_id == case_id)
            grey = decode_grey(loaded.contents.read(path), str(path))
        except (StopIteration, FileNotFoundError, ImageError):
            return None
        share = _LONGEST / max(grey.shape)
        if share >= 1:
            return grey
        size = tuple(max(1, round(share * side)) for side in reversed(grey.shape))
        return np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.LANCZOS))

    def pictures(self, wanted: Sequence[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], bytes]]:
        """(dataset, case_id) and JPEG of those of `wanted` that can be read."""
        workers = usable_cores()

        def read(key: tuple[str, str]) -> tuple[tuple[str, str], bytes | None]:
            grey = self.pixels(*key)
            return key, None if grey is None else _encoded(grey, _NATIVE_QUALITY)

        with closing(decode_ahead(read, wanted, workers, 2 * workers)) as found:
            yield from ((key, picture) for key, picture in found if picture is not None)


def collect_pictures(
    run: StoredRun, wanted: Mapping[str, Collection[str]], datasets: Mapping[str, DatasetConfig]
) -> tuple[dict[tuple[str, str], bytes], list[str], Originals]:
    """`read_pictures` for several datasets: (dataset, case_id) -> picture, a sentence for each that lacks some, and
    the files of those that could be opened.

    wanted: dataset -> its case ids. datasets: current folders of datasets, used instead of the run's configuration.
    """
    config = run.data["config"]
    cache = Path(config["cache"]) if config.get("cache") else None
    pictures: dict[tuple[str, str], bytes] = {}
    notes: list[str] = []
    originals = Originals()
    for dataset, ids in wanted.items():
        try:
            loaded = load_dataset(datasets.get(dataset) or stored_dataset(config, dataset))
            found = read_pictures(loaded, ids, cache)
        except XBenchError as error:
            notes.append(f"{dataset}: the images are not available. {error}")
            continue
        originals.loaded[dataset] = loaded
        pictures |= {(dataset, case_id): picture for case_id, picture in found.items()}
        if len(found) < len(ids):
            notes.append(f"{dataset}: {len(ids) - len(found)} of {len(ids)} pictures can no longer be read.")
        if _changed(run, loaded, ids):
            notes.append(
                f"{dataset}: its files, or the code that reads them, changed after the evaluation; "
                "pictures are as they are now, regions and numbers as they were."
            )
    return pictures, notes, originals


def _changed(run: StoredRun, loaded: LoadedDataset, wanted: Collection[str]) -> bool:
    """Whether annotations, reader or the images of the cases `wanted` are others than those of a result of this run."""
    cases = [case for case in loaded.all_cases if case.case_id in wanted]
    for entry in run.data["cells"].values():
        ingredients = entry.get("ingredients", {})
        if entry["dataset"] == loaded.name and entry.get("state") == "done" and "dataset" in ingredients:
            same_cases = replace(loaded, limit=ingredients.get("limit"))
            now = ([loaded.name, same_cases.digest], reader_code(loaded.dataset))
            if now != (ingredients["dataset"], ingredients.get("reader")):
                return True
            if rests_on_images(entry) and other_image(run.path / entry["file"], cases, loaded.contents):
                return True
    return False


def stored_dataset(config: Mapping[str, Any], name: str) -> DatasetConfig:
    """The folder and reader of a dataset, from the run's configuration `config` (in run.json).

    Raises DataError when it is not named there, or its reader is not one of the known names: a run directory may be
    untrusted, and code that it names is not run.
    """
    entry = config.get("datasets", {}).get(name)
    if not isinstance(entry, Mapping) or not {"root", "reader"} <= set(entry):
        raise DataError(f"The run's configuration does not say where the dataset '{name}' is.")
    if entry["reader"] not in DATASETS.names():
        raise DataError(
            f"The reader '{entry['reader']}' of the dataset '{name}' is not one that is built in or installed."
        )
    return DatasetConfig(name, Path(entry["root"]), entry["reader"], None, dict(entry.get("options") or {}))


def read_pictures(loaded: LoadedDataset, wanted: Collection[str], cache: Path | None) -> dict[str, bytes]:
    """Case id -> JPEG, 8-bit grey, 224 x 224, the native frame squashed. A picture that cannot be read is left out."""
    cases = [case for case in loaded.cases if case.case_id in wanted]
    try:
        store = _open_store(loaded, cache)
    except XBenchError:
        store = None
    with store or nullcontext(), ThreadPoolExecutor(usable_cores()) as pool:

        def read(case: Case) -> tuple[str, bytes | None]:
            pixels = None if store is None else store.get(store.index(case))
            try:
                return case.case_id, _jpeg(_decoded(loaded, case) if pixels is None else pixels)
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


def _decoded(loaded: LoadedDataset, case: Case) -> Pixels:
    from ...datasets.pixels import direct_source

    return direct_source(_WHOLE_FRAME, loaded.contents)(case)[0]


def _jpeg(pixels: Pixels) -> bytes:
    from PIL import Image

    image = Image.fromarray(pixels)
    if image.size != (GRID, GRID):
        image = image.resize((GRID, GRID), Image.Resampling.BICUBIC)
    return _encoded(np.asarray(image), _QUALITY)


def _encoded(pixels: Pixels, quality: int) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality, optimize=True)
    return stream.getvalue()
