"""One description of a study's columns: the key of a row, the heading in a table, and how the value is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ....metrics_gpu.statistics.measured_numbers import Measured
from ..tables.metric_names import METRICS, NONE, heading, p_value
from ..tables.table import Cell, Column, Item, Table
from .writing import between, limits, metric_cell, number_cell, percent_cell, share_cell

Row = Mapping[str, Any]
Note = Callable[[Row], str]

_METHODS: Final = {"wilson": "Wilson", "newcombe": "Newcombe"}
"""Methods of an interval that its cell names; the notes of a table say what the other intervals are."""


@dataclass(frozen=True)
class Shown:
    """A column of a table: its heading, what it shows of a row, and the heading of its group."""

    title: str
    item: Callable[[Row], Item]
    group: str = ""


@dataclass(frozen=True)
class StudyTable:
    """A table of a study without its rows. name, lead: as of `Table`."""

    title: str
    name: str
    columns: tuple[Shown, ...]
    notes: tuple[str, ...] = ()
    lead: int | None = None

    def table(self, rows: Iterable[Row], stamps: tuple[str, ...], titles: Mapping[str, str] | None = None) -> Table:
        """The table of these rows; titles: printed names of datasets."""
        titled = [
            {**row, "dataset": titles.get(row["dataset"], row["dataset"])} if titles and "dataset" in row else row
            for row in rows
        ]
        body = tuple(tuple(column.item(row) for column in self.columns) for row in titled)
        heads = tuple(Column(column.title, column.group) for column in self.columns)
        return Table(self.title, heads, body, stamps, self.notes, self.name, lead=self.lead)


def measured(name: str, number: Measured, *, method: bool = False) -> dict[str, Any]:
    """The columns of a number in a row: its value, the ends of its interval, and the interval's `method`."""
    kept = {f"{name}_interval": number.interval.method if number.interval else None} if method else {}
    return {name: number.value, **limits(name, number.interval), **kept}


def text(key: str, title: str | None = None, group: str = "") -> Shown:
    """A value as it is, "-" for None and for an empty text; headed by its key if no title is given."""
    return Shown(key if title is None else title, lambda row: NONE if row[key] in (None, "") else str(row[key]), group)


def texts(*keys: str) -> tuple[Shown, ...]:
    """Values as they are, headed by their keys."""
    return tuple(map(text, keys))


def metric(key: str, title: str = "", group: str = "", *, of: str = "", note: Note | None = None) -> Shown:
    """A value of the metric `of`, or of the metric `key`, with its interval and notes on it."""
    printed = of or key
    return Shown(
        title or heading(printed, True),
        lambda row: _noted(row, key, metric_cell(printed, *_known(row, key)), note),
        group,
    )


def of_measure(key: str, title: str, group: str = "") -> Shown:
    """A value of the metric that the row names as its `measure`; another measure is a fraction, printed in percent."""

    def item(row: Row) -> Cell:
        name = row["measure"]
        return _noted(row, key, metric_cell(name, *_known(row, key)) if name in METRICS else _percent(row, key))

    return Shown(title, item, group)


def percents(key: str, title: str | None = None, group: str = "") -> Shown:
    """A fraction in percent with its interval."""
    return Shown(key if title is None else title, lambda row: _noted(row, key, _percent(row, key)), group)


def shares(key: str, title: str, group: str = "") -> Shown:
    """A fraction in whole percent with its interval."""
    return Shown(title, lambda row: share_cell(*_known(row, key)), group)


def numbers(key: str, title: str | None = None, group: str = "", *, decimals: int = 2) -> Shown:
    """A plain number with its interval."""
    return Shown(key if title is None else title, lambda row: number_cell(*_known(row, key), decimals=decimals), group)


def limits_of(key: str, title: str) -> Shown:
    """The ends of the interval of a plain number in words."""

    def item(row: Row) -> str:
        ends = between(row, key)
        return NONE if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"

    return Shown(title, item)


def p_values(key: str, title: str = "p", group: str = "", *, bound: str = "") -> Shown:
    """A p value; bound: the key that says whether the true value is below it."""
    return Shown(title, lambda row: p_value(row[key], bool(bound and row[bound])), group)


def _known(row: Row, key: str) -> tuple[float | None, tuple[float, float] | None]:
    return row[key], between(row, key)


def _percent(row: Row, key: str) -> Cell:
    return percent_cell(*_known(row, key))


def _noted(row: Row, key: str, cell: Cell, note: Note | None = None) -> Cell:
    """The cell with the method of its interval, where readers must know it, and the words of `note`."""
    words = (_METHODS.get(row.get(f"{key}_interval") or "", ""), note(row) if note else "")
    return replace(cell, note=", ".join(filter(None, words)))


TESTED: Final = (
    p_values("p", bound="p_bound"),
    p_values("p_holm", "p (Holm)", bound="p_bound"),
    Shown("m", lambda row: str(row["family"]) if row["p"] is not None else NONE),
)
"""The p value of a difference, the corrected one, and the number of tests that it is corrected for."""
