"""The outline of both lungs in masks of the user: CheXmask's CSV, CXAS's arrays and PNG files, DICOM Segmentations, and
pairs of PNG files (docs/words.md §4)."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import DataError, ImageError
from .....metrics_gpu.zones.thorax_places import ThoraxFrame
from ....host.paths import has_file, has_folder
from ...datasets.formats.dicom.dicom_files import read_object
from ...datasets.formats.dicom.dicom_masks import segment_frames, segment_names
from ...datasets.masks.mask_files import read_png
from ...datasets.source.image_names import stem_of
from ..bad_line import BadLine
from ..questions import Questions

SIDES: Final = ("right lung", "left lung")
_COLUMNS: Final = ("Right Lung", "Left Lung", "Height", "Width")
_QUALITY: Final = "Dice RCA (Mean)"
_LEAST_QUALITY: Final = 0.7
_CXAS_CHANNELS: Final = (135, 136)
_CXAS_COUNT: Final = 159
_FRACTION: Final = 0.5
_DAMAGED: Final = (OSError, EOFError, ValueError, IndexError, KeyError, BadZipFile, zlib.error, csv.Error)
"""What files with damage raise; UnicodeDecodeError is a ValueError."""


class _Box(NamedTuple):
    """The bounding box of a mask: parts of its width and height."""

    x0: float
    y0: float
    x1: float
    y1: float


class LungMasks:
    """The frames that masks give, by the position of a case. Raises DataError for a path that is no such source."""

    def __init__(self, path: Path, questions: Questions) -> None:
        self._path, self._questions = path, questions
        self._table: dict[int, ThoraxFrame | None] | None = None
        if has_file(path):
            if not path.name.lower().endswith((".csv", ".csv.gz")):
                raise DataError(f"{path} is neither a CSV of CheXmask nor a folder of masks; correct --lungs.")
            self._table = {}
            for row, number, frame in _chexmask(path, questions):
                if self._table.setdefault(row, frame) != frame:
                    case = questions.cases[row].case_id
                    raise DataError(f"{path}, line {number}: another row of '{case}' has other lungs; keep one.")
        elif not has_folder(path):
            raise DataError(f"The masks {path} of --lungs do not exist; correct the path.")

    def frame(self, row: int) -> ThoraxFrame | None:
        """The frame of a case; None without masks of both lungs, or if they are of low quality. Raises DataError."""
        if self._table is not None:
            return self._table.get(row)
        case = self._questions.cases[row]
        for name in dict.fromkeys((case.case_id, case.image.stem, stem_of(case.case_id))):
            if masks := _masks_of(self._path, name):
                boxes = [_box(mask) for mask in masks]
                return _frame(boxes, f"the masks of '{case.case_id}' in {self._path}")
        return None


def _frame(boxes: Iterable[_Box | None], where: str) -> ThoraxFrame | None:
    """The frame of both lungs, right and left. Raises DataError where the right one lies on the right of the image."""
    right, left = boxes
    if right is None or left is None:
        return None
    if right.x0 + right.x1 >= left.x0 + left.x1:
        raise DataError(
            f"The right lung is not on the left of the image in {where}: the masks are mirrored; mirror them, or swap "
            "their names."
        )
    middle = (right.x1 + left.x0) / 2
    x0, x1 = min(right.x0, left.x0), max(right.x1, left.x1)
    if not x0 < middle < x1:
        return None
    even = math.isclose(2 * middle, x0 + x1, rel_tol=1e-12)  # then places end in the same pixels as without a midline
    return ThoraxFrame(x0, min(right.y0, left.y0), x1, max(right.y1, left.y1), None if even else middle)


def _box(mask: NDArray[np.bool_]) -> _Box | None:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    height, width = mask.shape
    x0, x1, y0, y1 = int(columns[0]), int(columns[-1]) + 1, int(rows[0]), int(rows[-1]) + 1
    return _Box(x0 / width, y0 / height, x1 / width, y1 / height)


def _chexmask(path: Path, questions: Questions) -> Iterator[tuple[int, int, ThoraxFrame | None]]:
    """Case, line, and frame of the dataset's cases. Raises DataError for another CSV."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream)
            header = rows.fieldnames or ()
            if missing := [name for name in _COLUMNS if name not in header]:
                lacks = f"it lacks the columns {', '.join(missing)}"
                raise DataError(f"{path} is no CSV of CheXmask: {lacks}; correct --lungs.")
            for line in rows:
                # The column of names differs by dataset, and is the first with a name of one of its cases.
                row = next((at for name in header if (at := _case(questions, line[name])) is not None), None)
                if row is not None:
                    yield row, rows.line_num, _chexmask_frame(line, f"{path}, line {rows.line_num}")
    except _DAMAGED as error:
        raise DataError(f"{path} cannot be read as CSV: {error}.") from error


