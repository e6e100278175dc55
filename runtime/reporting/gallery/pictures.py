"""The files of the radiographs that galleries and figures show, read in their native size."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError, ImageError, XBenchError
from ...datasets.registry import DATASETS
from ...host.config import DatasetConfig
from ...host.machine import usable_cores
from ...images.contents import ABSENT, content_hash
from ...images.decode import decode_ahead, decode_grey, read_bytes
from ...results.load import StoredRun
from ...results.loaded_dataset import LoadedDataset, load_dataset
from ...results.maps import image_hashes
from ...results.schema import WITHOUT_MODEL

__all__ = ["Originals", "Pixels", "current_dataset", "encoded", "open_originals"]

Pixels = NDArray[np.uint8]
_QUALITY, _LONGEST = 75, 2048


@dataclass(frozen=True)
class Originals:
    """The image files of some datasets, by their names, to be read in their native size."""

    loaded: dict[str, LoadedDataset] = field(default_factory=dict)

    def phrase(self, dataset: str, case_id: str, finding: str) -> str:
        """What a case is asked for a finding; empty if its dataset asks no phrases."""
        loaded = self.loaded.get(dataset)
        if loaded is None or not loaded.dataset.asks_phrases:
            return ""
        return next((case.phrases.get(finding, "") for case in loaded.all_cases if case.case_id == case_id), "")

    def pixels(self, dataset: str, case_id: str) -> Pixels | None:
        """uint8 [H, W], reduced to 2,048 pixels on its longer side if that is more; None if it cannot be read."""
        from PIL import Image

        loaded = self.loaded[dataset]
        try:
            path = next(case.image for case in loaded.all_cases if case.case_id == case_id)
            grey = decode_grey(read_bytes(path), str(path))
        except (StopIteration, ImageError):
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
            return key, None if grey is None else encoded(grey, _QUALITY)

        with closing(decode_ahead(read, wanted, workers, 2 * workers)) as found:
            yield from ((key, picture) for key, picture in found if picture is not None)


def open_originals(
    run: StoredRun, wanted: Mapping[str, Collection[str]], datasets: Mapping[str, DatasetConfig]
) -> tuple[Originals, list[str]]:
    """The files of those datasets that can be opened, and a sentence for each that cannot, or that changed.

    wanted: dataset -> its case ids. datasets: current folders of datasets, used instead of the run's configuration.
    """
    notes: list[str] = []
    originals = Originals()
    for dataset, ids in wanted.items():
        try:
            loaded = load_dataset(current_dataset(run, dataset, datasets))
            changed = _changed(run, loaded, ids)
        except XBenchError as error:
            notes.append(f"{dataset}: the images are not available. {error}")
            continue
        originals.loaded[dataset] = loaded
        if changed:
            notes.append(
                f"{dataset}: its files, or the code that reads them, changed after the evaluation; "
                "pictures are as they are now, regions and numbers as they were."
            )
    return originals, notes


def _changed(run: StoredRun, loaded: LoadedDataset, wanted: Collection[str]) -> bool:
    """Whether the images of the cases `wanted` are others than those that the results of this run were made from.

    Results tell by the hashes of their images. Where none has any, or the dataset asks phrases, which galleries show,
    they tell by their annotations and the code of the reader.
    """
    entries = [entry for entry in run.data["cells"].values() if entry["dataset"] == loaded.config.name]
    done = [entry for entry in entries if entry.get("state") == "done"]
    read = [image_hashes(run.path / entry["file"]) for entry in done if entry["weights"] not in WITHOUT_MODEL]
    stored = [hashes for hashes in read if any(hashes.values())]
    paths = {case.case_id: case.image for case in loaded.all_cases if case.case_id in wanted} if stored else {}
    with ThreadPoolExecutor(usable_cores()) as pool:
        now = dict(zip(paths, pool.map(_hash_now, paths.values()), strict=True))
    if any(hashes.get(case_id) not in (None, found) for hashes in stored for case_id, found in now.items()):
        return True
    if stored and not loaded.dataset.asks_phrases:
        return False
    from ...results.cell_key import reader_code

    for ingredients in (entry.get("ingredients", {}) for entry in done):
        if "dataset" in ingredients:
            digest = replace(loaded, limit=ingredients.get("limit")).digest
            if ([loaded.config.name, digest], reader_code(loaded.dataset)) != (
                ingredients["dataset"],
                ingredients.get("reader"),
            ):
                return True
    return False


def _hash_now(path: Path) -> bytes:
    try:
        return content_hash(read_bytes(path))
    except ImageError:
        return ABSENT


def current_dataset(run: StoredRun, name: str, datasets: Mapping[str, DatasetConfig]) -> DatasetConfig:
    """Where a dataset is now and how it is read: by `datasets`, else by the run's configuration.

    Of a dataset with nothing but a folder, as --data NAME=PATH gives it, reader and options are the run's. Raises
    DataError when the run does not name the dataset, or its reader is not one of the known names: a run directory may
    be untrusted, and code that it names is not run.
    """
    given = datasets.get(name)
    plain = given is not None and given.reader == name and not given.options
    entry = run.data["config"].get("datasets", {}).get(name)
    known = isinstance(entry, Mapping) and {"root", "reader"} <= set(entry)
    if given is not None and not (plain and known and entry["reader"] in DATASETS.names()):
        return given
    if not known:
        raise DataError(f"The run's configuration does not say where the dataset '{name}' is.")
    if entry["reader"] not in DATASETS.names():
        raise DataError(
            f"The reader '{entry['reader']}' of the dataset '{name}' is not one that is built in or installed."
        )
    stored = DatasetConfig(name, Path(entry["root"]), entry["reader"], None, dict(entry.get("options") or {}))
    return stored if given is None else replace(stored, root=given.root, attributes=given.attributes)


def encoded(pixels: Pixels, quality: int) -> bytes:
    """8-bit grey pixels as JPEG."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality, optimize=True)
    return stream.getvalue()
