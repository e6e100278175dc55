"""The outcome of an evaluation or a merge: computed, reused, skipped and failed cells, and its messages."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["RunOutcome", "kept_line"]


@dataclass
class RunOutcome:
    """How many cells were computed or reused; those that were skipped or failed, as (model, dataset, sentence).

    unreadable: finished cells of which most could not be read.
    """

    computed: int = 0
    reused: int = 0
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    unreadable: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def finished(self) -> int:
        """Cells that have a result now."""
        return self.computed + self.reused

    @property
    def problems(self) -> list[tuple[str, str, str]]:
        """Cells that failed, and finished ones that are mostly unreadable: such a run does not succeed."""
        return [*self.failed, *self.unreadable]

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
