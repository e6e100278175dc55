"""Names that are the same but for their spelling: upper and lower case, blanks, hyphens, underscores, letter forms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

__all__ = ["Spellings", "spelling_key"]

_BETWEEN = re.compile(r"[\s_-]+")


def spelling_key(name: str) -> str:
    """The form in which two names of classes are compared: "Pleural_effusion" and "pleural  Effusion" are one class."""
    return _BETWEEN.sub(" ", unicodedata.normalize("NFKC", name).casefold()).strip()


class Spellings:
    """One spelling for each class: that of `names`, else the first that was asked for.

    variants: spelling -> the others of the same class, in the order in which they were asked for.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, str] = {}
        self.variants: dict[str, list[str]] = {}
        for name in names:
            self._names.setdefault(spelling_key(name), name)

    def of(self, name: str) -> str:
        """The one spelling of the class that `name` names."""
        first = self._names.setdefault(spelling_key(name), name)
        if first != name and name not in self.variants.setdefault(first, []):
            self.variants[first].append(name)
        return first

    def __contains__(self, name: str) -> bool:
        return spelling_key(name) in self._names
