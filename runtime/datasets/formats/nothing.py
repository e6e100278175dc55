"""Class names that mean that nothing was found: they are no class of a dataset (docs/datasets.md §9.3)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

__all__ = ["NOTHING", "says_nothing"]

NOTHING: Final = (
    "No finding", "No findings", "Normal", "Healthy", "Negative", "None", "Nothing", "Background", "No abnormality",
    "No abnormalities", "No lesion",
)  # fmt: skip
"""The names by default; upper and lower case, spaces, hyphens and underscores make no difference."""

_BETWEEN = re.compile(r"[\s_-]+")


def says_nothing(name: str, names: Collection[str] = NOTHING) -> bool:
    """Whether `name` is one of `names`."""
    return _BETWEEN.sub("", name.casefold()) in {_BETWEEN.sub("", each.casefold()) for each in names}
