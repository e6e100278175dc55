"""The numbers that the paper prints, and why one's own cannot be compared with them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final

from ....engines.manifest import OFFICIAL_MAP
from ...results.choices import DEFAULTS
from ...results.numbers.cell_values import CellValues
from ..tables.table import Cell

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
    """All printed numbers. Keys: (family, dataset, number of `FIELDS`), (family, dataset, class), (family, dataset),
    family. datasets: the seven of the paper, by the names of their readers."""

    table1: Mapping[tuple[str, str, str], Printed]
    classes: Mapping[tuple[str, str, str], Printed]
    means: Mapping[tuple[str, str], Printed]
    delta_dice: Mapping[str, Printed]
    r2: Printed
    datasets: tuple[str, ...]

    @property
    def families(self) -> tuple[str, ...]:
        """The seven model families, in the paper's order."""
        return tuple(dict.fromkeys(family for family, _, _ in self.table1))


@cache
def paper() -> Paper:
    """The paper's numbers, read once from the package's data."""
    quoted, fields = _printed("quoted.csv", "quantity", "family"), {metric: field for field, metric in FIELDS.items()}
    table_1 = _printed("table1.csv", "family", "dataset", "metric")
    return Paper(
        {(family, dataset, fields[metric]): printed for (family, dataset, metric), printed in table_1.items()},
        _printed("classes.csv", "family", "dataset", "class"),
        _printed("means.csv", "family", "dataset"),
        {family: printed for (quantity, family), printed in quoted.items() if quantity == "delta_dice"},
        quoted["r2", "all"],
        tuple(dict.fromkeys(dataset for _, dataset, _ in table_1)),
    )


def _printed(name: str, *keys: str) -> dict[Any, Printed]:
    """The numbers of a file, by these columns of it."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return {
        tuple(row[key] for key in keys): Printed(
            row["value"], row["flag"], row.get("underlined") == "1", int(row["pairs"]) if row.get("pairs") else None
        )
        for row in csv.DictReader(text.splitlines())
    }


_PROTOCOLS: Final = ("default", "paper")
_OFFICIAL: Final = ("official", "official_secondhand", "official_commented_out")
_FREE: Final = ("protocol", "tau_from", "replicates", "seed", "auprc", "f1", "mean_datasets")
"""Options of a report that leave its numbers comparable with the paper's."""

_PAIRS: Final = {"rsna": 1218, "siim": 647, "covid_rural": 32}
"""Pairs of the datasets of one class (docs/metrics.md §12); of SIIM rows of the list."""


def why_apart(cell: CellValues, name: str = "") -> tuple[str, ...]:
    """Why a number of a cell has no difference to the paper's; empty if it has one.

    name: of a class; empty for the dataset.
    """
    why = []
    if cell.weights != "published":
        why.append(f"as the weights are {cell.weights}")
    else:
        if not cell.weights_source:
            why.append("as nothing says that the weights are the published ones")
        why += _inexact(cell)
    if cell.saliency_map != OFFICIAL_MAP:
        why.append(f"as {cell.saliency_map} is not the authors' saliency map")
    if cell.resized:
        why.append(f"as the pictures have another size than the authors' ({cell.resized})")
    status = {cell.prompt_status.get(each) for each in ([name] if name else cell.names)}
    if None in status:
        why.append("as the run does not say whether its prompts are official")
    elif not status <= set(_OFFICIAL):
        why.append("as not all prompts are official")
    if cell.rows.limit is not None or cell.shard:
        why.append("as only a part of the dataset was evaluated")
    printed = {
        each: number.pairs
        for (family, reader, each), number in paper().classes.items()
        if (family, reader) == (cell.family, cell.reader) and name in ("", each)
    }
    lost = [each for each in printed if not cell.count("pointing", each)]
    if lost:
        why.append(f"as {len(printed) - len(lost)} of the paper's {len(printed)} classes have a region")
    have, wanted = cell.n, _PAIRS.get(cell.reader)
    if printed:
        known = {each: pairs for each, pairs in printed.items() if pairs is not None}
        have, wanted = sum(cell.count("pointing", each) for each in known), sum(known.values())
        if have == wanted and any(cell.count("pointing", each) != pairs for each, pairs in known.items()):
            why.append("as the classes do not have the paper's numbers of pairs")
    if wanted is not None and have != wanted:
        why.append(f"with {have:,} pairs for the paper's {wanted:,}")
    plain = replace(cell.choices, **{option: getattr(DEFAULTS, option) for option in _FREE})
    if cell.protocol not in _PROTOCOLS:
        why.append(f"by protocol {cell.protocol}")
    elif plain != DEFAULTS:
        why.append("with other options of the report")
    return tuple(why)


