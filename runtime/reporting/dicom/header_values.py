"""Values of a film's header in the forms that DICOM allows; others count as absent (docs/dicom.md §4).

Films carry dates of zeros, commas in numbers and words for codes, and none of these may cost a film its objects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

from ...data.images.dicom.elements import DataSet

UNPAIRED: Final = frozenset({
    "CHEST", "ABDOMEN", "NECK", "HEAD", "SKULL", "PELVIS", "SPINE", "CSPINE", "TSPINE", "LSPINE", "HEART", "WHOLEBODY",
})  # fmt: skip
"""Body parts that have no side. An object about another one must have a Laterality, which is empty: unknown."""

_TIME: Final = re.compile(r"([01]\d|2[0-3])([0-5]\d([0-5]\d(\.\d{1,6})?)?)?", re.ASCII)
_BODY_PART: Final = re.compile(r"[A-Z0-9_ ]{1,16}", re.ASCII)
_METHOD: Final = re.compile(r"ISO_\d{4,5}_\d{1,2}", re.ASCII)
_AXES: Final = ("LR", "AP", "HF")
_CLOSE: Final = 1e-4  # of a direction's length and angle, which are written in few digits


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return text.isascii() and len(text) == 8 and bool(datetime.strptime(text, "%Y%m%d"))
    return False


FORMS: Final[Mapping[str, Callable[[str], object]]] = {
    "PatientBirthDate": _is_date,
    "PatientSex": re.compile(r"[MFO]").fullmatch,
    "StudyDate": _is_date,
    "StudyTime": _TIME.fullmatch,
}
"""What is true of a text that may be written; highdicom and validators refuse others."""


def words(dataset: DataSet, keyword: str) -> str:
    """A text with all its values, as the film states it; empty where it is absent. It can raise any exception."""
    value = dataset.get(keyword)
    parts = value if isinstance(value, list) or hasattr(value, "append") else [value or ""]
    return "\\".join(map(str, parts))


def numbers(dataset: DataSet, keyword: str, count: int) -> list[float]:
    """So many finite numbers; none for anything else."""
    try:
        values = [float(part) for part in dataset.text(keyword).split("\\")]
    except ValueError:
        return []
    return values if len(values) == count and all(map(math.isfinite, values)) else []


def spacing(dataset: DataSet, keyword: str) -> tuple[float, float] | None:
    """Two numbers above 0; None for others, such as the zeros of real films."""
    values = numbers(dataset, keyword, 2)
    return (values[0], values[1]) if values and min(values) > 0 else None


def directions(dataset: DataSet) -> list[float]:
    """The directions of rows and columns in the patient; none unless they have length 1 and a right angle."""
    values = numbers(dataset, "ImageOrientationPatient", 6)
    row, column = values[:3], values[3:]
    products = ((row, row, 1.0), (column, column, 1.0), (row, column, 0.0))
    right = all(abs(sum(a * b for a, b in zip(one, two, strict=True)) - size) < _CLOSE for one, two, size in products)
    return values if right else []


def orientation(dataset: DataSet) -> list[str] | None:
    """The directions of rows and columns in letters, such as L and F; None where they are none."""
    parts = [part.strip() for part in dataset.text("PatientOrientation").split("\\")]
    one_an_axis = all(sum(letter in axis for letter in part) <= 1 for part in parts for axis in _AXES)
    known = set("".join(parts)) <= set("".join(_AXES))
    return parts if len(parts) == 2 and parts[0] != parts[1] and one_an_axis and known else None


def body_part(dataset: DataSet) -> str:
    """The body part, CHEST where none is stated in the form of a code."""
    text = dataset.text("BodyPartExamined").upper()
    return text if _BODY_PART.fullmatch(text) else "CHEST"


def lossy_flags(dataset: DataSet) -> dict[str, str | list[str]]:
    """What a film says of a lossy compression, by keyword."""
    flags: dict[str, str | list[str]] = {}
    if (flag := dataset.text("LossyImageCompression")) in ("00", "01"):
        flags["LossyImageCompression"] = flag
    ratios = dataset.text("LossyImageCompressionRatio").split("\\")
    if numbers(dataset, "LossyImageCompressionRatio", len(ratios)):
        flags["LossyImageCompressionRatio"] = [ratio.strip() for ratio in ratios]
    methods = [method.strip() for method in dataset.text("LossyImageCompressionMethod").split("\\")]
    if all(map(_METHOD.fullmatch, methods)):
        flags["LossyImageCompressionMethod"] = methods
    return flags
