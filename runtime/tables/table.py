"""The table model: cells, columns, and a table as every writer takes it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

__all__ = ["BEST", "SECOND", "Cell", "Column", "Item", "Mark", "Table", "cell_of", "plain"]

Mark = Literal["", "best", "second"]
BEST: Final[Mark] = "best"
SECOND: Final[Mark] = "second"


@dataclass(frozen=True)
class Cell:
    """A number with its interval and remarks, all as printed text; a missing part is empty.

    text: the value. interval: its interval. mark: whether it is the best or the second best of its column.
    paper: the value in the paper; difference: value minus that, if it is meaningful.
    note: a few words on this cell. rank: the value it is ranked by in its column, None to leave it out; basis: the data
    behind that value, values of another basis are not comparable.
    """

    text: str
    interval: str = ""
    mark: Mark = ""
    paper: str = ""
    difference: str = ""
    note: str = ""
    rank: float | None = field(default=None, compare=False, repr=False)
    basis: Hashable = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.mark not in get_args(Mark):
            raise ValueError(f"a cell is marked best, second or not at all, got {self.mark!r}")

    @property
    def against_paper(self) -> str:
        """The paper's value and the difference in one short text, empty without a value in the paper."""
        if not self.paper:
            return ""
        return f"paper {self.paper} ({self.difference})" if self.difference else f"paper {self.paper}"

    @property
    def lines(self) -> tuple[str, ...]:
        """All visible parts of the cell, one per line."""
        return tuple(part for part in (self.text, self.interval, self.against_paper, self.note) if part)


Item = str | Cell


def cell_of(item: Item) -> Cell:
    """The item as a cell."""
    return item if isinstance(item, Cell) else Cell(item)


def plain(item: Item) -> str:
    """The value alone."""
    return item.text if isinstance(item, Cell) else item


@dataclass(frozen=True)
class Column:
    """`group` is the heading above neighbours ("RSNA"), empty for the leading columns; `title` the column's own."""

    title: str
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A titled grid of printed items with lines of text above (stamps) and below (notes).

    name: lower-case letters, digits and hyphens, for labels and links. detail: too long for a terminal.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Item, ...], ...]
    stamps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = ""
    detail: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table '{self.title}': a row of {len(row)} cells under {len(self.columns)} columns")

    @property
    def leading(self) -> int:
        """Number of leading columns, repeated when a wide table is split into its groups."""
        return sum(1 for column in self.columns if not column.group)

    @property
    def groups(self) -> list[str]:
        """The headings, in order, without the leading columns."""
        return list(dict.fromkeys(column.group for column in self.columns if column.group))

    def only(self, indices: Sequence[int]) -> Table:
        """The table with these columns alone."""
        columns = tuple(self.columns[index] for index in indices)
        return replace(self, columns=columns, rows=tuple(tuple(row[index] for index in indices) for row in self.rows))

    def parts(self, fits: Callable[[Sequence[int]], bool]) -> Iterator[Table]:
        """The table split at its groups, leading columns repeated, as many groups in a part as `fits` allows.

        A table without groups is one part, and so is a group that is too wide by itself.
        """
        lead = list(range(self.leading))
        taken: list[int] = []
        for group in self.groups:
            members = [index for index, column in enumerate(self.columns) if column.group == group]
            if taken and not fits([*lead, *taken, *members]):
                yield self.only([*lead, *taken])
                taken = []
            taken += members
        yield self.only([*lead, *taken])
