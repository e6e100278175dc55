"""The files of the radiographs of a dataset that its reader names, where hashes of images do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ....engines.errors import DataError, XBenchError
from ...datasets.registry import DATASETS
from ...host.config import DatasetConfig
from ...images.contents import hashes_now
from ...results.cell_key import reader_code
from ...results.load import StoredRun
from ...results.loaded_dataset import LoadedDataset, load_dataset

__all__ = ["current_dataset", "open_annotated"]

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
        ingredients = entry.get("ingredients", {})
        if (entry["dataset"], entry.get("state")) == (loaded.name, "done") and "dataset" in ingredients:
            digest = replace(loaded, limit=ingredients.get("limit")).digest
            made = ingredients["dataset"], ingredients.get("reader")
            if ([loaded.name, digest], reader_code(loaded.dataset)) != made:
                return True
    return False


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
