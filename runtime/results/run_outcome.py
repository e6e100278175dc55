"""The outcome of an evaluation or a merge: computed, reused, skipped and failed cells, and its messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..data.datasets.region_boxes import FAULTS

_COUNTS = ("protocol", "cases", "missing", "unreadable", *FAULTS, "computed", "seconds", "findings", "file")


@dataclass
class RunOutcome:
    """How many cells were computed or reused; those that were skipped or failed, as (model, dataset, sentence).

    mostly_lost: finished cells of which most could not be read, or has no answer. finished_cells: (model, dataset) ->
    how it got its result: computed, reused, or merged. misused: how many of the failed ones failed by a ConfigError.
    """

    computed: int = 0
    reused: int = 0
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    mostly_lost: list[tuple[str, str, str]] = field(default_factory=list)
    finished_cells: dict[tuple[str, str], str] = field(default_factory=dict)
    misused: int = 0

    @property
    def finished(self) -> int:
        """Cells that have a result now."""
        return self.computed + self.reused

    @property
    def problems(self) -> list[tuple[str, str, str]]:
        """Cells that failed, and finished ones of which most is lost: such a run does not succeed."""
        return [*self.failed, *self.mostly_lost]

    @property
    def only_misused(self) -> bool:
        """Whether nothing was done, because every cell failed by an option or a value that does not exist."""
        return bool(self.failed) and len(self.failed) == self.misused and not self.finished

    def to_json(self, cells: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Every cell with its state, and with its reason or its counts, rate and warnings; `cells`: of run.json."""
        entries = {(entry["model"], entry["dataset"]): entry for entry in cells.values()}
        mostly = {(model, dataset): sentence for model, dataset, sentence in self.mostly_lost}
        found = []
        for (model, dataset), state in self.finished_cells.items():
            entry = entries[model, dataset]
            rate = entry["computed"] / entry["seconds"] if state == "computed" and entry.get("seconds") else None
            row: dict[str, Any] = {
                "model": model,
                "dataset": dataset,
                "state": state,
                "reason": mostly.get((model, dataset)),
            }
            row |= {key: entry[key] for key in _COUNTS if key in entry}
            not_asked = [name for name in entry["classes"] if name not in entry["findings"]]
            row |= {"cases_per_second": rate, "warnings": entry.get("warnings", {}), "not_asked": not_asked}
            found.append(row)
        for state, given_up in (("skipped", self.skipped), ("failed", self.failed)):
            found += [
                {"model": model, "dataset": dataset, "state": state, "reason": reason}
                for model, dataset, reason in given_up
            ]
        return found

    @property
    def summary(self) -> str:
        """The last line of a run."""
        return (
            f"{self.finished} cell{'' if self.finished == 1 else 's'} finished ({self.reused} of them before), "
            f"{len(self.skipped)} skipped, {len(self.failed)} failed"
        )


def kept_line(model: str, dataset: str) -> str:
    """The line for a cell that was not computed but has a result of an earlier run."""
    return f"{model} on {dataset}: its finished result is kept, and the report shows it"
