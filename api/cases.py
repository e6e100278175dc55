"""Datasets as an evaluation reads them: radiographs, labels and regions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engines.errors import DataError
from .engines.registry import did_you_mean
from .runtime.datasets.base import Case
from .runtime.datasets.region_grid import region_masks
from .runtime.host.config import DatasetConfig
from .runtime.results.loaded_dataset import LoadedDataset
from .runtime.results.loaded_dataset import load_dataset as open_dataset

__all__ = ["Radiograph", "Radiographs", "load_dataset"]


class Radiograph:
    """One image with its annotations in the dataset. Files are read on demand.

    case_id: the image's name in the dataset. patient_id: None if the dataset does not give it. path: the image file.
    labels: class -> 1, 0 or None (unknown), for every class of the dataset. findings: the classes that have a region
    in this image.
    """

    def __init__(self, case: Case, classes: tuple[str, ...]) -> None:
        self.case_id = case.case_id
        self.patient_id = case.patient_id
        self.path = case.image
        self.labels: Mapping[str, int | None] = dict(case.labels)
        self.findings = tuple(name for name in classes if name in case.regions)
        self._case = case
        self._classes = classes

    def __repr__(self) -> str:
        return f"Radiograph({self.case_id!r}, findings={list(self.findings)})"

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of the grid of the regions: the image's size, unless the dataset gives another.

        Raises ImageError when the size must be read from the image and the image is unreadable.
        """
        from .runtime.images.size import image_size

        return self._case.size or image_size(self.path)

    def image(self) -> NDArray[np.uint8]:
        """The radiograph, uint8 [H, W] in its native size, bright = radio-dense. Raises ImageError."""
        from .runtime.images.decode import read_grey

        return read_grey(self.path)

    def mask(self, finding: str, *, grid: bool = False) -> NDArray[np.bool_]:
        """The region of `finding`, bool [H, W] of `size`; False everywhere if the image has none.

        grid: return it on the evaluation grid instead, bool [224, 224], as an evaluation and `sweep` use it; a
        sub-pixel region is one pixel there. Raises DataError for a class that the dataset does not have and for a
        region that cannot be drawn, ImageError when the size is unknown.
        """
        if finding not in self._classes:
            raise DataError(f"The dataset has no class '{finding}': {did_you_mean(finding, self._classes)}.")
        if grid:
            from .metrics_gpu.sweep.masks import GRID, unpack_masks

            packed, _, _ = region_masks(self._case, self.size, [finding])
            return unpack_masks(packed[finding][None], GRID[1])[0] if packed else np.zeros(GRID, np.bool_)
        region = self._case.regions.get(finding)
        if region is None:
            return np.zeros(self.size, np.bool_)
        try:
            return region.mask(*self.size)
        except DataError as error:
            raise DataError(f"The region of '{finding}' in {self.path} cannot be drawn: {error}") from error


class Radiographs:
    """The radiographs of a dataset, in the order of its annotation file. Iterate, index or take len().

    name: as given to `load_dataset`. title: as tables print it. classes: the annotated findings. notes: problems in its
    files that did not stop the reading, one sentence each.
    """

    def __init__(self, loaded: LoadedDataset) -> None:
        self.name = loaded.name
        self.title = loaded.dataset.title
        self.classes = tuple(loaded.dataset.classes)
        self.notes = tuple(map(str, loaded.dataset.notes))
        self._cases = loaded.cases
        self._config = loaded.config

    def __repr__(self) -> str:
        return f"Radiographs({self.name!r}, {len(self)} images, classes={list(self.classes)})"

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, index: int) -> Radiograph:
        return Radiograph(self._cases[index], self.classes)

    def __iter__(self) -> Iterator[Radiograph]:
        return (Radiograph(case, self.classes) for case in self._cases)


def load_dataset(name: str, root: str | os.PathLike[str], /, **options: Any) -> Radiographs:
    """The dataset in the folder `root`, read as `xbench-fast eval --data NAME=ROOT` reads it.

    name: a known dataset ("rsna", "chestxdet10", ...), or any name together with the option `reader`: a known one
    ("coco", "yolo", "dicom", ...), "module:Class" or "file.py:Class". options: those of the reader, such as `list` or
    `annotations`; paths are relative to `root`. Raises ConfigError for an unknown name or option, DataError for files
    that are missing or invalid.
    """
    config = DatasetConfig(name, Path(root).expanduser(), name)
    for key, value in options.items():
        config = config.with_option(key, value)
    return Radiographs(open_dataset(config))