def _case(questions: Questions, name: str | None) -> int | None:
    if not name or len(name) > 200 or " " in name.strip():
        return None
    try:
        return questions.case(name)
    except BadLine:
        return None


def _chexmask_frame(line: dict[str, str], where: str) -> ThoraxFrame | None:
    try:
        quality = float(line.get(_QUALITY) or 1)
        height, width = int(float(line["Height"])), int(float(line["Width"]))
        boxes = [_runs_box(line[name] or "", height, width) for name in _COLUMNS[:2]]
    except (ValueError, TypeError, OverflowError):
        raise DataError(f"{where}: a number of the masks cannot be read; correct the file.") from None
    return None if quality < _LEAST_QUALITY else _frame(boxes, where)


def _runs_box(text: str, height: int, width: int) -> _Box | None:
    """The bounding box of runs "start length ...", from 1 on, row by row. Raises ValueError."""
    numbers = np.array(text.split(), np.int64)
    if len(numbers) % 2 or min(height, width) < 1:
        raise ValueError
    starts, lengths = numbers[::2] - 1, numbers[1::2]
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    if not len(starts):
        return None
    ends = starts + lengths - 1
    if starts.min() < 0 or max(starts.max(), lengths.max() - 1, ends.max()) >= height * width:
        raise ValueError
    first, last = starts // width, ends // width
    wraps = first < last
    x0 = 0 if wraps.any() else int((starts % width).min())
    x1 = width if wraps.any() else int((ends % width).max()) + 1
    return _Box(x0 / width, int(first.min()) / height, x1 / width, (int(last.max()) + 1) / height)


def _masks_of(folder: Path, name: str) -> list[NDArray[np.bool_]]:
    """The masks of the right and the left lung of an image; none where it has no files. Raises DataError."""
    pairs = [folder / f"{name}_{side}.png" for side in ("right", "left")]
    for files in (pairs, [folder / name / f"{lung}.png" for lung in SIDES]):
        if all(map(has_file, files)):
            return [_png(file) for file in files]
    for file in (folder / f"{name}.npy", folder / f"{name}.npz"):
        if has_file(file):
            return _array(file)
    segments = sorted((folder / name).glob("*.dcm")) if has_folder(folder / name) else []
    for file in (folder / f"{name}.dcm", *segments):
        if has_file(file):
            return _segmentation(file)
    return []


def _png(file: Path) -> NDArray[np.bool_]:
    try:
        values = read_png(file).values
    except ImageError as error:
        raise DataError(f"The mask {file} cannot be read: {error}.") from error
    return np.asarray((values if values.ndim == 2 else values.max(axis=2)) > 0)


def _array(file: Path) -> list[NDArray[np.bool_]]:
    """The lungs of an array of CXAS, [159, height, width]. Raises DataError."""
    try:
        loaded: Any = np.load(file, allow_pickle=False, mmap_mode="r" if file.suffix == ".npy" else None)
        array = loaded if file.suffix == ".npy" else loaded[loaded.files[0]]
    except _DAMAGED as error:
        raise DataError(f"The masks {file} cannot be read, or are no array of numbers; make them again.") from error
    if array.ndim != 3 or len(array) != _CXAS_COUNT or array.dtype.kind not in "biuf":
        made = f"{array.dtype.name} {list(array.shape)}"
        raise DataError(f"{file} is {made}, and CXAS writes numbers or truth values [{_CXAS_COUNT}, height, width].")
    return [np.asarray(array[channel]) > 0 for channel in _CXAS_CHANNELS]


def _segmentation(file: Path) -> list[NDArray[np.bool_]]:
    """The lungs of a DICOM Segmentation, by the labels of its segments. Raises DataError."""
    data = read_object(file)
    masks: dict[str, NDArray[np.bool_]] = {}
    for frame in segment_frames(data, file, segment_names(data, file), _FRACTION):
        for name in {name.casefold() for name in frame.names} & set(SIDES):
            masks[name] = frame.values > 0 if frame.threshold is None else frame.values >= frame.threshold
    return [masks[name] for name in SIDES] if len(masks) == len(SIDES) else []
