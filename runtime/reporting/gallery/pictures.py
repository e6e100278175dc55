"""The files of the radiographs that galleries and figures show, read in their native size."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageError, XBenchError
from ...data.images.contents import hashes_now
from ...data.images.decode import decode_ahead, decode_grey, read_bytes
from ...host.machine_record import usable_cores
from ...results.load_rows import StoredRun
from ...results.schema import WITHOUT_MODEL
from ...results.stored_maps import image_hashes, indexed_images

if TYPE_CHECKING:
    from ...host.config import DatasetConfig
    from ...results.loaded_dataset import LoadedDataset

Pixels = NDArray[np.uint8]
Hashes = Mapping[str, bytes | None]
_QUALITY, _LONGEST = 75, 2048


@dataclass(frozen=True)
class Originals:
    """The image files of cases, by (dataset, case_id), to be read in their native size; `loaded`: the datasets whose
    annotations were read to find them."""

    files: dict[tuple[str, str], Path] = field(default_factory=dict)
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

        path = self.files[dataset, case_id]
        try:
            grey = decode_grey(read_bytes(path), str(path))
        except ImageError:
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
    """The image files of cases, and a sentence for each dataset that cannot be opened, or that changed.

    wanted: dataset -> its case ids. datasets: current folders of datasets, used instead of the run's configuration.
    Annotations are read only where a file is not the one of the evaluation any more, and for phrases.
    """
    originals, notes = Originals(), list[str]()
    for dataset, ids in wanted.items():
        entries = [entry for entry in run.data["cells"].values() if entry["dataset"] == dataset]
        done = [entry for entry in entries if entry.get("state") == "done"]
        read = [image_hashes(run.path / entry["file"]) for entry in done if entry["weights"] not in WITHOUT_MODEL]
        stored = [hashes for hashes in read if any(hashes.values())]
        given, configured = datasets.get(dataset), run.data["config"].get("datasets", {}).get(dataset, {})
        root = configured.get("root") if given is None else given.root
        files = {}
        if root and not any("phrases" in entry.get("ingredients", {}) for entry in done):
            stored_files = {content: Path(root, path) for content, path in indexed_images(run.path, dataset).items()}
            files = _unchanged(stored_files, stored, ids)
        if len(files) < len(ids):
            loaded, files, remarks = _annotated(run, (dataset, ids), stored, datasets)
            notes += remarks
            originals.loaded.update({dataset: loaded} if loaded else {})
        originals.files.update(((dataset, case_id), path) for case_id, path in files.items())
    return originals, notes


def _unchanged(known: Mapping[bytes, Path], stored: Sequence[Hashes], wanted: Collection[str]) -> dict[str, Path]:
    """The files of those cases whose images are, by their hashes, still what all models read.

    known: hash -> file. stored: of each model, case id -> hash.
    """
    read = {case_id: {hashes.get(case_id) for hashes in stored} - {None} for case_id in wanted}
    one = {case_id: content for case_id, hashes in read.items() if len(hashes) == 1 for content in hashes if content}
    files = {case_id: known[content] for case_id, content in one.items() if content in known}
    now = hashes_now(files)
    return {case_id: path for case_id, path in files.items() if one[case_id] == now[case_id]}


def _annotated(
    run: StoredRun,
    wanted: tuple[str, Collection[str]],
    stored: Sequence[Hashes],
    datasets: Mapping[str, DatasetConfig],
) -> tuple[LoadedDataset | None, dict[str, Path], list[str]]:
    """A dataset, the files of its cases as its reader names them, and what users must know of them; without the dataset
    if it cannot be opened.

    wanted: its name and case ids. stored: of each model, case id -> hash.
    """
    from ...results.loaded_dataset import current_dataset, load_dataset

    dataset, ids = wanted
    try:
        loaded = load_dataset(current_dataset(run, dataset, datasets))
        files = {case.case_id: case.image for case in loaded.all_cases if case.case_id in ids}
        changed = _changed(run, loaded, stored, files)
    except XBenchError as error:
        return None, {}, [f"{dataset}: the images are not available. {error}"]
    note = (
        f"{dataset}: its files, or the code that reads them, changed after the evaluation; "
        "pictures are as they are now, regions and numbers as they were."
    )
    return loaded, files, [note] * changed


def _changed(run: StoredRun, loaded: LoadedDataset, stored: Sequence[Hashes], files: Mapping[str, Path]) -> bool:
    """Whether images differ from those that the results of this run were made from.

    Results tell by the hashes of their images. Where none has any, or the dataset asks phrases, which galleries show,
    they tell by their annotations and the code of the reader.
    """
    from ...results.cell_key import reader_code, renewed_ingredients

    now = hashes_now(files) if stored else {}
    if any(hashes.get(case_id) not in (None, content) for hashes in stored for case_id, content in now.items()):
        return True
    if stored and not loaded.dataset.asks_phrases:
        return False
    for entry in run.data["cells"].values():
        ingredients = renewed_ingredients(entry.get("ingredients", {}))
        if (entry["dataset"], entry.get("state")) == (loaded.name, "done") and "dataset" in ingredients:
            digest = replace(loaded, limit=ingredients.get("limit")).digest
            made = ingredients["dataset"], ingredients.get("reader")
            if ([loaded.name, digest], reader_code(loaded.dataset)) != made:
                return True
    return False


def encoded(pixels: Pixels, quality: int) -> bytes:
    """8-bit grey pixels as JPEG."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality, optimize=True)
    return stream.getvalue()
