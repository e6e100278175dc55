"""Which values or colours of a mask are which class (docs/formats.md §9.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ConfigError
from ..file_rows import fail, number
from ..source.csv_files import read_csv
from ..source.documents import read_text

_NAMES = ("label", "class", "name")


class MaskValues:
    """Class -> number, a value or a colour as 256 * (256 * red + green) + blue."""

    def __init__(self, classes: Mapping[str, int], *, colours: bool) -> None:
        self.classes, self.colours = dict(classes), colours

    def split(self, values: NDArray[Any]) -> tuple[dict[str, NDArray[np.bool_]], list[str]]:
        """The mask of each class that occurs in `values` [H, W], and the other values but 0, as text."""
        present = np.unique(values).tolist()
        masks = {name: values == value for name, value in self.classes.items() if value in present}
        rest = [value for value in present if value and value not in self.classes.values()]
        return masks, [f"#{value:06x}" if self.colours else f"{value:g}" for value in rest]

    def note_text(self, values: NDArray[Any], rest: list[str]) -> str:
        """The text of a note about the values of `split` that are of no class."""
        listed = f"values without a class, which are not used: {', '.join(rest[:5])}"
        if len(rest) <= 5:
            return listed
        pixels = int((values > 0).sum()) - sum(int((values == value).sum()) for value in self.classes.values() if value)
        return f"{listed} ... ({len(rest)} values of {pixels} pixels, as after an interpolation)"


def read_values(
    given: object, root: Path, refuse: Callable[[str], ConfigError]
) -> tuple[MaskValues | None, Path | None]:
    """The option `values`: a table {class = value}, or a file; and that file. Raises ConfigError or DataError.

    refuse: makes the error of the option from the rest of its sentence.
    """
    if given is None:
        return None, None
    if isinstance(given, dict):
        table = {str(name).strip(): _from_option(value) for name, value in given.items()}
        kinds = {isinstance(value, tuple) for value in table.values()}
        if None in table.values() or len(kinds) != 1 or "" in table:
            raise refuse(
                "must be a table of classes with all numbers or all colours, such as {Mass = 1, Nodule = 2} or "
                '{Mass = "#ff0000"}'
            )
        return MaskValues({name: _code(value) for name, value in table.items()}, colours=True in kinds), None
    if not isinstance(given, str | Path) or not str(given):
        raise refuse(f"must be a table of classes, or the name of a .txt or .csv file, not {given!r}")
    file = root / given
    if file.suffix.lower() != ".csv":
        lines = enumerate(read_text(file).split("\n"))
        return MaskValues({line.strip(): value for value, line in lines if line.strip()}, colours=False), file
    entries = dict(_from_csv(file))
    if not entries:
        raise fail(file, None, "it names no class")
    colours = isinstance(next(iter(entries.values())), tuple)
    return MaskValues({name: _code(value) for name, value in entries.items()}, colours=colours), file


def _from_option(value: object) -> int | tuple[int, ...] | None:
    """A number, a colour, or None for something else."""
    if isinstance(value, str) and len(value) == 7 and value[0] == "#":
        try:
            return tuple(bytes.fromhex(value[1:]))
        except ValueError:
            return None
    if isinstance(value, list) and len(value) == 3 and all(_is_byte(item) for item in value):
        return tuple(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_byte(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255


def _code(value: int | tuple[int, ...] | None) -> int:
    return int.from_bytes(bytes(value), "big") if isinstance(value, tuple) else int(value or 0)


def _from_csv(file: Path) -> Iterator[tuple[str, int | tuple[int, ...]]]:
    """Columns label, class or name, and either r, g, b or value."""
    seen: set[str] = set()
    for row, cells in read_csv(file, ()):
        columns = {name.lower(): cell for name, cell in cells.items()}
        name = next((columns[key] for key in _NAMES if key in columns), "")
        keys = ("r", "g", "b") if "r" in columns else ("value",)
        if not name or any(key not in columns for key in keys):
            raise fail(file, row, "it needs the columns label (or class, or name), and either r, g, b or value")
        if name in seen:
            raise fail(file, row, f"the class '{name}' was listed before")
        seen.add(name)
        values = [number(columns[key], file, row, key) for key in keys]
        if any(value != int(value) or value < 0 or (len(keys) == 3 and value > 255) for value in values):
            raise fail(file, row, f"{', '.join(keys)} of '{name}' are not whole numbers from 0 on (a colour: to 255)")
        yield name, tuple(map(int, values)) if len(keys) == 3 else int(values[0])
