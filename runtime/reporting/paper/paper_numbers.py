"""Reader of the paper's tables. Values are percent as printed; keys are model families and names of readers."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

__all__ = ["FIELDS", "MARK", "NAMES", "PRINTED_MARK", "Paper", "Printed", "PrintedModel", "paper"]

FIELDS: Final = {"pointing": "point", "dice_best": "dice", "iou_best": "iou"}
"""Numbers of a report that the paper also prints -> their names in its Table 1."""

MARK = "\u2020"
PRINTED_MARK: Final = "\u2021"
"""Behind the name of a model whose numbers the paper prints and the run does not have."""

NAMES: Final = {
    "clip": "CLIP",
    "biomedclip": "BiomedCLIP",
    "medklip": "MedKLIP",
    "kad": "KAD",
    "mavl": "MAVL",
    "carzero": "CARZero",
    "devide": "DeViDe",
}
"""Family -> the model's name in the paper."""


@dataclass(frozen=True)
class Printed:
    """A number the paper prints: its digits, and its known problem (empty: none).

    underlined: the paper marks it second best. pairs: the number of pairs that fits its digits, None if unknown.
    """

    digits: str
    flag: str = ""
    underlined: bool = False
    pairs: int | None = None

    @property
    def value(self) -> float:
        """The number, in percent or percentage points."""
        return float(self.digits)

    @property
    def text(self) -> str:
        """The digits, with a dagger if they have a known problem."""
        return f"{self.digits}{MARK}" if self.flag else self.digits


@dataclass(frozen=True)
class PrintedModel:
    """A row of the paper: its family, its printed name, and the number of the run's models above it."""

    family: str
    name: str
    above: int

    @property
    def label(self) -> str:
        """The name with the mark of a printed row."""
        return f"{self.name}{PRINTED_MARK}"


@dataclass(frozen=True)
class Paper:
    """All printed numbers. Keys: (family, dataset, metric), (family, dataset, class), (family, dataset), family."""

    table1: Mapping[tuple[str, str, str], Printed]
    classes: Mapping[tuple[str, str, str], Printed]
    means: Mapping[tuple[str, str], Printed]
    delta_dice: Mapping[str, Printed]
    r2: Printed

    def in_table1(self, family: str, dataset: str, field: str) -> Printed | None:
        """The value in Table 1 for a number of `FIELDS`, None if it has none."""
        return self.table1.get((family, dataset, FIELDS.get(field, "")))

    @staticmethod
    def load() -> Paper:
        """Reads the package's data."""
        quoted = {(row["quantity"], row["family"]): _printed(row) for row in _rows("quoted.csv")}
        return Paper(
            {(row["family"], row["dataset"], row["metric"]): _printed(row) for row in _rows("table1.csv")},
            {(row["family"], row["dataset"], row["class"]): _printed(row) for row in _rows("classes.csv")},
            {(row["family"], row["dataset"]): _printed(row) for row in _rows("means.csv")},
            {family: printed for (quantity, family), printed in quoted.items() if quantity == "delta_dice"},
            quoted["r2", "all"],
        )

    @property
    def families(self) -> tuple[str, ...]:
        """The seven model families, in the paper's order."""
        return tuple(dict.fromkeys(family for family, _, _ in self.table1))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The seven datasets, by the names of their readers."""
        return tuple(dict.fromkeys(dataset for _, dataset, _ in self.table1))


@cache
def paper() -> Paper:
    """The paper's numbers, read once."""
    return Paper.load()


def _printed(row: Mapping[str, str]) -> Printed:
    pairs = row.get("pairs")
    return Printed(row["value"], row["flag"], row.get("underlined") == "1", int(pairs) if pairs else None)


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
