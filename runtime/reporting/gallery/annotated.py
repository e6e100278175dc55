"""The files of the radiographs of a dataset that its reader names, where hashes of images do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ....engines.errors import XBenchError
from ...data.images.contents import hashes_now
from ...host.config import DatasetConfig
from ...results.cell_key import reader_code, renewed_ingredients
from ...results.load_rows import StoredRun
from ...results.loaded_dataset import LoadedDataset, current_dataset, load_dataset

Hashes = Mapping[str, bytes | None]


def open_annotated(
    run: StoredRun,
    wanted: tuple[str, Collection[str]],
    stored: Sequence[Hashes],
    datasets: Mapping[str, DatasetConfig],
) -> tuple[LoadedDataset | None, dict[str, Path], list[str]]:
    """A dataset, the files of its cases, and what a reader must know of them; without the dataset if it cannot be
    opened.

    wanted: its name and case ids. stored: of each model, case id -> hash. datasets: as of `pictures.open_originals`.
    """
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
    """Whether images are others than those that the results of this run were made from.

    Results tell by the hashes of their images. Where none has any, or the dataset asks phrases, which galleries show,
    they tell by their annotations and the code of the reader.
    """
    now = hashes_now(files) if stored else {}
    if any(hashes.get(case_id) not in (None, found) for hashes in stored for case_id, found in now.items()):
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
