"""Everything a report shows, before it is laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .stamps import stamps
from .values import CellValues, mean_of_datasets

__all__ = ["Results"]


@dataclass(frozen=True)
class Results:
    """Everything a report shows: models and datasets in order, finished cells, and why others have no result."""

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    cells: Mapping[tuple[str, str], CellValues]
    unfinished: Mapping[tuple[str, str], str]

    @property
    def finished(self) -> list[CellValues]:
        """All finished cells, model by model."""
        return [cell for model in self.models for cell in self.row(model)]

    def row(self, model: str) -> list[CellValues]:
        """The finished cells of a model."""
        return [self.cells[model, dataset] for dataset in self.datasets if (model, dataset) in self.cells]

    def column(self, dataset: str) -> list[CellValues]:
        """The finished cells of a dataset."""
        return [self.cells[model, dataset] for model in self.models if (model, dataset) in self.cells]

    def title(self, dataset: str) -> str:
        """The dataset's printed name."""
        return next((cell.title for cell in self.column(dataset)), dataset)

    def stamps(self, cells: Sequence[CellValues]) -> tuple[str, ...]:
        """The lines that belong above a table of `cells`."""
        limits = {cell.title: cell.limit for cell in cells if cell.limit is not None}
        short = tuple(f"{title}: only the first {limit} cases were evaluated" for title, limit in limits.items())
        holes = {
            f"{cell.title}: {cell.lost} of {cell.cases} images are missing or unreadable and not counted"
            for cell in cells
            if cell.lost
        }
        return stamps((cell.model, cell.weights) for cell in cells) + short + tuple(sorted(holes))

    def mean(self, model: str) -> tuple[dict[str, float | None], int]:
        """A model's unweighted mean over its datasets that have pairs, and how many datasets that is."""
        cells = self.row(model)
        return mean_of_datasets(cells), sum(1 for cell in cells if cell.n)
