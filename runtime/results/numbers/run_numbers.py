"""Computes all numbers of a run, which reports then lay out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ConfigError
from ....metrics_gpu.grounding.best_thresholds import model_levels
from ....metrics_gpu.recognition.scores import FEW_STEPS
from ....metrics_gpu.statistics.bootstrap import micro_mean
from ....metrics_gpu.statistics.intervals import percentile_interval
from ....metrics_gpu.statistics.measured_numbers import Measured
from ...host.machine_record import usable_cores
from ..choices import DEFAULTS, Choices
from ..comparability import Basis, find_basis, other_protocols, protocols_in
from ..image_identity import on_agreed_images
from ..load_rows import StoredRun
from ..own_metrics import check_names
from ..selected_pairs import Patients, ScoredPairs, dataset_patients, scored_pairs, why_left_out
from .cell_values import CellValues, cell_values
from .fields import FIELDS, RECOGNITION

Key = tuple[str, str]
"""Model and dataset."""

_BESIDE: Final = {
    "dice_best": "floor_dice",
    "iou_best": "floor_iou",
    "delta_dice": "dice_fixed",
    "dice_cross_fitted": "floor_dice",
    "iou_cross_fitted": "floor_iou",
    "delta_cross_fitted": "dice_fixed",
}
"""A number that some datasets with pairs cannot define -> one beside it that all of them define."""


@dataclass(frozen=True)
class Results:
    """Everything a report shows: models and datasets in order, finished cells, and why others have no result.

    left_out: why a finished cell has no numbers under the choices; it is in `unfinished` too. skipped: why cells
    were not begun; they are in `unfinished` too, and have no row or column of their own. bases: the keys of the
    data behind the numbers; levels: the one threshold of each model, if requested; patients: those of each dataset,
    with their draws. protocol, protocols: that of this block and those of all blocks (`split_by_protocol`), empty
    if the run has only one. cut: a sentence for each baseline that is cut to the pairs of the models. conflicts: a
    sentence for each dataset whose images are not the same for all models. whole: the cells of all blocks.
    """

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    cells: Mapping[tuple[str, str], CellValues]
    unfinished: Mapping[tuple[str, str], str]
    choices: Choices = DEFAULTS
    left_out: Mapping[tuple[str, str], str] = field(default_factory=dict)
    skipped: Mapping[tuple[str, str], str] = field(default_factory=dict)
    bases: Mapping[tuple[str, str], Basis] = field(default_factory=dict, repr=False, compare=False)
    levels: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict, repr=False, compare=False)
    patients: Mapping[str, Patients] = field(default_factory=dict, repr=False, compare=False)
    protocol: str = ""
    protocols: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    whole: Mapping[tuple[str, str], CellValues] = field(default_factory=dict, repr=False, compare=False)

    def titled(self, title: str) -> str:
        """The title of a table or figure, with the block's protocol."""
        return f"{title}, protocol {self.protocol}" if self.protocol else title

    def named(self, name: str) -> str:
        """The name of a table or file; in all blocks but the first it ends in the protocol."""
        return f"{name}-{self.protocol}" if self.protocol in self.protocols[1:] else name

    @property
    def apart(self) -> tuple[str, ...]:
        """A sentence on the other blocks, if there are any."""
        return other_protocols(self.protocol, self.protocols) if self.protocol else ()

    @property
    def everyone(self) -> tuple[str, ...]:
        """The models, and the baselines that tables do not show because they rest on other pairs."""
        return tuple(dict.fromkeys([*self.models, *(model for model, _ in self.left_out)]))

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

    def number(self, model: str, dataset: str, field: str, name: str = "") -> Measured:
        """A number of a cell (`numbers.FIELDS`), of a class or of the dataset; empty if there is no such cell. Without
        a dataset, the mean over datasets (docs/metrics.md §8), empty if the model lacks one (`lacking`).

        Numbers of equal `basis` have the same protocol and the same pairs, or labels. Models are ranked, baselines and
        controls are not.
        """
        if not dataset:
            return self._mean(model, field)
        cell = self.cells.get((model, dataset))
        if cell is None:
            return Measured()
        ranked = any(cell.ranked for cell in self.row(model))
        return replace(cell.number(field, name), basis=self._basis(cell, field, name), ranked=ranked)

    def _mean(self, model: str, field: str) -> Measured:
        """The mean over datasets, unweighted, or weighted by pairs (recognition: by images) if the choices say so.

        Its interval combines the replicates of the datasets, which are drawn independently: of those that are defined;
        none if a dataset has too few patients for that.
        """
        row = self.row(model)
        used = [(cell, number) for cell in row if (number := cell.number(field)).value is not None]
        pairs = sum(number.n for _, number in used)
        if not used or self.lacking(model, field):
            return Measured(n=pairs)
        weights = [self.weight(cell, field) for cell, _ in used]
        mean = Measured(
            micro_mean([number.value for _, number in used], weights),
            n=pairs,
            basis=tuple((cell.dataset, self._basis(cell, field)) for cell, _ in used),
            ranked=any(cell.ranked for cell in row),
        )
        columns = [number.drawn for _, number in used if number.drawn is not None]
        if len(columns) < len(used):
            return mean
        stack, weight = np.stack(columns), np.array(weights, np.float64)[:, None]
        defined = ~np.isnan(stack)
        with np.errstate(invalid="ignore", divide="ignore"):
            total = np.where(defined, stack * weight, 0.0).sum(axis=0)
            drawn: NDArray[np.float64] = total / (defined * weight).sum(axis=0)
        safe = mean.value is not None and all(n.interval and n.interval.method != "t" for _, n in used)
        return replace(mean, interval=percentile_interval(drawn) if safe else None, drawn=drawn)

    def _basis(self, cell: CellValues, field: str, name: str = "") -> Hashable:
        basis = self.bases.get((cell.model, cell.dataset), Basis())
        return basis.protocol, (basis.labels if field in RECOGNITION else basis.pairs).get(name)

    def lacking(self, model: str, field: str) -> str:
        """Why a model has no mean over datasets, "1 of 2 datasets": it lacks one where a model of the run has the
        number, or has the all-ones value beside a best threshold's. Empty if it has a mean, or the number nowhere."""
        defined = {cell.dataset for cell in self.row(model) if cell.number(field).value is not None}
        needed = self._needed[field]
        return f"{len(defined)} of {len(needed | defined)} datasets" if defined and needed - defined else ""

    @cached_property
    def _needed(self) -> Mapping[str, set[str]]:
        """Field -> the datasets that its mean must have; of the cells of all blocks."""
        needed = {}
        for key in (*FIELDS, *self.choices.own):
            searched = getattr(key, "part", "") in ("best", "cross_fitted")  # of a user's metric
            names = {key, _BESIDE.get(key, "floor_dice" if searched else key)}
            cells = [
                cell
                for cell in (self.whole or self.cells).values()
                if any(cell.number(name).value is not None for name in names)
            ]
            needed[key] = {cell.dataset for cell in cells if cell.competes} or {cell.dataset for cell in cells}
        return needed

    def weight(self, cell: CellValues, field: str) -> int:
        """The weight of a dataset in a mean over datasets."""
        if self.choices.mean_datasets == "macro":
            return 1
        return cell.cases - cell.lost if field in RECOGNITION else cell.n


