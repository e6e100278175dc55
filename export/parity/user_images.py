"""The user's images and boxes, on which the effect of lower precision on the metrics is measured.

A folder as the dataset `csv` of xbench-fast reads it: `annotations.csv` beside `images/`, one row per box, columns
`image`, `class` and `x_min, y_min, x_max, y_max` or `x, y, width, height` in pixels from the top left corner. A row
without a class is an image without finding, a class without a box is positive without a region, and every class counts
as annotated on every image. Formats: PNG, JPEG and all others that Pillow reads.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...engines.errors import ConfigError, DataError, ImageError
from ...engines.geometry import Geometry
from .metric_changes import SIDE, TrialImage
from .placing import place

__all__ = ["ParityData", "read_parity_data"]

ANNOTATIONS, IMAGES = "annotations.csv", "images"
_CORNERS, _SIZES = ("x_min", "y_min", "x_max", "y_max"), ("x", "y", "width", "height")
Box = tuple[float, float, float, float]


@dataclass
class _Image:
    path: Path
    row: int  # the first row that names it
    classes: dict[str, list[Box]] = field(default_factory=dict)


@dataclass(frozen=True)
class ParityData:
    """The content of the file; pixels are read one image at a time. `sha256` is that of the file."""

    source: Path
    sha256: str
    images: tuple[_Image, ...]
    classes: tuple[str, ...]

    def choose(self, sets: Mapping[str, Sequence[str]]) -> str:
        """The prompt set (name -> findings) with most of the classes; of equal sets the one with fewest other findings.

        Raises ConfigError when no set has any of them.
        """
        shared = {name: len(set(findings) & set(self.classes)) for name, findings in sets.items()}
        best = max(shared, key=lambda name: (shared[name], -len(sets[name])))
        if shared[best] == 0:
            raise ConfigError(
                f"{self.source} has the classes {', '.join(self.classes)}, and no prompt set asks for one of them: "
                "use the findings' names, or give prompts for yours with --prompts FILE."
            )
        return best

    def cases(self, geometry: Geometry, findings: Sequence[str]) -> Iterator[TrialImage]:
        """Every image as the model takes it; `findings` gives the classes their indices, others are left out.

        Images are named by their row, since a bundle may be shared and file names can identify a patient. Raises
        ImageError.
        """
        for image in self.images:
            drawn = {finding: image.classes[finding] for finding in image.classes if finding in findings}
            pixels, regions = _read(image, geometry, drawn)
            numbered = {findings.index(finding): region for finding, region in regions.items()}
            positive = frozenset(findings.index(finding) for finding in drawn)
            yield TrialImage(f"{self.source.name} row {image.row}", pixels, numbered, positive)


def read_parity_data(folder: Path) -> ParityData:
    """Reads `folder`/annotations.csv and checks that every image exists. Raises DataError with file and row."""
    source = folder / ANNOTATIONS
    try:
        data = source.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise DataError(
            f"{source} cannot be read ({error.strerror}); give a folder with {ANNOTATIONS} and {IMAGES}/."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is not a UTF-8 text file; save it as CSV in UTF-8.") from error
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    kinds = [kind for kind in (_CORNERS, _SIZES) if set(kind) <= set(columns)]
    if not {"image", "class"} <= set(columns) or len(kinds) != 1:
        raise DataError(
            f"{source}: the header has {', '.join(columns) or 'nothing'}; needed are image, class and either "
            f"{', '.join(_CORNERS)} or {', '.join(_SIZES)}."
        )
    images: dict[str, _Image] = {}
    for cells in reader:
        _row(source, reader.line_num, cells, kinds[0], images)
    classes = sorted({finding for image in images.values() for finding in image.classes})
    if not classes:
        raise DataError(f"{source}: no row names a class, so there is nothing to compare.")
    return ParityData(source, hashlib.sha256(data).hexdigest(), tuple(images.values()), tuple(classes))


def _row(source: Path, row: int, cells: Mapping[str, Any], kind: Sequence[str], images: dict[str, _Image]) -> None:
    name, finding = ((cells[key] or "").strip() for key in ("image", "class"))
    if not name:
        raise DataError(f"{source}, row {row}: image is empty.")
    image = images.get(name)
    if image is None:
        path = source.parent / IMAGES / name
        if ".." in Path(name).parts or not path.is_file():
            raise DataError(f"{source}, row {row}: there is no image {name} in {path.parent}.")
        image = images[name] = _Image(path, row)
    given = [(cells[key] or "").strip() for key in kind]
    empty = all(cell.lower() in ("", "nan") for cell in given)
    if not finding:
        if not empty:
            raise DataError(f"{source}, row {row}: the row has a box but no class.")
        return
    boxes = image.classes.setdefault(finding, [])
    if empty:
        return
    try:
        x, y, a, b = (float(cell) for cell in given)
    except ValueError as error:
        raise DataError(f"{source}, row {row}: a box coordinate is no number ({', '.join(given)}).") from error
    right, bottom = (a, b) if kind is _CORNERS else (x + a, y + b)
    if not all(map(math.isfinite, (x, y, right, bottom))) or right < x or bottom < y:
        raise DataError(f"{source}, row {row}: the box {', '.join(given)} ends before it begins or has no end.")
    boxes.append((x, y, right, bottom))


def _read(image: _Image, geometry: Geometry, drawn: Mapping[str, Sequence[Box]]) -> tuple[Any, dict[str, Any]]:
    """Pixels uint8 [1, S, S], and the region of each finding that has boxes, bool [SIDE, SIDE]."""
    from PIL import Image, ImageDraw

    try:
        with Image.open(image.path) as opened:
            grey = _grey(opened)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(f"{image.path} cannot be read: {error}; convert it to PNG.") from error
    regions = {}
    for finding, boxes in drawn.items():
        mask = Image.new("L", grey.size)
        for x, y, right, bottom in boxes:
            corner = (max(math.ceil(right) - 1, math.floor(x)), max(math.ceil(bottom) - 1, math.floor(y)))
            ImageDraw.Draw(mask).rectangle((math.floor(x), math.floor(y), *corner), fill=255)
        if boxes:
            framed = Image.fromarray(place(mask, geometry)).resize((SIDE, SIDE), Image.Resampling.BOX)
            regions[finding] = np.asarray(framed) >= 128
    return place(grey, geometry)[None], regions


def _grey(opened: Any) -> Any:
    """8-bit grey; more bits are stretched from their smallest to their largest value."""
    from PIL import Image

    if not opened.mode.startswith(("I", "F")):
        return opened.convert("L")
    values = np.asarray(opened, np.float64)
    low, high = float(values.min()), float(values.max())
    if not math.isfinite(high - low):
        raise ValueError("it has pixels that are no numbers")
    return Image.fromarray(np.rint((values - low) / max(high - low, 1e-9) * 255).astype(np.uint8))
