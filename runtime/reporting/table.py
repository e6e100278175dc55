"""What a table is before anyone draws it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Column", "Table"]


@dataclass(frozen=True)
class Column:
    """`group` is the heading above neighbours ("RSNA"), empty for the leading columns; `title` the column's own."""

    title: str
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A titled grid of printed cells with lines of text above (stamps) and below (notes)."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    stamps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table '{self.title}': a row of {len(row)} cells under {len(self.columns)} columns")

    @property
    def leading(self) -> int:
        """Number of leading columns, repeated when a wide table is broken into its groups."""
        return sum(1 for column in self.columns if not column.group)

    @property
    def groups(self) -> list[str]:
        """The headings, in order, without the leading columns."""
        return list(dict.fromkeys(column.group for column in self.columns if column.group))