def make_results(
    run: StoredRun, choices: Choices = DEFAULTS, advance: Callable[[int], None] = lambda count: None
) -> Results:
    """All numbers of a run. advance: called with the number of cells whose numbers were computed since the last call.

    Raises RunError when a result file cannot be read or lacks the maps that `choices` ask for, ConfigError for choices
    that do not fit the run.
    """
    check_names(choices.metrics, FIELDS)
    stored, conflicts = on_agreed_images([*run.cells()])
    rows = {(cell.model, cell.dataset): cell for cell in stored}
    left_out = {key: reason for key, cell in rows.items() if (reason := why_left_out(cell, choices))}
    rows = {key: cell for key, cell in rows.items() if key not in left_out}
    pairs = {key: scored_pairs(run, cell, choices) for key, cell in rows.items()}
    with ThreadPoolExecutor(usable_cores()) as pool:  # hashing releases the interpreter lock
        bases = dict(zip(rows, pool.map(find_basis, rows.values(), pairs.values()), strict=True))
    cut: Sequence[str] = ()
    apart: set[str] = set()
    if any(cell.entry["weights"] == "baseline" for cell in rows.values()):
        from .reference_rows import rest_on_models

        references = rest_on_models(rows, pairs, bases)
        left_out |= references.left_out
        rows = {key: cell for key, cell in rows.items() if key not in left_out}
        pairs, bases, cut = {key: references.pairs[key] for key in rows}, references.bases, references.notes
        apart = {model for model, _ in references.left_out} - {model for model, _ in rows}
    patients = {}
    for dataset in run.datasets:
        column = [cell for (_, name), cell in rows.items() if name == dataset]
        patients[dataset] = dataset_patients(dataset, column, choices.replicates, choices.seed)
    levels = {model: _levels(pairs, model) for model in run.models}
    if sum(cell.labels.size for cell in rows.values()) * (1 + choices.replicates) > FEW_STEPS:
        from ....metrics_gpu.recognition import walk  # compiled or loaded once, before the threads use it

        del walk
    # The walks and matrix products release the interpreter lock.
    with ThreadPoolExecutor(usable_cores()) as pool:
        made = {
            (model, dataset): pool.submit(
                cell_values, cell, pairs[model, dataset], patients[dataset], choices, levels[model], run.reader(dataset)
            )
            for (model, dataset), cell in rows.items()
        }
        cells = {}
        for key, future in made.items():
            cells[key] = future.result()
            advance(1)
    return Results(
        models=tuple(model for model in run.models if model not in apart),
        datasets=tuple(run.datasets),
        cells=cells,
        unfinished={**run.unfinished, **left_out},
        skipped=run.skipped,
        choices=choices,
        left_out=left_out,
        bases=bases,
        cut=tuple(cut),
        conflicts=conflicts,
        levels=levels,
        patients=patients,
    )


