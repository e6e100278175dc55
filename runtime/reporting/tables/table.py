"""The table model: cells, columns, and a table as every writer takes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Literal

from ....engines.visible_text import visible_line
from ....metrics_gpu.statistics.measured_numbers import Measured

Mark = Literal["", "best", "second"]
Intervals = Literal["none", "below", "inline"]
"""Where the interval of a value stands."""

MEAN_OF_DATASETS: Final = "mean of datasets"
"""The group of the columns with means over datasets."""

BEST: Final[Mark] = "best"
SECOND: Final[Mark] = "second"

_BEST: Final = frozenset({"best", "dice_best", "iou_best", "delta_dice"})
_FITTED: Final = frozenset({"cross_fitted", "dice_cross_fitted", "iou_cross_fitted", "delta_cross_fitted"})
_ABOUT: Final[Mapping[str, frozenset[str]]] = {
    "* ": _BEST,
    "cross-fitted": _FITTED,
    "delta Dice:": frozenset({"delta_dice"}),
    "boxes: Dice and IoU": frozenset({"dice_fixed", "iou_fixed"}),
}
"""How a note begins that concerns some numbers alone -> these, of a user's metric by their part."""

_NUMBER: Final = re.compile(r"[+\u2212<-]?\s*\d")


@dataclass(frozen=True)
class Cell:
    """A number with its interval and remarks, all as printed text; a missing part is empty.

    text: the value. interval: its interval. mark: whether it is the best or the second best of its column.
    paper: the value in the paper; difference: value minus that, if it is meaningful.
    note: a few words on this cell. inline: the interval stands beside the value, not below it. number: what is printed;
    None for text.
    """

    text: str
    interval: str = ""
    mark: Mark = ""
    paper: str = ""
    difference: str = ""
    note: str = ""
    inline: bool = field(default=False, compare=False)
    number: Measured | None = field(default=None, compare=False, repr=False)

    @property
    def against_paper(self) -> str:
        """The paper's value and the difference in one short text, empty without a value in the paper."""
        if not self.paper:
            return ""
        return f"paper {self.paper} ({self.difference})" if self.difference else f"paper {self.paper}"

    @property
    def lines(self) -> tuple[str, ...]:
        """All visible parts of the cell, one per line."""
        first = (f"{self.text} {self.interval}",) if self.inline and self.interval else (self.text, self.interval)
        return tuple(part for part in (*first, self.against_paper, self.note) if part)


Item = str | Cell


def cell_of(item: Item) -> Cell:
    """The item as a cell."""
    return item if isinstance(item, Cell) else Cell(item)


