"""Where the attributes of each dataset of a run are from: a table that was given, or the dataset itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from .....engines.errors import ConfigError, XBenchError
from .....engines.registry import did_you_mean
from ....data.datasets.attributes.lookup import CaseAttributes, look_up
from ....data.datasets.dataset import Dataset
from ....host.config import DatasetConfig
from ....host.paths import has_file
from ....results.loaded_dataset import current_dataset, load_dataset
from ..material import Material


def given_tables(given: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """Dataset -> its table, of --attributes [NAME=]FILE. `names`: the datasets of the run. Raises ConfigError."""
    tables: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or (name not in names and has_file(Path(text))):
            if len(names) != 1:
                raise ConfigError(
                    f"--attributes {text}: there are results of {', '.join(names)}; write --attributes NAME=FILE."
                )
            name, path = names[0], text
        if name not in names:
            raise ConfigError(f"--attributes {text}: there are no results of '{name}': {did_you_mean(name, names)}.")
        if name in tables:
            raise ConfigError(f"--attributes gives the dataset '{name}' two tables; give it one.")
        tables[name] = Path(path).expanduser()
        if not has_file(tables[name]):
            raise ConfigError(f"The table {path} of --attributes does not exist or is no file; correct its name.")
    return tables


def case_ids(material: Material, dataset: str) -> tuple[str, ...]:
    """The cases of all results of a dataset."""
    cells = [cell for cell in material.cells if cell.dataset == dataset]
    return tuple(dict.fromkeys(case_id for cell in cells for case_id in cell.rows.case_ids))


def attributes_digest(material: Material, dataset: str, attributes: CaseAttributes) -> str:
    """A hash of the attributes of every case of a dataset, as `attributes_of` found them."""
    attributes_of_cases = sorted(
        zip(case_ids(material, dataset), map(dict, attributes.cases), strict=True), key=lambda case: case[0]
    )
    return hashlib.sha256(json.dumps(attributes_of_cases, sort_keys=True).encode()).hexdigest()


def attributes_of(
    material: Material, dataset: str, datasets: Mapping[str, DatasetConfig], table: Path | None
) -> tuple[CaseAttributes | None, list[str]]:
    """The attributes of the cases of a dataset, None if there are none, and sentences on what is lacking.

    datasets: current folders of datasets, used instead of the run's configuration. table: as given to the command; else
    that of the configuration, else the dataset's own files. Raises DataError for a given table that cannot be read.
    """
    wanted = case_ids(material, dataset)
    opened: Dataset | None = None
    missing = ""
    config = datasets.get(dataset)
    try:
        config = current_dataset(material.run, dataset, datasets)
        opened = load_dataset(config).dataset
    except XBenchError as error:
        missing = str(error)
    table = table or (None if config is None else config.attributes)
    if table is not None:
        attributes = look_up(wanted, opened, table)
        remarks = [f"{table.name} is searched for case ids alone. {missing}"] if missing else []
    elif opened is None:
        return None, [
            f"{dataset}: no attributes, because it cannot be read. {missing} Say where it is with --data "
            f"{dataset}=PATH, or give a table with --attributes {dataset}=FILE."
        ]
    else:
        try:
            attributes, remarks = look_up(wanted, opened), []
        except XBenchError as error:
            return None, [f"{dataset}: no attributes. {error}"]
    if not attributes.names:
        why = "; ".join([*attributes.notes, *remarks]) or "it has no attributes"
        return attributes, [f"{dataset}: {why}; give a table with --attributes {dataset}=FILE"]
    return attributes, [f"{dataset}: {line}" for line in (*attributes.notes, *remarks)]