def _levels(pairs: Mapping[Key, ScoredPairs], model: str) -> tuple[int, ...] | None:
    """The one threshold of a model, if requested.

    Raises ConfigError when its datasets were evaluated in ways that do not allow a common threshold.
    """
    of_model = [scored for (name, _), scored in pairs.items() if name == model]
    if not of_model or of_model[0].options.unit != "per_model":
        return None
    searches = {(scored.protocol.sweeping, scored.options.tau_from) for scored in of_model}
    if len(searches) > 1:
        names = " and ".join(dict.fromkeys(scored.protocol.name for scored in of_model))
        raise ConfigError(
            f"--best per_model searches for one threshold for all datasets of {model}, but they were evaluated by the "
            f"protocols {names}; name one with --protocol, or choose another --best."
        )
    own = [[scored.own[name] for scored in of_model] for name in of_model[0].swept]
    counted = [(scored.counts, scored.class_of) for scored in of_model]
    return model_levels(counted, of_model[0].options, own) or (0, 0, *[0] * len(own))


def split_by_protocol(results: Results) -> tuple[Results, ...]:
    """The results of each protocol that a finished cell was scored by; the given ones if there is only one.

    A model or dataset without any finished cell belongs to the first block.
    """
    names = protocols_in(cell.protocol for cell in results.finished)
    return tuple(_block(results, name, names) for name in names) if len(names) > 1 else (results,)


def _block(results: Results, name: str, names: tuple[str, ...]) -> Results:
    cells = {key: cell for key, cell in results.cells.items() if cell.protocol == name}
    elsewhere = {key: cell.protocol for key, cell in results.cells.items() if key not in cells}
    reasons = {key: f"evaluated by protocol {other}, which has a table of its own" for key, other in elsewhere.items()}
    first = name == names[0]

    def shown(part: int, shown_name: str) -> bool:
        if any(key[part] == shown_name for key in cells):
            return True
        return first and not any(key[part] == shown_name for key in elsewhere)

    return replace(
        results,
        models=tuple(model for model in results.models if shown(0, model)),
        datasets=tuple(dataset for dataset in results.datasets if shown(1, dataset)),
        cells=cells,
        unfinished={**results.unfinished, **reasons},
        protocol=name,
        protocols=names,
        whole=results.cells,
    )
