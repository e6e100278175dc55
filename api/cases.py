"""Datasets as an evaluation reads them: radiographs, labels and regions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .engines.errors import DataError
from .engines.geometry import Geometry
from .engines.registry import did_you_mean
from .options import FilePath
from .runtime.data.datasets.dataset import Case
from .runtime.data.datasets.region_grid import region_masks
from .runtime.host.config import load_config
from .runtime.results.loaded_dataset import LoadedDataset
from .runtime.results.loaded_dataset import load_dataset as open_dataset

if TYPE_CHECKING:
    from .runtime.evaluation.decoded_case import DecodedCase

__all__ = ["ModelInput", "Radiograph", "Radiographs", "load_dataset"]


class Radiograph:
    """One image with its annotations in the dataset. Files are read on demand.

    case_id: the image's name in the dataset. patient_id: None if the dataset does not give it. path: the image file.
    rows: its place in the annotation file, lines of a CSV or 1-based entries of a JSON list; empty if there is none.
    labels: class -> 1, 0 or None (unknown), for every class of the dataset. findings: the classes that have a region
    in this image.
    """

    def __init__(self, case: Case, classes: tuple[str, ...]) -> None:
        self.case_id = case.case_id
        self.patient_id = case.patient_id
        self.path = case.image
        self.rows = case.rows
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
        from .runtime.data.images.size import image_size

        return self._case.size or image_size(self.path)

    def image(self) -> NDArray[np.uint8]:
        """The radiograph, uint8 [H, W] in its native size, bright = radio-dense. Raises ImageError."""
        from .runtime.data.images.decode import read_grey

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
            from .metrics_gpu.sweep.masks import GRID

            drawn, _, _ = region_masks(self._case, self.size, [finding])
            return drawn[finding] if drawn else np.zeros(GRID, np.bool_)
        region = self._case.regions.get(finding)
        if region is None:
            return np.zeros(self.size, np.bool_)
        try:
            return region.mask(*self.size)
        except DataError as error:
            raise DataError(f"The region of '{finding}' in {self.path} cannot be drawn: {error}") from error


@dataclass(frozen=True)
class ModelInput:
    """A radiograph as an evaluation gives it to a model, and its regions as `sweep` takes them.

    pixels: uint8 [1, S, S], None if the image is missing or unreadable; then `problem` says why. regions: finding ->
    bool [224, 224], of regions that are not empty. frame: (y0, x0, y1, x1), the part of the image that the pixels show,
    as fractions.
    """

    radiograph: Radiograph
    pixels: NDArray[np.uint8] | None
    regions: Mapping[str, NDArray[np.bool_]]
    frame: tuple[float, float, float, float]
    problem: str | None = None


class Radiographs:
    """The radiographs of a dataset, in the order of its annotation file. Iterate, index or take len().

    name: as given to `load_dataset`. root: its folder. title: as tables print it. classes: the annotated findings.
    notes: problems in its files that did not stop the reading, one sentence each. sources: its annotation files.
    """

    def __init__(self, loaded: LoadedDataset) -> None:
        self.name = loaded.name
        self.root = loaded.config.root
        self.title = loaded.dataset.title
        self.classes = tuple(loaded.dataset.classes)
        self.notes = tuple(map(str, loaded.dataset.notes))
        self.sources = tuple(loaded.dataset.sources())
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

    def inputs(
        self, geometry: Geometry, findings: Sequence[str] | None = None, *, places: Sequence[int] | None = None
    ) -> Iterator[ModelInput]:
        """Pixels and regions of the radiographs, in order, read some images ahead by all cores.

        geometry: how pixels are prepared. findings: those whose regions are drawn, of the classes (all of them).
        places: only the radiographs at these places. Raises DataError for a class that the dataset does not have and
        for a region that cannot be drawn.
        """
        from .runtime.data.datasets.pixels import direct_source
        from .runtime.data.images.decode import decode_ahead
        from .runtime.evaluation.decoded_case import decode_case
        from .runtime.host.machine_record import usable_cores

        drawn = self.classes if findings is None else tuple(findings)
        for name in drawn:
            if name not in self.classes:
                raise DataError(f"The dataset has no class '{name}': {did_you_mean(name, self.classes)}.")
        cases = self._cases if places is None else [self._cases[position] for position in places]
        read = partial(decode_case, source=direct_source(geometry), geometry=geometry, findings=drawn)
        workers = usable_cores()
        return map(self._input, decode_ahead(read, cases, workers, 2 * workers))

    def _input(self, decoded: DecodedCase) -> ModelInput:
        radiograph = Radiograph(decoded.case, self.classes)
        pixels = None if decoded.pixels is None else decoded.pixels[None]
        return ModelInput(radiograph, pixels, dict(decoded.masks), decoded.frame, decoded.reason)


def load_dataset(
    name: str, root: FilePath | None = None, /, *, config: FilePath | None = None, **options: Any
) -> Radiographs:
    """The dataset in the folder `root`, read as `xbench-fast eval --data NAME=ROOT` reads it.

    name: a known dataset ("rsna", "chestxdet10", ...), or any name together with the option `reader`: a known one
    ("coco", "yolo", "dicom", ...), "module:Class" or "file.py:Class"; or one of the configuration file, whose table
    then gives the folder and the options that are not given here. config: that file, by default ./xbench.toml if it
    exists. options: those of the reader, such as `list` or `annotations`; paths are relative to the folder. Raises
    ConfigError for an unknown name or option, DataError for files that are missing or invalid.
    """
    settings = load_config(None if config is None else Path(config))
    chosen = settings.dataset(name, None if root is None else Path(root).expanduser())
    for key, value in options.items():
        chosen = chosen.with_option(key, value)
    code = {name: settings.code[name]} if settings.code.get(name) == chosen.reader else {}
    for line in replace(settings, code=code).own_code():
        warnings.warn(line, stacklevel=2)
    return Radiographs(open_dataset(chosen))
