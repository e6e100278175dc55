"""The reader `dicom` on objects of tests/formats/ohif, each beside the film, and the items of their reports."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydicom
from pydicom.dataset import Dataset
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_objects import DicomObjects

Read = Callable[..., DicomObjects]


def reader(root: Path, folder: Path) -> Read:
    """A function that reads one object of the viewer beside the film in `folder`, each changed first."""

    def reads(what: str, change: Any = None, film: Any = None, /, **options: Any) -> DicomObjects:
        formats = root / "tests/formats"
        for place, path, altered in (
            ("images", formats / "dicom/film.dcm", film),
            ("annotations", formats / f"ohif/{what}.dcm", change),
        ):
            (folder / place).mkdir(exist_ok=True)
            shutil.copy(path, folder / place)
            if altered is not None:
                data = pydicom.dcmread(path)
                altered(data)
                data.save_as(folder / place / path.name)
        return DicomObjects(folder, **options)

    return reads


def groups(data: Dataset) -> list[Dataset]:
    """The measurement groups of a report."""
    part = next(item for item in data.ContentSequence if item.ConceptNameCodeSequence[0].CodeValue == "126010")
    return list(part.ContentSequence)


def graphic(group: Dataset) -> Dataset:
    """The item with the first graphic of a group."""
    measured = next(item for item in group.ContentSequence if item.ValueType == "NUM" and "ContentSequence" in item)
    return measured.ContentSequence[0]
