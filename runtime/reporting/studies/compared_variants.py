"""Variants of the same images side by side, as all studies of variants report them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ....engines.errors import RunError
from ...results.comparing.cell_variants import Variants
from ...results.numbers.cell_values import CellValues
from ..figures.study_figures import draw_differences
from ..tables.table import Table
from .material import Material
from .study_outcome import Rows, StudyOutcome
from .variants import Group, difference_rows, value_rows, value_table

MANY: Final = 6
"""With more prompt sets, a table with columns for each of them is wider than a page: their values stand in the CSV."""


@dataclass
class ComparedVariants:
    """Variants side by side: their values as rows and tables, and what could not be compared."""

    materials: Sequence[Material]
    remarks: list[str]
    groups: list[Group] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def stamps(self) -> tuple[str, ...]:
        """The warnings about the numbers of all runs, each once."""
        return tuple(dict.fromkeys(line for material in self.materials for line in material.stamps))

    def add(self, group: Variants, cells: Sequence[CellValues], division: str, words: str) -> None:
        """Adds the values of a group by class or stratum; words: what its table shows."""
        rows = value_rows(group, cells, division)
        self.groups.append((group, cells, division))
        self.values += rows
        if len(group.labels) > MANY:
            return
        self.tables.append(value_table(group, rows, division, f"{group.key} on {group.title}: {words}", self.stamps))

    def differences(self, lacks: str) -> list[dict[str, Any]]:
        """Paired differences from the first variant. Raises RunError, which says what the run `lacks`, without any
        group."""
        if not self.groups:
            raise RunError(f"{lacks}{' ' + self.remarks[0] if self.remarks else ''}")
        return difference_rows(self.groups)

    def outcome(self, outcome: StudyOutcome, fact: str, figure: tuple[str, str], differences: Rows) -> StudyOutcome:
        """The outcome with what all studies report; figure: name and title; differences: the rows that it draws."""
        pointing = [row for row in differences if row["measure"] == "pointing"]
        sampling = self.materials[0].sampling
        return replace(
            outcome,
            facts=(
                f"runs: {', '.join(str(material.path) for material in self.materials)}",
                fact,
                sampling.fact,
                *(metric.fact for metric in self.materials[0].metrics),
                *(line for material in self.materials for line in material.unfinished),
            ),
            tables=(*outcome.tables, *self.tables),
            settings={**outcome.settings, **sampling.settings},
            remarks=tuple(self.remarks),
        ).with_figures(lambda: draw_differences(*figure, pointing, self.stamps))
