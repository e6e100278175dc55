"""Class names that mean that nothing was found: they are no class of a dataset (docs/formats.md §9.3)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..source.spelling import spelling_key

NOTHING: Final = (
    "No finding", "No findings", "Normal", "Healthy", "Negative", "None", "Nothing", "Background", "No abnormality",
    "No abnormalities", "No lesion",
)  # fmt: skip
"""The names by default; upper and lower case, spaces, hyphens and underscores make no difference."""


def says_nothing(name: str, names: Collection[str] = NOTHING) -> bool:
    """Whether `name` is one of `names`."""
    return _letters(name) in map(_letters, names)


def _letters(name: str) -> str:
    return spelling_key(name).replace(" ", "")
