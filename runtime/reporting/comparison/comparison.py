"""Two runs compared: all their cells, means over datasets, and the correction for the number of tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....engines.errors import RunError
from ....metrics_gpu.statistics.multiple_tests import corrected
from ...results.choices import Choices
from ...results.comparing.align import align
from ...results.comparing.cell_changes import COMPARED, CellChanges, cell_changes
from ...results.comparing.cell_pairs import Lone, Match, match_cells
from ...results.comparing.difference import Difference, averaged
from ...results.load_rows import StoredRun
from ...results.numbers.fields import FIELDS
from ...results.own_metrics import OwnMetric, check_names
from ...results.selected_pairs import Resampling, unnamed_lines
from ..tables.stamps import entry_stamp, stamps, uncertain_stamps
from ..word_ceilings import ceiling_notes


@dataclass(frozen=True)
class ModelChanges:
    """Changes of a model's means over its compared datasets of one protocol; `n` of each is their number."""

    models: str
    protocol: str
    whole: tuple[Difference, ...]


@dataclass(frozen=True)
class Comparison:
    """What changed from run A to run B, both as their run.json describes them: `a`, `b`.

    cells: those compared, in the runs' order. models: means over datasets, of models with more than one. alone:
    finished cells without a counterpart. stamps: warnings about the numbers. metrics: of the user, compared too.
    limits: what answers in words can reach.
    """

    a: dict[str, Any]
    b: dict[str, Any]
    cells: tuple[CellChanges, ...]
    models: tuple[ModelChanges, ...]
    alone: tuple[Lone, ...]
    resampling: Resampling
    stamps: tuple[str, ...]
    metrics: tuple[OwnMetric, ...] = ()
    limits: tuple[str, ...] = ()

    @property
    def missing_rows(self) -> int:
        """Rows, pairs and whole cells' rows that only one run has."""
        return sum(c.only_a.total + c.only_b.total for c in self.cells) + sum(lone.rows for lone in self.alone)


def compare_runs(
    a: StoredRun,
    b: StoredRun,
    models: tuple[str, str] | None = None,
    datasets: Collection[str] = (),
    resampling: Resampling | None = None,
    metrics: tuple[OwnMetric, ...] = (),
) -> Comparison:
    """Compares run A with run B, cell by cell, one pair of cells in memory at a time.

    models: (of A, of B), to compare two models with different names; datasets: only these; metrics: of the user.
    Raises RunError when nothing can be compared, protocols differ, or a result file cannot be read, and ConfigError for
    a metric that cannot be used.
    """
    check_names(metrics, FIELDS)
    resampling = resampling or Resampling()
    matches = match_cells(a, b, models, datasets)
    choices = Choices(replicates=resampling.replicates, seed=resampling.seed, metrics=metrics)
    cells, told, limits = [], [], list[str]()
    for match in matches.pairs:
        both = align(a, b, match, choices)
        cells.append(cell_changes(both, choices, resampling.level))
        for run, rows in zip((a, b), both.whole, strict=True):
            limits += ceiling_notes(run, [rows])
        sides = ((a, match.model_a), (b, match.model_b))
        first, second = (run.entry(model, match.dataset) for run, model in sides)
        told.append((match, first, second))
    if not any(cell.images for cell in cells):
        files, patients = (sum(len(getattr(cell, f"other_{what}")) for cell in cells) for what in ("files", "patients"))
        counts = f" (other image files: {files}, other patients: {patients})" if files or patients else ""
        raise RunError(
            f"{a.path} and {b.path} have no case in common in any cell: they were made from other images, or other "
            f"names of them{counts}."
        )
    corrected = _corrected(cells)
    return Comparison(
        a=_facts(a),
        b=_facts(b),
        cells=tuple(corrected),
        models=tuple(_means(corrected, (*COMPARED, *choices.own), resampling.level)),
        alone=matches.alone,
        resampling=resampling,
        stamps=(
            *stamps(entry_stamp(entry) for _, *both in told for entry in both),
            *uncertain_stamps(
                (entry["title"], entry["model"], entry.get("uncertain", {})) for _, *both in told for entry in both
            ),
            *_other_precisions(told),
            *unnamed_lines((cell.title, cell.unnamed) for cell in cells),
        ),
        metrics=metrics,
        limits=tuple(dict.fromkeys(limits)),
    )


def _facts(run: StoredRun) -> dict[str, Any]:
    return {
        "path": str(run.path),
        **{key: run.data.get(key) for key in ("code_version", "created", "updated", "machine")},
    }


def _other_precisions(told: Sequence[tuple[Match, Mapping[str, Any], Mapping[str, Any]]]) -> Iterator[str]:
    """Cells of one model's name in two precisions; told: their entries in run.json."""
    for match, *both in told:
        one, two = (str(entry["ingredients"]["engine"]).rpartition(" ")[2] for entry in both)
        if one != two and match.model_a == match.model_b:
            yield f"{match.models} on {match.dataset}: computed in {one} in A and in {two} in B"


def _corrected(cells: Sequence[CellChanges]) -> list[CellChanges]:
    """Holm's correction: one family per metric over the cells' means, and one per metric over all classes."""
    changes = [change for cell in cells for change in cell.whole], [change for cell in cells for change in cell.classes]
    whole, classes = (iter(corrected(items, [change.field for change in items])) for items in changes)
    return [
        replace(
            cell,
            whole=tuple(next(whole) for _ in cell.whole),
            classes=tuple(next(classes) for _ in cell.classes),
        )
        for cell in cells
    ]


def _means(cells: Sequence[CellChanges], compared: Sequence[str], level: float) -> list[ModelChanges]:
    """Unweighted means over datasets, whose patients are drawn independently; of models with more than one dataset of
    a protocol."""
    models: dict[tuple[str, str], list[CellChanges]] = {}
    for cell in cells:
        models.setdefault((cell.match.models, cell.protocol), []).append(cell)
    means = []
    for key, of_model in models.items():
        changes = [change for cell in of_model for change in cell.whole] if len(of_model) > 1 else []
        fields = ([change for change in changes if change.field == metric] for metric in compared)
        whole = tuple(averaged(found, [1.0] * len(found), level, n=len(found)) for found in fields if found)
        means += [ModelChanges(*key, whole)] if whole else []
    return means