def _inexact(cell: CellValues) -> Iterator[str]:
    """How a cell was computed otherwise than in float32 from the pixels of the exact decoder, which the paper's numbers
    are compared with; each changes scores and maps by more than the last printed digit."""
    precision, decoder = cell.engine.rpartition(" ")[2], cell.decoder.partition(" ")[0]
    if precision != "fp32":
        yield f"as the model ran in {precision} and not in fp32"
    if not decoder:
        yield "as the run does not say what decoded its images"
    elif decoder != "cpu":
        yield f"as {decoder} decoded the images and not the exact decoder"


def why_mean_apart(cells: Sequence[CellValues]) -> tuple[str, ...]:
    """Why a model's mean over these datasets has no difference to the paper's; empty if it has one."""
    return tuple(dict.fromkeys([*(reason for cell in cells for reason in why_apart(cell)), *_datasets(cells)]))


def paper_legend(rows: Iterable[Sequence[Cell]]) -> tuple[str, ...]:
    """What the paper's numbers in these rows are; nothing if no row shows one."""
    if not any(item.paper for row in rows for item in row):
        return ()
    return (
        "paper: as XBench (arXiv 2510.19599) prints it; the difference to it, in points, is given for published "
        "weights with official prompts, in fp32 and with the exact decoder, on all of the paper's pairs",
    )


def apart_notes(cells: Iterable[CellValues], rows: Iterable[Sequence[Cell]], *, means: bool = False) -> tuple[str, ...]:
    """Why cells of a table have no difference to the paper's numbers, in one line with the cells of the same reasons
    together; nothing if no row shows such a number. means: delta Dice over datasets too."""
    if not paper_legend(rows):
        return ()
    reasons: dict[tuple[str, ...], list[str]] = {}
    models: dict[str, list[CellValues]] = {}
    for cell in cells:
        models.setdefault(cell.model, []).append(cell)
        if any((cell.family, cell.reader) == key[:2] for key in paper().table1) and (why := why_apart(cell)):
            reasons.setdefault(why, []).append(f"{cell.model} on {cell.title}")
    for model, row in models.items():
        printed = any(cell.reader in paper().datasets and cell.family in paper().delta_dice for cell in row)
        if means and printed and (why := tuple(_datasets(row))):
            reasons.setdefault(why, []).append(f"delta Dice of {model}")
    if not reasons:
        return ()
    groups = (", ".join((" and ".join(named), *why)) for why, named in reasons.items())
    return (f"no difference to the paper: {'; '.join(groups)}",)


def _datasets(cells: Sequence[CellValues]) -> Iterator[str]:
    have, wanted = [cell.reader for cell in cells if cell.n], paper().datasets
    if missing := set(wanted).difference(have):
        yield f"over {len(wanted) - len(missing)} of the paper's {len(wanted)} datasets"
    if sorted(have) != sorted(set(wanted).intersection(have)):
        yield "over datasets that the paper's mean does not have"
    if any(cell.choices.mean_datasets != DEFAULTS.mean_datasets for cell in cells):
        yield "as datasets are weighted by their pairs"
