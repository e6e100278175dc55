"""The option `columns` for a CSV whose header has other names, guessed from those that annotation tools write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["guessed_columns"]

_KNOWN: Final[Mapping[str, Sequence[str]]] = {
    "image": (
        *("filename", "file", "imageid", "imagename", "imagepath", "imagefile", "imageindex"),
        *("dicomid", "path", "img"),
    ),
    "class": ("label", "classname", "labelname", "category", "categoryname", "finding", "findinglabel", "name"),
    "x_min": ("xmin", "x1", "left", "xtl", "bboxx1", "bboxxmin"),
    "y_min": ("ymin", "y1", "top", "ytl", "bboxy1", "bboxymin"),
    "x_max": ("xmax", "x2", "right", "xbr", "bboxx2", "bboxxmax"),
    "y_max": ("ymax", "y2", "bottom", "ybr", "bboxy2", "bboxymax"),
    "x": ("bboxx", "boxx"),
    "y": ("bboxy", "boxy"),
    "width": ("w", "bboxw", "bboxwidth", "boxwidth"),
    "height": ("h", "bboxh", "bboxheight", "boxheight"),
    "patient_id": ("patient", "patientid", "subjectid", "subject"),
    "image_width": ("imgwidth", "imagewidth", "imagew", "imgw"),
    "image_height": ("imgheight", "imageheight", "imageh", "imgh"),
}
"""Name of a column -> what tools call it, without what is no letter or digit."""

_CORNERS: Final = ("x_min", "y_min", "x_max", "y_max")
_SIZES: Final = ("x", "y", "width", "height")


def guessed_columns(header: Sequence[str]) -> dict[str, str]:
    """Name of a column of the reader -> column of the header, for those whose names differ; empty: nothing is known.

    Width and height beside corners are those of the image, as TensorFlow's tables have them.
    """
    letters = {re.sub(r"[^a-z0-9]", "", column.casefold()): column for column in reversed(header)}
    guessed: dict[str, str] = {}
    for name, others in _KNOWN.items():
        plain = name.replace("_", "")
        column = next((letters[candidate] for candidate in (plain, *others) if candidate in letters), None)
        if column is not None:
            guessed[name] = column
    if all(name in guessed for name in _CORNERS):
        sides = {f"image_{side}": guessed[side] for side in ("width", "height") if side in guessed}
        guessed = {name: column for name, column in guessed.items() if name not in _SIZES}
        guessed = sides | guessed if len(sides) == 2 else guessed
    return {name: column for name, column in guessed.items() if name != column}
