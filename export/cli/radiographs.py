"""Radiographs and metrics for an export in a lower precision, from the public Python interface of this project.

Only this file joins the export with the rest: `export` itself knows the shapes that it is handed (export.parity). The
radiographs come from a dataset, named as `eval` names it, or from a folder: one with `annotations.csv` and
`images/` is read as the dataset `csv`, any other is taken as images without annotations.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import PairedDifference, auc, auc_difference, dice, mean_difference, pointing, sweep
from ...engines.commands import read_data_option
from ...engines.errors import ConfigError, DataError
from ...engines.registry import did_you_mean
from ...engines.user_files import tree
from ..parity.metric_changes import Floats
from ..parity.trial_data import TrialCase, TrialData
from .models_in_config import ModelTable

if TYPE_CHECKING:
    from ... import Radiograph, Radiographs

ANNOTATIONS = "annotations.csv"
_IMAGES = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")


class EvaluationMetrics:
    """The metrics of an evaluation by the default protocol."""

    least_patients = PairedDifference.LEAST_PATIENTS
    mean_change = staticmethod(mean_difference)
    auc = staticmethod(auc)
    auc_change = staticmethod(auc_difference)

    @staticmethod
    def pairs(
        maps: Floats, regions: NDArray[np.bool_], frame: tuple[float, float, float, float]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Hits and Dice at 0.5 of the maps of one image."""
        counts = sweep(np.ascontiguousarray(maps), regions, frames=np.tile(frame, (len(regions), 1)))
        return pointing(counts), dice(counts, 0.5)


def open_radiographs(
    texts: Sequence[str | Path | None],
    table: ModelTable | None = None,
    options: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> list[TrialData | None]:
    """The radiographs of each text: NAME=PATH, a dataset of the configuration, or a folder; of None, None.

    `options` are the values of --data-option, `say` gets the line on a reader in a Python file. Raises ConfigError and
    DataError.
    """
    table = ModelTable() if table is None else table
    dataset_options: dict[str, dict[str, Any]] = {}
    for item in options:
        name, key, value = read_data_option(item)
        dataset_options.setdefault(name, {})[key] = value
    used: set[str] = set()
    radiographs = [None if text is None else _open(str(text), table, dataset_options, used, say) for text in texts]
    for name in dataset_options:
        if name not in used:
            raise ConfigError(
                f"--data-option {name}.{next(iter(dataset_options[name]))}: neither --parity-data nor --calibration "
                f"names a dataset '{name}'{f' ({did_you_mean(name, sorted(used))})' if used else ''}; give it there."
            )
    return radiographs


def _open(
    text: str, table: ModelTable, dataset_options: dict[str, dict[str, Any]], used: set[str], say: Callable[[str], None]
) -> TrialData:
    name, equals, path = text.partition("=")
    root = Path(path) if equals and name and path else None
    folder = Path(text)
    annotated_folder = root is None and text not in table.datasets and (folder / ANNOTATIONS).is_file()
    if annotated_folder:
        name, root = "csv", folder
    elif root is None and text not in table.datasets:
        if folder.is_dir():
            return _folder(folder)
        hint = f" ({did_you_mean(text, sorted(table.datasets))})" if table.datasets else ""
        raise ConfigError(
            f"{text} is neither a folder nor a dataset of the configuration{hint}; give a folder, or NAME=PATH."
        )
    from ... import load_dataset

    used.add(name)
    with warnings.catch_warnings(record=True) as lines:
        warnings.simplefilter("always")
        data = load_dataset(name, root, config=table.path if table.named else None, **dataset_options.get(name, {}))
    for line in lines:
        say(str(line.message))
    return _dataset(data, "" if annotated_folder else name)


def _dataset(data: Radiographs, name: str) -> TrialData:
    from ... import decoder_version, prepare

    digest = hashlib.sha256()
    for source in data.sources:
        digest.update(source.read_bytes())
    stem = data.sources[0].name if data.sources else data.name
    cases = tuple(_case(radiograph, number, stem) for number, radiograph in enumerate(data))
    title = f"The dataset '{data.name}' in {data.root}"
    return TrialData(name, title, cases, prepare, data.inputs, data.classes, digest.hexdigest(), decoder_version())


def _case(radiograph: Radiograph, position: int, stem: str) -> TrialCase:
    """A case named by its row in the annotation file, since a bundle may be shared and file names can identify a
    patient."""
    name = f"{stem} row {radiograph.rows[0]}" if radiograph.rows else f"{stem} case {position + 1}"
    patient = f"patient {radiograph.patient_id}" if radiograph.patient_id else radiograph.case_id
    labels = {finding: bool(label) for finding, label in radiograph.labels.items() if label is not None}
    return TrialCase(name, patient, radiograph.path, labels, position)


def _folder(folder: Path) -> TrialData:
    from ... import decoder_version, prepare

    images = sorted(path for path in tree(folder) if path.suffix.lower() in _IMAGES)
    if not images:
        raise DataError(
            f"{folder} has no image ({', '.join(_IMAGES)}) and no {ANNOTATIONS}; give a folder with images."
        )
    names = [path.relative_to(folder).as_posix() for path in images]
    cases = tuple(TrialCase(name, name, path) for name, path in zip(names, images, strict=True))
    return TrialData("", str(folder), cases, prepare, reader=decoder_version())