def ascii_stem(dataset: str) -> str:
    """A dataset's name in the name of a table: lower case, with a hyphen for all but ASCII letters and digits."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in dataset.lower())


def _marked(note: str) -> str:
    """The title of the column that a note on a marked number of the paper is about, empty for another note."""
    return note.partition(": ")[0].rpartition(", ")[2].removeprefix("\u2020 ") if note.startswith("\u2020 ") else ""


def _visible(item: Item) -> Item:
    if isinstance(item, str):
        return visible_line(item)
    texts = {name: getattr(item, name) for name in ("text", "interval", "paper", "difference", "note")}
    changed: dict[str, Any] = {name: line for name, text in texts.items() if (line := visible_line(text)) != text}
    return replace(item, **changed) if changed else item


@dataclass(frozen=True)
class Column:
    """`group` is the heading above neighbours ("RSNA"), empty for the leading columns; `title` the column's own; `key`
    the number of `METRICS` that it shows, if any."""

    title: str
    group: str = ""
    key: str = ""


@dataclass(frozen=True)
class Table:
    """A titled grid of printed items with lines of text above (stamps) and below (notes).

    notes: what concerns these data: what is left out, and marks. legend: what columns and values mean; a page folds it,
    other writers put it where it does not hide the notes. name: for labels, and of its files. detail: too long for a
    terminal; first: what a terminal shows of a whole report. caption: what it shows, in sentences, for a paper.
    lead: the leading columns, which say what a row is; None: those without a group, or the first of a table without
    groups. turns: what the rows are if rows and columns are exchanged ("class"); empty if it is not to be turned.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Item, ...], ...]
    stamps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    name: str = ""
    detail: bool = False
    first: bool = False
    caption: str = ""
    lead: int | None = None
    turns: str = ""
    legend: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table '{self.title}': a row of {len(row)} cells under {len(self.columns)} columns")
        # Names come from files; no writer of tables needs to think of signs that its reader would obey.
        for name in ("title", "caption"):
            object.__setattr__(self, name, visible_line(getattr(self, name)))
        for name in ("stamps", "notes", "legend"):
            object.__setattr__(self, name, tuple(map(visible_line, getattr(self, name))))
        heads = (replace(c, title=visible_line(c.title), group=visible_line(c.group)) for c in self.columns)
        object.__setattr__(self, "columns", tuple(heads))
        object.__setattr__(self, "rows", tuple(tuple(map(_visible, row)) for row in self.rows))

    @property
    def legend_title(self) -> str:
        """The heading of the legend where it stands apart from the table."""
        return f"How to read {self.title}"

    @property
    def leading(self) -> int:
        """Number of leading columns, repeated in every part of a wide table."""
        if self.lead is not None:
            return self.lead
        return sum(1 for column in self.columns if not column.group) if self.groups else min(1, len(self.columns))

    @property
    def groups(self) -> list[str]:
        """The headings, in order, without the leading columns."""
        return list(dict.fromkeys(column.group for column in self.columns if column.group))

    def is_text(self, index: int) -> bool:
        """Whether most cells of a column are no numbers."""
        texts = [text for row in self.rows if (text := cell_of(row[index]).text.strip()) not in ("", "-", "n/a")]
        return 2 * sum(_NUMBER.match(text) is None for text in texts) > len(texts)

    def width(self, indices: Sequence[int], widths: Sequence[float], gap: float, size: Callable[[str], float]) -> float:
        """The width of these columns with a `gap` between two, and with the headings of their groups, whose widths
        are their `size`. widths: of all columns."""
        total = -gap
        for group, members in groupby(indices, key=lambda index: self.columns[index].group):
            own = [widths[index] for index in members]
            total += max(sum(own) + gap * (len(own) - 1), size(group)) + gap
        return total

    def only(self, indices: Sequence[int]) -> Table:
        """The table with these columns alone, the leading ones before the others."""
        columns = tuple(self.columns[index] for index in indices)
        rows = tuple(tuple(row[index] for index in indices) for row in self.rows)
        return replace(self, columns=columns, rows=rows, lead=sum(index < self.leading for index in indices))

    def parts(self, size: Callable[[Sequence[int]], float], most: float) -> Iterator[Table]:
        """The table split at its groups, or columns, with the leading columns in each part and as many others as have
        together at most this `size`. A group that is too wide by itself is split at its columns."""
        lead = list(range(self.leading))
        taken: list[int] = []
        for block in self._blocks():
            whole = size([*lead, *block]) <= most
            for members in [block] if whole else [[index] for index in block]:
                if taken and size([*lead, *taken, *members]) > most:
                    yield self.only([*lead, *taken])
                    taken = []
                taken += members
        yield self.only([*lead, *taken])

    def chosen(self, keys: Sequence[str]) -> Table:
        """The table with these numbers alone, in this order in each group, and with means over datasets only if "mean"
        is among them. A table that has none of these numbers is left as it is."""
        if not any(column.key in keys for column in self.columns):
            return self
        alone = {column.key for column in self.columns} - {
            column.key for column in self.columns if column.group != MEAN_OF_DATASETS
        }
        kept = list(range(self.leading))
        for block in self._blocks():
            known = [(keys.index(key), i) for i in block if (key := self.columns[i].key) in keys]
            other = [(len(keys), i) for i in block if not self.columns[i].key]
            for _, index in sorted(known) + other:
                column = self.columns[index]
                if column.group != MEAN_OF_DATASETS or "mean" in keys or column.key in alone:
                    kept.append(index)
        table = replace(self.only(kept), lead=self.lead)
        hidden = {column.title for column in self.columns} - {column.title for column in table.columns}
        kept_notes = (note for note in self.notes if table._concerns(note) and _marked(note) not in hidden)
        return replace(table, notes=tuple(kept_notes), legend=tuple(filter(table._concerns, self.legend)))

    def _concerns(self, note: str) -> bool:
        """Whether a note is about a column that is there, or about the whole table."""
        if note.startswith("no mean over datasets"):
            return MEAN_OF_DATASETS in self.groups
        keys = {getattr(column.key, "part", column.key) for column in self.columns}
        return all(keys & about for start, about in _ABOUT.items() if note.startswith(start))

    def of_one_dataset(self) -> Table:
        """The table without means over datasets, which are those of its only dataset; a number that stands nowhere else
        moves to the dataset."""
        (group,) = (group for group in self.groups if group != MEAN_OF_DATASETS)
        own = {column.key for column in self.columns if column.group != MEAN_OF_DATASETS}
        kept = [i for i, each in enumerate(self.columns) if each.group != MEAN_OF_DATASETS or each.key not in own]
        table = self.only(kept)
        columns = (replace(each, group=group) if each.group else each for each in table.columns)
        return replace(table, columns=tuple(columns), lead=self.lead)

    def with_intervals(self, place: Intervals) -> Table:
        """The table with its intervals below or beside their values, or without them and what is said of them."""
        if place == "below":
            return self
        changes: dict[str, Any] = {"interval": "", "note": ""} if place == "none" else {"inline": True}
        rows = tuple(
            tuple(replace(item, **changes) if isinstance(item, Cell) and item.interval else item for item in row)
            for row in self.rows
        )
        caption = self.caption if place == "inline" else re.sub(r" Brackets: [^.]*\.", "", self.caption)
        texts: dict[str, Any] = {
            name: tuple(line for line in lines if place == "inline" or not line.startswith("[low, high]"))
            for name, lines in (("notes", self.notes), ("legend", self.legend))
        }
        return replace(self, rows=rows, caption=caption, **texts)

    def turned(self) -> Table:
        """Rows and columns exchanged: a row for each column after the leading ones, by its group and its title."""
        start = self.leading
        rows: list[tuple[Item, ...]] = []
        for block in self._blocks():
            for index in block:
                column = self.columns[index]
                group = column.group if index == block[0] else ""
                names = (group, column.title) if self.groups else (column.title,)
                rows.append((*names, *(row[index] for row in self.rows)))
        titles = (self.turns, "number") if self.groups else (self.turns,)
        heads = [", ".join(text for item in row[:start] for text in cell_of(item).lines) for row in self.rows]
        return replace(
            self, columns=tuple(map(Column, (*titles, *heads))), rows=tuple(rows), lead=len(titles), turns=""
        )

    def _blocks(self) -> Iterator[list[int]]:
        """The columns after the leading ones: those of a group together."""
        start = self.leading
        for group, found in groupby(range(start, len(self.columns)), key=lambda index: self.columns[index].group):
            members = list(found)
            yield from [members] if group else ([index] for index in members)
