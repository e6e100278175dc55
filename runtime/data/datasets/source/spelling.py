"""Names that are the same but for their spelling: upper and lower case, blanks, hyphens, underscores, letter forms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..file_rows import Note, fail

_BETWEEN = re.compile(r"[\s_-]+")
_SLASH = re.compile(r" ?/ ?")


def spelling_key(name: str) -> str:
    """The form in which two names of classes are compared: "Pleural_effusion" and "pleural  Effusion" are one class.

    Invisible characters, such as a zero-width space, and blanks around a slash do not count either.
    """
    if not name.isascii():
        name = "".join(mark for mark in unicodedata.normalize("NFKC", name) if unicodedata.category(mark) != "Cf")
    return _SLASH.sub("/", _BETWEEN.sub(" ", name.casefold())).strip()


class Spellings:
    """One spelling for each class: the one in `names`, else the first that was asked for.

    variants: spelling -> the others of the same class, in the order in which they were asked for.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, str] = {}
        self._spellings: dict[str, str] = {}
        self.variants: dict[str, list[str]] = {}
        for name in names:
            self._names.setdefault(spelling_key(name), name)

    def of(self, name: str) -> str:
        """The one spelling of the class that `name` names."""
        if name in self._spellings:
            return self._spellings[name]
        first = self._spellings[name] = self._names.setdefault(spelling_key(name), name)
        if first != name and name not in self.variants.setdefault(first, []):
            self.variants[first].append(name)
        return first

    def __contains__(self, name: str) -> bool:
        return spelling_key(name) in self._names


class FixedClasses:
    """The classes of a dataset that are known before its files are read, in any spelling of a file."""

    def __init__(self, names: Iterable[str], also: Mapping[str, str] | None = None) -> None:
        """also: other names that the files of the release have -> the class, "" for what is no class; not noted."""
        self._names = {name: name for name in names} | dict(also or {})
        self._spellings = {spelling_key(name): finding for name, finding in self._names.items()}
        self._others: dict[str, tuple[str, int | None, int]] = {}

    def find(self, name: str, row: int | None) -> str | None:
        """The class that `name` names; None for another name. row: in the file, for the notes."""
        finding = self._names.get(name)
        if finding is not None:
            return finding
        finding = self._spellings.get(spelling_key(name))
        if finding is not None:
            first, count = self._others.get(name, (finding, row, 0))[1:]
            self._others[name] = finding, first, count + 1
        return finding

    def columns(self, header: Iterable[str], file: Path) -> dict[str, str]:
        """Class -> its column in the header of a table. Raises DataError for a class with two columns."""
        columns: dict[str, str] = {}
        for name in header:
            finding = self.find(name, 1)
            if finding and columns.setdefault(finding, name) != name:
                text = f"the columns '{columns[finding]}' and '{name}' are both '{finding}'; delete one of them"
                raise fail(file, 1, text)
        return columns

    def notes(self, file: Path) -> Iterator[Note]:
        """One note for each other spelling that was found in `file` since the last call."""
        for name, (finding, row, count) in self._others.items():
            text = f"'{name}' differs from '{finding}' in spelling alone and is taken for it: {count} times"
            if finding:
                yield Note("spelling", finding, file, row, text)
        self._others.clear()
