"""The meaning of columns with other names, guessed from the names that annotation tools write and from spelling."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from .....engines.registry import plain_name

WRITTEN: Final[Mapping[str, Sequence[str]]] = {
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

_SIMILAR: Final = 0.76  # above the similarity of xmin and ymin
_SHORT: Final = 4  # of shorter names, as x and w, any other is similar
_CORNERS: Final = ("x_min", "y_min", "x_max", "y_max")
_SIZES: Final = ("x", "y", "width", "height")


def guessed_columns(header: Sequence[str]) -> dict[str, str]:
    """Name of a column of the reader -> column of the header, for those whose names differ; empty: nothing is known.

    A column that no tool writes is taken for the name that is most similar to it, e.g. imgae. Width and height next to
    corners are the size of the image, as in TensorFlow's tables.
    """
    letters = {plain_name(column): column for column in reversed(header)}
    guessed: dict[str, str] = {}
    for name, others in WRITTEN.items():
        plain = name.replace("_", "")
        column = next((letters[candidate] for candidate in (plain, *others) if candidate in letters), None)
        if column is not None:
            guessed[name] = column
    rest = [column for column in header if column not in guessed.values()]
    guessed |= _similar([name for name in WRITTEN if name not in guessed], rest)
    if all(name in guessed for name in _CORNERS):
        sides = {f"image_{side}": guessed[side] for side in ("width", "height") if side in guessed}
        guessed = {name: column for name, column in guessed.items() if name not in _SIZES}
        guessed = sides | guessed if len(sides) == 2 else guessed
    return {name: column for name, column in guessed.items() if name != column}


def renames(wanted: Sequence[str], header: Sequence[str]) -> str:
    """Which columns of the header to rename to columns that it lacks, as the end of a message; empty: none."""
    lacking = [name for name in wanted if name not in header]
    similar = _similar(lacking, [column for column in header if column not in wanted])
    pairs = [f"'{name}' by '{column}'" for name, column in similar.items()]
    return f"did you mean {', '.join(pairs)}? rename it" if pairs else ""


def _similar(names: Sequence[str], header: Sequence[str]) -> dict[str, str]:
    """Name -> the column that is the same but for case and marks, or most similar to it; each column is taken once."""
    columns: dict[str, str] = {}
    for cutoff in (1.0, _SIMILAR):
        for name in names:
            left = {plain_name(column): column for column in header if column not in columns.values()}
            close = difflib.get_close_matches(plain_name(name), left, n=1, cutoff=cutoff)
            if name not in columns and close and (cutoff == 1.0 or len(name) >= _SHORT):
                columns[name] = left[close[0]]
    return {name: columns[name] for name in names if name in columns}
