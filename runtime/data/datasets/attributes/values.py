"""The words of files -> values of attributes: one name per attribute, one spelling per value, and no guesses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..patients import is_unknown

Value = str | float
Attributes = Mapping[str, Value]
"""Name of an attribute -> its value; one that is not known is left out."""

NAMES: Final = {
    "view": "view", "view position": "view", "viewposition": "view",
    "sex": "sex", "gender": "sex", "patient gender": "sex", "patientsex": "sex", "patient sex": "sex",
    "age": "age", "patient age": "age", "patientage": "age",
    "manufacturer": "manufacturer",
}  # fmt: skip
"""What files call the attributes that the built-in sources have, in lower case -> their names here."""

AGES: Final = (0.0, 120.0)
"""Ages outside are mistakes of a file, and unknown."""
LONGEST: Final = 60
"""Characters of a value; a longer one is no group."""

_AGE = re.compile(r"(\d{1,4}(?:\.\d+)?) ?([DWMY]?)", re.ASCII)
_YEARS = {"": 1.0, "Y": 1.0, "M": 1 / 12, "W": 7 / 365.25, "D": 1 / 365.25}
_SPELLING = {
    "sex": {"f": "F", "female": "F", "m": "M", "male": "M"},
    "view": {"ap": "AP", "pa": "PA", "lateral": "lateral"},
}


def read_value(name: str, text: str) -> Value | None:
    """The value of the attribute `name`, which a file gives as `text`; None if it is not known.

    Ages are years: bare digits, or DICOM's 045Y, 018M, 002W, 010D; those outside `AGES` are not known. Raises
    ValueError, with the rest of a sentence, for an age that is no number and a text that cannot be a group's name.
    """
    text = " ".join(text.split())
    if is_unknown(text):
        return None
    if name == "age":
        match = _AGE.fullmatch(text.upper())
        if match is None:
            raise ValueError("is not a number of years, nor an age as DICOM writes it, such as 045Y")
        years = float(match[1]) * _YEARS[match[2]]
        return years if AGES[0] <= years <= AGES[1] else None
    if len(text) > LONGEST or not text.isprintable():
        raise ValueError(f"has more than {LONGEST} characters, or some that cannot be printed")
    return _SPELLING.get(name, {}).get(text.lower(), text)
