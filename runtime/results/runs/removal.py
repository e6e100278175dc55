"""Removes cells from a run directory: their entries in run.json, and what they have on disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....engines.errors import RunError
from ....engines.file_names import joined, plain_stem, unique_stem
from ....engines.registry import did_you_mean
from ..run_directory import RunDirectory
from ..run_json import read_run
from ..stored_maps import index_file

Entry = Mapping[str, Any]


def find_cells(run: Path, models: Collection[str], datasets: Collection[str] = ()) -> list[Entry]:
    """The entries in run.json of the cells of these models, on these datasets or, without any, on all.

    Raises RunError for a model or dataset without a cell among them, and for a folder that is no run directory.
    """
    entries = list(read_run(run)["cells"].values())
    of_models = [entry for entry in entries if entry["model"] in models]
    for model in models:
        if not any(entry["model"] == model for entry in of_models):
            others = list(dict.fromkeys(entry["model"] for entry in entries))
            hint = f": {did_you_mean(model, others)}" if others else " and no other cell"
            raise RunError(f"{run} has no cell of the model '{model}'{hint}.")
    for dataset in datasets:
        their_datasets = list(dict.fromkeys(entry["dataset"] for entry in of_models))
        if dataset not in their_datasets:
            raise RunError(
                f"{run} has no cell of {' or '.join(models)} on '{dataset}': {did_you_mean(dataset, their_datasets)}."
            )
    return [entry for entry in of_models if not datasets or entry["dataset"] in datasets]


def remove_cells(run: Path, models: Collection[str], datasets: Collection[str] = ()) -> list[Entry]:
    """Removes the cells of `find_cells` and returns their entries. Raises RunError as it, when another process writes
    to the run, and when a file cannot be removed.

    run.json is written first, whole or not at all: a result without an entry is in no report, while an entry without
    its result would be a fault.
    """
    find_cells(run, models, datasets)  # before the lock, which would make a run directory of another folder
    with RunDirectory(run) as folder:
        gone = find_cells(run, models, datasets)
        kept = folder.forget([(entry["model"], entry["dataset"]) for entry in gone])
        for entry in gone:
            for path in stored_rows(run, entry):
                _delete(path)
            _delete(run / "errors" / f"{unique_stem(joined(entry['model'], entry['dataset']))}.txt")
        for name in {entry["dataset"] for entry in gone} - {entry["dataset"] for entry in kept}:
            _delete(index_file(run, name))
    return gone


def stored_rows(run: Path, entry: Entry) -> list[Path]:
    """The result of a cell and its parts, and those of other keys, as of another protocol."""
    model, dataset = entry["model"], entry["dataset"]
    named = re.compile(rf"{re.escape(plain_stem(model, dataset))}-(?P<key>.{{16}})\.(?:parquet|parts)")
    found = [
        (path, match["key"]) for path in sorted((run / "cells").glob("*")) if (match := named.fullmatch(path.name))
    ]
    # Names that look alike share the readable part of a file's name.
    return [path for path, key in found if key == str(entry.get("key"))[:16] or _cell_of(path) == (model, dataset)]


def _cell_of(path: Path) -> tuple[str, str] | None:
    """Model and dataset of the rows of a result or of its first part; None where none can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = next(iter(sorted(path.glob("*.parquet"))), None) if path.is_dir() else path
    with suppress(OSError, pa.ArrowException, IndexError, KeyError):
        if file is not None:
            rows = pq.ParquetFile(file).read_row_group(0, columns=["model", "dataset"])
            return rows["model"][0].as_py(), rows["dataset"][0].as_py()
    return None


def _delete(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{path} cannot be removed: {error.strerror}; run.json does not name it: delete it.") from error
